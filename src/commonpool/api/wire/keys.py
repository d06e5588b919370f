"""Keys: those there are, and one to be made."""

from typing import Literal

import msgspec

from commonpool.api.wire.units import Ns
from commonpool.core.model import NO_LIMITS, Limits


class Key(msgspec.Struct, frozen=True):
    """A key without its secret.

    A `data` key belongs to an `app` of a `tenant`. An `admin` key has a `role`, in a tenant or on the platform (""),
    and belongs to an `account`, where somebody owns it. `tier` is the one of requests that name none. `models`, `tiers`
    and `networks` are those it may use and come from, null for all.
    """

    id: str
    scope: Literal["data", "admin"]
    tenant: str
    app: str
    tier: str | None
    models: tuple[str, ...] | None
    created_ns: int
    expires_ns: int | None
    revoked_ns: int | None
    note: str
    role: str
    account: str
    tiers: tuple[str, ...] | None
    networks: tuple[str, ...] | None
    limits: Limits


class Keys(msgspec.Struct, frozen=True):
    """All keys, the oldest first."""

    keys: tuple[Key, ...]


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a key is to be, as in `Key`. An `admin` key without a `role` is a platform-admin's."""

    tenant: str = ""
    app: str = ""
    scope: Literal["data", "admin"] = "data"
    tier: str | None = None
    models: tuple[str, ...] | None = None
    expires_ns: Ns | None = None
    note: str = ""
    role: str = ""
    account: str = ""
    tiers: tuple[str, ...] | None = None
    networks: tuple[str, ...] | None = None
    limits: Limits = NO_LIMITS


class CreatedKey(msgspec.Struct, frozen=True):
    """A new key. `key` is the key itself, which is never shown again."""

    key: str
    about: Key


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the old key still works beside the new one."""

    overlap_ns: Ns = 0
