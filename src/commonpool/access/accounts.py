"""Accounts of the product's own: people with a password, and services that have keys instead."""

import asyncio
import re
from collections.abc import Callable

import msgspec

from commonpool.access.passwords import Passwords, check
from commonpool.access.problems import AccountError, NameTakenError, NoAccountError
from commonpool.config.kinds import NAME_PATTERN
from commonpool.store.accounts import Account, AccountKind, AccountStore

ACCOUNTS_MAX = 10_000


class Accounts:
    """The accounts in a store. `clock` gives nanoseconds since the epoch."""

    def __init__(self, store: AccountStore, passwords: Passwords, clock: Callable[[], int]) -> None:
        self._store = store
        self._passwords = passwords
        self._clock = clock

    async def all(self) -> tuple[Account, ...]:
        """All accounts, by name."""
        return await asyncio.to_thread(self._store.accounts)

    async def add(self, name: str, kind: AccountKind, password: str, note: str = "") -> Account:
        """A new account: of a person with a password, of a service with "". Raises AccountError."""
        if not _is_name(name):
            raise AccountError(
                f"{name!r} is not a name of an account: 1 to 63 of a to z, 0 to 9, '.', '_' and '-', the first a "
                "letter or a digit"
            )
        if kind == "service" and password:
            raise AccountError("a service has no password, it has keys; leave the password out")
        if len(await self.all()) >= ACCOUNTS_MAX:
            raise AccountError(f"there are {ACCOUNTS_MAX} accounts, and no more may be; remove one")
        hashed = "" if kind == "service" else await self._hashed(password, name)
        now = self._clock()
        account = Account(name, kind, hashed, created_ns=now, changed_ns=now, note=note)
        if not await asyncio.to_thread(self._store.add_account, account):
            raise NameTakenError(f"there is an account {name!r} already; choose another name")
        return account

    async def set_password(self, name: str, password: str) -> Account:
        """Another password; what was opened with the old one is over. Raises AccountError."""
        if (await self.find(name)).kind == "service":
            raise AccountError(f"account {name!r} is a service, which has keys and no password")
        hashed = await self._hashed(password, name)
        return await self._change(name, lambda account: msgspec.structs.replace(account, password=hashed))

    async def disable(self, name: str) -> Account:
        """The account may not be used when this returns. Raises NoAccountError."""
        now = self._clock()
        return await self._change(
            name, lambda account: msgspec.structs.replace(account, disabled_ns=account.disabled_ns or now)
        )

    async def enable(self, name: str) -> Account:
        """The account may be used again; who was logged in has to do it again. Raises NoAccountError."""
        return await self._change(name, lambda account: msgspec.structs.replace(account, disabled_ns=None))

    async def remove(self, name: str) -> tuple[str, ...]:
        """The account is gone, and its keys are revoked: their ids. Raises NoAccountError."""
        await self.find(name)
        revoked = await asyncio.to_thread(self._store.remove_account, name, self._clock())
        if revoked is None:
            raise _no_account(name)
        return revoked

    async def find(self, name: str) -> Account:
        """Raises NoAccountError."""
        account = await self.look_up(name)
        if account is None:
            raise _no_account(name)
        return account

    async def look_up(self, name: str) -> Account | None:
        """The account of this name. The store is not asked for what is no name: not every one takes every text."""
        return await asyncio.to_thread(self._store.account, name) if _is_name(name) else None

    async def proven(self, name: str, password: str) -> Account | None:
        """The account, if that is its password and it may be used; the same work whether there is such an account.

        Raises TooManyGuessesError where too many log in at once. How often somebody may try is not counted here.
        """
        account = await self.look_up(name)
        usable = account is not None and account.kind == "person" and account.disabled_ns is None
        kept = account.password if account is not None and usable else ""
        if not await self._passwords.matches(kept, password) or account is None or not kept:
            return None
        if self._passwords.is_outdated(kept):
            stronger = msgspec.structs.replace(account, password=await self._passwords.hashed(password))
            if await asyncio.to_thread(self._store.replace_account, account, stronger):
                return stronger
        return account

    async def _hashed(self, password: str, name: str) -> str:
        check(password, name)
        return await self._passwords.hashed(password)

    async def _change(self, name: str, change: Callable[[Account], Account]) -> Account:
        """Change it as it is, whoever else changes it at the same time."""
        while True:
            old = await self.find(name)
            changed = msgspec.structs.replace(change(old), changed_ns=max(self._clock(), old.changed_ns + 1))
            if await asyncio.to_thread(self._store.replace_account, old, changed):
                return changed


def _is_name(text: str) -> bool:
    return re.match(NAME_PATTERN, text) is not None and "\n" not in text


def _no_account(name: str) -> NoAccountError:
    return NoAccountError(f"there is no account {name!r}; `commonpool accounts list` shows those there are")
