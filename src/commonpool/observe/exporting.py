"""Requests that are over, on their way to a collector: a bounded queue, and a thread that empties it in batches.

Nobody waits for it. What does not fit is dropped and counted; a collector that is away costs a line of log a minute.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec
import structlog

from commonpool.core.model import NS_PER_S
from commonpool.observe.exposition import Family
from commonpool.observe.spans import payload, spans
from commonpool.observe.traces import Ended

QUEUE_MAX: Final = 8192  # requests: those of a second at full load
BATCH_MAX: Final = 256
EVERY_S: Final = 1.0
AGAIN_S: Final = 5.0  # after a failure
CLOSE_S: Final = 5.0
SAY_EVERY_NS: Final = 60 * NS_PER_S
_AT_ONCE: Final = 4  # requests made into spans before other threads have their turn: a fraction of a millisecond
_OK_BELOW: Final = 300
_LATER: Final = frozenset({429, 502, 503, 504})  # by OTLP's own rules these are to be tried again

Send = Callable[[bytes], Awaitable[int]]
"""Posts a payload and gives the status. Raises ExportError where there is none."""

log = structlog.get_logger()


class ExportError(Exception):
    """A collector cannot be reached: which, and why."""


class Became(msgspec.Struct, frozen=True):
    """What became of traces of requests: taken by a collector, without room in the queue, or taken by none."""

    exported: int = 0
    queue_full: int = 0
    not_taken: int = 0

    def plus(self, other: "Became") -> "Became":
        return Became(
            self.exported + other.exported, self.queue_full + other.queue_full, self.not_taken + other.not_taken
        )

    def since(self, earlier: "Became") -> "Became":
        """What was added to an earlier count."""
        return Became(
            self.exported - earlier.exported, self.queue_full - earlier.queue_full, self.not_taken - earlier.not_taken
        )


def families(became: Became) -> Iterator[Family]:
    """What became of the traces, as metrics."""
    sent = [((), became.exported)]
    yield Family("traces_exported", "counter", "Traces of requests that a collector has taken.", (), sent)
    lost = [(("queue_full",), became.queue_full), (("not_taken",), became.not_taken)]
    yield Family("traces_dropped", "counter", "Traces that no collector has.", ("reason",), lost)


class Exporter:
    """`offer` is called on the event loop, the others from any thread. The thread begins with the first offer.

    `send` is called on this thread's own event loop. `resource` are attributes of whoever is traced. `clock` is
    monotonic, in nanoseconds.
    """

    def __init__(
        self,
        send: Send,
        resource: Mapping[str, str],
        *,
        queue_max: int = QUEUE_MAX,
        every_s: float = EVERY_S,
        again_s: float = AGAIN_S,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._send = send
        self._resource = resource
        self._queue_max = queue_max
        self._every_s = every_s
        self._again_s = again_s
        self._clock = clock
        self._queue: deque[Ended] = deque()
        self._exported = 0
        self._overflowed = 0
        self._failed = 0
        self._said_ns = -SAY_EVERY_NS
        self._started = False
        self._stopping = False
        self._wake: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="traces", daemon=True)

    def offer(self, ended: Ended) -> None:
        """Have this sent, if there is room for it."""
        if not self._started:
            self._started = True
            self._thread.start()
        if len(self._queue) < self._queue_max:
            self._queue.append(ended)
        else:
            self._overflowed += 1

    def close(self) -> None:
        """Send what is left, once, within CLOSE_S. Blocks."""
        self._stopping = True
        if self._thread.is_alive():
            self._wake()
            self._thread.join(CLOSE_S)

    @property
    def became(self) -> Became:
        """What became of the traces so far."""
        return Became(self._exported, self._overflowed, self._failed)

    # -- the thread ------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        woken = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._wake = partial(loop.call_soon_threadsafe, woken.set)
        while True:
            stopping = self._stopping
            while batch := [self._queue.popleft() for _ in range(min(BATCH_MAX, len(self._queue)))]:
                try:
                    await self._deliver(batch, woken)
                except Exception:
                    log.exception("traces cannot be made")  # a fault of ours
                    self._failed += len(batch)
            if stopping:
                return
            await _either(woken, self._every_s)

    async def _deliver(self, batch: list[Ended], woken: asyncio.Event) -> None:
        """Send a batch, again and again while there is hope; what comes meanwhile waits in the queue."""
        body = await self._made(batch)
        while True:
            why, later = await self._posted(body)
            if not why:
                self._exported += len(batch)
                return
            self._say(why)
            if self._stopping or not later:
                self._failed += len(batch)
                return
            await _either(woken, self._again_s)

    async def _made(self, batch: list[Ended]) -> bytes:
        found: list[bytes] = []
        for number, ended in enumerate(batch, 1):
            found += spans(ended)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)  # lets go of the interpreter, which requests are waiting for
        return payload(found, self._resource)

    async def _posted(self, body: bytes) -> tuple[str, bool]:
        """Why it was not taken, "" where it was, and whether to try again."""
        try:
            status = await self._send(body)
        except ExportError as error:
            return str(error), True
        return ("", False) if status < _OK_BELOW else (f"it answers {status}", status in _LATER)

    def _say(self, why: str) -> None:
        if self._clock() - self._said_ns >= SAY_EVERY_NS:
            self._said_ns = self._clock()
            log.warning("traces cannot be exported", reason=why, waiting=len(self._queue), dropped=self._overflowed)


async def _either(woken: asyncio.Event, seconds: float) -> None:
    """Return after a while, or sooner when it is to end."""
    try:
        async with asyncio.timeout(seconds):
            await woken.wait()
    except TimeoutError:
        pass
