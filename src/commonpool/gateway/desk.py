"""The desk: the one owner of the core. It hands the machine events and performs its effects, in order.

The relay submits a request with a `Waiter` and is called back when it is dispatched or refused.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

import structlog

from commonpool.core import effects
from commonpool.core.effects import Dispatch, Effect, Fail, Refuse, Settle
from commonpool.core.events import (
    Arrived,
    Cancelled,
    Configured,
    DevicesChanged,
    Ended,
    Event,
    Granted,
    ReplicaDraining,
    ReplicaLost,
    ReplicaReady,
    Ticked,
)
from commonpool.core.machine import Machine
from commonpool.core.model import Outcome, Policy, Reason, Replica, Request, Usage, UsageRecord, Wait
from commonpool.core.records import STATUS_CLIENT_GONE
from commonpool.engines.base import Target
from commonpool.store.journal import Journal, JournalError, RecordError

RETRY_UNWRITTEN_NS = 1_000_000_000
STATUS_NO_ENGINE = 502

log = structlog.get_logger()


class Waiter(Protocol):
    """The relay's side of one request. Called on the event loop, possibly before `Desk.submit` returns."""

    @property
    def request(self) -> Request:
        """What it is about."""

    def dispatched(self, target: Target, attempt: int, wait_ns: int, waits: tuple[Wait, ...]) -> None:
        """Send the request to this replica now; report its end with `Desk.ended`, once, whatever happens."""

    def refused(self, refusal: effects.Refuse) -> None:
        """Answer with this error; nothing was taken."""

    def failed(self) -> None:
        """No attempt is left: answer with the error of the last attempt."""


class Desk(Protocol):
    """What the relay needs of the owner of the core."""

    def submit(self, request: Request, waiter: Waiter) -> None:
        """A new request: exactly one of the waiter's methods follows, now or later, unless it is cancelled first."""

    def cancel(self, request_id: str) -> None:
        """The client of a request that still waits went away. The waiter hears nothing more."""

    def ended(self, event: Ended) -> None:
        """An attempt ended. Its record is durable when this returns, so the answer's last byte may be sent then.

        With `event.retry`, `Waiter.dispatched` (another attempt) or `Waiter.failed` follows.
        """


class CoreDesk:
    """The `Desk` of the live gateway: one machine, one clock, one journal.

    `seen(record)` hears of each record, for metrics. While the journal cannot be written, records are held here and
    nothing new is taken: unmetered work does not exist.
    """

    def __init__(
        self,
        machine: Machine,
        clock: Callable[[], int],
        journal: Journal,
        seen: Callable[[UsageRecord], None],
    ) -> None:
        self.machine = machine
        self._clock = clock
        self._journal = journal
        self._seen = seen
        self._targets: dict[str, Target] = {}
        self._waiters: dict[str, Waiter] = {}
        self._pending: deque[Effect] = deque()
        self._performing = False
        self._unwritten: list[UsageRecord] = []
        self.trouble = ""  # why records could not be written last time, a sentence

    # -- what the relay calls --------------------------------------------------------------------------------------

    def submit(self, request: Request, waiter: Waiter) -> None:
        if self._unwritten or not self._journal.healthy:
            message = f"Usage cannot be recorded now, so nothing new is served: {self.trouble}"
            waiter.refused(Refuse(request.id, Reason.NO_JOURNAL, message, RETRY_UNWRITTEN_NS))
            return
        self._waiters[request.id] = waiter
        self._handle(Arrived(request))

    def cancel(self, request_id: str) -> None:
        self._waiters.pop(request_id, None)
        self._handle(Cancelled(request_id))

    def ended(self, event: Ended) -> None:
        if not event.retry:
            self._waiters.pop(event.request_id, None)
        self._handle(event)

    # -- what the control loops call -------------------------------------------------------------------------------

    def replica_ready(self, replica: Replica, target: Target) -> None:
        self._targets[replica.id] = target
        self._handle(ReplicaReady(replica))

    def replica_draining(self, replica_id: str) -> None:
        self._handle(ReplicaDraining(replica_id))

    def replica_lost(self, replica_id: str) -> None:
        self._targets.pop(replica_id, None)
        self._handle(ReplicaLost(replica_id))

    def configure(self, policy: Policy) -> None:
        self._handle(Configured(policy))

    def granted(self, tenant: str, elastic_cap: int, until: int) -> None:
        """A tenant may use this many milli_gpu until then, in nanoseconds since the epoch; 0 takes it back."""
        self._handle(Granted(tenant, elastic_cap, until))

    def devices_changed(self, pool: str, milli_gpu: int) -> None:
        """A pool has this many GPUs from now on."""
        self._handle(DevicesChanged(pool, milli_gpu))

    def tick(self) -> None:
        """About once a second: what waited too long is refused, and unwritten records are tried again."""
        if self._journal.probe():
            unwritten, self._unwritten = self._unwritten, []
            for record in unwritten:
                self._write(record)
        self._handle(Ticked())

    @property
    def open_requests(self) -> int:
        """Requests that wait or run."""
        return len(self._waiters)

    def open_request(self, request_id: str) -> Request | None:
        """A request that waits or runs, by its id."""
        waiter = self._waiters.get(request_id)
        return waiter.request if waiter else None

    # -- inside ----------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        """Records first, at once: the caller may send the last byte when this returns.

        The other effects call waiters, which may call back here; a queue keeps them in order and the stack flat.
        """
        for effect in self.machine.handle(event, self._clock()):
            if isinstance(effect, Settle):
                self._write(effect.record)
                self._seen(effect.record)
            else:
                self._pending.append(effect)
        if self._performing:
            return
        self._performing = True
        try:
            while self._pending:
                self._perform(self._pending.popleft())
        finally:
            self._performing = False

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Dispatch(request_id, attempt, replica_id, wait_ns, waits):
                target = self._targets.get(replica_id)
                waiter = self._waiters.get(request_id)
                if waiter is None:  # it went away between the decision and now
                    self._handle(Ended(request_id, attempt, Outcome.CANCELLED, Usage(), STATUS_CLIENT_GONE))
                elif target is None:
                    self._handle(Ended(request_id, attempt, Outcome.FAILED, Usage(), STATUS_NO_ENGINE, retry=True))
                else:
                    waiter.dispatched(target, attempt, wait_ns, waits)
            case Refuse(request_id):
                if waiter := self._waiters.pop(request_id, None):
                    waiter.refused(effect)
            case Fail(request_id):
                if waiter := self._waiters.pop(request_id, None):
                    waiter.failed()

    def _write(self, record: UsageRecord) -> None:
        try:
            self._journal.append(record)
        except RecordError as error:
            log.warning("a usage record cannot be kept, now or ever", request_id=record.request_id, error=str(error))
        except JournalError as error:
            self._unwritten.append(record)
            self.trouble = str(error)
