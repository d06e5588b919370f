"""`commonpool trace`: one request down to the money."""

from collections.abc import Iterator

from commonpool.api import bill_formats, text
from commonpool.api.wire import bill as wire
from commonpool.cli import explain
from commonpool.cli.client import connect, segment
from commonpool.cli.options import CONTROL_URL, Control, Json, RequestId, TokenFile
from commonpool.cli.output import emit
from commonpool.core.explain import duration

TENANT = "tenant:"
OPEN = "*"


def trace(
    request_id: RequestId,
    *,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show what a request or job used and cost: every attempt, its loans, and its postings by hour.

    A tenant's own key is enough for the tenant's own requests.
    """
    path = f"/admin/v1/requests/{segment(request_id, 'REQUEST_ID')}/postings"
    found = connect(control, token_file).get(path, wire.RequestPostings)
    if as_json:
        emit(found)
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    columns = [
        *(show.Column(title, right=False) for title in ("hour", "what", "who pays whom")),
        *map(show.Column, ("quantity", "price", f"cost {found.currency}")),
    ]
    for each in found.attempts:
        for line in lines(each):
            out.print(show.clean(line))
        if each.postings:
            total = ("its tenant pays", *[""] * 4, text.money(each.cost_micro))
            out.print(show.table(out, columns, [_row(posting) for posting in each.postings], total))
        out.print()
    out.print(show.clean(f"together {text.money(found.cost_micro)} {found.currency}"))
    if not all(posting.booked for each in found.attempts for posting in each.postings):
        out.print(f"{OPEN} the hour is not in the books yet; at today's prices")


def lines(each: wire.AttemptPostings) -> Iterator[str]:
    """An attempt, and what it ran on."""
    record = each.attempt
    what = record.model or record.endpoint
    yield (
        f"attempt {record.attempt} of {what} for {record.tenant} (app {record.app}, tier {record.tier}):"
        f" {record.outcome.value}, arrived {text.moment(record.arrived_ns)}, waited {duration(record.wait_ns)}, ran"
        f" {duration(record.run_ns)} on {text.gpus(record.milli_gpu)} gpu"
    )
    if record.tokens_in or record.tokens_out:
        cached = f" ({record.tokens_cached:,} cached)" if record.tokens_cached else ""
        yield f"  {record.tokens_in:,} tokens in{cached}, {record.tokens_out:,} out"
    yield from explain.loans(record)
    if each.problem:
        yield f"  {each.problem}"


def _row(posting: wire.PostingLine) -> tuple[str, ...]:
    charge = wire.Charge(posting.kind, posting.meter, "", posting.cost_micro, posting.quantity, posting.unit)
    gpu = posting.unit == "gpu_seconds"
    quantity, unit = (_seconds(posting), "gpu s") if gpu else bill_formats.measured(charge)
    return (
        f"{text.moment(posting.hour_ns)[:16]}Z{'' if posting.booked else OPEN}",
        posting.kind if gpu else posting.meter,
        f"{posting.debit.removeprefix(TENANT)} → {posting.credit.removeprefix(TENANT)}",
        f"{quantity} {unit}",
        text.money(posting.price_micro).rstrip("0").rstrip("."),
        text.money(posting.cost_micro),
    )


def _seconds(posting: wire.PostingLine) -> str:
    return text.thousandths(text.rounded_milliseconds([posting.quantity])[0])
