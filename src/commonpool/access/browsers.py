"""What browsers need: cookies that only they send and only to us, and proof that a change comes from our own page."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

READING = frozenset({"GET", "HEAD"})

SESSION = "commonpool"
LOGIN = "commonpool-login"

_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}|/")  # printable ASCII without backslashes, and not //host


def cookie(name: str, value: str, age_s: int, *, secure: bool, same_site: str = "Strict") -> str:
    """A `Set-Cookie` header's value. With age 0 the browser forgets the cookie.

    Over TLS the name has the prefix `__Host-`: no other host and no page over plain HTTP can set one like it.
    """
    kept = f"{_named(name, secure=secure)}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite={same_site}"
    return f"{kept}; Secure" if secure else kept


def picked(header: str, name: str, *, secure: bool) -> str | None:
    """The value of a cookie in a `Cookie` header; None where it is not there, or twice: then somebody else set one."""
    named = _named(name, secure=secure)
    found = [
        value.strip() for key, _, value in (part.partition("=") for part in header.split(";")) if key.strip() == named
    ]
    return found[0] if len(found) == 1 else None


def is_own_page(headers: Mapping[str, str]) -> bool:
    """Whether a request comes from a page of the host that it goes to. `headers` has lower-case names.

    `Origin` and `Sec-Fetch-Site` are set by the browser, not by pages; one of them is there with every change that a
    browser of today sends. What shows neither is not known to be one.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is None and origin is None:
        return False
    return site in (None, "same-origin") and (origin is None or _host(origin) == headers.get("host", "").lower() != "")


def local_path(text: str) -> str:
    """Where to go after a login: the same where it is a path on this host, else `/`."""
    return text if _PATH.fullmatch(text) else "/"


def _named(name: str, *, secure: bool) -> str:
    return f"__Host-{name}" if secure else name


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
