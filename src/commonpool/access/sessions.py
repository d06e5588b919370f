"""Sessions: who is logged in. The browser has 256 random bits, the store has their digest.

Each request asks the store, so a session that ended counts nowhere any more, whichever process serves.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from contextlib import suppress

import msgspec

from commonpool.core.model import NS_PER_S
from commonpool.store.accounts import AccountStore, Session, Whose
from commonpool.store.contract import StoreError

IDLE_NS = 3600 * NS_PER_S  # not used for so long, it is over
LIFE_NS = 12 * IDLE_NS  # a working day; then one logs in again
TOUCH_NS = 60 * NS_PER_S  # how exactly it is known when it was used last
PER_PERSON_MAX = 16
LISTED_MAX = 1000  # of everybody's, the newest
TOKEN_BYTES = 32
NAME_BYTES = 8  # of the digest: enough to tell sessions apart, and nothing that opens one


class Opened(msgspec.Struct, frozen=True):
    """A session that was just opened. `token` is what the browser is to have, and nobody else."""

    token: str
    session: Session

    def __repr__(self) -> str:
        """Without the token, so that no log or traceback has it."""
        return f"Opened({self.session!r})"


class Sessions:
    """The sessions in a store. `clock` gives nanoseconds since the epoch."""

    def __init__(self, store: AccountStore, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock

    async def open(
        self,
        *,
        account: str = "",
        account_changed_ns: int = 0,
        issuer: str = "",
        subject: str = "",
        email: str = "",
        member_of: tuple[str, ...] = (),
    ) -> Opened:
        """A new session, of an account or of a person of the issuer, as in `store.accounts.Session`."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        now = self._clock()
        session = Session(
            digest=_digest(token),
            created_ns=now,
            used_ns=now,
            expires_ns=now + LIFE_NS,
            account=account,
            account_changed_ns=account_changed_ns,
            issuer=issuer,
            subject=subject,
            email=email,
            member_of=member_of,
        )
        await asyncio.to_thread(self._store.add_session, session, now - IDLE_NS, PER_PERSON_MAX)
        return Opened(token, session)

    async def find(self, token: str, *, passive: bool = False) -> Session | None:
        """The session of this token, if it is not over; that it was used now is noted, unless it is `passive`."""
        digest = _digest(token)
        session = await asyncio.to_thread(self._store.session, digest)
        now = self._clock()
        if session is None or session.expires_ns <= now or session.used_ns + IDLE_NS <= now:
            return None
        if not passive and session.used_ns + TOUCH_NS <= now:
            with suppress(StoreError):  # what cannot be written now, the next request writes
                await asyncio.to_thread(self._store.touch_session, digest, now)
        return session

    async def of(self, session: Session) -> tuple[Session, ...]:
        """Those that are not over of the person whose this one is, the newest first."""
        return await self._listed(PER_PERSON_MAX, _whose(session))

    async def all(self) -> tuple[Session, ...]:
        """Those of everybody that are not over, the newest first, LISTED_MAX at most."""
        return await self._listed(LISTED_MAX, None)

    async def end_named(self, name: str, of: Session | None = None) -> Session | None:
        """The session of this name is over when this returns, if there is one, where `of` is given of that person's."""
        try:
            beginning = bytes.fromhex(name)
        except ValueError:
            return None
        found = await asyncio.to_thread(self._store.sessions_named, beginning) if len(beginning) == NAME_BYTES else ()
        for session in found:
            if of is None or _whose(session) == _whose(of):
                await asyncio.to_thread(self._store.end_session, session.digest)
                return session
        return None

    async def _listed(self, limit: int, whose: Whose | None) -> tuple[Session, ...]:
        now = self._clock()
        return await asyncio.to_thread(self._store.sessions, now, now - IDLE_NS, limit, whose)

    async def end(self, token: str) -> None:
        """The session of this token is over when this returns."""
        await asyncio.to_thread(self._store.end_session, _digest(token))


def name_of(session: Session) -> str:
    """What people call a session; it is no secret."""
    return session.digest[:NAME_BYTES].hex()


def _whose(session: Session) -> Whose:
    return Whose(session.account, session.issuer, session.subject)


def _digest(token: str) -> bytes:
    """A digest without salt is enough: nobody guesses 256 random bits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
