"""Accounts of people and services: those there are, a new one, another password, disabled, enabled, removed."""

from starlette.responses import Response

from commonpool.access.passwords import CHARS_MIN
from commonpool.access.permissions import Permission
from commonpool.api.wire import people as wire
from commonpool.console.asking import Problem, RefusedError
from commonpool.console.frame import Form, Page, View, together

HERE = "/settings/accounts"
API = "/admin/v1/accounts"
SESSIONS = "/admin/v1/sessions"


async def show(view: View) -> Response:
    return await _page(view)


async def _page(view: View, problem: Problem | None = None, code: int = 200) -> Response:
    accounts, sessions = await together(view.get(API, wire.Accounts), view.get(SESSIONS, wire.Sessions))
    return view.render(
        "accounts.html",
        code=code,
        accounts=accounts.accounts,
        sessions=sessions.sessions,
        problem=problem,
        chars_min=CHARS_MIN,
    )


async def add(view: View, form: Form) -> Response:
    service = form.get("kind") == "service"
    new = wire.NewAccount(
        form.get("name"),
        "service" if service else "person",
        "" if service else form.fields.get("password", ""),
        form.get("note"),
    )
    try:
        await view.send("POST", API, wire.Account, new)
    except RefusedError as error:
        return await _page(view, error.problem, error.status)
    return view.go(HERE, said="accounts.added")


async def set_password(view: View, form: Form) -> Response:
    try:
        await view.send(
            "POST", f"{_of(view)}/password", wire.Account, wire.NewPassword(form.fields.get("password", ""))
        )
    except RefusedError as error:
        return await _page(view, error.problem, error.status)
    return view.go(HERE, said="accounts.password_set")


async def disable(view: View, _: Form) -> Response:
    await view.send("POST", f"{_of(view)}/disable", wire.Account)
    return view.go(HERE, said="accounts.disabled_now")


async def enable(view: View, _: Form) -> Response:
    await view.send("POST", f"{_of(view)}/enable", wire.Account)
    return view.go(HERE, said="accounts.enabled_now")


async def remove(view: View, _: Form) -> Response:
    await view.send("DELETE", _of(view), wire.RemovedAccount)
    return view.go(HERE, said="accounts.removed_now")


async def end_session(view: View, _: Form) -> Response:
    await view.send("DELETE", f"{SESSIONS}/{view.path['session']}", wire.EndedSession)
    return view.go(HERE, said="accounts.session_ended")


def _of(view: View) -> str:
    return f"{API}/{view.path['name']}"


PAGES = (
    Page(HERE, "accounts", show, add, needs=(Permission.MANAGE_ACCOUNTS,), platform=True),
    Page(f"{HERE}/{{name}}/password", "accounts", act=set_password),
    Page(f"{HERE}/{{name}}/disable", "accounts", act=disable),
    Page(f"{HERE}/{{name}}/enable", "accounts", act=enable),
    Page(f"{HERE}/{{name}}/remove", "accounts", act=remove),
    Page("/settings/everybody/{session}/end", "accounts", act=end_session),
)
