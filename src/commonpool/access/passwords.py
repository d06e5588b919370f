"""Passwords that people choose: kept as argon2id hashes, checked on a thread of their own.

One check takes 64 MiB and some tens of milliseconds, on purpose (RFC 9106, the second recommended choice). One thread
does them all, so that a flood of logins takes no more memory than that and leaves the machine to others; beyond a few
that wait, a login is refused rather than queued.
"""

import asyncio
import base64
import secrets
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from commonpool.access.problems import PasswordError, TooManyGuessesError

CHARS_MIN = 12
BYTES_MAX = 1024  # no password is longer; hashing is no way to keep the product busy
WAITING_MAX = 16
BUSY_NS = 1_000_000_000

T = TypeVar("T")


def check(password: str, name: str) -> None:
    """Raise PasswordError unless this may be the password of the account of this name."""
    if len(password) < CHARS_MIN:
        raise PasswordError(f"the password has {len(password)} characters; choose one of at least {CHARS_MIN}")
    if len(_bytes(password)) > BYTES_MAX:
        raise PasswordError(f"the password is longer than {BYTES_MAX} bytes; choose a shorter one")
    if len(set(password)) < CHARS_MIN // 2 or name in password.lower():
        raise PasswordError("the password repeats a few characters, or has the account's name in it; choose another")


class Passwords:
    """Makes and checks hashes. `hasher` says how much work each is."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = PasswordHasher() if hasher is None else hasher
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        self._waiting = 0
        self._nobodys = _unmatched(self._hasher)

    async def hashed(self, password: str) -> str:
        """The hash to keep. Raises TooManyGuessesError where too many wait."""
        return await self._run(lambda: self._hasher.hash(_bytes(password)))

    async def matches(self, kept: str, password: str) -> bool:
        """Whether the password is the one that was hashed; with "" it is none, after the same work.

        Raises TooManyGuessesError where too many wait.
        """
        text = _bytes(password)
        return len(text) <= BYTES_MAX and await self._run(lambda: self._verify(kept or self._nobodys, text))

    def is_outdated(self, kept: str) -> bool:
        """Whether the hash was made with less work than one would be now, or other."""
        return self._hasher.check_needs_rehash(kept)

    def close(self) -> None:
        """What waits is dropped."""
        self._thread.shutdown(cancel_futures=True)

    def _verify(self, kept: str, text: bytes) -> bool:
        try:
            return self._hasher.verify(kept, text)
        except (VerificationError, InvalidHashError):
            return False

    async def _run(self, work: Callable[[], T]) -> T:
        if self._waiting >= WAITING_MAX:
            raise TooManyGuessesError("too many log in at this moment; try again in a second", BUSY_NS)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1


def _bytes(password: str) -> bytes:
    """The same for every way to type the same characters (RFC 8265, OpaqueString)."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")


def _unmatched(hasher: PasswordHasher) -> str:
    """A hash that costs what one of `hasher` costs to check, and that no password has."""
    salt, digest = (_unpadded(secrets.token_bytes(size)) for size in (hasher.salt_len, hasher.hash_len))
    return f"$argon2id$v=19$m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}${salt}${digest}"


def _unpadded(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")
