"""Who one is: logging in and out by name and password, what one may do, another password for oneself.

Browsers that log in by a form or by the issuer do so in `login`.
"""

from commonpool.access.audit import Decided
from commonpool.access.callers import NOBODY, Caller
from commonpool.access.people import Visit
from commonpool.access.permissions import WORDS, Permission
from commonpool.access.problems import AccessError
from commonpool.api.http import Endpoint, Headed, Nothing
from commonpool.api.operations import Operations
from commonpool.api.subjects import PLATFORM, Who
from commonpool.api.wire import people as wire

PATH = "/admin/v1/sessions"
COOKIE = "set-cookie"


async def log_in(operations: Operations, _: Nothing, login: wire.Login, who: Who) -> Headed:
    try:
        opened = await operations.people().log_in(login.name, login.password, who.visit)
    except AccessError:
        await refused(operations, who.visit, PATH, login.name)
        raise
    note(operations, who.visit, PATH, opened.caller, allowed=True)
    return Headed(wire.LoggedIn(opened.caller.name, opened.expires_ns), {COOKIE: opened.cookie})


async def log_out(operations: Operations, _: Nothing, who: Who) -> Headed:
    return Headed(wire.LoggedOut(), {COOKIE: await operations.people().log_out(who.visit)})


async def me(operations: Operations, _: Nothing, who: Who) -> wire.Me:
    tenants = operations.config().policy.tenants
    scopes = ((each, operations.authority().scope(who.caller, each, tenants)) for each in Permission)
    session = await operations.people().session(who.visit) if who.caller.kind == "person" else None
    return wire.Me(
        name=who.caller.name,
        kind=who.caller.kind,
        roles=tuple(wire.Held(binding.role, binding.tenant) for binding in who.caller.bindings),
        may=tuple(wire.May(each.value, WORDS[each], scope.names(), scope.platform) for each, scope in scopes if scope),
        expires_ns=None if session is None else session.expires_ns,
    )


async def change_password(operations: Operations, _: Nothing, change: wire.PasswordChange, who: Who) -> Headed:
    opened = await operations.people().change_password(change.current, change.new, who.visit)
    return Headed(wire.LoggedIn(opened.caller.name, opened.expires_ns), {COOKIE: opened.cookie})


async def refused(operations: Operations, visit: Visit, path: str, name: str) -> None:
    """Write down that somebody could not log in; to which account, where there is one of this name."""
    account = await operations.people().account(name)
    caller = NOBODY if account is None else operations.people().of_account(account)
    note(operations, visit, path, caller, allowed=False)


def note(operations: Operations, visit: Visit, path: str, caller: Caller, *, allowed: bool) -> None:
    """Write down that somebody logged in, or could not."""
    decided = Decided(caller, Permission.LOG_IN, "", allowed, method="POST", path=path, peer=visit.address)
    operations.audit().note(decided)


ENDPOINTS = (
    Endpoint(
        "POST",
        PATH,
        log_in,
        Permission.LOG_IN,
        PLATFORM,
        "Log in to an account: the session is in a cookie",
        wire.LoggedIn,
        body=wire.Login,
        status=201,
    ),
    Endpoint(
        "DELETE",
        f"{PATH}/current",
        log_out,
        Permission.READ_SELF,
        PLATFORM,
        "Log out: the session is over",
        wire.LoggedOut,
    ),
    Endpoint("GET", "/admin/v1/me", me, Permission.READ_SELF, PLATFORM, "Who one is and what one may do", wire.Me),
    Endpoint(
        "POST",
        "/admin/v1/me/password",
        change_password,
        Permission.READ_SELF,
        PLATFORM,
        "Another password for oneself; all one's other sessions are over",
        wire.LoggedIn,
        body=wire.PasswordChange,
    ),
)
