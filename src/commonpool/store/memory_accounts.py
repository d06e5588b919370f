"""Accounts and sessions in memory: the part of `store.memory` that keeps them."""

import msgspec

from commonpool.store.accounts import Account, Session, Whose
from commonpool.store.contract import Key


class MemoryAccounts:
    """An `accounts.AccountStore` that forgets everything at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._accounts: dict[str, Account] = {}
        self._sessions: dict[bytes, Session] = {}
        self._keys: dict[str, Key] = {}

    def add_account(self, account: Account) -> bool:
        """See `AccountStore.add_account`."""
        return self._accounts.setdefault(account.name, account) is account

    def accounts(self) -> tuple[Account, ...]:
        """See `AccountStore.accounts`."""
        return tuple(account for _, account in sorted(self._accounts.items()))

    def account(self, name: str) -> Account | None:
        """See `AccountStore.account`."""
        return self._accounts.get(name)

    def replace_account(self, old: Account, new: Account) -> bool:
        """See `AccountStore.replace_account`."""
        if self._accounts.get(old.name) != old:
            return False
        self._accounts[old.name] = new
        return True

    def remove_account(self, name: str, at_ns: int) -> tuple[str, ...] | None:
        """See `AccountStore.remove_account`."""
        if self._accounts.pop(name, None) is None:
            return None
        self._sessions = {at: session for at, session in self._sessions.items() if session.account != name}
        live = [key for key in self._keys.values() if key.account == name and key.revoked_ns is None]
        for key in live:
            self._keys[key.key_id] = msgspec.structs.replace(key, revoked_ns=at_ns)
        return tuple(sorted(key.key_id for key in live))

    def add_session(self, session: Session, unused_since_ns: int, keep: int) -> None:
        """See `AccountStore.add_session`."""
        now = session.created_ns
        kept = [each for each in self._sessions.values() if each.expires_ns > now and each.used_ns > unused_since_ns]
        its = [each for each in kept if _person(each) == _person(session)]
        its.sort(key=lambda each: (-each.created_ns, each.digest))
        beyond = {each.digest for each in its[keep - 1 :]}
        self._sessions = {each.digest: each for each in (*kept, session) if each.digest not in beyond}

    def session(self, digest: bytes) -> Session | None:
        """See `AccountStore.session`."""
        session = self._sessions.get(digest)
        if session is None or not session.account:
            return session
        account = self._accounts.get(session.account)
        if account is None or account.disabled_ns is not None or account.changed_ns != session.account_changed_ns:
            return None
        return session

    def sessions(
        self, now_ns: int, unused_since_ns: int, limit: int, whose: Whose | None = None
    ) -> tuple[Session, ...]:
        """See `AccountStore.sessions`."""
        found = [
            each
            for each in self._sessions.values()
            if each.expires_ns > now_ns
            and each.used_ns > unused_since_ns
            and (whose is None or _person(each) == _person(whose))
            and self.session(each.digest) is not None
        ]
        return tuple(sorted(found, key=lambda each: (-each.created_ns, each.digest))[:limit])

    def sessions_named(self, beginning: bytes) -> tuple[Session, ...]:
        """See `AccountStore.sessions_named`."""
        return tuple(each for digest, each in sorted(self._sessions.items()) if digest.startswith(beginning))

    def touch_session(self, digest: bytes, used_ns: int) -> None:
        """See `AccountStore.touch_session`."""
        if digest in self._sessions:
            self._sessions[digest] = msgspec.structs.replace(self._sessions[digest], used_ns=used_ns)

    def end_session(self, digest: bytes) -> None:
        """See `AccountStore.end_session`."""
        self._sessions.pop(digest, None)


def _person(session: Session | Whose) -> tuple[str, str, str]:
    return session.account, session.issuer, session.subject
