"""Who one is: logging in and out by name and password, what one may do, another password for oneself.

Browsers that log in by a form or by the issuer do so in `login`.
"""

import msgspec

from commonpool.access.audit import Decided
from commonpool.access.callers import NOBODY, Caller
from commonpool.access.people import Open, Visit
from commonpool.access.permissions import WORDS, Permission
from commonpool.access.problems import AccessError
from commonpool.api.http import Endpoint, Headed, Nothing
from commonpool.api.operations import NotFoundError, Operations
from commonpool.api.subjects import PLATFORM, Who
from commonpool.api.wire import people as wire

PATH = "/admin/v1/sessions"
OWN_PATH = "/admin/v1/me/sessions"
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


class BySession(msgspec.Struct, frozen=True):
    """One session, by its id."""

    session: str


async def own(operations: Operations, _: Nothing, who: Who) -> wire.Sessions:
    return wire.Sessions(tuple(map(_session, await operations.people().own_sessions(who.visit))))


async def every(operations: Operations, _: Nothing, who: Who) -> wire.Sessions:
    return wire.Sessions(tuple(map(_session, await operations.people().all_sessions(who.visit))))


async def end_own(operations: Operations, which: BySession, who: Who) -> wire.EndedSession:
    whose = await operations.people().end_own_session(which.session, who.visit)
    if whose is None:
        raise NotFoundError(f"you have no session {which.session[:80]!r}; GET {OWN_PATH} lists yours", param="session")
    return wire.EndedSession(which.session, whose)


async def end(operations: Operations, which: BySession, _: Who) -> wire.EndedSession:
    whose = await operations.people().end_session(which.session)
    if whose is None:
        raise NotFoundError(f"there is no session {which.session[:80]!r}; GET {PATH} lists all", param="session")
    return wire.EndedSession(which.session, whose)


def _session(open_: Open) -> wire.Session:
    return wire.Session(open_.name, open_.who, open_.created_ns, open_.used_ns, open_.expires_ns, open_.current)


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
    Endpoint(
        "GET",
        PATH,
        every,
        Permission.MANAGE_ACCOUNTS,
        PLATFORM,
        "Who is logged in",
        wire.Sessions,
    ),
    Endpoint(
        "DELETE",
        f"{PATH}/{{session}}",
        end,
        Permission.MANAGE_ACCOUNTS,
        PLATFORM,
        "Somebody's session is over, and the streams of events that it opened",
        wire.EndedSession,
        BySession,
    ),
    Endpoint("GET", OWN_PATH, own, Permission.READ_SELF, PLATFORM, "Where one is logged in", wire.Sessions),
    Endpoint(
        "DELETE",
        f"{OWN_PATH}/{{session}}",
        end_own,
        Permission.READ_SELF,
        PLATFORM,
        "One of one's own sessions is over",
        wire.EndedSession,
        BySession,
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
