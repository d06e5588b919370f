"""What was taken to be answered later: kept encrypted until it is, then its answer, likewise, until it is too old.

The gateway takes it and does the work, `control.later` keeps it; here is what they know of each other.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from commonpool.core.effects import Refuse
from commonpool.core.model import Endpoint, Limits, Request

Stage = Literal["waiting", "running", "answered"]


class LaterHead(msgspec.Struct, frozen=True):
    """What can be told of it without its key. `request` is what the core knows of it.

    `status` is that of its answer, 0 while there is none. It waits until `until_ns`, and is kept until then once it has
    an answer. `size` is that of what is sealed, in bytes.
    """

    request: Request
    taken_ns: int
    until_ns: int
    status: int = 0
    size: int = 0

    @property
    def id(self) -> str:
        return self.request.id


class LaterText(msgspec.Struct, frozen=True):
    """What is sealed before the answer: the body for the engine and its endpoint, what is allowed to it by itself, and
    the header line of its trace.
    """

    endpoint: Endpoint
    body: bytes
    sizes: Limits
    trace: bytes = b""


class SealedLater(msgspec.Struct, frozen=True):
    """An entry: what is asked, or, once it has a status, the body of the answer."""

    head: LaterHead
    sealed: bytes


class LaterStore(Protocol):
    """The part of a store that keeps what is answered later."""

    def laters(self) -> tuple[LaterHead, ...]:
        """All that are kept and can be read, in the order in which they were taken."""

    def later(self, id_: str) -> SealedLater | None:
        """The entry of this id."""

    def add_later(self, entry: SealedLater) -> None:
        """Keeps a new one: it is there after a power cut when this returns."""

    def end_later(self, entry: SealedLater) -> bool:
        """Keeps the answer in the place of what was asked, where there is none yet; False where that is gone."""

    def delete_later(self, id_: str) -> bool:
        """Forgets it; False where it is gone."""


class Reply(msgspec.Struct, frozen=True):
    """What is answered in the end: a whole answer, or an error. The body is JSON."""

    status: int
    body: bytes


class Work(msgspec.Struct, frozen=True):
    """What is to be done now, of which so many attempts were made."""

    head: LaterHead
    text: LaterText
    attempts: int


class Owner(Protocol):
    """Whoever keeps a piece of work, as whoever does it sees it. It ends with one of the last three, or is dropped."""

    def runs(self, attempt: int) -> None:
        """An attempt is under way."""

    def answered(self, reply: Reply, then: Callable[[], None]) -> None:
        """Keep this, call `then`, and tell it whoever asks."""

    def refused(self, refusal: Refuse, reply: Reply) -> bool:
        """It does not run now; where it never will, this is the reply, and True is returned."""

    def stopped(self) -> None:
        """The product stops before it is done."""


class Underway(Protocol):
    """Work that is being done."""

    def drop(self) -> None:
        """Nobody wants it any more."""


class Server(Protocol):
    """Whoever does the work."""

    def serve(self, work: Work, owner: Owner) -> Underway | None:
        """Do it as soon as it may run; None where too much is held to begin anything."""


class LaterPlace(msgspec.Struct, frozen=True):
    """What is told of it: how far it is, and in how long it is worth asking again."""

    head: LaterHead
    stage: Stage
    retry_after_ns: int


class Keeper(Protocol):
    """Whoever keeps what is answered later."""

    def served_by(self, server: Server) -> None:
        """Have it done there from now on."""

    def takes(self, tenant: str, size: int) -> bool:
        """Whether there is room for one more of a tenant's, of this size in bytes."""

    async def keep(self, request: Request, text: LaterText) -> LaterPlace | None:
        """Take it: it is done whatever happens once this returns; None where there is no room.

        Raises StoreError or SecretsError where it cannot be kept.
        """

    def find(self, tenant: str, app: str, id_: str) -> LaterPlace | None:
        """What an app of a tenant has here under this id."""

    async def reply(self, id_: str) -> Reply | None:
        """The reply to what is answered, None where it was forgotten in the meantime. StoreError.

        Where it does not open any more the reply says so.
        """

    async def forget(self, id_: str) -> None:
        """Nobody wants it any more: it is not done, and nothing of it is kept. StoreError."""
