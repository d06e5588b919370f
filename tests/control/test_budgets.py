"""What tenants have spent in the month is told at the start, after every closed hour, and when a month begins."""

import asyncio

from commonpool.config import Config, parse
from commonpool.config.calendar import Calendar
from commonpool.control.budgets import Budgets
from commonpool.core.events import Spent
from commonpool.core.ledger import Kind
from commonpool.core.model import NS_PER_HOUR as HOUR
from commonpool.core.pricing import COST_UNIT
from commonpool.store.contract import StoreError
from commonpool.store.memory import MemoryStore
from tests.store.ledgers import close, posting, ran
from tests.store.records import T0

CONFIG = """\
pools: {main: {gpus: 4}, other: {gpus: 4}}
models: {m: {version: 1, pool: main, gpu: 1, slots: 1, context: 9, engine: {kind: embedded, file: x}}}
prices: {currency: EUR, gpu_hour: {main: 2, other: 2}, meters: {request: 1}}
tenants:
  a: {tenant: {pool: main}, budget: {month: 50}}
  b: {tenant: {pool: main}}
"""
FEBRUARY = Calendar().month("2024-01")[1]  # T0 is its first instant


class Room:
    """A product whose clock is moved by the test; `told` is what its core has heard since it was asked last."""

    def __init__(self, text: str = CONFIG, now: int = T0, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.config: Config = parse(text)
        self.now = now
        self.flushed = 0
        self._heard: list[Spent] = []
        self.budgets = Budgets(
            self.store,
            clock=lambda: self.now,
            config=lambda: self.config,
            tell=self._heard.append,
            flush=self._flush,
        )

    def told(self) -> list[Spent]:
        asyncio.run(self.budgets.look())
        heard = self._heard[:]
        self._heard.clear()
        return heard

    def _flush(self) -> None:
        self.flushed += 1


def test_a_new_product_has_spent_nothing() -> None:
    room = Room()
    assert room.told() == [Spent("a", 0, T0, FEBRUARY)]
    assert room.told() == []


def test_after_every_closed_hour_it_is_what_the_books_say() -> None:
    room = Room()
    room.told()
    close(room.store, 0, posting(quantity=3 * COST_UNIT, micro=2_000_000))
    room.now = T0 + HOUR + 1
    assert room.told() == [Spent("a", 6_000_000, T0 + HOUR, FEBRUARY)]
    assert room.told() == []
    close(room.store, HOUR, posting(hour_ns=T0 + HOUR, about_ns=T0, quantity=-1 * COST_UNIT, micro=2_000_000))
    assert room.told() == [Spent("a", 4_000_000, T0 + 2 * HOUR, FEBRUARY)]


def test_only_its_own_work_counts() -> None:
    room = Room()
    close(
        room.store,
        0,
        posting(quantity=COST_UNIT, micro=2_000_000),
        posting(quantity=COST_UNIT, micro=1_000_000, kind=Kind.BORROWED, credit="tenant:b"),
        posting(quantity=5, micro=1_000_000, kind=Kind.FEE, credit="platform", meter="request"),
        posting(quantity=COST_UNIT, micro=2_000_000, kind=Kind.IDLE),
        posting(quantity=COST_UNIT, micro=2_000_000, kind=Kind.UNCHARGED, debit="platform"),
        posting(quantity=COST_UNIT, micro=2_000_000, kind=Kind.BORROWED, debit="platform", credit="tenant:b"),
        posting(quantity=COST_UNIT, micro=2_000_000, kind=Kind.LENT),
    )
    assert room.told() == [Spent("a", 8_000_000, T0 + HOUR, FEBRUARY)]


def test_at_the_start_what_came_after_the_books_is_added_once() -> None:
    # given a closed hour, then an hour's work of half a GPU, and the product started after it
    first = Room()
    close(first.store, 0, posting(quantity=COST_UNIT, micro=2_000_000))
    first.store.add_usage([ran("r1", HOUR + 10**9, HOUR // 2, milli_gpu=1000)])
    room = Room(now=T0 + 2 * HOUR - 1, store=first.store)
    assert room.told() == [Spent("a", 3_000_000, T0 + HOUR, FEBRUARY)]
    assert room.flushed == 1
    # when more comes, which the core knows itself, and the hour is closed, then it is what the books say
    room.store.add_usage([ran("r2", 2 * HOUR + 10**9, 5, milli_gpu=1000)])
    close(room.store, HOUR, posting(hour_ns=T0 + HOUR, about_ns=T0 + HOUR, quantity=COST_UNIT, micro=1_000_000))
    room.now = T0 + 2 * HOUR + 1
    assert room.told() == [Spent("a", 3_000_000, T0 + 2 * HOUR, FEBRUARY)]


def test_a_month_begins_with_nothing_spent() -> None:
    room = Room(CONFIG.replace("currency: EUR", "currency: EUR, time_zone: Europe/Berlin"))
    close(room.store, 0, posting(quantity=COST_UNIT, micro=2_000_000))
    assert room.told() == [Spent("a", 2_000_000, T0 + HOUR, FEBRUARY - HOUR)]
    room.now = FEBRUARY - HOUR - 1
    assert room.told() == []
    room.now = FEBRUARY - HOUR
    march, _ = Calendar("Europe/Berlin").month("2024-03")
    assert room.told() == [Spent("a", 0, FEBRUARY - HOUR, march)]


def test_a_budget_that_is_new_is_told_at_once_and_one_that_comes_back_too() -> None:
    room = Room()
    both = parse(CONFIG.replace("b: {tenant: {pool: main}}", "b: {tenant: {pool: other}, budget: {month: 1}}"))
    assert [event.tenant for event in room.told()] == ["a"]
    only_a, room.config = room.config, both
    assert [event.tenant for event in room.told()] == ["b"]
    room.config = only_a
    assert room.told() == []
    room.config = both
    assert [event.tenant for event in room.told()] == ["b"]


def test_without_a_budget_nothing_is_asked() -> None:
    class Silent(MemoryStore):
        def closed_until(self, pool: str) -> int | None:
            raise AssertionError(pool)

    assert Room(CONFIG.replace(", budget: {month: 50}", ""), store=Silent()).told() == []


def test_a_store_that_does_not_answer_is_asked_again() -> None:
    class Failing(MemoryStore):
        fails = True

        def closed_until(self, pool: str) -> int | None:
            if self.fails:
                raise StoreError("The store is gone.")
            return super().closed_until(pool)

    store = Failing()
    room = Room(store=store)
    assert room.told() == []
    store.fails = False
    assert room.told() == [Spent("a", 0, T0, FEBRUARY)]
