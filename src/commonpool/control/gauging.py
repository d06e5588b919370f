"""Reads now and then what an engine says of itself, beside its health checks: nothing waits for it, nor depends on it.

An engine with clearly more in it than was sent from here is used past the gateway. A page that is not read for some
time says nothing any more: what the engine does is unknown then, and not 0.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from commonpool.backends import probe
from commonpool.backends.base import BackendError
from commonpool.engines import gauges
from commonpool.engines.base import Target
from commonpool.engines.gauges import Gauges

HTTP_OK: Final = 200
# What may be a moment's difference: an engine hears later than the gateway that a client has left.
FOREIGN_MIN: Final = 2
FOREIGN_PART: Final = 4  # of what was sent, a fourth


class Gauged(msgspec.Struct, frozen=True):
    """What an engine said at `at_ns`. `gauges` is None where that is too long ago to say anything of now.

    `foreign` is how many of its sequences were not sent from here, 0 where that is not clear.
    """

    at_ns: int
    gauges: Gauges | None
    foreign: int = 0


class Gauging:
    """What one engine says of itself. Belongs to one event loop.

    `sent` is how many sequences run in the engine at an address by our own count. What was read holds for `fresh_ns`.
    """

    def __init__(
        self, *, clock: Callable[[], int], sent: Callable[[Target], int], every: int, fresh_ns: int, timeout_ns: int
    ) -> None:
        self._clock = clock
        self._sent = sent
        self._every = every
        self._fresh_ns = fresh_ns
        self._timeout_ns = timeout_ns
        self._checks = 0
        self._reading: asyncio.Task[None] | None = None
        self._last: Gauged | None = None

    def checked(self, target: Target) -> None:
        """The engine is well: begin to read it, at every so many of these, and not while it is being read."""
        turn = self._checks % self._every == 0
        self._checks += 1
        if turn and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read(target), name=f"gauges of {target.replica_id}")

    def last(self) -> Gauged | None:
        """What it said last; None where it never said anything."""
        last = self._last
        if last is None or self._clock() - last.at_ns <= self._fresh_ns:
            return last
        return Gauged(last.at_ns, None)

    def end(self) -> None:
        """Read it no more."""
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self, target: Target) -> None:
        adapter = target.adapter
        if adapter.metrics_path is None or adapter.metric_names is None:
            return
        before = self._sent(target)
        try:
            answer = await probe.ask(target, "GET", adapter.metrics_path, b"", self._timeout_ns)
        except BackendError:
            return
        found = gauges.read(answer.body, adapter.metric_names) if answer.status == HTTP_OK else None
        if found is not None:
            foreign = self._foreign(found, max(before, self._sent(target)))
            self._last = Gauged(self._clock(), found, foreign)

    def _foreign(self, found: Gauges, sent: int) -> int:
        """How many are not ours, where it is clear: it has many more, and works, so that it shows what is."""
        before = None if self._last is None else self._last.gauges
        if found.work is not None and (before is None or before.work is None or found.work <= before.work):
            return 0
        foreign = found.running + (found.waiting or 0) - sent
        return foreign if foreign >= max(FOREIGN_MIN, sent // FOREIGN_PART) else 0
