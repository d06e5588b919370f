"""The last decisions of the product, with their reasons."""

from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire.decisions import Decisions
from commonpool.api.wire.status import Status
from commonpool.console import spans
from commonpool.console.asking import Problem
from commonpool.console.frame import Page, View, together
from commonpool.observe.decisions import KINDS

ROWS = 100
KEPT_MAX = 1000  # of the API's, which keeps no more


async def show(view: View) -> Response:
    kind, tenant = view.query.get("kind", ""), view.query.get("tenant", "")
    found, status = await together(
        view.get("/admin/v1/decisions", Decisions, kind=kind, tenant=tenant, limit=KEPT_MAX),
        view.wish(Permission.READ_STATUS, "/admin/v1/status", Status),
    )
    return view.render(
        "decisions.html",
        part=spans.part(view, found.decisions, ROWS),
        lost=found.lost,
        kind=kind,
        kinds=KINDS,
        tenant=tenant,
        tenants=[] if isinstance(status, Problem) else [(each.name, each.name) for each in status.tenants],
    )


PAGES = (Page("/decisions", "decisions", show, needs=(Permission.READ_STATUS,), group="now", key="e", shared=True),)
