"""How somebody wants to read: language and theme, kept in cookies of their browser."""

from starlette.responses import Response

from commonpool.access import browsers
from commonpool.api.languages import COOKIE, LANGUAGES, keep
from commonpool.api.themes import THEME, THEMES
from commonpool.console.frame import Form, Page, View


async def change(view: View, form: Form) -> Response:
    answer = view.go(browsers.local_path(form.get("next", "/")))
    for cookie, name, known in ((COOKIE, "language", tuple(LANGUAGES)), (THEME, "theme", THEMES)):
        if (value := form.get(name)) in known:
            keep(answer, cookie, value)
    return answer


PAGES = (Page("/look", "look", act=change, open=True),)
