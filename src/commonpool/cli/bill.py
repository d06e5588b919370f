"""`commonpool bill`: what each account pays for a period, who lent to whom, and the attempts behind a line."""

import contextlib
import enum
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, TypeVar

import typer

from commonpool.api import bill_files, bill_formats, focus, text
from commonpool.api.wire import bill as wire
from commonpool.cli.client import Client, connect
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, TokenFile
from commonpool.cli.output import emit_line
from commonpool.cli.usage import filters
from commonpool.core.statement import CORRECTION, DIMENSIONS

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PATH = "/admin/v1/bill"
TIMES = ("guaranteed", "used", "borrowed", "lent")
Query = dict[str, str | int | list[str]]
T = TypeVar("T")


class Format(enum.StrEnum):
    """How a bill is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    HTML = "html"
    FOCUS = "focus"


def bill(
    *,
    period: Annotated[
        str,
        typer.Option(
            "--period",
            metavar="PERIOD",
            help="A month (2026-11), a day (2026-11-03), or from one day through another (2026-11-01..2026-11-15)."
            " [default: the month that goes on]",
            show_default=False,
        ),
    ] = "",
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="NAMES",
            help=f"What makes a line: any of {', '.join(DIMENSIONS)}, with commas. [default: tenant]",
            show_default=False,
        ),
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option("--tenant", metavar="NAME", help="Only what this one pays; may be repeated.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="NAME=VALUE", help="Only these, e.g. app=helpdesk; may be repeated."),
    ] = None,
    form: Annotated[
        Format,
        typer.Option("--format", help="focus is the FinOps Open Cost and Usage Specification 1.2, as CSV."),
    ] = Format.TABLE,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it there.", show_default=False)
    ] = None,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Show who lent to whom instead, in GPU hours and money.")
    ] = False,
    records: Annotated[
        bool,
        typer.Option(
            "--records", help="Print the attempts that the bill's work is made of, one JSON line each, with their cost."
        ),
    ] = False,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
) -> None:
    """Show what everybody pays for a period.

    Hours, days and months are those of the billing time zone. What is in the books is in the bill: hours that are over.
    """
    query: Query = {"period": period} if period else {}
    only = filters([*(where or []), *(f"tenant={name}" for name in tenant or [])])
    if (matrix or records) and (by is not None or form not in {Format.TABLE, Format.JSON} or (matrix and records)):
        raise CommandError(
            "--matrix and --records show the whole period as a table or JSON; give one of them, and leave --by out",
            ExitCode.USAGE,
        )
    if matrix and only:
        raise CommandError("--matrix shows everybody; leave --tenant and --where out", ExitCode.USAGE)
    client = connect(control, token_file)
    if records:
        _print_records(client, query | only)
        return
    if matrix:
        lent = _ask(client, f"{PATH}/matrix", wire.LendingTable, query)
        with _opened(out) as file:
            if form is Format.JSON:
                file.write(bill_files.json_text(lent))
            else:
                _draw_matrix(file, lent)
        return
    if form is Format.FOCUS and by is not None:
        raise CommandError("the FOCUS format has a row for each charge; leave --by out", ExitCode.USAGE)
    split = ",".join(focus.BY) if form is Format.FOCUS else by or "tenant"
    table = _ask(client, PATH, wire.BillTable, query | only | {"by": split})
    with _opened(out) as file:
        if form is Format.TABLE:
            _draw(file, table)
        else:
            file.write(bill_files.written(table, form.value))


def _ask(client: Client, path: str, answer: type[T], query: Query) -> T:
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    with show.progress("adding up"):
        return client.get(path, answer, query)


@contextlib.contextmanager
def _opened(out: Path | None) -> Iterator[IO[str]]:
    """Standard output, or the file that is to be written."""
    if out is None:
        yield sys.stdout
        return
    try:
        with out.open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise CommandError(f"{out} cannot be written: {error.strerror or error}") from None


def _print_records(client: Client, query: Query) -> None:
    after: str | None = ""
    while after is not None:
        page = client.get(f"{PATH}/records", wire.BilledAttempts, query | {"after": after})
        for record in page.records:
            emit_line(record)
        after = page.after


# -- tables ------------------------------------------------------------------------------------------------------------


def _draw(file: IO[str], table: wire.BillTable) -> None:
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console(file)
    out.print(show.clean(head(table)))
    if table.lines:
        out.print()
        out.print(overview(out, table))
    if table.total.charges:
        out.print()
        out.print("made of")
        out.print(composition(out, table))
    out.print()
    for note in foot(table):
        out.print(show.clean(note), soft_wrap=True)


def head(table: wire.BillTable) -> str:
    """Which bill it is, and how complete."""
    if table.closed:
        state = "closed"
    elif table.until_ns == table.start_ns:
        over = any(note.name == "note.before" for note in table.said)
        state = "before the books began" if over else "open: no hour of it is in the books yet"
    else:
        state = f"open: in the books until {text.local(table.until_ns, table.time_zone)}"
    return f"bill of {table.period} in {table.currency}, {state}"


def foot(table: wire.BillTable) -> list[str]:
    """The forecast, what is not as usual, and where the records of a line are."""
    end = text.local(table.end_ns, table.time_zone)
    expected = table.forecast_micro
    said = [] if expected is None else [f"expected at its end ({end}): {text.money(expected)} {table.currency}"]
    said += table.notes
    if table.lines:
        which = "".join(f" --where {name}=…" for name in table.by if name not in {"day", CORRECTION})
        said.append(f"a line's records: commonpool bill --records --period {table.period}{which}")
    return said


def overview(out: "Console", table: wire.BillTable) -> "RenderableType":
    """A row a line; every column adds up as shown."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    def hours(name: str) -> list[str]:
        column = text.gpu_hours([getattr(row, name).gpu_seconds for row in table.lines])
        return [*column, *text.gpu_hours([getattr(table.total, name).gpu_seconds])]

    columns = [*(show.Column(name, right=False) for name in table.by)]
    columns += map(show.Column, ("requests", "guaranteed h", "used h", "borrowed h", "lent h", table.currency))
    cells = [
        (
            *([value or text.NONE for value in row.group] or ("total", *[""] * (len(table.by) - 1))),
            f"{row.requests:,}",
            *times,
            text.money(row.total_micro),
        )
        for row, *times in zip((*table.lines, table.total), *map(hours, TIMES), strict=True)
    ]
    return show.table(out, columns, cells[:-1], cells[-1])


def composition(out: "Console", table: wire.BillTable) -> "RenderableType":
    """What the total is made of: a row a charge."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    columns = [
        *(show.Column(name, right=False) for name in ("charge", "layer")),
        show.Column("quantity"),
        show.Column("unit", right=False),
        show.Column(table.currency),
    ]
    rows = [
        (bill_formats.name(charge), charge.layer, *bill_formats.measured(charge), text.money(charge.cost_micro))
        for charge in table.total.charges
    ]
    return show.table(out, columns, rows, ("total", "", "", "", text.money(table.total.total_micro)))


def _draw_matrix(file: IO[str], table: wire.LendingTable) -> None:
    """Lenders down, borrowers across: GPU hours, then what was paid for them."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console(file)
    if not table.pairs:
        out.print(f"in {table.period} nobody lent to anybody")
        return
    pairs = [(pair.lender, pair.borrower) for pair in table.pairs]
    hours = text.rounded_milli_hours([pair.gpu_seconds for pair in table.pairs])
    money = [pair.cost_micro for pair in table.pairs]
    out.print(show.matrix(out, dict(zip(pairs, hours, strict=True)), "total gpu h", text.thousandths))
    out.print()
    out.print(show.matrix(out, dict(zip(pairs, money, strict=True)), f"total {table.currency}", text.money))
