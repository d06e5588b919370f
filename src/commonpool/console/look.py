"""How somebody wants to read: language and theme, kept in cookies of their browser."""

from starlette.responses import Response

from commonpool.access import browsers
from commonpool.console.frame import LANGUAGE, THEME, THEMES, Form, Page, View
from commonpool.console.languages import LANGUAGES

YEAR_S = 365 * 86400


async def change(view: View, form: Form) -> Response:
    answer = view.go(browsers.local_path(form.get("next", "/")))
    for cookie, name, known in ((LANGUAGE, "language", tuple(LANGUAGES)), (THEME, "theme", THEMES)):
        if (value := form.get(name)) in known:
            answer.set_cookie(cookie, value, YEAR_S, httponly=True, samesite="strict")
    return answer


PAGES = (Page("/look", "look", act=change, open=True),)
