"""What `top` shows: a frame that fits the terminal, and the loop that keeps it up to date.

Imported where it is used, since rich is slow to import.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from commonpool.api import text
from commonpool.api.wire.decisions import Decision
from commonpool.api.wire.status import ModelStatus, Status, TenantStatus
from commonpool.cli import show
from commonpool.cli.client import Client
from commonpool.cli.following import Follower, Seen
from commonpool.cli.keyboard import keys
from commonpool.core.model import NS_PER_S

KEY_S: Final = 0.2
ANEW_S: Final = 1.0  # ages grow, and the window may have another size
DECISIONS_MIN: Final = 4  # rows that they have at least, below tenants and models
QUIT: Final = frozenset({"q", "\x03", "\x04"})
HELP: Final = "q quits  s sorts  p pauses"


class Sort(NamedTuple):
    """An order of tenants: the largest first."""

    name: str
    key: Callable[[TenantStatus], int]


SORTS: Final = (
    Sort("p99 wait", lambda tenant: -1 if tenant.wait_ns_p99 is None else tenant.wait_ns_p99),
    Sort("queue", lambda tenant: tenant.waiting),
    Sort("used", lambda tenant: tenant.in_use_milli_gpu),
    Sort("borrowed", lambda tenant: tenant.borrowed_milli_gpu),
    Sort("lent", lambda tenant: tenant.lent_milli_gpu),
)


class View(msgspec.Struct, frozen=True):
    """What is to be shown, and how."""

    seen: Seen
    sort: Sort = SORTS[0]
    paused: bool = False


def live(out: Console, client: Client, seen: Seen, after: str) -> None:
    """Show it until somebody quits. Raises CommandError where the caller may look no more."""
    follower = Follower(client, seen, after)
    view = View(seen)
    follower.start()
    try:
        with keys() as pressed, Live(console=out, screen=True, auto_refresh=False) as shown:
            drawn_at = -ANEW_S
            while follower.over is None:
                if follower.news.is_set() or time.monotonic() - drawn_at >= ANEW_S:
                    follower.news.clear()
                    view = view if view.paused else msgspec.structs.replace(view, seen=follower.seen)
                    shown.update(frame(out, view, out.size.height), refresh=True)
                    drawn_at = time.monotonic()
                key = pressed(KEY_S)
                if key in QUIT:
                    return
                if key:
                    view = _after(key, view)
                    follower.news.set()
    finally:
        follower.stop()
    raise follower.over


def _after(key: str, view: View) -> View:
    if key == "s":
        return msgspec.structs.replace(view, sort=SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)])
    return msgspec.structs.replace(view, paused=not view.paused) if key == "p" else view


def frame(out: Console, view: View, height: int | None = None) -> RenderableType:
    """The whole frame; with a height all that fits: the first tenants and models, and the newest decisions."""
    now = view.seen.status
    tenants = sorted(now.tenants, key=lambda tenant: (-view.sort.key(tenant), tenant.name))
    head = _head(view)
    foot = [Text(HELP, style="dim")] if height is not None else []
    lines: list[RenderableType] = [*head]
    if height is None:
        lines += [_tenants(now, tenants), Text(), _models(now.models), Text()]
        lines += _decisions(out, view.seen.decisions, 20)
        return Group(*lines)
    # 1. What is always there: the head, three titles, the help.
    room = max(3, height - len(head) - 3 - len(foot))
    # 2. Models, then tenants, leaving some rows to the decisions.
    most = max(2, room - DECISIONS_MIN)
    models = now.models[: max(1, min(len(now.models), most // 3))]
    rows = tenants[: max(1, most - len(models))]
    lines += [_tenants(now, rows, len(tenants)), _models(models, len(now.models))]
    lines += _decisions(out, view.seen.decisions, room - len(rows) - len(models))
    return Group(*lines, *foot)


def _head(view: View) -> list[Text]:
    now = view.seen.status
    state = Text("ready", style="green") if now.ready else Text("not ready", style="bold red")
    at = f"{datetime.fromtimestamp(now.now_ns // NS_PER_S, UTC):%H:%M:%S}Z"
    pools = ", ".join(
        f"{pool.name} {text.gpus(pool.used_milli_gpu)} of {text.gpus(pool.capacity_milli_gpu)} gpu"
        for pool in now.pools
    )
    line = Text.assemble(("commonpool", "bold"), f" {now.version} ", state, f"  {at}  by {view.sort.name}  ", pools)
    if view.paused:
        line.append("  PAUSED", style="bold yellow")
    line.no_wrap, line.overflow = True, "ellipsis"
    said = [line]
    trouble = view.seen.trouble or next(iter(now.warnings), "")
    if trouble:
        prefix = "tries again: " if view.seen.trouble else "warning: "
        said.append(Text(prefix + show.clean(trouble).plain, style="bold red", no_wrap=True, overflow="ellipsis"))
    return said


def _grid(titles: Sequence[tuple[str, bool]]) -> Table:
    grid = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold cyan", expand=False)
    for title, right in titles:
        grid.add_column(title, justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
    return grid


def _of(shown: int, all_of: int, noun: str) -> str:
    return noun if shown >= all_of else f"{noun} ({shown} of {all_of})"


def _tenants(now: Status, tenants: Sequence[TenantStatus], all_of: int = 0) -> Table:
    titles = ["guaranteed", "used", "lent", "borrowed", "queue", "runs", "wait p50", "p99"]
    if now.waits_since_ns is not None:
        titles[-1] += f" of {text.age(now.waits_since_ns, now.now_ns)}"
    grid = _grid([(_of(len(tenants), all_of, "tenant"), False), *((title, True) for title in titles)])
    for each in tenants:
        due = "bold yellow" if each.due_milli_gpu else ""
        grid.add_row(
            show.clean(each.name),
            text.gpus(each.guaranteed_milli_gpu),
            text.gpus(each.in_use_milli_gpu),
            _some(text.gpus(each.lent_milli_gpu), due or "green"),
            _some(text.gpus(each.borrowed_milli_gpu), "magenta"),
            _some(f"{each.waiting:,}", "yellow"),
            f"{each.running:,}",
            text.wait(each.wait_ns_p50),
            text.wait(each.wait_ns_p99),
        )
    return grid


def _models(models: Sequence[ModelStatus], all_of: int = 0) -> Table:
    grid = _grid([(_of(len(models), all_of, "model"), False), ("replicas", True), ("queue", True), ("state", False)])
    for each in models:
        grid.add_row(
            show.clean(each.name),
            f"{each.ready} of {each.wanted}",
            _some(f"{each.waiting:,}", "yellow"),
            _state(each),
        )
    return grid


def _state(model: ModelStatus) -> Text:
    """What is worth saying of it, the worst first."""
    if model.broken:
        return Text("cannot be started", style="bold red")
    if model.unplaced:
        return Text("no place for another replica", style="yellow")
    said = [f"{count} {what}" for count, what in ((model.starting, "starting"), (model.draining, "draining")) if count]
    if model.waiting and model.bottleneck != "none":
        said.append(f"short of {model.bottleneck.replace('_', ' ')}")
    return Text(", ".join(said), style="yellow") if said else Text("serves" if model.ready else "asleep", style="dim")


def _decisions(out: Console, decisions: Iterable[Decision], room: int) -> list[RenderableType]:
    """The newest, as many as there is room for; one that is long takes several rows."""
    lines: list[RenderableType] = [Text("decisions", style="bold cyan")]
    left = room
    for each in decisions:
        at = f"{datetime.fromtimestamp(each.at_ns // NS_PER_S, UTC):%H:%M:%S}"
        kind = f"{each.kind:<9}"
        said = Text.assemble((at, "dim"), " ", (kind, STYLES[each.kind]), " ", show.clean(each.explanation))
        rows = said.wrap(out, out.width)
        left -= len(rows)
        if left < 0:
            break
        lines += rows
    if len(lines) == 1:
        lines.append(Text("none yet", style="dim"))
    return lines


STYLES: Final = {"scaling": "blue", "loan": "magenta", "placement": "cyan", "routing": "yellow", "quota": "green"}


def _some(figure: str, style: str) -> Text:
    return Text(figure, style="dim" if figure == "0" else style)
