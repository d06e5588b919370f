"""The loop that closes the books: every hour once, in order, whatever stands in the way for a while."""

import asyncio
import threading

import msgspec
import pytest

from commonpool.control.books import GRACE_NS, Books, Scope
from commonpool.core.ledger import PLATFORM, Kind, Phase, Rates, Span, Standing
from commonpool.core.model import NS_PER_HOUR, NS_PER_S, UNPRICED, Outcome
from commonpool.store.contract import StoreError
from commonpool.store.ledger import Closing, HourWork, Reading
from commonpool.store.memory import MemoryStore
from tests.store.ledgers import noted, ran
from tests.store.records import T0, usage_record

H = NS_PER_HOUR
FAR = 1 << 62


class Door(MemoryStore):
    """A store that cannot be read while `down`, and closes hours while it is `going`."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.entered, self.going = threading.Event(), threading.Event()  # in the books of pool main
        self.going.set()

    def close_hour(self, closing: Closing) -> bool:
        if closing.pool == "main":
            self.entered.set()
            self.going.wait()
        return super().close_hour(closing)

    def hour_work(self, pool: str, start_ns: int) -> HourWork:
        if self.down:
            raise StoreError("The database is away.")
        return super().hour_work(pool, start_ns)


class Room:
    """Books over a store in memory; nothing waits for anything."""

    def __init__(self) -> None:
        self.store = Door()
        self.now = T0
        self.noted_until = T0
        self.price = 2_000_000
        self.meters: dict[str, int] = {}
        self.pools = ["main"]
        self.retention = FAR
        self.flushed = True
        self.books = self.open()

    def open(self) -> Books:
        return Books(self.store, clock=lambda: self.now, scope=self._scope, flush=lambda: self.flushed)

    def _scope(self) -> Scope:
        def rates(pool: str, _hour: int) -> Rates:
            price = self.price if pool in {*self.pools, ""} else UNPRICED
            return Rates(price, price, self.meters)

        return Scope(tuple(self.pools), 0, self.noted_until, rates, self.retention)

    def stand(self, start: int, end: int, pool: str = "main", milli_gpu: int = 4000) -> None:
        """A pool is guaranteed to tenant a by half; noted by the hour."""
        while start < end:
            until = min(end, start - start % H + H)
            self.store.add_meters([Standing(pool, start, until, milli_gpu, {"tenant:a": milli_gpu // 2})])
            start = until

    def look(self, at: int, noted_until: int | None = None) -> list[int]:
        """The hours after T0 that are closed then."""
        self.now = at
        self.noted_until = at - at % H if noted_until is None else noted_until
        asyncio.run(self.books.look())
        return self.closed()

    def closed(self, pool: str = "main") -> list[int]:
        every = self.store.reconciliations(0, FAR)
        return [(hour.hour_ns - T0) // H for hour in every if hour.pool == pool]


def test_an_hour_is_closed_a_moment_after_its_end_when_all_is_noted_and_stored() -> None:
    room = Room()
    room.stand(T0 + 600 * NS_PER_S, T0 + 3 * H)
    assert room.look(T0 + H + GRACE_NS - 1) == []
    assert room.look(T0 + H + GRACE_NS, noted_until=T0) == []
    room.flushed = False
    assert room.look(T0 + H + GRACE_NS) == []
    room.flushed = True
    assert room.look(T0 + H + GRACE_NS) == [0]
    assert room.look(T0 + H + GRACE_NS) == [0]
    assert room.look(T0 + 2 * H + GRACE_NS) == [0, 1]
    first, second = (hour for hour in room.store.reconciliations(0, FAR) if hour.pool == "main")
    assert (first.devices, second.devices) == (4000 * (H - 600 * NS_PER_S), 4000 * H)
    assert (first.charged, second.charged) == (first.devices, second.devices)
    assert room.books.warnings == ()
    assert room.books.last == (second,)


def test_after_a_long_time_every_hour_is_closed_and_the_time_that_was_down_is_the_platforms() -> None:
    room = Room()
    room.stand(T0, T0 + H // 2)
    room.stand(T0 + 5 * H, T0 + 8 * H)
    room.books = room.open()
    assert room.look(T0 + 7 * H + GRACE_NS) == [0, 1, 2, 3, 4, 5, 6]
    sums = room.store.posting_sums((), T0, T0 + 7 * H, {})
    down = sum(line.quantity for line in sums if line.kind == Kind.DOWN)
    assert down == 4000 * (H // 2 + 4 * H)
    assert {line.debit for line in sums if line.kind == Kind.DOWN} == {PLATFORM}
    # another process goes on where this one was
    room.books = room.open()
    assert room.look(T0 + 8 * H + GRACE_NS) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_without_a_price_the_books_wait_and_say_so_until_there_is_one() -> None:
    room = Room()
    room.stand(T0, T0 + 3 * H)
    room.stand(T0, T0 + 3 * H, pool="other")
    room.pools.append("other")
    room.price = UNPRICED
    assert room.look(T0 + 2 * H + GRACE_NS) == []
    sentences = room.books.warnings
    assert len(sentences) == 2
    assert "prices.gpu_hour.main" in sentences[0]
    room.price = 2_000_000
    assert room.look(T0 + 2 * H + GRACE_NS + 1) == [0, 1]
    assert room.closed("other") == [0, 1]
    assert room.books.warnings == ()


def test_a_store_that_is_away_is_asked_again() -> None:
    room = Room()
    room.stand(T0, T0 + 2 * H)
    room.store.down = True
    assert room.look(T0 + H + GRACE_NS) == []
    room.store.down = False
    assert room.look(T0 + H + GRACE_NS) == [0]


@pytest.mark.parametrize("restart", [True, False])
def test_a_pool_that_has_left_the_configuration_is_closed_to_its_end_at_its_last_price(restart: bool) -> None:
    room = Room()
    room.stand(T0, T0 + 2 * H + 5)
    assert room.look(T0 + H + GRACE_NS) == [0]
    room.pools[:] = ["other"]  # and its price with it
    if restart:
        room.books = room.open()  # another process, which never had it
    assert room.look(T0 + 9 * H + GRACE_NS) == [0, 1, 2]
    assert room.books.warnings == ()
    assert {line.micro for line in room.store.posting_sums((), T0, T0 + 9 * H, {"pool": ["main"]})} == {2_000_000}


def test_readings_of_no_pool_have_books_that_begin_with_those_of_the_pools() -> None:
    room = Room()
    room.meters = {"storage_gib_hour": 5}
    room.stand(T0 + 5, T0 + 3 * H)
    room.store.add_reading(Reading("s1", "storage_gib_hour", "a", 100, 0, T0 + H))  # since long before
    room.look(T0 + H + GRACE_NS)
    assert (room.closed(""), room.closed()) == ([0], [0])
    assert [each.pool for each in room.books.last] == ["main"]
    room.store.add_reading(Reading("s2", "storage_gib_hour", "a", 7, T0, T0 + H))
    room.look(T0 + 2 * H + GRACE_NS)
    fees = [room.store.posting_sums((), T0 + hour * H, T0 + hour * H + H, {"pool": [""]}) for hour in (0, 1)]
    assert [[line.quantity for line in hour] for hour in fees] == [[100], [7]]


def test_what_is_put_right_has_the_price_that_it_was_posted_at() -> None:
    room = Room()
    room.stand(T0, T0 + 3 * H)
    job = ran("j1", H - 10, 20)
    room.store.save_running([noted(job, H)])
    room.look(T0 + H + GRACE_NS)
    room.price = 3_000_000  # without a date
    room.store.save_running([])
    room.store.add_usage([msgspec.structs.replace(job, outcome=Outcome.FAILED, micro_per_gpu_hour=0)])
    room.look(T0 + 2 * H + GRACE_NS)
    used = room.store.posting_sums((), T0, T0 + 2 * H, {"kind": [Kind.USED]})
    assert [(line.micro, line.quantity) for line in used] == [(2_000_000, 0)]


def test_what_is_odd_about_the_last_hour_is_said_until_the_next_one_is_closed() -> None:
    room = Room()
    room.stand(T0, T0 + 3 * H)
    room.store.add_meters([Span("m-0.1", Phase.SERVING, "main", "m", PLATFORM, 1000, T0, T0 + H // 2)])
    room.look(T0 + H + GRACE_NS)
    (sentence,) = room.books.warnings
    assert "m-0.1" in sentence
    room.look(T0 + 2 * H + GRACE_NS)
    assert room.books.warnings == ()


def test_records_are_forgotten_when_their_time_is_over_and_not_before_their_hour_is_closed() -> None:
    room = Room()
    room.stand(T0, T0 + 4 * H)
    room.store.add_usage([usage_record("old"), usage_record("newer", arrived_ns=T0 + 3 * H - 100)])
    room.retention = H
    room.price = UNPRICED
    room.look(T0 + 3 * H + GRACE_NS)
    assert room.store.record("old")
    room.price = 1
    room.look(T0 + 3 * H + GRACE_NS)
    assert not room.store.record("old")
    assert room.store.record("newer")


def test_what_runs_on_is_posted_in_parts_which_are_the_whole() -> None:
    room = Room()
    room.stand(T0, T0 + 3 * H)
    began = T0 + H - 10 * NS_PER_S

    def ran(until: int, outcome: Outcome) -> dict[str, object]:
        run = until - began
        times = {"wait_ns": 0, "total_ns": run, "run_ns": run, "milli_gpu": 1000, "milli_gpu_ns": 1000 * run}
        return {"arrived_ns": began, "outcome": outcome, **times}

    room.store.save_running([usage_record("r", **ran(T0 + H, Outcome.RUNNING))])
    room.look(T0 + H + GRACE_NS)
    room.store.save_running([])
    room.store.add_usage([usage_record("r", **ran(T0 + H + 20 * NS_PER_S, Outcome.COMPLETED))])
    room.look(T0 + 2 * H + GRACE_NS)
    used = {
        hour: sum(
            line.quantity
            for line in room.store.posting_sums((), T0 + hour * H, T0 + hour * H + H, {})
            if line.kind == Kind.USED
        )
        for hour in (0, 1)
    }
    assert used == {0: 1000 * 10 * NS_PER_S, 1: 1000 * 20 * NS_PER_S}


def test_a_stop_waits_for_the_hour_that_is_being_closed_and_for_no_other() -> None:
    room = Room()
    room.stand(T0, T0 + 3 * H)

    async def main() -> None:
        room.now, room.noted_until = T0 + 3 * H + GRACE_NS, T0 + 3 * H
        room.store.going.clear()
        closing = asyncio.create_task(room.books.look())
        await asyncio.to_thread(room.store.entered.wait)
        stopping = asyncio.create_task(room.books.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        room.store.going.set()
        await asyncio.gather(closing, stopping)

    asyncio.run(main())
    assert room.closed() == [0]


def test_a_pool_that_came_and_went_within_its_first_hour_is_in_the_books_at_the_price_it_had() -> None:
    room = Room()
    room.stand(T0, T0 + H)
    room.look(T0 + 60 * NS_PER_S)
    # given a pool that comes after the first look
    room.pools = ["main", "lab"]
    room.stand(T0 + 120 * NS_PER_S, T0 + 600 * NS_PER_S, pool="lab")
    room.look(T0 + 300 * NS_PER_S)
    # when it has gone before anything of it was closed
    room.pools = ["main"]
    room.look(T0 + H + GRACE_NS)
    # then its devices are on accounts all the same
    assert room.closed("lab") == [0]
    (lab,) = (hour for hour in room.store.reconciliations(0, FAR) if hour.pool == "lab")
    assert (lab.charged, lab.rates.micro_per_gpu_hour) == (4000 * (H - 120 * NS_PER_S), room.price)
    assert room.books.warnings == ()
