"""`commonpool usage`: who used what, what it costs, and who lent to whom, in tables that add up."""

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer

from commonpool.api import text
from commonpool.api.wire.requests import Records
from commonpool.api.wire.status import OpenLoans
from commonpool.api.wire.usage import LoanTable, UsageTable
from commonpool.cli.client import Client, connect
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit, emit_line
from commonpool.cli.times import Until, between

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

UNOWNED = "(unowned)"


def usage(
    *,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="NAMES",
            help="What makes a row: any of tenant, app, cost_center, model, version, tier, endpoint, outcome, pool,"
            " hour, day, with commas. [default: tenant]",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="WHEN", help="From when: a duration ago (1h, 30d) or a UTC time.")
    ] = "1h",
    until: Until = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="NAME=VALUE", help="Count only these, e.g. tenant=support; may be repeated."),
    ] = None,
    loans: Annotated[bool, typer.Option("--loans", help="Show who lent to whom instead, in GPU seconds.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="With --loans: those that are open now.")] = False,
    records: Annotated[
        bool, typer.Option("--records", help="Print each attempt instead, one JSON line a record, for other programs.")
    ] = False,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show the use and the cost of a period.

    A request belongs to the time at which it arrived, in UTC.
    """
    query = between(since, until)
    client = connect(control, token_file)
    if loans or records:
        if by is not None or (loans and records):
            raise CommandError(
                "--loans and --records have no groups; give one of them, and leave --by out", ExitCode.USAGE
            )
        only = filters(where or [])
        if loans and open_:
            _show_open(client, only, as_json=as_json)
            return
        query |= only
        if records:
            _print_records(client, query)
        else:
            _show_loans(client, query, as_json=as_json)
        return
    query |= {"by": by or "tenant", **filters(where or [])}
    if as_json:
        emit(client.get("/admin/v1/usage", UsageTable, query))
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    with show.progress("adding up"):
        table = client.get("/admin/v1/usage", UsageTable, query)
    out = show.console()
    out.print(picture(out, table))


def filters(where: list[str]) -> dict[str, list[str]]:
    """`["tenant=a", "tenant=b"]` as query parameters."""
    wanted: dict[str, list[str]] = {}
    for written in where:
        name, equals, value = written.partition("=")
        if not equals or not name.strip() or name.strip() in {"by", "since_ns", "until_ns"}:
            raise CommandError(f"--where {written!r} is not NAME=VALUE; write it like tenant=support", ExitCode.USAGE)
        wanted.setdefault(name.strip(), []).append(value.strip())
    return wanted


def picture(out: "Console", table: UsageTable) -> "RenderableType":
    """The usage table as people read it; every column of sums adds up as shown."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    lent = table.total.lent_gpu_seconds is not None
    titles = ["requests", "tokens in", "cached", "tokens out", "gpu s", "borrowed", *(["lent"] if lent else [])]
    titles += ["wait mean", "p50", "p99", "max", f"cost {table.currency}"]
    columns = [*(show.Column(name, right=False) for name in table.by), *map(show.Column, titles)]
    rows = [*table.rows, table.total]
    times = [_added([row.gpu_seconds for row in table.rows], table.total.gpu_seconds)]
    times.append(_added([row.borrowed_gpu_seconds for row in table.rows], table.total.borrowed_gpu_seconds))
    if lent:
        zero = Decimal(0)
        times.append(_added([row.lent_gpu_seconds or zero for row in table.rows], table.total.lent_gpu_seconds or zero))
    cells = [
        (
            *(row.group or ("total", *[""] * (len(table.by) - 1))),
            f"{row.requests:,}",
            f"{row.tokens_in:,}",
            f"{row.tokens_cached:,}",
            f"{row.tokens_out:,}",
            *gpu_times,
            *map(text.wait, (row.wait_ns_mean, row.wait_ns_p50, row.wait_ns_p99, row.wait_ns_max)),
            text.money(row.cost_micro),
        )
        for row, *gpu_times in zip(rows, *times, strict=True)
    ]
    return show.table(out, columns, cells[:-1], cells[-1])


def _added(column: list[Decimal], total: Decimal) -> list[str]:
    return [*text.gpu_seconds(column), *text.gpu_seconds([total])]


def _print_records(client: Client, query: dict[str, str | int | list[str]]) -> None:
    after: str | None = ""
    while after is not None:
        page = client.get("/admin/v1/records", Records, query | {"after": after})
        for record in page.records:
            emit_line(record)
        after = page.after


def _show_open(client: Client, only: dict[str, list[str]], *, as_json: bool) -> None:
    found = client.get("/admin/v1/loans/open", OpenLoans, only)
    if as_json:
        emit(found)
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    if not found.loans:
        out.print("nobody lends to anybody")
        return
    columns = [show.Column(title, right=False) for title in ("lender", "borrower")]
    columns += map(show.Column, ("gpus", "requests", "jobs", "since", "back"))
    rows = [
        (
            loan.lender or UNOWNED,
            loan.borrower,
            text.gpus(loan.milli_gpu),
            f"{loan.requests:,}",
            f"{loan.jobs:,}",
            text.moment(loan.start_ns_min),
            text.moment(loan.return_ns),
        )
        for loan in found.loans
    ]
    out.print(show.table(out, columns, rows))


def _show_loans(client: Client, query: dict[str, str | int | list[str]], *, as_json: bool) -> None:
    if as_json:
        emit(client.get("/admin/v1/loans", LoanTable, query))
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    with show.progress("adding up"):
        table = client.get("/admin/v1/loans", LoanTable, query)
    out = show.console()
    if table.loans:
        out.print(matrix(out, table))
    else:
        out.print("nobody lent to anybody")


def matrix(out: "Console", table: LoanTable) -> "RenderableType":
    """Lenders down, borrowers across, GPU seconds in between, sums at the ends."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    shown = text.rounded_milliseconds([pair.gpu_seconds for pair in table.loans])
    pairs = [(pair.lender or UNOWNED, pair.borrower) for pair in table.loans]
    return show.matrix(out, dict(zip(pairs, shown, strict=True)), "total gpu s", text.thousandths)
