"""What the admin API says and hears of people: accounts, sessions, and what somebody may do. Times are as in `wire`."""

from typing import Annotated

import msgspec

from commonpool.access.callers import Kind
from commonpool.api.wire.units import Ns
from commonpool.store.accounts import AccountKind

NOTE_CHARS_MAX = 200

Note = Annotated[str, msgspec.Meta(max_length=NOTE_CHARS_MAX, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Account(msgspec.Struct, frozen=True):
    """An account of the product's own. `disabled_ns` is since when it may not be used, null while it may.

    What it may do follows from `access.roles` of the configuration: `held` are those, `roles` as people read them.
    """

    name: str
    kind: AccountKind
    created_ns: Ns
    disabled_ns: Ns | None
    note: str
    roles: str
    held: tuple["Held", ...] = ()


class Accounts(msgspec.Struct, frozen=True):
    """All accounts, by name."""

    accounts: tuple[Account, ...]


class Session(msgspec.Struct, frozen=True):
    """Somebody who is logged in. `id` names the session and opens nothing; `current` is the one that asks.

    It is over at `expires_ns`, and an hour after it was used last (`used_ns`, to the minute).
    """

    id: str
    who: str
    created_ns: Ns
    used_ns: Ns
    expires_ns: Ns
    current: bool


class Sessions(msgspec.Struct, frozen=True):
    """Sessions that are not over, the newest first; of everybody's 1000 at most."""

    sessions: tuple[Session, ...]


class EndedSession(msgspec.Struct, frozen=True):
    """A session that is over, and whose it was."""

    id: str
    who: str


class NewAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An account to be made. A person has a password, a service has none: it comes with keys instead."""

    name: str
    kind: AccountKind = "person"
    password: str = ""
    note: Note = ""

    def __repr__(self) -> str:
        """Without the password."""
        return f"NewAccount(name={self.name!r}, kind={self.kind!r})"


class NewPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The password that an account is to have."""

    password: str

    def __repr__(self) -> str:
        """Without it."""
        return "NewPassword()"


class RemovedAccount(msgspec.Struct, frozen=True):
    """An account that is gone, and the ids of its keys, which are revoked."""

    name: str
    revoked_keys: tuple[str, ...]


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who wants to log in."""

    name: str
    password: str

    def __repr__(self) -> str:
        """Without the password."""
        return f"Login(name={self.name!r})"


class PasswordChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another password for oneself."""

    current: str
    new: str

    def __repr__(self) -> str:
        """Without both."""
        return "PasswordChange()"


class LoggedIn(msgspec.Struct, frozen=True):
    """Somebody who just logged in; the session is in the cookie that came with this."""

    name: str
    expires_ns: Ns


class LoggedOut(msgspec.Struct, frozen=True):
    """Nobody is logged in here any more."""


class Held(msgspec.Struct, frozen=True):
    """A role, in a tenant or, where that is null, on the platform."""

    role: str
    tenant: str | None


class May(msgspec.Struct, frozen=True):
    """Something that one may do: `words` say what, `tenants` to whom; null is to all.

    `platform`: also to what belongs to no tenant.
    """

    permission: str
    words: str
    tenants: tuple[str, ...] | None
    platform: bool


class Me(msgspec.Struct, frozen=True):
    """Who one is and what one may do. `expires_ns` is when one's session is over, null for who has none."""

    name: str
    kind: Kind
    roles: tuple[Held, ...]
    may: tuple[May, ...]
    expires_ns: Ns | None
