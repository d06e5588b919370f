"""Advice on the running product: made in a process of its own when it is asked for, one at a time, kept for an hour."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from commonpool.api.wire import config as wire
from commonpool.api.wire.advice import Advised
from commonpool.app.planner import Planned, frame
from commonpool.config import Config, Sources
from commonpool.core.model import NS_PER_HOUR, UsageRecord
from commonpool.store.contract import Filters, Place, StoreError

WINDOW_NS: Final = 14 * 24 * NS_PER_HOUR
KEPT_NS: Final = NS_PER_HOUR
# A hundred thousand tasks show a tenant's days and nights; more would take minutes to replay.
RECORDS_MAX: Final = 100_000
BATCH: Final = 1000
WITHIN_S: Final = 600.0
COMMAND: Final = (sys.executable, "-c", "from commonpool.app import planner; planner.main()")

log = logging.getLogger(__name__)


class Known(Protocol):
    """Whoever knows what advice is learned from."""

    def now_ns(self) -> int:
        """The time, since the epoch."""

    def config(self) -> Config:
        """The configuration in force."""

    def sources(self) -> Sources:
        """Its files."""

    async def records(
        self, since_ns: int, until_ns: int, after: Place | None, limit: int, filters: Filters, *, newest: bool = False
    ) -> Sequence[UsageRecord]:
        """As the store's, and complete."""


Run = Callable[[Sources, Callable[[], Awaitable[bytes]]], Awaitable[Planned]]


class Advisor:
    """`look` is answered at once, from memory; it starts the making where there is nothing, or nothing new enough.

    `run` has a plan made of sources and batches of records: `in_process` does it elsewhere.
    """

    def __init__(self, known: Known, run: Run) -> None:
        self._known = known
        self._run = run
        self._advised: Advised | None = None
        self._looked_ns = 0
        self._making: asyncio.Task[None] | None = None

    def look(self) -> Advised:
        known, revision = self._advised, self._known.config().policy.revision
        old = known is None or self._known.now_ns() - self._looked_ns >= KEPT_NS
        changed = known is not None and known.wanted is not None and known.wanted.revision != revision
        if (old or changed) and self._making is None:
            self._making = asyncio.create_task(self._make())
        if known is None or changed:
            return Advised("making")
        return known

    async def close(self) -> None:
        """Make no more."""
        if self._making is not None:
            self._making.cancel()
            with suppress(asyncio.CancelledError):
                await self._making

    async def _make(self) -> None:
        config, sources = self._known.config(), self._known.sources()
        try:
            planned = await self._run(sources, Batches(self._known).next)
        except (OSError, TimeoutError, StoreError, OverflowError, msgspec.DecodeError) as error:
            log.warning("no advice could be made: %s", error)
            planned = Planned(why=f"it could not be made ({type(error).__name__}); the product's log says why")
        finally:
            self._making = None
        self._looked_ns = self._known.now_ns()
        if planned.plan is None or planned.sources is None:
            self._advised = Advised("failed", self._looked_ns, planned.why)
            return
        wanted = wire.Configuration(planned.sources, config.policy.revision)
        self._advised = Advised("made", self._looked_ns, "", config.currency, planned.plan, wanted)


class Batches:
    """The newest records of the time that advice looks at, `most` at most, packed; `next` is b"" behind the last."""

    def __init__(self, known: Known, most: int = RECORDS_MAX) -> None:
        self._known = known
        self._until_ns = known.now_ns()
        self._after: Place | None = None
        self._left = most
        self._encoder = msgspec.msgpack.Encoder()

    async def next(self) -> bytes:
        if self._left <= 0:
            return b""
        since_ns = max(0, self._until_ns - WINDOW_NS)
        found = await self._known.records(since_ns, self._until_ns, self._after, BATCH, {}, newest=True)
        self._left = self._left - len(found) if len(found) == BATCH else 0
        if not found:
            return b""
        last = found[-1]
        self._after = last.arrived_ns, last.request_id, last.attempt
        return self._encoder.encode(found)


async def in_process(sources: Sources, batch: Callable[[], Awaitable[bytes]]) -> Planned:
    """Have `planner` make the plan. Raises OSError, TimeoutError, msgspec.DecodeError."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            assert process.stdin is not None  # noqa: S101 - it is a pipe
            assert process.stdout is not None  # noqa: S101 - as above
            process.stdin.write(frame(msgspec.msgpack.encode(sources)))
            while content := await batch():
                process.stdin.write(frame(content))
                await process.stdin.drain()
            process.stdin.close()
            answer = await process.stdout.read()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return msgspec.json.decode(answer, type=Planned)
