"""`commonpool waits`: how long requests waited in any period, how many gave up, and how promises are kept."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from commonpool.api import bill_formats, text
from commonpool.api.wire.waits import Promises, WaitRow, WaitTable
from commonpool.cli.client import connect
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.cli.times import Until, between
from commonpool.cli.usage import filters
from commonpool.config.quantities import format_duration
from commonpool.core.burn import OVER_NS, Burn, Kept, Promise
from commonpool.core.model import NS_PER_HOUR
from commonpool.core.waits import MINUTE_NS

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def waits(
    *,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="NAMES",
            help="What makes a row: any of tenant, model, tier and one of window (ten minutes), hour, day, with commas."
            " [default: tenant,tier]",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="From when: a duration ago (1h, 30d) or a UTC time. [default: 1h]",
            show_default=False,
        ),
    ] = None,
    until: Until = None,
    tenant: Annotated[
        list[str] | None, typer.Option("--tenant", metavar="NAME", help="Only this one's; may be repeated.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="NAME=VALUE", help="Count only these, e.g. tier=batch; may be repeated."),
    ] = None,
    promises: Annotated[
        bool, typer.Option("--promises", help="Show how each tier's promises are kept now, and how fast budgets burn.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, times in nanoseconds, on standard output.")] = False,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show how long the requests of a period waited, and for how many that was in vain.

    A request belongs to the time at which it ended, in UTC. Quantiles are right within 1 %.
    """
    only = filters([*(where or []), *(f"tenant={name}" for name in tenant or [])])
    if promises and (by is not None or since is not None or until is not None):
        raise CommandError(
            "--promises are those of now, by tenant and tier; leave --by, --since and --until out", ExitCode.USAGE
        )
    if as_csv and as_json:
        raise CommandError("--csv and --json are two formats; give one of them", ExitCode.USAGE)
    client = connect(control, token_file)
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    if promises:
        kept = client.get("/admin/v1/promises", Promises, only)
        if as_json:
            emit(kept)
        elif as_csv:
            sys.stdout.write(promises_csv(kept))
        else:
            out = show.console()
            out.print(promises_picture(out, kept))
        return
    query = between(since or "1h", until) | only
    with show.progress("adding up"):
        table = client.get("/admin/v1/waits", WaitTable, query | {"by": "tenant,tier" if by is None else by})
    if as_json:
        emit(table)
    elif as_csv:
        sys.stdout.write(csv_text(table))
    else:
        out = show.console()
        out.print(picture(out, table))


def picture(out: "Console", table: WaitTable) -> "RenderableType":
    """The waits as people read them."""
    from rich.console import Group  # noqa: PLC0415 - rich is slow to import
    from rich.text import Text  # noqa: PLC0415 - the same

    from commonpool.cli import show  # noqa: PLC0415 - the same

    titles = ["completed", "failed", "cancelled", "abandoned", "refused", "wait p50", "p90", "p99", "max", "late"]
    titles += ["first token p50", "p99", "late"]
    columns = [*(show.Column(name, right=False) for name in table.by), *map(show.Column, titles)]
    cells = [
        (
            *(row.group or ("total", *[""] * (len(table.by) - 1))[: len(table.by)]),
            *(f"{count:,}" for count in (row.completed, row.failed, row.cancelled, row.abandoned)),
            f"{sum(row.refused.values()):,}",
            *map(text.wait, (row.wait.p50_ns, row.wait.p90_ns, row.wait.p99_ns, row.wait.max_ns)),
            share(row.queue),
            *map(text.wait, (row.first_token.p50_ns, row.first_token.p99_ns)),
            share(row.first_token_promise),
        )
        for row in (*table.rows, table.total)
    ]
    return Group(show.table(out, columns, cells[:-1], cells[-1]), Text(), *map(show.clean, lines(table)))


def lines(table: WaitTable) -> list[str]:
    """What stands below the table."""
    total = table.total
    said = [f"ended from {text.moment(table.since_ns)} until {text.moment(table.until_ns)}"]
    if total.refused:
        said.append(f"refused: {_reasons(total)}")
    if total.unserved.count:
        found = total.unserved
        said.append(
            f"{found.count:,} waited in vain: p50 {text.wait(found.p50_ns)}, p99 {text.wait(found.p99_ns)}, max"
            f" {text.wait(found.max_ns)}"
        )
    if not table.complete:
        said.append(counted(table))
    return said


def counted(table: WaitTable) -> str:
    """How much there is in a table that is not complete."""
    if table.counted_until_ns is None:
        return "not all is in it: the store cannot be written now, see `commonpool status`"
    left = "more is" if table.left_records is None else f"{table.left_records:,} records are"
    return f"counted until {text.moment(table.counted_until_ns)}; {left} left to count, ask again in a while"


def share(kept: Kept) -> str:
    """Of those that were promised something, the part that was late; what is not zero is never shown as zero."""
    if not kept.promised:
        return text.NONE
    percent = 100 * kept.late / kept.promised
    return "<0.01 %" if 0 < percent < 0.01 else f"{percent:.2f} %"  # noqa: PLR2004 - the last digit that is shown


def csv_text(table: WaitTable) -> str:
    """A row a line and none for the total; times in nanoseconds, empty where there are none."""
    spreads = ("wait", "first_token", "unserved")
    quantiles = ("count", "p50_ns", "p90_ns", "p99_ns", "max_ns")
    counts = ("completed", "failed", "cancelled", "abandoned")
    reasons = sorted(table.total.refused)
    columns = [*table.by, *counts, *(f"refused_{reason}" for reason in reasons)]
    columns += [f"{spread}_{quantile}" for spread in spreads for quantile in quantiles]
    columns += ["queue_promised", "queue_late", "first_token_promised", "first_token_late"]

    def row(of: WaitRow) -> list[str]:
        cells = [*map(bill_formats.plain, of.group), *(str(getattr(of, count)) for count in counts)]
        cells += [str(of.refused.get(reason, 0)) for reason in reasons]
        for spread in spreads:
            values = (getattr(getattr(of, spread), quantile) for quantile in quantiles)
            cells += ["" if value is None else str(value) for value in values]
        both = of.queue, of.first_token_promise
        return [*cells, *(str(value) for kept in both for value in (kept.promised, kept.late))]

    return bill_formats.rows([columns, *map(row, table.rows or (table.total,))])


def promises_picture(out: "Console", found: Promises) -> "RenderableType":
    """How promises are kept, as people read it."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    titles = ("target", "p50", "p99", *(f"burn {_length(over_ns)}" for over_ns in OVER_NS), "says")
    columns = [*(show.Column(name, right=False) for name in ("tenant", "tier", "promise")), *map(show.Column, titles)]
    rows = [
        (
            each.tenant,
            each.tier,
            each.name.replace("_", " "),
            *map(text.wait, (each.target_ns, each.spread.p50_ns, each.spread.p99_ns)),
            *(_rate(each.burns, over_ns) for over_ns in OVER_NS),
            each.burning.severity if each.burning else "",
        )
        for each in found.promises
    ]
    if not found.at_ns:
        return show.clean("promises were not looked at yet: ask again in some seconds")
    return show.table(out, columns, rows)


def promises_csv(found: Promises) -> str:
    """A row a promise; times in nanoseconds, empty where there are none."""
    columns = ["tenant", "tier", "promise", "target_ns", "count", "p50_ns", "p99_ns"]
    columns += [f"burn_{_length(over_ns)}" for over_ns in OVER_NS]

    def row(each: Promise) -> list[str]:
        values = (each.target_ns, each.spread.count, each.spread.p50_ns, each.spread.p99_ns)
        rates = {burn.over_ns: burn.rate for burn in each.burns}
        numbers = (*values, *(rates.get(over_ns) for over_ns in OVER_NS))
        names = map(bill_formats.plain, (each.tenant, each.tier))
        return [*names, each.name, *("" if value is None else str(value) for value in numbers)]

    return bill_formats.rows([columns, *map(row, found.promises)])


def _length(over_ns: int) -> str:
    """`5m`, `6h`, `3d`."""
    return f"{over_ns // MINUTE_NS}m" if over_ns < NS_PER_HOUR else format_duration(over_ns)


def _rate(burns: tuple[Burn, ...], over_ns: int) -> str:
    rate = next((burn.rate for burn in burns if burn.over_ns == over_ns), None)
    return text.NONE if rate is None else f"{rate:.1f}"


def _reasons(row: WaitRow) -> str:
    return ", ".join(
        f"{count:,} {reason}" for reason, count in sorted(row.refused.items(), key=lambda each: (-each[1], each[0]))
    )
