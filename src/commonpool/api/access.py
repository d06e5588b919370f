"""Who is calling the control plane: a holder of a credential, or a program on the same machine.

A request without a credential is taken as local only when nothing speaks against it: its peer is loopback, no proxy
passed it on, its Host is a loopback name (a page of the web that rebinds its own name to 127.0.0.1 still sends that
name), and, where it changes something, no page of another origin sent it.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from commonpool.access.callers import LOCAL, Caller
from commonpool.access.people import Visit
from commonpool.access.permissions import WORDS, Permission
from commonpool.access.problems import AccessError
from commonpool.api.operations import OperationError, Operations
from commonpool.api.refusals import NotLoggedInError, refusal

PASSED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
READING = frozenset({"GET", "HEAD"})


class KeyNeededError(NotLoggedInError):
    """No key, or none that is valid."""

    code = "invalid_api_key"


class ForbiddenError(OperationError):
    """The wrong way in, or a permission that is missing."""

    status = 403
    kind = "permission_error"
    code = "forbidden"


def may_not(caller: Caller, permission: Permission, where: str = "") -> ForbiddenError:
    """What somebody is told who lacks a permission."""
    if permission in (Permission.KEEP_PROMPTS, Permission.READ_PROMPTS):
        return ForbiddenError(
            f"{caller.name} ({caller.roles}) may not {WORDS[permission]}{where}; only a tenant's own tenant-admins and "
            "developers may: `commonpool keys create --scope admin --tenant TENANT --role tenant-admin` makes one a key"
        )
    return ForbiddenError(
        f"{caller.name} ({caller.roles}) may not {WORDS[permission]}{where}; ask a platform-admin for a role that may"
    )


def came(address: str | None, headers: Mapping[str, str], *, tls: bool) -> Visit:
    """How somebody came from this address with these headers, whose names are lower case."""
    here = is_loopback(address) and not any(name in headers for name in PASSED_ON)
    return Visit(address or "", tls, here, headers)


async def identified(operations: Operations, method: str, visit: Visit, *, passive: bool = False) -> Caller:
    """Who calls. Raises one of these errors where that is nobody. `passive`: a session is not used by it."""
    try:
        person = await operations.people().caller(method, visit, passive=passive)
    except AccessError as error:
        raise refusal(error) from None
    if person is not None:
        return person
    authorization = visit.headers.get("authorization")
    if authorization is not None:
        caller = await operations.by_key(authorization.encode("latin-1"), visit.address or None)
        if caller is None:
            raise KeyNeededError("the key is not valid; give a live one as `Bearer cp_…`")
        return caller
    _check_local(method, visit)
    if not operations.config().access.local:
        raise KeyNeededError("a credential is needed on this machine too (access.local): `Authorization: Bearer cp_…`")
    return LOCAL


def _check_local(method: str, visit: Visit) -> None:
    """Raise one of these errors unless this comes from a program on the same machine."""
    if not visit.here:
        raise KeyNeededError("a key is needed from another machine: `Authorization: Bearer cp_…`")
    host = visit.headers.get("host", "")
    if not is_loopback(hostname(host)):
        raise ForbiddenError(f"the Host {host!r} is not a loopback name; use http://127.0.0.1 or give a key")
    origin = visit.headers.get("origin")
    if method not in READING and origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        raise ForbiddenError(f"a page of {origin!r} may not change anything here; use the commands or a key")


def hostname(host: str) -> str | None:
    """The name in a Host header, without its port; None when it is not one."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def is_loopback(host: str | None) -> bool:
    """Whether this address or name is this machine's own, by its form alone: nothing is looked up."""
    if host is None:
        return False
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
