"""Models and their replicas: what is wanted and there, why, what waits, and how long until a first token."""

from collections.abc import Mapping, Sequence

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.terms import Models, ModelTerms
from commonpool.api.wire.decisions import Decision, Decisions
from commonpool.api.wire.status import ModelStatus, Replicas, ReplicaStatus, Status
from commonpool.api.wire.waits import WaitRow, WaitTable
from commonpool.console import spans
from commonpool.console.asking import Problem, RefusedError
from commonpool.console.frame import Page, View, together

HOUR_NS = spans.DAY_NS // 24
DECISIONS_MAX = 10
DECISIONS_ASKED = 1000  # the API filters them by kind and tenant, not by model
REPLICAS = 100
NOT_FOUND = 404
STATES = ("ready", "starting", "failing", "unknown", "draining", "stopping")


class Line(msgspec.Struct, frozen=True):
    """A model in the list: what it is, how it stands (None: not yet), its waits (None: it had none)."""

    terms: ModelTerms
    now: ModelStatus | None
    waits: WaitRow | None


def lines(terms: Sequence[ModelTerms], now: Sequence[ModelStatus], waits: Sequence[WaitRow]) -> list[Line]:
    """Those that need attention first: broken, then those without room, then by what waits."""
    standing: Mapping[str, ModelStatus] = {each.name: each for each in now}
    rows = {row.group[0]: row for row in waits}
    found = [Line(each, standing.get(each.name), rows.get(each.name)) for each in terms]
    return sorted(found, key=lambda line: (*_attention(line.now), line.terms.name))


def _attention(now: ModelStatus | None) -> tuple[int, int, int]:
    return (0, 0, 0) if now is None else (-now.broken, -bool(now.unplaced), -now.waiting)


async def show(view: View) -> Response:
    status, terms = await together(view.get("/admin/v1/status", Status), view.get("/admin/v1/models", Models))
    waits = await view.wish(
        Permission.READ_USAGE, "/admin/v1/waits", WaitTable, by="model", since_ns=status.now_ns - HOUR_NS
    )
    rows = () if isinstance(waits, Problem) else waits.rows
    return view.render("models.html", lines=lines(terms.models, status.models, rows), waits=waits)


async def one(view: View) -> Response:
    name = view.path["name"]
    span = spans.span(view)
    status, terms = await together(view.get("/admin/v1/status", Status), view.get("/admin/v1/models", Models))
    model = next((each for each in terms.models if each.name == name), None)
    if model is None:
        raise RefusedError(NOT_FOUND, f"there is no model {name!r} that you may use")
    since_ns = status.now_ns - span.length_ns
    usage = Permission.READ_USAGE
    waits, over_time, decisions = await together(
        view.wish(usage, "/admin/v1/waits", WaitTable, by="tenant,tier", model=name, since_ns=since_ns),
        view.wish(usage, "/admin/v1/waits", WaitTable, by=f"tier,{span.step}", model=name, since_ns=since_ns),
        view.wish(Permission.READ_STATUS, "/admin/v1/decisions", Decisions, limit=DECISIONS_ASKED),
    )
    return view.render(
        "model.html",
        model=model,
        now=next((each for each in status.models if each.name == name), None),
        replicas=[each for each in status.replicas if each.model == name],
        rows=[] if isinstance(waits, Problem) else longest(waits.rows),
        waits=waits,
        curves=None if isinstance(over_time, Problem) else spans.curves(over_time.rows),
        decisions=decisions if isinstance(decisions, Problem) else about(decisions.decisions, name),
        now_ns=status.now_ns,
        span=span,
        spans=spans.SPANS,
    )


def longest(rows: Sequence[WaitRow]) -> list[WaitRow]:
    """Those first of which one in a hundred waits longest."""
    return sorted(rows, key=lambda row: (-(row.wait.p99_ns or 0), row.group))


def about(decisions: Sequence[Decision], model: str) -> list[Decision]:
    return [each for each in decisions if each.model == model][:DECISIONS_MAX]


async def replicas(view: View) -> Response:
    found = (await view.get("/admin/v1/replicas", Replicas)).replicas
    status = await view.get("/admin/v1/status", Status)
    model, state = view.query.get("model", ""), view.query.get("state", "")
    rows = [each for each in found if model in ("", each.model) and state in ("", each.state)]
    return view.render(
        "replicas.html",
        part=spans.part(view, sorted(rows, key=_urgency), REPLICAS),
        models=sorted({each.model for each in found}),
        states=STATES,
        model=model,
        state=state,
        now_ns=status.now_ns,
    )


def _urgency(replica: ReplicaStatus) -> tuple[bool, str, str]:
    return replica.state == "ready", replica.model, replica.id


PAGES = (
    Page("/models", "models", show, needs=(Permission.READ_STATUS,), group="work", key="m", shared=True),
    Page("/models/{name}", "model", one, needs=(Permission.READ_STATUS,), shared=True),
    Page("/replicas", "replicas", replicas, needs=(Permission.READ_STATUS,), group="work", platform=True, shared=True),
)
