"""What is left of an earlier run: attempts that nobody will speak of any more have their records, others do not."""

import asyncio
from collections.abc import Callable

from commonpool.control.recovery import settle_lost
from commonpool.core.machine import Machine
from commonpool.core.model import Outcome, UsageRecord
from tests.core.worlds import World, policy, tenant
from tests.store.records import T0, usage_record

LIVED = T0 + 1000


def note(request_id: str, attempt: int = 1) -> UsageRecord:
    fields = {"total_ns": 5, "run_ns": 0, "milli_gpu_ns": 0, "attempt": attempt}
    return usage_record(request_id, outcome=Outcome.RUNNING, **fields)


class Desk:
    """The owner of a core, and what it was given to keep."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.kept: list[UsageRecord] = []

    def settle(self, record: UsageRecord) -> None:
        self.kept.append(record)


def settled(desk: Desk, running: Callable[[], tuple[UsageRecord, ...]]) -> list[str]:
    async def stored() -> None:
        """All is."""

    async def known_until(pool: str) -> int:
        assert pool == "main"
        return LIVED

    asyncio.run(settle_lost(desk, running, stored, known_until))
    return [f"{record.request_id}#{record.attempt}" for record in desk.kept]


def test_what_neither_runs_nor_may_still_run_is_settled_as_not_charged() -> None:
    it = World(policy(tenant("a", 500, elastic_cap=500)))
    it.arrive("runs", "a")
    it.arrive("waits", "a")
    desk = Desk(it.machine)
    left = (note("gone"), note("runs"), note("waits"), note("runs", attempt=2))
    assert settled(desk, lambda: left) == ["gone#1", "runs#2"]
    record = desk.kept[0]
    assert (record.outcome, record.reason, record.micro_per_gpu_hour) == (Outcome.FAILED, "stopped", 0)
    assert record.arrived_ns + record.total_ns == LIVED


def test_one_whose_record_comes_meanwhile_is_left_alone() -> None:
    answers = iter([(note("ends"), note("gone")), (note("gone"),)])
    desk = Desk(World(policy(tenant("a", 500))).machine)
    assert settled(desk, lambda: next(answers)) == ["gone#1"]
