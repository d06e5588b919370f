"""What is kept of people and machines that come to the control plane: accounts, and who is logged in."""

from typing import Literal, Protocol

import msgspec

AccountKind = Literal["person", "service"]


class Account(msgspec.Struct, frozen=True):
    """An account of the product's own. A person has a password, which is an argon2id hash; a service has keys.

    `changed_ns` is when the account was made, its password set, or it was disabled or enabled, whichever was last: what
    was opened for another state of it is over. `disabled_ns` is None while it may be used.
    """

    name: str
    kind: AccountKind
    password: str
    created_ns: int
    changed_ns: int
    disabled_ns: int | None = None
    note: str = ""

    def __repr__(self) -> str:
        """Without the hash, so that no log or traceback has it."""
        return f"Account(name={self.name!r}, kind={self.kind!r})"


class Session(msgspec.Struct, frozen=True):
    """Somebody who is logged in. `digest` is SHA-256 of what the browser has.

    It is an account's, as that was at `account_changed_ns`; or, where `account` is "", that of a person whom `issuer`
    knows as `subject`, with the groups and the verified `email` ("" for none) that it told at the login.
    """

    digest: bytes
    created_ns: int
    used_ns: int
    expires_ns: int
    account: str = ""
    account_changed_ns: int = 0
    issuer: str = ""
    subject: str = ""
    email: str = ""
    member_of: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without the digest."""
        return f"Session(account={self.account!r}, subject={self.subject!r})"


class Whose(msgspec.Struct, frozen=True):
    """A person whose sessions are meant: as in `Session`."""

    account: str
    issuer: str
    subject: str


class AccountStore(Protocol):
    """The part of a store that keeps accounts and sessions. What it has taken survives a power cut."""

    def add_account(self, account: Account) -> bool:
        """Keeps a new account; False where its name is taken."""

    def accounts(self) -> tuple[Account, ...]:
        """All accounts, by name."""

    def account(self, name: str) -> Account | None:
        """The account of this name."""

    def replace_account(self, old: Account, new: Account) -> bool:
        """Keeps `new` in place of `old`, of the same name; False where it is not `old` any more that is kept."""

    def remove_account(self, name: str, at_ns: int) -> tuple[str, ...] | None:
        """Ends an account with its sessions, and revokes its keys; the ids of these. None where there is no such."""

    def add_session(self, session: Session, unused_since_ns: int, keep: int) -> None:
        """Keeps a new session, and of its person's the newest `keep` with it.

        Forgets all that are over by then: expired, or not used after `unused_since_ns`.
        """

    def session(self, digest: bytes) -> Session | None:
        """The session; None too where its account is disabled, gone, or has changed since."""

    def sessions(
        self, now_ns: int, unused_since_ns: int, limit: int, whose: Whose | None = None
    ) -> tuple[Session, ...]:
        """The newest that are not over (as in `session` and `add_session`), of one person or of all."""

    def sessions_named(self, beginning: bytes) -> tuple[Session, ...]:
        """Those whose digest begins so."""

    def touch_session(self, digest: bytes, used_ns: int) -> None:
        """Notes that a session was used, if it is there."""

    def end_session(self, digest: bytes) -> None:
        """Forgets a session, if it is there."""
