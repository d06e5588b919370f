"""The desk: the one owner of the core. It hands the machine events and performs its effects, in order.

The relay submits a request with a `Waiter` and is called back when it is dispatched or refused.

What is to be noted of an event (`core.metering`) is in the journal before any effect of it is performed: an attempt is
noted before it is sent anywhere, so none runs that a restart would not know of.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec
import structlog

from commonpool.core import effects
from commonpool.core.effects import (
    Checkpoint,
    Dispatch,
    Effect,
    Fail,
    Recall,
    Refuse,
    Settle,
    Start,
    StartReplica,
    StopReplica,
)
from commonpool.core.events import (
    Arrived,
    Cancelled,
    Configured,
    DevicesChanged,
    Ended,
    Event,
    Granted,
    HostLoad,
    JobEnded,
    JobResumed,
    KeyLimited,
    KeyRevoked,
    NodeLost,
    NodeSeen,
    Recalled,
    Released,
    ReplicaLost,
    ReplicaReady,
    Resumed,
    Spent,
    Submitted,
    Ticked,
)
from commonpool.core.machine import Machine
from commonpool.core.metering import Metering, Note
from commonpool.core.model import Job, Limits, Node, Outcome, Policy, Reason, Replica, Request, Usage, UsageRecord, Wait
from commonpool.core.records import STATUS_CLIENT_GONE
from commonpool.engines.base import Target
from commonpool.gateway.caches import Caches, HeldError, Part
from commonpool.store.journal import Journal, JournalError, RecordError

RETRY_UNWRITTEN_NS = 1_000_000_000
STATUS_NO_ENGINE = 502
_OF_REQUESTS: Final = frozenset({Arrived, Recalled, Ended, Cancelled})  # they change nothing of who holds what

log = structlog.get_logger()


Soon = Callable[[Callable[[], None]], object]


class Waiter(Protocol):
    """The relay's side of one request. Called on the event loop, possibly before `Desk.submit` returns."""

    @property
    def request(self) -> Request:
        """What it is about."""

    @property
    def first_token_at(self) -> int:
        """When the first token of the answer came, absolute; 0: not yet, or not known here."""

    def dispatched(self, target: Target, attempt: int, wait_ns: int, waits: tuple[Wait, ...], part: Part) -> None:
        """Send the request to this replica now; report its end with `Desk.ended`, once, whatever happens.

        `part` goes with it, and says whether `Desk.landed` is waited for.
        """

    def recalled(self) -> None:
        """Answer with what is kept; it is over."""

    def refused(self, refusal: effects.Refuse) -> None:
        """Answer with this error; nothing was taken."""

    def failed(self) -> None:
        """No attempt is left: answer with the error of the last attempt."""


class JobOwner(Protocol):
    """Whoever runs a job. Called on the event loop, possibly before `CoreDesk.submit_job` returns."""

    def started(self, effect: Start) -> None:
        """Start it now; report its end with `CoreDesk.job_ended`, once."""

    def checkpoint(self, effect: Checkpoint) -> None:
        """A lender needs back what it borrows: let it save its state, if it can."""

    def refused(self, effect: Refuse) -> None:
        """It will not run; nothing was taken."""

    def failed(self, job_id: str) -> None:
        """No attempt is left."""


class Replicas(Protocol):
    """Whoever starts and ends replicas. What becomes of them is told with `replica_ready` and `replica_lost`."""

    def start(self, effect: StartReplica) -> None:
        """Bring it up."""

    def stop(self, replica_id: str) -> None:
        """End it."""


class Attempts(Protocol):
    """Who hears of the attempts at a request."""

    def cancel(self, request_id: str) -> None:
        """The client of a request that still waits went away. The waiter hears nothing more."""

    def ended(self, event: Ended, then: Callable[[], None] | None = None) -> None:
        """An attempt ended. Its record is durable when `then` is called, without one when this returns.

        So the answer's last byte may be sent then. With `event.retry`, `Waiter.dispatched` (another attempt) or
        `Waiter.failed` follows.
        """

    def landed(self, request_id: str, attempt: int, *, ran: bool) -> None:
        """The engine has taken the attempt up, or never will (`gateway.caches`); it may have ended before."""


class Desk(Attempts, Protocol):
    """What the relay needs of the owner of the core."""

    def submit(self, request: Request, waiter: Waiter) -> None:
        """A new request: exactly one of the waiter's methods follows, now or later, unless it is cancelled first."""

    def recall(self, event: Recalled, waiter: Waiter) -> None:
        """A new request whose answer is kept: `Waiter.recalled` or `Waiter.refused` follows, unless it is cancelled."""


class CoreDesk:
    """The `Desk` of the live gateway: one machine and its metering, one clock, one journal.

    `seen(record)` hears of each record, for metrics. `soon` calls at the end of the loop's turn: what arrives and what
    is answered in one turn is noted by one write, and sent on after that; without it all is done at once. `replicas`,
    once it is set, starts and ends replicas. While the journal cannot be written, records are held here and nothing new
    is taken: unmetered work does not exist.
    """

    def __init__(
        self,
        machine: Machine,
        clock: Callable[[], int],
        journal: Journal,
        seen: Callable[[UsageRecord], None],
        soon: Soon | None = None,
        caches: Caches | None = None,
    ) -> None:
        self.machine = machine
        self._caches = caches or Caches()
        self.metering = Metering(machine)
        self._clock = clock
        self._journal = journal
        self._seen = seen
        self._soon = soon
        self._noted: list[Note] = []  # to be written before anything that is pending is performed
        self._then: list[Callable[[], None]] = []  # to be called when they are
        self._flushing = False  # whether that comes at the end of the turn
        self._targets: dict[str, Target] = {}
        self._waiters: dict[str, Waiter] = {}
        self._jobs: dict[str, JobOwner] = {}
        self.replicas: Replicas | None = None
        self._pending: deque[Effect] = deque()
        self._performing = False
        self._unwritten: list[Note] = []

    # -- what the relay calls --------------------------------------------------------------------------------------

    def submit(self, request: Request, waiter: Waiter) -> None:
        if message := self._unrecorded():
            waiter.refused(Refuse(request.id, Reason.NO_JOURNAL, message, RETRY_UNWRITTEN_NS))
            return
        self._waiters[request.id] = waiter
        self._handle(Arrived(request), at_once=False)

    def recall(self, event: Recalled, waiter: Waiter) -> None:
        self._take(event, waiter)

    def again(self, event: Arrived, waiter: Waiter) -> None:
        """As `submit`, of a request that was kept for later."""
        self._take(event, waiter)

    def _take(self, event: Arrived | Recalled, waiter: Waiter) -> None:
        if message := self._unrecorded():
            waiter.refused(Refuse(event.request.id, Reason.NO_JOURNAL, message, RETRY_UNWRITTEN_NS))
            return
        self._waiters[event.request.id] = waiter
        self._handle(event, at_once=False)

    def cancel(self, request_id: str) -> None:
        self._waiters.pop(request_id, None)
        self._handle(Cancelled(request_id))

    def ended(self, event: Ended, then: Callable[[], None] | None = None) -> None:
        if not event.retry:
            self._waiters.pop(event.request_id, None)
        self._pending += self._caches.ended(event.request_id, event.attempt)
        self._handle(event, at_once=then is None, then=then)

    def landed(self, request_id: str, attempt: int, *, ran: bool) -> None:
        if held := self._caches.landed(request_id, attempt, ran=ran):
            self._pending += held
            self._flush()

    def resume(self, event: Resumed, waiter: Waiter) -> None:
        """A request runs already that this machine does not know; its end is reported as any other's."""
        self._waiters[event.request.id] = waiter
        self._handle(event)

    # -- what the owner of jobs calls ------------------------------------------------------------------------------

    def submit_job(
        self, job: Job, owner: JobOwner, attempts: int = 0, *, again: bool = False, arrived: int = 0
    ) -> None:
        """A job that waits: the owner's `started` or `refused` follows, now or later, unless it is cancelled first.

        `again`: it was taken before this machine was made, as `Submitted` says.
        """
        if not again and (message := self._unrecorded()):
            owner.refused(Refuse(job.id, Reason.NO_JOURNAL, message, RETRY_UNWRITTEN_NS))
            return
        self._jobs[job.id] = owner
        self._handle(Submitted(job, attempts, again, arrived))

    def resume_job(self, event: JobResumed, owner: JobOwner) -> bool:
        """A job runs already that this machine does not know; False where its tenant or pool is gone."""
        self._jobs[event.job.id] = owner
        self._handle(event)
        known = self.machine.knows(event.job.id)
        if not known:
            del self._jobs[event.job.id]
        return known

    def job_ended(self, event: JobEnded) -> None:
        """An attempt ended. With `event.retry`, the owner's `started` or `failed` follows."""
        if not event.retry:
            self._jobs.pop(event.job_id, None)
        self._handle(event)

    def cancel_job(self, job_id: str) -> None:
        """Nobody wants a job any more that waits. The owner hears nothing more."""
        self._jobs.pop(job_id, None)
        self._handle(Cancelled(job_id))

    # -- what the control loops call -------------------------------------------------------------------------------

    def replica_ready(self, replica: Replica, target: Target, engine: str | None = None) -> None:
        """`engine` is what an adopted one was started with."""
        build = self.machine.build_of(replica) if engine is None else engine
        self._targets[replica.id] = msgspec.structs.replace(target, model=replica.model, build=build)
        self._caches.replica_ready(replica, target, ours=engine is None)
        self._handle(ReplicaReady(replica, engine))

    def replica_lost(self, replica_id: str, reason: str = "") -> None:
        self._targets.pop(replica_id, None)
        self._pending += self._caches.replica_lost(replica_id)
        self._handle(ReplicaLost(replica_id, reason))

    def node_seen(self, node: Node) -> None:
        """A node is there, and is this from now on."""
        self._handle(NodeSeen(node))

    def node_lost(self, name: str) -> None:
        self._handle(NodeLost(name))

    def host_load(self, load: HostLoad) -> None:
        self._handle(load)

    def released(self, tenant: str, milli_gpu: int) -> None:
        """So much of a tenant's guarantee is the pool's until it is taken back with 0."""
        self._handle(Released(tenant, milli_gpu))

    def configure(self, policy: Policy) -> None:
        self._handle(Configured(policy))

    def granted(self, tenant: str, elastic_cap: int, until: int) -> None:
        """A tenant may use this many milli_gpu until then, in nanoseconds since the epoch; 0 takes it back."""
        self._handle(Granted(tenant, elastic_cap, until))

    def key_limited(self, key_id: str, limits: Limits) -> None:
        """A key has these limits from now on."""
        self._handle(KeyLimited(key_id, limits))

    def key_revoked(self, key_id: str, tenant: str) -> None:
        """A key of a tenant counts no more: what waits with it is refused."""
        self._handle(KeyRevoked(key_id, tenant))

    def spent(self, event: Spent) -> None:
        """What a tenant has spent by what the books say."""
        self._handle(event)

    def devices_changed(self, pool: str, milli_gpu: int) -> None:
        """A pool has this many GPUs from now on."""
        self._handle(DevicesChanged(pool, milli_gpu))

    def tick(self) -> None:
        """About once a second: what waited too long is refused, and unwritten records are tried again."""
        if self._journal.probe():
            unwritten, self._unwritten = self._unwritten, []
            self._write(unwritten)
        self._handle(Ticked())

    def note(self, notes: Sequence[Note]) -> None:
        """Keep what somebody else has to note."""
        self._write(notes)

    def settle(self, record: UsageRecord) -> None:
        """Keep the record of an attempt that the machine does not know."""
        self._write([record])
        self._seen(record)

    @property
    def noted_until(self) -> int:
        """The full hour up to which all is noted and written; 0 while something is not written yet."""
        return 0 if self._noted or self._unwritten else self.metering.noted_until

    def close(self) -> None:
        """Nothing is metered from now on."""
        self._flush()
        self._write(self.metering.end(self._clock()))

    @property
    def open_requests(self) -> int:
        """Requests that wait or run."""
        return len(self._waiters)

    def open_request(self, request_id: str) -> Request | None:
        """A request that waits or runs, by its id."""
        waiter = self._waiters.get(request_id)
        return waiter.request if waiter else None

    def first_token_at(self, request_id: str) -> int:
        """When the first token of the answer to a request that runs came, absolute; 0: not yet, or not known here."""
        waiter = self._waiters.get(request_id)
        return waiter.first_token_at if waiter else 0

    def _unrecorded(self) -> str:
        """Why nothing new is taken: usage that cannot be recorded; "" while it can."""
        reason = self._journal.overdue or self._journal.trouble
        return f"Usage cannot be recorded now, so nothing new is served: {reason}" if reason else ""

    # -- inside ----------------------------------------------------------------------------------------------------

    def _handle(self, event: Event, *, at_once: bool = True, then: Callable[[], None] | None = None) -> None:
        """Records and notes first: the caller may send the last byte when this returns, or is called when it may.

        The other effects call waiters, which may call back here; a queue keeps them in order and the stack flat.
        """
        now = self._clock()
        notes = self._noted
        looks = self.metering.draining or type(event) not in _OF_REQUESTS
        for effect in self.machine.handle(event, now):
            if isinstance(effect, Settle):
                notes.append(effect.record)
                self._seen(effect.record)
                continue
            if isinstance(effect, Dispatch):
                self._note_running(effect.request_id, now, notes)
            elif isinstance(effect, Start):
                self._note_running(effect.job_id, now, notes)
                looks = True
            elif isinstance(effect, StartReplica | StopReplica):
                looks = True
            self._pending.append(effect)
        if looks:
            self._note_more(event, now, notes)
        if then is not None:
            self._then.append(then)
        if at_once or self._soon is None or self._performing or self._unwritten:
            self._flush()
        elif not self._flushing and (self._pending or self._noted):
            self._flushing = True
            self._soon(self._flush)

    def _flush(self) -> None:
        """Write what was noted, then let answers end, then perform what is pending."""
        self._flushing = False
        notes, self._noted = self._noted, []
        self._write(notes)
        then, self._then = self._then, []
        for end in then:
            try:
                end()
            except Exception:  # the others' answers end all the same
                log.exception("an answer could not be ended")
        if self._performing:
            return
        self._performing = True
        try:
            while self._pending:
                self._perform(self._pending.popleft())
        finally:
            self._performing = False

    def _note_running(self, task_id: str, now: int, notes: list[Note]) -> None:
        note = self.machine.noted(task_id, now)
        if note is not None:
            notes.append(note)

    def _note_more(self, event: Event, now: int, notes: list[Note]) -> None:
        """What is noted beside attempts that begin and end."""
        if isinstance(event, Ticked) and not self._unwritten:  # those hold what has changed, and are long enough
            notes += self.metering.tick(now)
            return
        if isinstance(event, Resumed):
            self._note_running(event.request.id, now, notes)
        elif isinstance(event, JobResumed):
            self._note_running(event.job.id, now, notes)
        notes += self.metering.look(now)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Dispatch():
                self._dispatch(effect)
            case Recall() | Refuse() | Fail():
                self._tell_over(effect)
            case Start() | Checkpoint():
                self._tell_owner(effect)
            case StartReplica() | StopReplica():
                self._tell_replicas(effect)

    def _tell_over(self, effect: Recall | Refuse | Fail) -> None:
        """A request or job is over, and nothing of it runs."""
        request_id = effect.request_id
        waiter, owner = self._waiters.pop(request_id, None), self._jobs.pop(request_id, None)
        match effect:
            case Recall() if waiter is not None:
                waiter.recalled()
            case Refuse():
                if (told := waiter or owner) is not None:
                    told.refused(effect)
            case Fail() if waiter is not None:
                waiter.failed()
            case Fail() if owner is not None:
                owner.failed(request_id)

    def _dispatch(self, effect: Dispatch) -> None:
        request_id, attempt = effect.request_id, effect.attempt
        target = self._targets.get(effect.replica_id)
        waiter = self._waiters.get(request_id)
        if waiter is None:  # it went away between the decision and now
            self._handle(Ended(request_id, attempt, Outcome.CANCELLED, Usage(), STATUS_CLIENT_GONE))
        elif target is None:
            self._handle(Ended(request_id, attempt, Outcome.FAILED, Usage(), STATUS_NO_ENGINE, retry=True))
        else:
            try:
                part = self._caches.part(waiter.request, effect, target)
            except HeldError:
                return
            waiter.dispatched(target, attempt, effect.wait_ns, effect.waits, part)

    def _tell_owner(self, effect: Start | Checkpoint) -> None:
        owner = self._jobs.get(effect.job_id)
        if owner is None:  # it went away between the decision and now
            self._handle(JobEnded(effect.job_id, effect.attempt, Outcome.CANCELLED))
        elif isinstance(effect, Start):
            owner.started(effect)
        else:
            owner.checkpoint(effect)

    def _tell_replicas(self, effect: StartReplica | StopReplica) -> None:
        if isinstance(effect, StopReplica):
            if self.replicas is not None:
                self.replicas.stop(effect.replica_id)
        elif self.replicas is not None:
            self.replicas.start(effect)
        else:
            self._handle(ReplicaLost(effect.replica.id, "Nothing here starts replicas."))

    def _write(self, notes: Sequence[Note]) -> None:
        """Keep them, in order; those that cannot be kept now are held until they can."""
        if self._unwritten:
            self._unwritten += notes
            return
        if not notes:
            return
        try:
            self._journal.append(*notes)
        except Exception as error:  # noqa: BLE001 - one that nobody foresaw comes again, and is not to stop the others
            if isinstance(error, JournalError) and not isinstance(error, RecordError):
                self._unwritten += notes
            elif len(notes) == 1:
                log.warning("a usage record cannot be kept, now or ever", note=notes[0], error=repr(error))
            else:
                for note in notes:
                    self._write([note])
