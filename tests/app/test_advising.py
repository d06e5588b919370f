"""Given a running product, when advice is asked for, then it is made once, elsewhere, and given for an hour."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from commonpool.api.wire.advice import Advised
from commonpool.app import advising
from commonpool.app.advising import Advisor, Run, in_process
from commonpool.app.planner import Planned, planned
from commonpool.config import Sources, parse_sources
from commonpool.core.model import NS_PER_HOUR, UsageRecord
from tests.api.fakes import CONFIG, NOW, FakeOperations, sources
from tests.app.history import history
from tests.store.records import usage_record

Batch = Callable[[], Awaitable[bytes]]


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    product.store.add_usage(history(NOW))
    return product


class Plans:
    """Makes plans and counts them: here, or as `how` says; each waits until it may go on."""

    def __init__(self, how: Run | None = None) -> None:
        self._how = how or self._here
        self.made = 0
        self.may = asyncio.Event()
        self.may.set()
        self.over = asyncio.Event()

    async def run(self, wanted: Sources, batch: Batch) -> Planned:
        await self.may.wait()
        self.made += 1
        try:
            return await self._how(wanted, batch)
        finally:
            self.over.set()

    async def _here(self, wanted: Sources, batch: Batch) -> Planned:
        records: list[UsageRecord] = []
        while content := await batch():
            records += msgspec.msgpack.decode(content, type=list[UsageRecord])
        return planned(wanted, records)


async def made(advisor: Advisor, plans: Plans) -> Advised:
    """What it says when the plan that it is asked for is there."""
    plans.over.clear()
    advisor.look()
    await asyncio.wait_for(plans.over.wait(), 120)
    for _ in range(5):
        await asyncio.sleep(0)  # what has come is taken
    return advisor.look()


def test_made_once_and_kept_for_an_hour(product: FakeOperations) -> None:
    async def run() -> None:
        plans = Plans()
        advisor = Advisor(product, plans.run)
        plans.may.clear()
        assert [advisor.look().state for _ in range(3)] == ["making"] * 3
        plans.may.set()
        first = await made(advisor, plans)
        assert (first.state, plans.made) == ("made", 1)
        assert first.wanted is not None
        assert first.wanted.revision == product.config().policy.revision
        assert first.plan is not None
        assert first.plan.changes
        product.now += NS_PER_HOUR - 1
        assert advisor.look() is first
        product.now += 1
        assert advisor.look() is first  # until there is another one
        second = await made(advisor, plans)
        assert (second.made_ns, plans.made) == (product.now, 2)
        await advisor.close()

    asyncio.run(run())


def test_another_configuration_needs_other_advice(product: FakeOperations) -> None:
    async def run() -> None:
        plans = Plans()
        advisor = Advisor(product, plans.run)
        first = await made(advisor, plans)
        other = sources(CONFIG.replace("guaranteed: 2_gpu", "guaranteed: 1_gpu"))
        await product.apply(other, parse_sources(other), product.authority().policies, 1)
        assert advisor.look().state == "making"
        second = await made(advisor, plans)
        assert second.wanted is not None
        assert first.wanted is not None
        assert second.wanted.revision == product.config().policy.revision != first.wanted.revision
        await advisor.close()

    asyncio.run(run())


async def no_room(_: Sources, __: Batch) -> Planned:
    raise OSError("no room for a process")


def test_too_little_is_said_and_what_fails_too(product: FakeOperations) -> None:
    async def run() -> None:
        plans = Plans()
        found = await made(Advisor(FakeOperations(), plans.run), plans)
        assert found.state == "failed"
        assert found.message.startswith("there is too little to learn from: 0 tasks")
        plans = Plans(no_room)
        broken = await made(Advisor(product, plans.run), plans)
        assert (broken.state, broken.plan) == ("failed", None)
        assert "OSError" in broken.message

    asyncio.run(run())


def test_who_stops_waits_for_nothing(product: FakeOperations) -> None:
    async def run() -> None:
        plans = Plans()
        plans.may.clear()
        advisor = Advisor(product, plans.run)
        advisor.look()
        await asyncio.wait_for(advisor.close(), 120)
        assert plans.made == 0

    asyncio.run(run())


def test_only_so_many_records_are_sent(product: FakeOperations) -> None:
    async def run() -> int:
        product.store.add_usage(usage_record(f"x{at}", arrived_ns=NOW - at) for at in range(1, 3000))
        batches = advising.Batches(product, most=2 * advising.BATCH)
        count = 0
        while content := await batches.next():
            count += len(msgspec.msgpack.decode(content, type=list[UsageRecord]))
        return count

    assert asyncio.run(run()) == 2 * advising.BATCH


def test_a_process_of_its_own_makes_the_same_plan(product: FakeOperations) -> None:
    async def run() -> Advised:
        plans = Plans(in_process)
        advisor = Advisor(product, plans.run)
        try:
            return await made(advisor, plans)
        finally:
            await advisor.close()

    found = asyncio.run(run())
    assert found.plan == planned(sources(), history(NOW)).plan
