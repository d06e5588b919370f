"""`commonpool explain`: what one request waits or waited for, and what one can do about it."""

from collections.abc import Iterator

from commonpool.api import text
from commonpool.api.wire import requests as wire
from commonpool.cli.client import connect, segment
from commonpool.cli.options import CONTROL_URL, Control, Json, RequestId, TokenFile
from commonpool.cli.output import emit
from commonpool.core.explain import WaitPart, duration


def explain(
    request_id: RequestId,
    *,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Explain what a request waits or waited for.

    A tenant's own key is enough for the tenant's own requests.
    """
    path = f"/admin/v1/requests/{segment(request_id, 'REQUEST_ID')}"
    story = connect(control, token_file).get(path, wire.RequestStory)
    if as_json:
        emit(story)
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    for line in lines(story):
        out.print(show.clean(line))


def lines(story: wire.RequestStory) -> Iterator[str]:
    """The story as people read it: every ended attempt in order, then what the request does now."""
    for attempt in story.attempts:
        yield (
            f"attempt {attempt.attempt} of {_what(attempt)}, arrived {text.moment(attempt.arrived_ns)}:"
            f" {attempt.explanation}"
        )
        yield from parts(attempt.waits)
        if attempt.advice:
            yield f"  {attempt.advice}"
        if attempt.replica:
            yield f"  ran {duration(attempt.run_ns)} on {attempt.replica}, the whole took {duration(attempt.total_ns)}"
        yield from loans(attempt)
    if story.live is not None:
        yield f"now, {_what(story.live)}: {story.live.explanation}"
        yield from parts(story.live.waits)


def _what(of: wire.Attempt | wire.LiveRequest) -> str:
    return f"{of.model} for {of.tenant} (app {of.app}, tier {of.tier})"


def loans(attempt: wire.Attempt) -> Iterator[str]:
    """What an ended attempt ran on that was borrowed."""
    for loan in attempt.loans:
        yield (
            f"  on a loan of {text.gpus(loan.milli_gpu)} gpu from {loan.lender or 'the unowned part'} for"
            f" {duration(loan.end_ns - loan.start_ns)}, ended: {loan.reason.value}"
        )


def parts(waits: tuple[WaitPart, ...]) -> Iterator[str]:
    """A wait by cause, each with its advice."""
    for part in waits:
        yield f"  {duration(part.ns):>9}  {part.text} ({part.cause.value})"
        yield f"             {part.advice}"
