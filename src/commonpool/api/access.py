"""Who may use the admin API: a holder of an admin key, or a program on the same machine.

A request without a key is taken as local only when nothing speaks against it: its peer is loopback, no proxy passed it
on, its Host is a loopback name (a page of the web that rebinds its own name to 127.0.0.1 still sends that name), and,
where it changes something, no page of another origin sent it.
"""

import ipaddress
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from commonpool.api.operations import OperationError

PASSED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
READING = frozenset({"GET", "HEAD"})


class KeyNeededError(OperationError):
    """No key, or none that is valid."""

    status = 401
    kind = "authentication_error"
    code = "invalid_api_key"


class ForbiddenError(OperationError):
    """The wrong way in, where a key is not what is missing."""

    status = 403
    kind = "permission_error"
    code = "forbidden"


def check(method: str, peer: str | None, headers: Mapping[str, str], admin: Callable[[bytes], bool]) -> None:
    """Raise one of these errors unless this caller may use the admin API. `headers` has lower-case names."""
    authorization = headers.get("authorization")
    if authorization is not None:
        if not admin(authorization.encode("latin-1")):
            raise KeyNeededError("the admin key is not valid; give a live key of scope admin as `Bearer cp_…`")
        return
    if not is_loopback(peer) or any(name in headers for name in PASSED_ON):
        raise KeyNeededError("an admin key is needed from another machine: `Authorization: Bearer cp_…`")
    host = headers.get("host", "")
    if not is_loopback(hostname(host)):
        raise ForbiddenError(f"the Host {host!r} is not a loopback name; use http://127.0.0.1 or give an admin key")
    origin = headers.get("origin")
    if method not in READING and origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        raise ForbiddenError(f"a page of {origin!r} may not change anything here; use the commands or an admin key")


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
