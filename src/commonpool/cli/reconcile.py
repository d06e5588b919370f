"""`commonpool reconcile`: whether the books close, hour by hour."""

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer

from commonpool.api import text
from commonpool.api.wire import bill as wire
from commonpool.cli.client import connect
from commonpool.cli.exits import CommandError
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.cli.times import Until, between

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

BAD = " !"


def reconcile(
    *,
    since: Annotated[
        str, typer.Option("--since", metavar="WHEN", help="From when: a duration ago (24h, 30d) or a UTC time.")
    ] = "24h",
    until: Until = None,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Compare what was charged with what there was, hour by hour. Ends with 1 where the books do not close."""
    query = between(since, until)
    table = connect(control, token_file).get("/admin/v1/reconciliation", wire.ReconciliationTable, query)
    if as_json:
        emit(table)
    else:
        _print(table)
    if not table.closes:
        bad = [hour for hour in table.hours if not hour.closes]
        raise CommandError(
            f"the books of {len(bad)} of {len(table.hours)} hours do not close, the first in pool {bad[0].pool} at"
            f" {text.moment(bad[0].hour_ns)}: its causes say where to look"
        )


def _print(table: wire.ReconciliationTable) -> None:
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    if not table.hours:
        out.print("no hour of that time is in the books")
        return
    out.print(picture(out, table))
    for hour in table.hours:
        for cause, seconds in hour.causes.items():
            at = f"{text.moment(hour.hour_ns)[:16]}Z"
            out.print(show.clean(f"{hour.pool} {at}: {_signed(seconds)} gpu s {cause}"))


def picture(out: "Console", table: wire.ReconciliationTable) -> "RenderableType":
    """A row an hour of a pool, in GPU seconds; those whose books do not close are marked."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    titles = ("devices", "charged", "held", "reported", "difference", f"cost {table.currency}")
    columns = [show.Column("pool", right=False), show.Column("hour", right=False), *map(show.Column, titles)]
    rows = [
        (
            hour.pool,
            f"{text.moment(hour.hour_ns)[:16]}Z{'' if hour.closes else BAD}",
            *map(_signed, (hour.devices, hour.charged, hour.held, hour.reported, hour.held - hour.reported)),
            text.money(hour.cost_micro),
        )
        for hour in table.hours
    ]
    return show.table(out, columns, rows)


def _signed(seconds: Decimal) -> str:
    return text.thousandths(text.rounded_milliseconds([seconds])[0])
