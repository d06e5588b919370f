"""`commonpool period`: the billing periods, and closing one for ever."""

from typing import Annotated

import typer

from commonpool.api import text
from commonpool.api.wire import bill as wire
from commonpool.cli.client import connect
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit

PATH = "/admin/v1/periods"
STATES = {"open": "open", "over": "over, can be closed", "closed": "closed"}

period = typer.Typer(name="period", help="List the billing periods, and close them.", no_args_is_help=True)


@period.command("list")
def list_periods(*, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Show the months since the books began."""
    found = connect(control, token_file).get(PATH, wire.BillingPeriods)
    if as_json:
        emit(found)
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    columns = [show.Column(title, right=False) for title in ("period", "state", "closed at", "by")]
    rows = [(each.name, STATES[each.state], text.moment(each.closed_ns), each.closed_by) for each in found.periods]
    out.print(show.table(out, columns, rows))


@period.command("close")
def close_period(
    name: Annotated[str, typer.Argument(metavar="PERIOD", help="A month that is over, like 2026-10.")],
    *,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Close a month: its bill never changes again, and what is corrected later stands in an open one."""
    closed = connect(control, token_file).post(PATH, wire.ClosePeriod(name), wire.BillingPeriod)
    if as_json:
        emit(closed)
    else:
        typer.echo(f"{closed.name} is closed; `commonpool bill --period {closed.name}` shows its bill")
