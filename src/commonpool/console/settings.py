"""Settings: what one is and may do, one's session and password, the master key, and the way to what else can be set."""

from typing import Any

from starlette.responses import Response

from commonpool.access.passwords import CHARS_MIN
from commonpool.access.permissions import Permission
from commonpool.api.wire import prompts as wire
from commonpool.api.wire.people import EndedSession, Sessions
from commonpool.console.frame import Form, Page, View


async def show(view: View) -> Response:
    return await _page(view)


async def _page(view: View, **values: Any) -> Response:
    own = await view.get("/admin/v1/me/sessions", Sessions)
    return view.render("settings.html", chars_min=CHARS_MIN, sessions=own.sessions, **values)


async def rotate_secrets(view: View, _: Form) -> Response:
    rotated = await view.send("POST", "/admin/v1/secrets/rotate", wire.Rotated)
    return await _page(view, rotated=rotated.count)


async def end_session(view: View, _: Form) -> Response:
    await view.send("DELETE", f"/admin/v1/me/sessions/{view.path['session']}", EndedSession)
    return view.go("/settings", said="settings.session_ended")


PAGES = (
    Page("/settings", "settings", show, needs=(Permission.READ_SELF,), group="access", key="s"),
    Page("/settings/secrets", "settings", act=rotate_secrets),
    Page("/settings/sessions/{session}/end", "settings", act=end_session),
)
