"""`commonpool watch`: one request, step by step, until it ends."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import typer

from commonpool.api import text
from commonpool.api.wire import requests as wire
from commonpool.cli.client import Client, connect, segment
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, RequestId, TokenFile
from commonpool.cli.output import emit_line
from commonpool.core.explain import duration
from commonpool.core.model import NS_PER_S

if TYPE_CHECKING:
    from rich.text import Text

POLL_S: Final = 0.5
OPEN: Final = frozenset({"waiting", "running"})
STYLES: Final = {"arrived": "cyan", "queued": "yellow", "dispatched": "blue", "first_token": "magenta"}


def watch(
    request_id: RequestId,
    *,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Follow a request until it ends: whom it waits for, where it runs, what it costs. Exits with 0 if it completed.

    A tenant's own key is enough for the tenant's own requests.
    """
    path = f"/admin/v1/requests/{segment(request_id, 'REQUEST_ID')}/timeline"
    client = connect(control, token_file)
    now = client.get(path, wire.RequestTimeline)
    end = _as_lines(client, path, now) if as_json else _shown(client, path, now)
    if end.state != "completed":
        raise typer.Exit(ExitCode.FAILED)


def followed(client: Client, path: str, now: wire.RequestTimeline) -> Iterator[wire.RequestTimeline | CommandError]:
    """It, again and again, until it has ended; where the product is not reachable or not ready, why, and then again."""
    yield now
    while now.state in OPEN:
        time.sleep(POLL_S)
        try:
            now = client.get(path, wire.RequestTimeline)
        except CommandError as error:
            if error.code is not ExitCode.UNREACHABLE and not error.passing:
                raise
            yield error
        else:
            yield now


def settled(timeline: wire.RequestTimeline) -> list[wire.Step]:
    """The steps that will not change any more: a wait does as long as it goes on."""
    waiting = timeline.state == "waiting"
    return [*timeline.steps[:-1]] if waiting and timeline.steps[-1].what == "queued" else [*timeline.steps]


def _as_lines(client: Client, path: str, now: wire.RequestTimeline) -> wire.RequestTimeline:
    """Each step on a line, once; what goes on is not among them."""
    told = 0
    for each in followed(client, path, now):
        if isinstance(each, wire.RequestTimeline):
            now = each
            steps = settled(each)
            for step in steps[told:]:
                emit_line(step)
            told = max(told, len(steps))
    return now


def _shown(client: Client, path: str, now: wire.RequestTimeline) -> wire.RequestTimeline:
    """Each step once, and below them what goes on, where a terminal can show that."""
    from rich.live import Live  # noqa: PLC0415 - rich is slow to import

    from commonpool.cli import show  # noqa: PLC0415 - the same

    out = show.console()
    out.print(show.clean(f"{now.id}: {now.model or 'a job'} for {now.tenant} (app {now.app}, tier {now.tier})"))
    told = 0
    with Live(console=out, auto_refresh=False, transient=True) as live:
        for each in followed(client, path, now):
            if isinstance(each, CommandError):
                live.update(show.warning(f"tries again: {each}"), refresh=True)
                continue
            now = each
            steps = settled(each)
            for step in steps[told:]:
                out.print(line(step))
            told = max(told, len(steps))
            live.update(show.clean(meanwhile(each)), refresh=True)
        live.update(show.clean(""), refresh=True)
    if now.cost_micro:
        out.print(show.clean(f"its tenant is charged {text.money(now.cost_micro)} {now.currency}"))
    return now


def line(step: wire.Step) -> "Text":
    """A step as people read it: when, what, and the sentence."""
    from rich.text import Text  # noqa: PLC0415 - rich is slow to import

    at = datetime.fromtimestamp(step.at_ns // NS_PER_S, UTC)
    shown = f"{at:%H:%M:%S}.{step.at_ns % NS_PER_S // 10**6:03d}Z"
    style = STYLES.get(step.what) or ("green" if step.outcome == "completed" else "red")
    said = f" {step.explanation}"
    if step.tokens_in or step.tokens_out:
        said += f", {step.tokens_in:,} tokens in and {step.tokens_out:,} out"
    return Text.assemble((shown, "dim"), " ", (f"{step.what.replace('_', ' '):<11}", style), said)


def meanwhile(timeline: wire.RequestTimeline) -> str:
    """What goes on at this moment; "" where nothing does."""
    if timeline.state not in OPEN:
        return ""
    last = timeline.steps[-1]
    since = duration(max(0, timeline.now_ns - last.at_ns))
    standing = timeline.standing
    if standing is None:
        return f"{timeline.state} since {since}"
    said = f"{last.explanation}; {standing.own_before:,} of its tenant are before it now"
    said += f", {standing.others_waiting:,} of others wait too"
    if standing.within_ns is not None:
        said += f", and its guarantee alone starts it within {duration(standing.within_ns)}"
    return said
