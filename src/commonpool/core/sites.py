"""Sites: where work runs and where it waits. A deployment with its replicas is one; `devices` has the other kind.

A site says whether a head can run now, where, and if not why (`Room`); the machine decides who is asked.
"""

from typing import Final, cast

from commonpool.core.breaker import Breaker, Circuit, Retries
from commonpool.core.crew import Crew
from commonpool.core.effects import Dispatch, Effect
from commonpool.core.entries import Entry, Spot
from commonpool.core.lending import Loans
from commonpool.core.line import Line
from commonpool.core.model import Cause, Deployment, Fault, Outcome, Replica
from commonpool.core.pace import Pace
from commonpool.core.queueing import INPUT_COST, Flow, Room
from commonpool.core.quota import Node, Quota
from commonpool.core.sizing import Shape

_COMPLETED: Final = Outcome.COMPLETED
_FAILED: Final = Outcome.FAILED
_SLOTS: Final = Cause.SLOTS
_NO_REPLICA: Final = Cause.NO_REPLICA


class Running(Spot):
    """A replica and what is taken of it."""

    __slots__ = (
        "asked",
        "breaker",
        "build",
        "drain_until",
        "draining",
        "id",
        "index",
        "kv_tokens",
        "kv_used",
        "lost",
        "memory_mib",
        "pool",
        "replica",
        "since",
        "slots",
        "slots_used",
        "stopping",
    )

    def __init__(self, replica: Replica, pool: str, since: int) -> None:
        self.replica = replica
        self.pool = pool  # where its devices are; its deployment may have moved
        self.since = since
        self.index = 0
        self.build = ""  # what it is made of; another one is another replica
        self.drain_until = 0  # until when it may drain, where it is ours to end
        self.stopping = False
        self.id = replica.id
        self.slots = replica.slots
        self.kv_tokens = replica.kv_tokens
        self.slots_used = 0
        self.kv_used = 0
        self.asked = 0  # the milli_gpu of what runs on it
        self.memory_mib = 0  # the GPU memory that it was given; 0 where that is not known
        self.draining = False
        self.lost = False
        self.breaker = Breaker()

    def memory_of(self, entry: Entry) -> int:
        """A request's part of its GPU memory, MiB: as large as of its GPUs."""
        return self.memory_mib * entry.ask // self.replica.milli_gpu if self.memory_mib else 0

    @property
    def open(self) -> bool:
        """Whether it takes new requests."""
        return self.breaker.takes and not self.draining


class Site(Room):
    """A line, what it draws on, and what was learned of its speed."""

    __slots__ = ("held_for", "line", "loans", "quota")

    def __init__(self, name: str, quota: Quota, loans: Loans) -> None:
        super().__init__(name)
        self.line = Line()
        self.quota = quota
        self.loans = loans
        self.held_for: Entry | None = None  # it needs much room at once and has waited too long: what is free is its

    def spare(self) -> bool:
        """Whether anything at all could start here."""
        raise NotImplementedError

    def occupy(self, spot: Spot, entry: Entry) -> None:
        """It runs there from now on."""
        raise NotImplementedError

    def vacate(self, entry: Entry, now: int) -> None:
        """It runs there no more."""
        raise NotImplementedError

    def begun(self, entry: Entry) -> Effect:
        """The effect that starts it."""
        raise NotImplementedError

    def service(self, entry: Entry) -> int:
        """What its flow's counter is charged for it in advance."""
        raise NotImplementedError

    def busy(self) -> Cause:
        """Why nothing starts here, when that is not a matter of quota."""
        raise NotImplementedError

    def explain(self, flow: Flow, now: int, *, fed: bool = False) -> None:
        """Note in a flow why its head waits, when nobody has asked about that head itself.

        `fed`: another of the flow has just been started. If others were started here since it was last looked at, they
        came first.
        """
        cause, about = self.busy(), self.name
        if flow.lanes is not None and flow.head(now) is None:
            flow.note(now, *flow.at_limit())
            return
        if cause is not _NO_REPLICA:
            if fed:
                cause, about = Cause.OWN_QUEUE, ""
            elif flow.seen != self.turns:
                cause, about = Cause.TURN, ""
        flow.fed, flow.seen = fed, self.turns
        if not flow.node.entitled:
            if self.quota.claimed:
                cause, about = Cause.BORROWING_DENIED, self.quota.claimed
        elif cause is not _NO_REPLICA and self.loans.lent(flow.tenant):
            cause, about = Cause.LOAN_DUE, self.loans.newest_borrower(flow.tenant)
        flow.note(now, cause, about)

    def blocker(self, entry: Entry) -> Node | None:
        """The node on its tenant's own path that has no room for it, or None."""
        return self.quota.blocker(entry.flow.node, entry.ask)

    def passed(self, flow: Flow) -> None:
        self.cause, self.about = flow.at_limit()
        self.line.park(flow)

    def _park(self, flow: Flow, entries: tuple[Entry, ...]) -> None:
        """Leave a flow out until room is given back on its own path, where none of these entries has any.

        They are all of which one may be next before something arrives or leaves.
        """
        blockers = []
        for entry in entries:
            blocker = self.blocker(entry)
            if blocker is None:
                return
            blockers.append(blocker)
        for blocker in blockers:
            blocker.waiters[flow] = None
        if blockers:
            self.line.park(flow)

    def _no_room(self, flow: Flow, *, own: bool) -> None:
        """Nothing is free in the pool. What a tenant needs of its own guarantee is earmarked for it."""
        if not own:
            self.cause, self.about = Cause.POOL_FULL, ""
            return
        self.quota.claimed = self.quota.claimed or flow.tenant
        self.cause, self.about = Cause.LOAN_DUE, self.loans.newest_borrower(flow.tenant)


class Serving(Site):
    """A deployment and its replicas."""

    __slots__ = (
        "accused",
        "asked",
        "avoided",
        "crew",
        "draining",
        "free_slots",
        "ready",
        "replicas",
        "retries",
        "runs",
        "scaled",
        "shape",
        "takers",
        "troubled",
        "version",
    )

    def __init__(self, deployment: Deployment, quota: Quota, loans: Loans) -> None:
        super().__init__(deployment.model, quota, loans)
        self.configure(deployment, quota, loans)
        self.replicas: dict[str, Running] = {}
        self.takers: list[Running] = []  # those that take new requests
        self.asked = 0  # the milli_gpu of what runs
        self.free_slots = 0  # on replicas that take new requests
        self.ready = False  # whether there are replicas that will
        self.draining = False  # whether one drains that is to be ended when nothing runs on it
        self.runs = Pace()  # how long a request runs
        self.avoided: dict[str, str] = {}  # by request that failed, the node where it did
        self.accused: dict[str, str] = {}  # by request that is tried again, the replica that answered it with an error
        self.troubled = False  # whether a success changes what is thought of a replica
        self.crew = Crew()

    def configure(self, deployment: Deployment, quota: Quota, loans: Loans) -> None:
        """Take over a deployment; what runs goes on in the shape that it has."""
        self.quota, self.loans = quota, loans
        self.version = deployment.version
        self.shape = Shape(deployment)
        self.retries = Retries(deployment.slots)
        # Whether its replicas are the core's to start and to end.
        self.scaled = deployment.scaling is not None or bool(deployment.attached)

    def spare(self) -> bool:
        return self.free_slots > 0

    @property
    def failing(self) -> bool:
        """Whether there are replicas and each has failed on its probe too; none is on its way."""
        return not (self.ready or self.crew.starting) and any(not each.draining for each in self.replicas.values())

    def busy(self) -> Cause:
        return _SLOTS if self.takers else _NO_REPLICA

    def fit(self, entry: Entry, now: int) -> Spot | None:
        flow = entry.flow
        node = flow.node
        blocker = self.blocker(entry)
        if blocker is not None:
            self.cause, self.about = bound(blocker), blocker.name
            self._park(flow, flow.fronts(now))
            return None
        if self.quota.free_for(node) < entry.ask:
            self._no_room(flow, own=node.entitled and node.use + entry.ask <= self.quota.capacity)
            return None
        spot = None if self.held_for is not None or self.free_slots <= 0 else self._roomiest(entry)
        if spot is None:
            self.cause, self.about = self.busy(), self.name
            overdue = entry.deadline <= now and node.entitled and self.held_for is None
            if overdue and self.patience(flow, now) is not None:
                self.held_for = entry  # it needs several slots of one replica at once, and has waited long enough
        return spot

    def starts_at_once(self, entry: Entry) -> bool:
        """Whether it would wait for nothing, and for nobody but those who wait behind all else."""
        node = entry.flow.node
        surplus = not node.entitled
        others = self.line.waiting > self.line.behind
        if others or self.held_for is not None or self.quota.stopped or (surplus and self.quota.claimed):
            return False
        if self.free_slots <= 0 or any(tally.full for tally in entry.tallies):
            return False
        free = self.blocker(entry) is None and self.quota.free_for(node) >= entry.ask
        return free and self._roomiest(entry) is not None

    def patience(self, flow: Flow, now: int) -> int | None:
        """What its head is worth, where what runs here leaves room enough for it in the end."""
        head = flow.head(now)
        if head is None or self.quota.free_for(flow.node) + self.asked < head.ask:
            return None
        if self.blocker(head) is not None:  # what it waits for is none of what others take
            return None
        for running in self.takers:
            if running.slots >= head.sequences and running.kv_tokens >= head.kv:
                return head.work // head.ask
        return None

    def occupy(self, spot: Spot, entry: Entry) -> None:
        running = cast("Running", spot)
        running.slots_used += entry.sequences
        running.kv_used += entry.kv
        running.asked += entry.ask
        entry.replica_id = running.id
        entry.version = self.version
        self.free_slots -= entry.sequences
        self.asked += entry.ask
        if running.breaker.troubled:
            running.breaker.started(entry.id)
            self.count_free_slots()

    def vacate(self, entry: Entry, now: int) -> None:  # noqa: ARG002 - a slot has no clock
        """A lost replica is kept until the last request on it has ended, so that everything is given back once."""
        running = self.replicas[entry.replica_id]
        running.slots_used -= entry.sequences
        running.kv_used -= entry.kv
        running.asked -= entry.ask
        self.asked -= entry.ask
        if running.open:
            over = running.slots_used + entry.sequences - running.slots  # what ran before this machine may be too much
            self.free_slots += entry.sequences if over <= 0 else max(0, entry.sequences - over)
        elif running.lost:
            self.forget_if_idle(running)

    def begun(self, entry: Entry) -> Effect:
        return Dispatch(entry.id, entry.attempt, entry.replica_id, entry.dispatched - entry.arrived, entry.waits)

    def service(self, entry: Entry) -> int:
        """Its prompt and half of its expected output: while it runs, half is there on average.

        So a counter tells what its flow has been given, and who returns is lifted to what the others have been given,
        not to what they will still get.
        """
        return (entry.work // entry.ask + INPUT_COST * entry.tokens_in) // 2

    def count_free_slots(self) -> None:
        """After a replica came, drained or went."""
        self.takers = [running for running in self.replicas.values() if running.open]
        self.free_slots = sum(max(0, running.slots - running.slots_used) for running in self.takers)
        self.ready = any(not (r.draining or r.breaker.failing) for r in self.replicas.values())

    def heard(self, entry: Entry, outcome: Outcome, fault: Fault, now: int) -> None:
        """How an attempt ended says something of the replica that it ran on.

        With a replica that fails its whole node may be dead, so the next attempt is made on another one, where there
        is one.
        """
        running = self.replicas.get(entry.replica_id)
        if running is None:
            return
        breaker = running.breaker
        before = breaker.takes, breaker.circuit
        if outcome is _COMPLETED:
            breaker.succeeded()
            self._acquit(entry, running, now)
        elif outcome is not _FAILED or fault is Fault.NONE:
            breaker.left(entry.id)
        elif fault is Fault.UNCLEAR:
            breaker.left(entry.id)
            breaker.accused(entry.flow.tenant, now)
            self.accused[entry.id] = running.id
        else:
            breaker.failed(now)
            if running.replica.node:
                self.avoided[entry.id] = running.replica.node
        self.troubled = self.troubled or breaker.troubled or bool(self.accused)
        if (breaker.takes, breaker.circuit) != before:
            self.count_free_slots()

    def _acquit(self, entry: Entry, running: Running, now: int) -> None:
        """A request was answered. If another replica answered it with an error, that was the replica's own fault."""
        accused = self.replicas.get(self.accused.pop(entry.id, ""))
        if accused is not None and accused is not running:
            accused.breaker.failed(now)
            self.count_free_slots()

    def pass_time(self, now: int) -> None:
        """Those that failed a while ago get another chance."""
        if self.troubled:
            for running in self.replicas.values():
                running.breaker.tick(now)
            self.troubled = bool(self.accused) or any(each.breaker.troubled for each in self.replicas.values())
            self.count_free_slots()

    def forget(self, request_id: str) -> None:
        """It is over."""
        if self.avoided:
            self.avoided.pop(request_id, None)
        if self.accused:
            self.accused.pop(request_id, None)

    def forget_if_idle(self, running: Running) -> None:
        if not running.slots_used:
            del self.replicas[running.id]

    def _roomiest(self, entry: Entry) -> Running | None:
        """The replica with most room that can take the request, or one that is to be tried again; on a second attempt
        another one than before if possible.

        One that failed on a node waits for a replica on another, where the model has one.
        """
        avoided = self.avoided.get(entry.id, "") if self.avoided else ""
        if avoided and all(each.draining or each.replica.node == avoided for each in self.replicas.values()):
            avoided = ""
        best: Running | None = None
        best_again = True
        best_slots = best_of = 1
        for running in self.takers:
            if avoided and running.replica.node == avoided:
                continue
            slots = running.slots_used + entry.sequences
            of = running.slots
            if slots > of or running.kv_used + entry.kv > running.kv_tokens:
                continue
            if self.troubled and entry.replica_id == "" and running.breaker.circuit is Circuit.HALF_OPEN:
                return running  # the probe: where others have room too nobody would ever try it
            again = entry.replica_id != "" and (running.id == entry.replica_id or running.breaker.troubled)
            # slots / of < best_slots / best_of, in whole numbers
            if (
                best is None
                or (best_again and not again)
                or (best_again == again and slots * best_of < best_slots * of)
            ):
                best, best_again, best_slots, best_of = running, again, slots, of
        return best


def bound(blocker: Node) -> Cause:
    """What a tenant waits for whose path has no room at this node."""
    full = blocker.running_max is not None and blocker.running >= blocker.running_max
    return Cause.CONCURRENCY if full else Cause.ELASTIC_CAP
