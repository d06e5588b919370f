"""`commonpool alerts`: what is wrong, whether those who should be told can be, and silences."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from commonpool.api import text
from commonpool.api.wire import alerts as wire
from commonpool.cli.client import connect, segment
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.config.quantities import QuantityError, parse_duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PATH = "/admin/v1/alerts"

alerts = typer.Typer(name="alerts", help="See what is wrong, test the channels, silence alerts.", no_args_is_help=True)


@alerts.command("list")
def list_alerts(
    *,
    resolved: Annotated[bool, typer.Option("--resolved", help="Those that are over, too.")] = False,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show what is wrong, the newest first, and the channels that cannot be told."""
    found = connect(control, token_file).get(PATH, wire.Alerts)
    shown = tuple(each for each in found.alerts if resolved or each.state != "resolved")
    if as_json:
        emit(wire.Alerts(shown, found.channels))
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    out.print(picture(out, shown) if shown else "nothing is wrong")
    for each in shown:
        if each.state == "firing":
            gone = " It is so no more, and over soon." if each.gone else ""
            out.print(show.clean(f"{each.id}: {each.sentence}{gone or f' {each.advice}'}"))
    for channel in found.channels:
        if channel.failing_since_ns is not None:
            since = text.moment(channel.failing_since_ns)
            out.print(show.clean(f"channel {channel.name} cannot be told since {since}: {channel.error}"))


@alerts.command("test")
def try_channel(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="A channel of the configuration.")],
    *,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Send a test through a channel; succeeds when its receiver has taken it."""
    answer = connect(control, token_file).post(f"{PATH}/test", wire.ChannelTest(channel), wire.ChannelTested)
    if as_json:
        emit(answer)
    else:
        typer.echo(f"channel {answer.channel} has taken it")


@alerts.command()
def silence(
    alert: Annotated[str, typer.Argument(metavar="ALERT", help="Its id, as the list shows it.")],
    length: Annotated[str, typer.Option("--for", metavar="DURATION", help="How long, e.g. 2h.", show_default=False)],
    *,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Have nobody told of an alert for a while; that it is over is told to those who know of it."""
    try:
        until_ns = time.time_ns() + parse_duration(length)
    except QuantityError as error:
        raise CommandError(str(error), ExitCode.USAGE) from None
    path = f"{PATH}/{segment(alert, 'ALERT')}/silence"
    answer = connect(control, token_file).post(path, wire.NewSilence(until_ns), wire.Silenced)
    if as_json:
        emit(answer)
    else:
        whom = f"no channel of tenant {answer.tenant}" if answer.tenant else "nobody"
        typer.echo(f"{whom} is told of alert {answer.id} until {text.moment(answer.until_ns)}")


@alerts.command()
def unsilence(
    alert: Annotated[str, typer.Argument(metavar="ALERT", help="Its id, as the list shows it.")],
    *,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """End the silence of an alert early: who should be told of it is told again."""
    path = f"{PATH}/{segment(alert, 'ALERT')}/silence"
    answer = connect(control, token_file).delete(path, wire.Silenced)
    if as_json:
        emit(answer)
    else:
        whom = f"channels of tenant {answer.tenant}" if answer.tenant else "all channels"
        typer.echo(f"{whom} are told of alert {answer.id} again")


def picture(out: "Console", found: tuple[wire.Alert, ...]) -> "RenderableType":
    """A row an alert."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    titles = ("id", "alert", "severity", "state", "tenant", "about", "since", "silenced until")
    columns = [show.Column(title, right=False) for title in titles]
    rows = [
        (
            each.id,
            each.name,
            each.severity,
            "firing, gone" if each.gone else each.state,
            each.tenant or text.NONE,
            ", ".join([*([f"pool {each.pool}"] if each.pool else []), *(f"{k} {v}" for k, v in each.about.items())]),
            text.moment(each.since_ns),
            text.moment(each.silenced_until_ns),
        )
        for each in found
    ]
    return show.table(out, columns, rows)
