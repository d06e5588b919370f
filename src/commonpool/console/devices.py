"""The map of nodes and cards: what is free, who has what, what is in pieces, what is lost; and where work would go."""

from collections.abc import Iterator, Sequence

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire.nodes import Hints, Nodes, PlaceQuestion
from commonpool.api.wire.status import Status
from commonpool.console import asks, spans
from commonpool.console.asking import Problem, RefusedError
from commonpool.console.frame import Form, Page, View, together
from commonpool.core.model import MILLI_PER_GPU
from commonpool.core.pictures import DeviceView, NodeView
from commonpool.core.trial import Trial

NODES = 40
WIDTH, LEAST, GAP, APART, HEIGHT = 46, 16, 4, 10, 30  # of a whole GPU's cell, of a slice's, between cells and islands
ONLY = ("", "pieces", "free", "lost", "maintenance")


class Piece(msgspec.Struct, frozen=True):
    """A part of a cell that somebody has: `kind` is replica or job."""

    y: float
    height: float
    kind: str


class Cell(msgspec.Struct, frozen=True):
    """A device on the map. `state` is free, part, full or lost."""

    device: DeviceView
    x: int
    width: int
    state: str
    pieces: Sequence[Piece]


class Island(msgspec.Struct, frozen=True):
    """Devices that are linked with each other, from `x` on."""

    name: str
    x: int
    width: int


class Row(msgspec.Struct, frozen=True):
    """A node on the map."""

    node: NodeView
    cells: Sequence[Cell]
    islands: Sequence[Island]
    width: int

    @property
    def free_milli_gpu(self) -> int:
        return sum(max(0, device.free_milli_gpu) for device in self.node.devices if device.healthy)

    @property
    def milli_gpu(self) -> int:
        return sum(device.milli_gpu for device in self.node.devices)

    @property
    def whose(self) -> list[str]:
        """The models and tenants that have something of it."""
        holders = [holder for device in self.node.devices for holder in device.holders]
        return list(dict.fromkeys(holder.model or holder.tenant or holder.id for holder in holders))

    def has(self, only: str, now_ns: int) -> bool:
        """Whether something of it is as asked for."""
        states = {cell.state for cell in self.cells}
        window = self.node.window
        return {
            "pieces": "part" in states,
            "free": "free" in states,
            "lost": "lost" in states,
            "maintenance": window is not None and window.start_ns <= now_ns,
        }.get(only, True)


def row(node: NodeView) -> Row:
    """A node with its devices side by side, those of an island together."""
    cells: list[Cell] = []
    islands: list[Island] = []
    x = 0
    order = sorted(range(len(node.devices)), key=lambda at: (node.devices[at].island, at))
    for at in order:
        device = node.devices[at]
        new = not islands or islands[-1].name != device.island
        if new and cells:
            x += APART
        width = max(LEAST, min(WIDTH, WIDTH * device.milli_gpu // MILLI_PER_GPU))
        cells.append(Cell(device, x, width, state(device), tuple(_pieces(device))))
        if new:
            islands.append(Island(device.island, x, width))
        else:
            islands[-1] = msgspec.structs.replace(islands[-1], width=x + width - islands[-1].x)
        x += width + GAP
    return Row(node, cells, islands, max(0, x - GAP))


def state(device: DeviceView) -> str:
    if not device.healthy:
        return "lost"
    if not device.holders and device.free_milli_gpu >= device.milli_gpu:
        return "free"
    return "part" if device.free_milli_gpu > 0 else "full"


def _pieces(device: DeviceView) -> Iterator[Piece]:
    """From the bottom up; what is more than the device has is not drawn."""
    y = float(HEIGHT)
    for holder in device.holders:
        height = min(y, HEIGHT * holder.milli_gpu / max(1, device.milli_gpu))
        y -= height
        yield Piece(round(y, 2), round(height, 2), "replica" if holder.model else "job")


async def show(view: View) -> Response:
    nodes, hints, status = await together(
        view.get("/admin/v1/nodes", Nodes),
        view.attempt("/admin/v1/hints", Hints),
        view.wish(Permission.READ_STATUS, "/admin/v1/status", Status),
    )
    pool, only = view.query.get("pool", ""), view.query.get("only", "")
    now_ns = 0 if isinstance(status, Problem) else status.now_ns
    rows = [row(node) for node in nodes.nodes if pool in ("", node.pool)]
    states = [cell.state for each in rows for cell in each.cells]
    return view.render(
        "devices.html",
        nodes=nodes,
        part=spans.part(view, [each for each in rows if each.has(only, now_ns)], NODES),
        counts={name: states.count(name) for name in ("free", "part", "full", "lost")},
        hints=hints,
        pool=pool,
        only=only,
        onlys=ONLY,
        now_ns=now_ns,
        height=HEIGHT,
    )


# -- where work would go -----------------------------------------------------------------------------------------------


async def _ask(view: View, form: Form) -> Trial:
    """Raises RefusedError."""
    if form.get("what") == "model":
        question = PlaceQuestion(model=form.get("model"))
    else:
        question = PlaceQuestion(
            tenant=form.get("tenant"), hardware=asks.hardware(form), expected_ns=asks.expected(form)
        )
    return await view.send("POST", "/admin/v1/place", Trial, question)


async def _page(view: View, form: Form, trial: Trial | None, problem: Problem | None) -> Response:
    status = await view.attempt("/admin/v1/status", Status)
    known = None if isinstance(status, Problem) else status
    return view.render(
        "place.html",
        code=problem.status if problem else 200,
        form=form,
        tenants=[(each.name, each.name) for each in known.tenants] if known else [],
        models=[(each.name, each.name) for each in known.models] if known else [],
        trial=trial,
        problem=problem,
    )


async def place(view: View) -> Response:
    if not view.may_platform(Permission.READ_NODES):
        await view.get("/admin/v1/nodes", Nodes)  # which is refused, and says so
    return await _page(view, Form(dict(view.query), ()), None, None)


async def placed(view: View, form: Form) -> Response:
    try:
        return await _page(view, form, await _ask(view, form), None)
    except RefusedError as error:
        return await _page(view, form, None, error.problem)


PAGES = (
    Page(
        "/devices", "devices", show, needs=(Permission.READ_NODES,), group="work", key="d", platform=True, shared=True
    ),
    Page("/devices/place", "place", place, act=placed, needs=(Permission.READ_NODES,), platform=True),
)
