"""Jobs from their submission to their end: kept before they are answered for, run through a backend, told to the core.

Each open job has one task, which takes what happens to it one by one: so whatever the core decides meanwhile, what is
kept of a job and what is done with it stay in step. A restart of the product finds all of it in the store: what still
runs is adopted, what has ended meanwhile is settled, what waited waits again, in its old order.

The core hears of an attempt's end first, then the store: its record is durable then, and one that is told twice counts
once, since (request_id, attempt) is its key. A job that was cancelled while it waited is kept as such first: nothing of
it may run after a restart.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final, Protocol

import msgspec
import structlog

from commonpool.backends.base import BackendError
from commonpool.backends.joblog import LogPart
from commonpool.backends.jobrun import Exit
from commonpool.backends.jobs import JobBackend, JobHandle
from commonpool.backends.measure import Taken
from commonpool.control.held import Held
from commonpool.core import views
from commonpool.core.effects import Checkpoint, Refuse, Start
from commonpool.core.events import JobEnded, JobResumed
from commonpool.core.machine import Machine
from commonpool.core.model import NS_PER_S, Job, Outcome, Wait
from commonpool.store.contract import StoreError
from commonpool.store.jobs import (
    DEFINITION_BYTES_MAX,
    OPEN,
    JobAttempt,
    JobError,
    JobNotFoundError,
    JobPlace,
    JobRecord,
    JobState,
    JobStore,
    Task,
    definition_bytes,
)

EX_TEMPFAIL: Final = 75  # what a job exits with that has saved itself
ENDED_KEPT: Final = 1000  # ended jobs of each tenant whose log and checkpoint are kept
ATTEMPTS_SHOWN: Final = 100
PAGE: Final = 1000
RETRY_S: Final = 1.0  # while the store cannot be written
END_OF_CANCELLED_S: Final = 15.0  # the grace of a backend, and some
CLOSE_S: Final = 20.0  # for what is being started; what is not done by then is found again at the next start
FAULT: Final = "A fault of ours ended it; the product's log says which."

log = structlog.get_logger()


class JobDesk(Protocol):
    """What is needed of the owner of the core. Records are written before these return.

    Keepers are called on the event loop, possibly before these return.
    """

    @property
    def machine(self) -> Machine:
        """What it asks to decide."""

    def submit_job(
        self, job: Job, owner: "_Keeper", attempts: int = 0, *, again: bool = False, arrived: int = 0
    ) -> None:
        """A job waits from now on: `started` or `refused` follows, now or later, unless it is cancelled first.

        `again`: it was taken at `arrived`, before the core was made, and so many attempts were made.
        """

    def resume_job(self, event: JobResumed, owner: "_Keeper") -> bool:
        """An attempt that was started before the core was made still runs; False where the core has no place for it."""

    def job_ended(self, event: JobEnded) -> None:
        """An attempt has ended; with `retry`, `started` or `failed` follows, now or later."""

    def cancel_job(self, job_id: str) -> None:
        """Nobody wants a job any more that waits. Its owner hears nothing more."""


class _Cancel(msgspec.Struct, frozen=True):
    """Somebody wants the job to end."""


class _Close(msgspec.Struct, frozen=True):
    """The product stops; the job does not."""


class _Unsaved(msgspec.Struct, frozen=True):
    """The time to save itself is over for this attempt."""

    attempt: int


class _Failed(msgspec.Struct, frozen=True):
    """There is no other attempt."""


_Message = Start | Checkpoint | Refuse | Exit | _Cancel | _Close | _Unsaved | _Failed


class Jobs:
    """All jobs. `spawn` runs a coroutine beside everything else; `new_id` gives an id that no job has had.

    Belongs to one event loop. What blocks runs in a thread.
    """

    def __init__(
        self,
        store: JobStore,
        desk: JobDesk,
        backend: JobBackend,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[None, None, None]], object],
        held: Held,
        *,
        new_id: Callable[[], str],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.store = store
        self.desk = desk
        self.backend = backend
        self.clock = clock
        self.spawn = spawn
        self.held = held
        self.sleep = sleep
        self.ended_kept = ENDED_KEPT
        self.close_s = CLOSE_S
        self._new_id = new_id
        self._open: dict[str, _Keeper] = {}
        self.closed = False

    async def start(self) -> None:
        """Take up what was open when the product ended. The core knows its policy and its nodes by now."""
        found: list[JobRecord] = []
        after: JobPlace | None = None
        while page := await asyncio.to_thread(self.store.jobs, None, OPEN, after, PAGE):
            found += page
            after = page[-1].place
        keepers = [_Keeper(self, record) for record in reversed(found)]
        # 1. What runs, so that nothing is given away that it holds.
        waiting = [keeper for keeper in keepers if not await keeper.adopt()]
        # 2. What waits, in its old order.
        for keeper in waiting:
            keeper.wait_again()
        for keeper in keepers:
            self._keep(keeper)

    async def submit(self, job: Job, task: Task) -> JobRecord:
        """Keep a job, whose id is given here, and have it wait. Raises JobError, BackendError or StoreError."""
        if self.closed:
            raise JobError("The product is stopping; submit the job again when it runs.")
        await asyncio.to_thread(self.backend.check, job, task)
        now = self.clock()
        job = msgspec.structs.replace(job, id=self._new_id())
        size = definition_bytes(job, task)
        if size > DEFINITION_BYTES_MAX:
            raise JobError(
                f"The job's command, environment and name have {size} bytes and at most {DEFINITION_BYTES_MAX} are "
                "taken; put what is long into a file."
            )
        record = JobRecord(job, task, submitted_ns=now, queued_ns=now)
        await asyncio.to_thread(self.store.add_job, record)
        keeper = _Keeper(self, record)
        self.desk.submit_job(job, keeper)
        if keeper.refusal:
            await asyncio.to_thread(self.store.forget_job, job.id)
            raise JobError(keeper.refusal)
        self._keep(keeper)
        return record

    async def list(
        self,
        tenants: Sequence[str] | None,
        states: Sequence[JobState],
        *,
        after: JobPlace | None,
        limit: int,
        pools: Sequence[str] | None = None,
    ) -> Sequence[JobRecord]:
        """Jobs of these tenants and pools (None: of all) in one of these states, the newest first."""
        return await asyncio.to_thread(self.store.jobs, tenants, states, after, limit, pools)

    async def show(self, job_id: str) -> tuple[JobRecord, tuple[JobAttempt, ...]]:
        """A job and its latest attempts, in order. Raises JobNotFoundError."""
        record = await asyncio.to_thread(self.store.job, job_id)
        if record is None:
            raise JobNotFoundError(f"there is no job {job_id!r}; `commonpool job list --all` shows those there are")
        return record, await asyncio.to_thread(self.store.job_attempts, job_id, ATTEMPTS_SHOWN)

    def waits(self, job_id: str) -> tuple[Wait, ...] | None:
        """What a job that waits has waited for so far, in order; None where it does not wait."""
        return self.desk.machine.waits_of(job_id, self.clock())

    def loans(self, job_id: str) -> Sequence[views.LoanView]:
        """What a job that runs borrows."""
        return [loan for loan in views.loans(self.desk.machine.state) if loan.request_id == job_id]

    async def logs(self, job_id: str, after: str) -> LogPart:
        """What it printed behind a place, "" for the beginning. ValueError where there is no such place."""
        return await asyncio.to_thread(self.backend.log, job_id, after)

    async def cancel(self, job_id: str) -> JobRecord:
        """End a job, and return when it has ended. One that has ended already is left as it is."""
        keeper = self._open.get(job_id)
        if keeper is not None:
            keeper.post(_Cancel())
            try:
                async with asyncio.timeout(END_OF_CANCELLED_S):
                    await keeper.over.wait()
            except TimeoutError:
                log.warning("a cancelled job has not ended", job_id=job_id, within_s=END_OF_CANCELLED_S)
        return (await self.show(job_id))[0]

    async def close(self) -> None:
        """Let go of all jobs. What runs goes on, and is taken up by the next `start`."""
        self.closed = True
        keepers = list(self._open.values())
        for keeper in keepers:
            keeper.post(_Close())
        try:
            async with asyncio.timeout(self.close_s):
                for keeper in keepers:
                    await keeper.over.wait()
        except TimeoutError:
            log.warning("some jobs are still being started; the next start takes them up", within_s=self.close_s)

    def _keep(self, keeper: "_Keeper") -> None:
        self._open[keeper.record.job.id] = keeper
        self.spawn(self._run(keeper))

    async def _run(self, keeper: "_Keeper") -> None:
        try:
            await keeper.run()
        except Exception:
            log.exception("a job's keeper failed", job_id=keeper.record.job.id)
            await keeper.give_up()
        finally:
            del self._open[keeper.record.job.id]
            keeper.over.set()
        if keeper.record.state not in OPEN:
            await self._forget_oldest(keeper.record.job.tenant)

    async def _forget_oldest(self, tenant: str) -> None:
        try:
            for job_id in await asyncio.to_thread(self.store.ended_jobs_beyond, tenant, self.ended_kept, PAGE):
                await asyncio.to_thread(self.backend.forget, job_id)
                await asyncio.to_thread(self.store.forget_job, job_id)
        except StoreError as error:
            log.warning("jobs that ended long ago cannot be forgotten", tenant=tenant, error=str(error))


class _Keeper:
    """Keeps one open job: the `JobOwner` of the desk."""

    def __init__(self, jobs: Jobs, record: JobRecord) -> None:
        self.record = record
        self.refusal = ""
        self.over = asyncio.Event()
        self._jobs = jobs
        self._inbox: asyncio.Queue[_Message] = asyncio.Queue()  # a handful of messages an attempt
        self._held = 0  # the attempt that the core has started and not heard the end of; 0 for none
        self._handle: JobHandle | None = None
        self._cancelled = False
        self._unwanted = ""  # why the core has no place for it, a sentence

    # -- what the desk calls -------------------------------------------------------------------------------------------

    def started(self, effect: Start) -> None:
        self._held = effect.attempt
        self.post(effect)

    def checkpoint(self, effect: Checkpoint) -> None:
        self.post(effect)

    def refused(self, effect: Refuse) -> None:
        self.refusal = effect.message
        self.post(effect)

    def failed(self, job_id: str) -> None:  # noqa: ARG002 - a keeper has one job
        self.post(_Failed())

    def post(self, message: _Message) -> None:
        """Something happened; it is looked at in turn."""
        self._inbox.put_nowait(message)

    # -- after a restart -----------------------------------------------------------------------------------------------

    async def adopt(self) -> bool:
        """Take up an attempt that was to be started, whatever has become of it. False where there is none."""
        attempt = self.record.attempt
        if attempt is None or attempt.ended_ns is not None:
            return False
        self._resume(attempt)
        try:
            handle = await self._jobs.backend.adopt(self.record.job, attempt)
        except Exception as error:  # noqa: BLE001 - one job does not keep the product from starting
            self.post(Exit(None, self._jobs.clock(), reason=self._why(error), ran=True))
        else:
            self._watch(handle)
            if self._unwanted:
                self._stop()
        self.post(_Unsaved(attempt.attempt))  # who asked it to save itself is gone
        return True

    def wait_again(self) -> None:
        """Wait as before. The core goes on counting attempts, so that each has a record of its own."""
        record = self.record
        attempts = 0 if record.attempt is None else record.attempt.attempt
        self._jobs.desk.submit_job(record.job, self, attempts, again=True, arrived=record.submitted_ns)

    def _resume(self, attempt: JobAttempt) -> None:
        job = self.record.job
        event = JobResumed(
            job=job,
            attempt=attempt.attempt,
            arrived=self.record.submitted_ns,
            started=attempt.started_ns,
            devices=attempt.devices,
            milli_gpu=attempt.milli_gpu,
            memory_mib=attempt.memory_mib,
        )
        if self._jobs.desk.resume_job(event, self):
            self._held = attempt.attempt
        else:
            self._unwanted = (
                f"Tenant {job.tenant} is not in the configuration any more, or not in pool {job.pool}, so it was ended."
            )

    # -- one thing after another ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the job has ended, or the product stops."""
        while self.record.state in OPEN:
            match await self._inbox.get():
                case Start() as effect:
                    await self._start(effect)
                case Checkpoint() as effect:
                    await self._checkpoint(effect)
                case _Unsaved(attempt):
                    await self._unsaved(attempt)
                case Exit() as end:
                    await self._ended(end)
                case Refuse() as effect:
                    await self._finish(JobState.FAILED, effect.message)
                case _Failed():
                    why = self.record.reason or "The configuration in force does not allow another attempt."
                    await self._finish(JobState.FAILED, why)
                case _Cancel():
                    await self._cancel()
                case _Close():
                    return

    async def _start(self, effect: Start) -> None:
        # 1. That it is to run is kept first: a restart looks for it.
        attempt = JobAttempt(
            attempt=effect.attempt,
            node=effect.node,
            devices=effect.devices,
            started_ns=self._jobs.clock(),
            milli_gpu=effect.milli_gpu,
            memory_mib=effect.memory_mib,
        )
        await self._save(msgspec.structs.replace(self.record, state=JobState.RUNNING, attempt=attempt, reason=""))
        # 2. Then it runs.
        try:
            handle = await self._jobs.backend.start(self.record.job, self.record.task, attempt)
        except Exception as error:  # noqa: BLE001 - whatever it is, what it holds is given back
            await self._ended(Exit(None, self._jobs.clock(), reason=self._why(error)))
        else:
            self._watch(handle)

    def _why(self, error: Exception) -> str:
        """A sentence for people; what is a fault of ours is logged."""
        if isinstance(error, BackendError):
            return str(error)
        log.error("an attempt is lost by a fault", job_id=self.record.job.id, exc_info=error)
        return FAULT

    def _watch(self, handle: JobHandle) -> None:
        async def watch() -> None:
            try:
                end = await handle.wait()
            except Exception as error:  # noqa: BLE001 - as in `_start`
                self._stop()  # nobody watches it any more
                end = Exit(None, self._jobs.clock(), reason=self._why(error), ran=True)
            self.post(end)

        self._handle = handle
        self._is_there()
        self._jobs.spawn(watch())

    def _is_there(self) -> None:
        """Its runner is on its devices, since the attempt was begun."""
        job, attempt = self.record.job, self.record.attempt
        if attempt is not None:
            milli_gpu = attempt.milli_gpu * len(attempt.devices) or job.milli_gpu
            self._jobs.held.began(job.id, job.pool, "", milli_gpu, attempt.started_ns)

    async def _checkpoint(self, effect: Checkpoint) -> None:
        attempt = self.record.attempt
        if self._handle is None or attempt is None or attempt.attempt != effect.attempt:
            return

        async def remind() -> None:
            await self._jobs.sleep(effect.within_ns / NS_PER_S)
            self.post(_Unsaved(effect.attempt))

        self._handle.checkpoint()
        self._jobs.spawn(remind())
        await self._save(msgspec.structs.replace(self.record, state=JobState.SAVING))

    async def _unsaved(self, number: int) -> None:
        attempt = self.record.attempt
        if self.record.state is JobState.SAVING and attempt is not None and attempt.attempt == number:
            await self._save(msgspec.structs.replace(self.record, state=JobState.RUNNING))

    async def _cancel(self) -> None:
        if self._handle is not None:
            self._cancelled = True
            self._handle.stop()
            return
        await self._finish(JobState.CANCELLED, "")
        if self._held:  # the core gave it what it asked for meanwhile
            self._tell(Outcome.CANCELLED)
        else:
            self._jobs.desk.cancel_job(self.record.job.id)

    async def _ended(self, end: Exit) -> None:
        """An attempt has ended: what that means for the job, told to the core first, then kept."""
        attempt = self.record.attempt
        assert attempt is not None  # noqa: S101 - one that was started, or adopted
        record = msgspec.structs.replace(
            self.record,
            attempt=msgspec.structs.replace(attempt, ended_ns=end.ended_ns, exit_status=end.status),
        )
        self._handle = None
        self._jobs.held.ended(record.job.id, end.ended_ns)
        if self._unwanted and (end.stopped or end.status != 0):
            outcome, state, reason = Outcome.FAILED, JobState.FAILED, self._unwanted
        elif end.stopped or self._cancelled:
            outcome, state, reason = Outcome.CANCELLED, JobState.CANCELLED, ""
        elif end.status == 0:
            outcome, state, reason = Outcome.COMPLETED, JobState.DONE, ""
        elif end.status == EX_TEMPFAIL and end.asked:
            outcome, state, reason = Outcome.CANCELLED, JobState.QUEUED, ""
        else:
            record = msgspec.structs.replace(record, failures=record.failures + 1)
            again = record.failures <= record.task.retries
            outcome, reason = Outcome.FAILED, end.reason or _how(end.status)
            state = JobState.QUEUED if again else JobState.FAILED
        if state is JobState.QUEUED:
            record = msgspec.structs.replace(record, state=state, reason=reason, queued_ns=end.ended_ns)
        else:
            record = msgspec.structs.replace(record, state=state, reason=reason, ended_ns=end.ended_ns)
        self._tell(outcome, retry=state is JobState.QUEUED, end=end)
        await self._save(record)

    def _tell(self, outcome: Outcome, *, retry: bool = False, end: Exit | None = None) -> None:
        """The attempt that is held has ended; the core may start another one before this returns."""
        attempt, self._held = self._held, 0
        if not attempt:  # the core does not know it
            return
        # Charged is what ran: not what could not be started, and not what was lost with its node.
        ended, exited = (0, False) if end is None else (end.ended_ns, end.status is not None or end.ran)
        taken = Taken() if end is None else end.taken
        self._jobs.desk.job_ended(
            JobEnded(self.record.job.id, attempt, outcome, retry, ended, exited, taken.cpu_ns, taken.memory_mib_s)
        )
        if retry and not self._held and self._jobs.waits(self.record.job.id) is None:
            self.post(_Failed())  # the core does not know it, as its tenant was gone at the start

    async def give_up(self) -> None:
        """After a fault of ours: nothing of it is left running or held, as far as that can be."""
        try:
            self._stop()
            if self._held:
                self._tell(Outcome.FAILED)
            else:
                self._jobs.desk.cancel_job(self.record.job.id)
            attempt = self.record.attempt
            if attempt is not None and attempt.ended_ns is None:
                attempt = msgspec.structs.replace(attempt, ended_ns=self._jobs.clock())
                self.record = msgspec.structs.replace(self.record, attempt=attempt)
            await self._finish(JobState.FAILED, FAULT)
        except Exception:
            log.exception("a job cannot be given up; the next start finds it again", job_id=self.record.job.id)

    def _stop(self) -> None:
        """End what runs, if it can be, whatever the backend makes of it."""
        if self._handle is not None:
            with contextlib.suppress(Exception):
                self._handle.stop()

    async def _finish(self, state: JobState, reason: str) -> None:
        await self._save(msgspec.structs.replace(self.record, state=state, reason=reason, ended_ns=self._jobs.clock()))

    async def _save(self, record: JobRecord) -> None:
        """Keep it, however long that takes: what happened has happened."""
        self.record = record
        while True:
            try:
                await asyncio.to_thread(self._jobs.store.save_job, record)
            except StoreError as error:
                log.warning("a job's state cannot be kept; it is tried again", job_id=record.job.id, error=str(error))
                if self._jobs.closed:  # a restart finds out again
                    return
                await self._jobs.sleep(RETRY_S)
            else:
                return


def _how(status: int | None) -> str:
    if status is None:
        return "It is not known how it ended."
    return f"Its command exited with status {status}." if status >= 0 else f"Its command was ended by signal {-status}."
