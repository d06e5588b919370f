"""Waits are counted, rolled and forgotten as time goes on, and promises are looked at over each of their times."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from commonpool.config import parse
from commonpool.control.waits import EVERY_S, HOURS_KEPT_NS, WINDOWS_KEPT_NS, WaitBooks
from commonpool.core.burn import OVER_NS, Promise
from commonpool.core.model import NS_PER_HOUR as HOUR
from commonpool.core.model import NS_PER_S as S
from commonpool.core.model import Tier
from commonpool.core.waits import DAY_NS, MINUTE_NS, WINDOW_NS
from commonpool.store.contract import StoreError
from commonpool.store.memory import MemoryStore
from commonpool.store.waits import Counted, Uncounted
from tests.store.records import T0, usage_record

AT_ONCE = 20
ASKED_MAX = 60
CONFIG = """\
pools: {main: {gpus: 4}}
models: {m: {version: 1, pool: main, gpu: 1, slots: 1, context: 9, engine: {kind: embedded, file: x}}}
prices: {currency: EUR, gpu_hour: {main: 2}}
tenants:
  a: {tenant: {pool: main}, queue: {priority: {interactive: 9, batch: 3}}}
  b: {tenant: {pool: main}, queue: {priority: {interactive: 9}}}
"""


class OverError(Exception):
    """The time of the test."""


class Store(MemoryStore):
    """One that can be away, and says which calls it had."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.calls: list[str] = []

    def count_waits(self, tiers: Mapping[str, Tier], limit: int) -> Counted:
        if self.away:
            raise StoreError("away")
        self.calls.append("count")
        return super().count_waits(tiers, limit)

    def roll_waits(self, until_ns: int) -> bool:
        self.calls.append("roll")
        return super().roll_waits(until_ns)

    def forget_waits(self, windows_before_ns: int, hours_before_ns: int) -> None:
        self.calls.append("forget")
        super().forget_waits(windows_before_ns, hours_before_ns)


class Room:
    """A product whose clock is moved by the test."""

    def __init__(self) -> None:
        self.store = Store()
        self.now = T0 + 30 * DAY_NS
        self.slept: list[float] = []
        self.flushed = 0
        self.policy = parse(CONFIG).policy
        self.books = WaitBooks(
            self.store,
            clock=lambda: self.now,
            policy=lambda: self.policy,
            flush=self._flush,
            sleep=self._sleep,
            pause=self.slept.append,
            at_once=AT_ONCE,
            asked_max=ASKED_MAX,
        )
        self.turns = 0
        self._number = 0

    def _flush(self) -> None:
        self.flushed += 1

    async def _sleep(self, seconds: float) -> None:
        assert seconds == EVERY_S
        self.turns -= 1
        if not self.turns:
            raise OverError
        self.store.away = False

    def end(self, wait_ns: int, ago_ns: int = 0, count: int = 1, **changes: Any) -> None:
        """Requests that waited so long, and ended so long ago."""
        times = {"wait_ns": wait_ns, "first_token_ns": wait_ns, "total_ns": wait_ns}
        self.store.add_usage(
            usage_record(f"r{self._number + each}", arrived_ns=self.now - ago_ns - wait_ns, **(times | changes))
            for each in range(count)
        )
        self._number += count

    def asked(self) -> tuple[int, bool, Uncounted]:
        """What a question about all of it is answered."""
        table, complete, left = asyncio.run(self.books.table([], 0, self.now + WINDOW_NS, {}))
        return table.total.completed, complete, left

    def promise(self, tenant: str, tier: str, name: str) -> Promise:
        (found,) = (each for each in self.books.promises if (each.tenant, each.tier, each.name) == (tenant, tier, name))
        return found


def burns(promise: Promise) -> list[tuple[int, int]]:
    return [(burn.promised, burn.late) for burn in promise.burns]


def test_promises_are_looked_at_over_each_time() -> None:
    room = Room()
    room.end(0)
    room.end(3 * S, ago_ns=20 * MINUTE_NS)
    room.end(3 * S, ago_ns=50 * MINUTE_NS, count=2)
    room.end(3 * S, ago_ns=5 * HOUR)
    room.end(3 * S, ago_ns=70 * HOUR)
    room.end(3 * S, ago_ns=80 * HOUR)
    room.end(S, tenant="b")
    room.end(S, tenant="gone")
    room.books.look()
    queue = room.promise("a", "interactive", "queue")
    assert (queue.target_ns, [burn.over_ns for burn in queue.burns]) == (2 * S, list(OVER_NS))
    assert burns(queue) == [(1, 0), (2, 1), (4, 3), (5, 4), (6, 5)]
    # the spread is of the last hour
    assert (queue.spread.count, queue.spread.max_ns) == (4, 3 * S)
    assert burns(room.promise("b", "interactive", "first_token")) == [(1, 0)] * 5
    assert room.promise("a", "batch", "queue").spread.count == 0
    assert {each.tenant for each in room.books.promises} == {"a", "b"}
    assert room.books.looked_ns == room.now


def test_the_shortest_time_moves_on() -> None:
    room = Room()
    room.end(3 * S)
    room.books.look()
    for passed, expected in ((5 * MINUTE_NS, 1), (MINUTE_NS, 0)):
        room.now += passed
        room.books.look()
        assert burns(room.promise("a", "interactive", "queue"))[0] == (expected, expected)
    assert burns(room.promise("a", "interactive", "queue"))[1] == (1, 1)
    # what is heard of late is not of the last minutes
    room.end(3 * S, ago_ns=HOUR)
    room.now += MINUTE_NS
    room.books.look()
    assert burns(room.promise("a", "interactive", "queue"))[0] == (0, 0)


def test_hours_are_made_when_they_are_over_and_old_ones_forgotten_once_a_day() -> None:
    room = Room()
    room.end(0)
    room.books.look()
    assert room.store.calls == ["count", "roll", "forget"]
    room.now += 59 * MINUTE_NS
    room.books.look()
    assert room.store.calls[3:] == ["count"]
    room.now += MINUTE_NS
    room.books.look()
    assert room.store.calls[4:] == ["count", "roll"]
    room.now = T0 + 30 * DAY_NS + WINDOWS_KEPT_NS + DAY_NS
    room.books.look()
    assert "forget" in room.store.calls[6:]
    until = T0 + 31 * DAY_NS
    assert room.store.waits(["window"], T0, until, {}).lines == ()
    assert len(room.store.waits(["hour"], T0, until, {}).lines) == 1
    room.now += HOURS_KEPT_NS
    room.books.look()
    assert room.store.waits(["hour"], T0, until, {}).lines == ()
    assert len(room.store.waits(["day"], T0, until, {}).lines) == 1


def test_an_answer_has_what_ended_before_it_was_asked_for() -> None:
    room = Room()
    room.end(0)
    assert room.asked() == (1, True, Uncounted())
    assert room.flushed == 1


def test_an_answer_has_counted_what_comes_between_two_rounds() -> None:
    room = Room()
    room.end(0, count=ASKED_MAX)
    assert room.asked() == (ASKED_MAX, True, Uncounted())
    # others use the store in between
    assert len(room.slept) == ASKED_MAX // AT_ONCE


def test_an_answer_does_not_wait_for_more_and_says_until_when_it_counts() -> None:
    room = Room()
    room.end(0, ago_ns=MINUTE_NS)
    room.books.look()
    room.end(0, ago_ns=30 * S)
    room.end(0, count=ASKED_MAX)
    calls = len(room.store.calls)
    assert room.asked() == (1, False, Uncounted(ASKED_MAX + 1, room.now - 30 * S))
    assert room.store.calls[calls:] == []
    room.books.look()
    assert room.asked() == (ASKED_MAX + 2, True, Uncounted())


def test_a_store_that_cannot_be_written_is_read_all_the_same() -> None:
    room = Room()
    room.end(0)
    room.books.look()
    room.end(0)
    room.store.away = True
    assert room.asked() == (1, False, Uncounted(1, room.now))


def test_a_store_that_is_away_is_tried_again() -> None:
    room = Room()
    room.end(0)
    room.store.away, room.turns = True, 3
    with pytest.raises(OverError):
        asyncio.run(room.books.run())
    assert room.promise("a", "interactive", "queue").spread.count == 1


def test_promises_are_looked_at_once_a_minute() -> None:
    room = Room()
    room.books.look()
    room.end(0)
    looked = room.now
    room.now += MINUTE_NS - 1
    room.books.look()
    assert (room.books.looked_ns, room.promise("a", "interactive", "queue").spread.count) == (looked, 0)
    room.now += 1
    room.books.look()
    assert (room.books.looked_ns, room.promise("a", "interactive", "queue").spread.count) == (room.now, 1)


def test_a_tenant_that_comes_is_promised_something_at_the_next_look() -> None:
    room = Room()
    room.books.look()
    room.policy = parse(CONFIG + "  c: {tenant: {pool: main}}\n").policy
    room.books.look()
    assert {each.tenant for each in room.books.promises} == {"a", "b", "c"}
