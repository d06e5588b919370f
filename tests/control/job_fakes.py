"""What jobs are tested with: a backend whose attempts end when a test says so, over the real core, desk and journal."""

import asyncio
import itertools
from collections.abc import Coroutine
from pathlib import Path

from commonpool.backends.base import BackendError
from commonpool.backends.joblog import LogPart
from commonpool.backends.jobrun import Exit
from commonpool.backends.measure import Taken
from commonpool.control.held import Held
from commonpool.control.jobs import Jobs
from commonpool.core.machine import Machine
from commonpool.core.model import (
    NS_PER_HOUR,
    NS_PER_S,
    Hardware,
    Job,
    Limits,
    Node,
    Policy,
    Pool,
    Price,
    Tenant,
    Tier,
    UsageRecord,
)
from commonpool.gateway.desk import CoreDesk
from commonpool.store.contract import StoreError
from commonpool.store.jobs import JobAttempt, JobRecord, Task
from commonpool.store.journal import Journal
from commonpool.store.memory import MemoryStore
from commonpool.store.writer import Writer

START_NS = 1_800_000_000 * NS_PER_S


def policy(*, without: str = "", queue_length: int = 1000) -> Policy:
    """A pool of two GPUs that are guaranteed to a; b borrows them."""
    limits = Limits(queue_length=queue_length)
    tenants = {
        name: Tenant(name, "main", guaranteed, 2000, 2000, {"batch": 3}, 60 * NS_PER_S, limits=limits)
        for name, guaranteed in (("a", 2000), ("b", 0))
        if name != without
    }
    pools = {"main": Pool("main", 2000)}
    return Policy(pools, {"batch": Tier("batch")}, {}, tenants, {}, {"main": Price("main", 1_000_000)})


def job(tenant: str = "a", milli_gpu: int = 2000, **changes: object) -> Job:
    named: dict[str, object] = {"expected_ns": NS_PER_HOUR, "hardware": Hardware(milli_gpu)} | changes
    return Job("", tenant, "default", "main", "batch", milli_gpu, **named)  # type: ignore[arg-type] # of those fields


def task(*command: str, retries: int = 0) -> Task:
    return Task(command or ("train",), "/", retries=retries)


TAKEN = Taken(cpu_ns=7, memory_mib_s=9)  # by each attempt that ends


class FakeAttempt:
    """A `JobHandle`: it notes what is asked of it, and ends when a test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    async def wait(self) -> Exit:
        return await asyncio.shield(self._end)

    def checkpoint(self) -> None:
        self.asked.append("checkpoint")

    def stop(self) -> None:
        self.asked.append("stop")

    def end(self, status: int | None, ended_ns: int, *, asked: bool = False, stopped: bool = False) -> None:
        self._end.set_result(Exit(status, ended_ns, asked, stopped, taken=TAKEN))

    def lose(self, ended_ns: int, *, ran: bool) -> None:
        """Nobody saw how it ended."""
        self._end.set_result(Exit(None, ended_ns, reason="It is not known how it ended.", ran=ran))

    def fault(self) -> None:
        """Waiting for it fails."""
        self._end.set_exception(OSError(24, "Too many open files"))


class FakeBackend:
    """A `JobBackend` that outlives the product: `attempts` by job and number, `broken` what it says instead."""

    def __init__(self) -> None:
        self.attempts: dict[tuple[str, int], FakeAttempt] = {}
        self.started: list[tuple[str, int]] = []
        self.forgotten: list[str] = []
        self.broken: str | Exception = ""
        self.may_start = asyncio.Event()
        self.may_start.set()

    def check(self, job: Job, task: Task) -> None:  # noqa: ARG002 - the contract has it
        if task.cwd != "/":
            raise BackendError(f"The folder {task.cwd!r} is not there.")

    async def start(self, job: Job, task: Task, attempt: JobAttempt) -> FakeAttempt:  # noqa: ARG002 - of the contract
        self._break()
        await self.may_start.wait()
        self.started.append((job.id, attempt.attempt))
        return self.attempts.setdefault((job.id, attempt.attempt), FakeAttempt())

    async def adopt(self, job: Job, attempt: JobAttempt) -> FakeAttempt:
        self._break()
        return self.attempts[job.id, attempt.attempt]

    def _break(self) -> None:
        if self.broken:
            raise BackendError(self.broken) if isinstance(self.broken, str) else self.broken

    def log(self, job_id: str, after: str) -> LogPart:
        return LogPart(f"log of {job_id}", after, more=False)

    def forget(self, job_id: str) -> None:
        self.forgotten.append(job_id)


class FlakyStore(MemoryStore):
    """A store that fails to save as often as it is told to, and by a `fault` once."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = 0
        self.fault: Exception | None = None

    def save_job(self, record: JobRecord) -> None:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        if self.failing:
            self.failing -= 1
            raise StoreError("the disk is full")
        super().save_job(record)


class World:
    """A product around jobs, which can be killed and started again: store, journal and backend outlive it."""

    def __init__(self, folder: Path) -> None:
        self.now = START_NS
        self.store = FlakyStore()
        self.backend = FakeBackend()
        self.policy = policy()
        self.node: Node | None = None
        self._folder = folder
        self._ids = (f"job-{number}" for number in itertools.count(1))
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.journal = Journal(self._folder, ballast_bytes=0)
        self.desk = CoreDesk(Machine(self.policy), lambda: self.now, self.journal, lambda _: None)
        if self.node is not None:
            self.desk.node_seen(self.node)
        self.held = Held(self.desk.note, lambda: self.now, lambda: 0)
        self.jobs = Jobs(
            self.store,
            self.desk,
            self.backend,
            lambda: self.now,
            self._spawn,
            self.held,
            new_id=lambda: next(self._ids),
        )
        await self.jobs.start()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def kill(self) -> None:
        """As `kill -9`: nothing is told to anybody."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.journal.close()

    async def settle(self) -> None:
        """Until everything that can happen has happened."""
        for _ in range(20):
            await asyncio.sleep(0.002)

    def records(self) -> list[UsageRecord]:
        """Every usage record that is kept, each once."""
        Writer(self.journal, self.store, report=lambda _: None).drain()
        return list(self.store.records(0, 2**62, None, 1000))

    async def state(self, job_id: str) -> str:
        record, _ = await self.jobs.show(job_id)
        return record.state.value
