"""Settings: what one is and may do, one's session and password, the master key, and the way to what else can be set."""

from starlette.responses import Response

from commonpool.access.passwords import CHARS_MIN
from commonpool.access.permissions import Permission
from commonpool.api.wire import prompts as wire
from commonpool.console.frame import Form, Page, View


async def show(view: View) -> Response:
    return view.render("settings.html", chars_min=CHARS_MIN)


async def rotate_secrets(view: View, _: Form) -> Response:
    rotated = await view.send("POST", "/admin/v1/secrets/rotate", wire.Rotated)
    return view.render("settings.html", chars_min=CHARS_MIN, rotated=rotated.count)


PAGES = (
    Page("/settings", "settings", show, needs=(Permission.READ_SELF,), group="access", key="s"),
    Page("/settings/secrets", "settings", act=rotate_secrets),
)
