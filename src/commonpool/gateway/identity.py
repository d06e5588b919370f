"""Who is calling: from the `Authorization` header to a principal. The credential alone says who the tenant is.

Keys are held by their id with a salted digest; no raw key is kept or remembered between calls. Single-threaded: the
event loop that serves requests also adds and revokes, and the next request already sees it.
"""

import hmac
from collections.abc import Callable, Iterable

import msgspec

from commonpool.core.keys import ID, KEY_LENGTH
from commonpool.core.limits import size_limits
from commonpool.core.model import NO_LIMITS, Limits
from commonpool.core.networks import Networks
from commonpool.store.contract import Key, Scope
from commonpool.store.keys import digest

_NOBODY = (b"", bytes(32), None, None, None)


class Principal(msgspec.Struct, frozen=True):
    """Who a key stands for. `tier` is the default for requests that name none; `models` and `tiers` None is all of the
    tenant's. `sizes` are its own limits on each request. `role` and `account` are an admin key's.
    """

    key_id: str
    tenant: str
    app: str
    tier: str | None
    models: tuple[str, ...] | None
    scope: Scope
    tiers: tuple[str, ...] | None = None
    sizes: Limits = NO_LIMITS
    role: str = ""
    account: str = ""


class Identity:
    """The keys that are live now. `clock` gives nanoseconds since the epoch, by which keys end."""

    def __init__(self, keys: Iterable[Key], clock: Callable[[], int]) -> None:
        self._clock = clock
        self._live: dict[bytes, tuple[bytes, bytes, int | None, Networks | None, Principal | None]] = {}
        for key in keys:
            self.add(key)

    def identify(self, authorization: bytes, peer: str | None) -> Principal | None:
        """The principal of an `Authorization` header's value, `Bearer KEY`, that came from the address `peer`.

        None where it names no live key, or one that may not come from there. `peer` is who is connected, never what a
        header says; None where that has no address. An unknown id takes the same work as a known one, and digests are
        compared in constant time.
        """
        scheme, _, text = authorization.strip().partition(b" ")
        text = text.lstrip()
        if len(text) != KEY_LENGTH or scheme.lower() != b"bearer":
            return None
        salt, expected, expires_ns, networks, principal = self._live.get(text[ID], _NOBODY)
        if not hmac.compare_digest(digest(salt, text), expected):
            return None
        if expires_ns is not None and expires_ns <= self._clock():
            return None
        return principal if networks is None or networks.hold(peer) else None

    def add(self, key: Key) -> None:
        """A new or changed key: from the next call on it counts as it is here, a revoked one not at all."""
        if key.revoked_ns is not None:
            self.revoke(key.key_id)
            return
        principal = Principal(
            key.key_id,
            key.tenant,
            key.app,
            key.tier,
            key.models,
            key.scope,
            key.tiers,
            size_limits(key.limits),
            key.role,
            key.account,
        )
        networks = None if key.networks is None else Networks(key.networks)
        self._live[key.key_id.encode()] = (key.salt, key.digest, key.expires_ns, networks, principal)

    def revoke(self, key_id: str) -> None:
        """The key counts no more from the next call on. An unknown id is no error: it does not count already."""
        self._live.pop(key_id.encode(), None)
