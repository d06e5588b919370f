"""The first screen: how what is the reader's stands now, and what it costs."""

from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api import wire
from commonpool.console.frame import Page, View


async def show(view: View) -> Response:
    status = await view.get("/admin/v1/status", wire.Status)
    return view.render("overview.html", status=status)


PAGES = (Page("/", "overview", show, needs=(Permission.READ_STATUS,), group="now", key="o"),)
