"""Sites: where work runs and where it waits. A deployment with its replicas, and the bare devices of a pool for jobs.

A site says whether a head can run now, where, and if not why (`Room`); the machine decides who is asked.
"""

from typing import Final, cast

from commonpool.core.crew import Crew
from commonpool.core.effects import Dispatch, Effect, Start
from commonpool.core.footprint import Footprint
from commonpool.core.forecast import Forecast
from commonpool.core.inventory import Inventory
from commonpool.core.lending import Loans
from commonpool.core.line import PASS_PRICE, Line
from commonpool.core.model import NS_PER_S, Cause, Deployment, Hardware, Job, Replica
from commonpool.core.pace import Pace
from commonpool.core.placement import Barrier, Placement
from commonpool.core.queueing import INPUT_COST, Entry, Flow, Room, Spot
from commonpool.core.quota import Node, Quota
from commonpool.core.sizing import Shape

_SLOTS: Final = Cause.SLOTS
_NO_REPLICA: Final = Cause.NO_REPLICA
# What keeps a job off a node whatever ends there.
_FOR_GOOD: Final = (Barrier.ISOLATION, Barrier.RUNTIME, Barrier.MODEL, Barrier.WINDOW, Barrier.HEALTH)
# How far a tenant's jobs may be looked through for one that fits where its head does not.
_LOOK_AHEAD: Final = 32


class Running(Spot):
    """A replica and what is taken of it."""

    __slots__ = (
        "build",
        "drain_until",
        "draining",
        "id",
        "index",
        "kv_tokens",
        "kv_used",
        "lost",
        "pool",
        "replica",
        "since",
        "slots",
        "slots_used",
        "stopping",
        "suspect",
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
        self.draining = False
        self.lost = False
        self.suspect = False  # an attempt has just failed there: nothing new until the next tick

    @property
    def open(self) -> bool:
        """Whether it takes new requests."""
        return not (self.draining or self.suspect)


class Site(Room):
    """A line, what it draws on, and what was learned of its speed."""

    __slots__ = ("held", "line", "loans", "quota")

    def __init__(self, name: str, quota: Quota, loans: Loans) -> None:
        super().__init__(name)
        self.line = Line()
        self.quota = quota
        self.loans = loans
        self.held = False  # one that needs much room at once has waited too long: what is free is kept for it

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

    def _blocked(self, flow: Flow, blocker: Node) -> None:
        """No room on its own path: it is looked at again when room is given back there."""
        self.cause, self.about = _bound(blocker), blocker.name
        if flow.length:
            blocker.waiters[flow] = None
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
        "asked",
        "avoided",
        "crew",
        "draining",
        "free_slots",
        "ready",
        "replicas",
        "runs",
        "scaled",
        "shape",
        "takers",
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
        self.crew = Crew()

    def configure(self, deployment: Deployment, quota: Quota, loans: Loans) -> None:
        """Take over a deployment; what runs goes on in the shape that it has."""
        self.quota, self.loans = quota, loans
        self.version = deployment.version
        self.shape = Shape(deployment)
        # Whether its replicas are the core's to start and to end.
        self.scaled = deployment.scaling is not None or bool(deployment.attached)

    def spare(self) -> bool:
        return self.free_slots > 0

    def busy(self) -> Cause:
        return _SLOTS if self.ready else _NO_REPLICA

    def fit(self, entry: Entry, now: int) -> Spot | None:
        flow = entry.flow
        node = flow.node
        blocker = self.quota.blocker(node, entry.ask)
        if blocker is not None:
            self._blocked(flow, blocker)
            return None
        if self.quota.free_for(node) < entry.ask:
            self._no_room(flow, own=node.entitled and node.use + entry.ask <= self.quota.capacity)
            return None
        spot = None if self.held or self.free_slots <= 0 else self._roomiest(entry)
        if spot is None:
            self.cause, self.about = self.busy(), self.name
            if entry.deadline <= now and node.entitled and self.patience(flow, now) is not None:
                self.held = True  # it needs several slots of one replica at once, and has waited long enough for them
        return spot

    def patience(self, flow: Flow, now: int) -> int | None:
        """What its head is worth, where what runs here leaves room enough for it in the end."""
        head = flow.head(now)
        if head is None or self.quota.free_for(flow.node) + self.asked < head.ask:
            return None
        for running in self.takers:
            if running.slots >= head.sequences and running.kv_tokens >= head.kv:
                return head.work // head.ask
        return None

    def occupy(self, spot: Spot, entry: Entry) -> None:
        running = cast("Running", spot)
        running.slots_used += entry.sequences
        running.kv_used += entry.kv
        entry.replica_id = running.id
        entry.version = self.version
        self.free_slots -= entry.sequences
        self.asked += entry.ask

    def vacate(self, entry: Entry, now: int) -> None:  # noqa: ARG002 - a slot has no clock
        """A lost replica is kept until the last request on it has ended, so that everything is given back once."""
        running = self.replicas[entry.replica_id]
        running.slots_used -= entry.sequences
        running.kv_used -= entry.kv
        self.asked -= entry.ask
        if running.open:
            self.free_slots += entry.sequences
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
        self.free_slots = sum(running.slots - running.slots_used for running in self.takers)
        self.ready = any(not r.draining for r in self.replicas.values())

    def doubt(self, entry: Entry) -> None:
        """An attempt failed there. A dead replica frees its slots at once and would eat the whole queue.

        With it its whole node may be dead, so the next attempt is made on another one, where there is one.
        """
        running = self.replicas.get(entry.replica_id)
        if running is not None:
            running.suspect = True
            self.count_free_slots()
            if running.replica.node:
                self.avoided[entry.id] = running.replica.node

    def trust(self) -> None:
        """Give those that failed a moment ago another chance."""
        if any(running.suspect for running in self.replicas.values()):
            for running in self.replicas.values():
                running.suspect = False
            self.count_free_slots()

    def forget_if_idle(self, running: Running) -> None:
        if not running.slots_used:
            del self.replicas[running.id]

    def _roomiest(self, entry: Entry) -> Running | None:
        """The replica with most room that can take the request; on a second attempt another one if possible.

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
            again = entry.replica_id != "" and running.id == entry.replica_id
            # slots / of < best_slots / best_of, in whole numbers
            if (
                best is None
                or (best_again and not again)
                or (best_again == again and slots * best_of < best_slots * of)
            ):
                best, best_again, best_slots, best_of = running, again, slots, of
        return best


class Devices(Site):
    """The devices of a pool as jobs see them: what no replica and no other job holds. milli_gpu.

    A job is within its tenant's guarantee when all that it asks for is. What it takes beyond that it borrows for long,
    so the forecast of the lenders' demand bounds it as well, until it is overdue or has waited as long as it will take.
    Where a job finds no room it is passed by those that do, of its own tenant and of others, but not for ever: when it
    is overdue its tenant's others wait, and all that frees is kept for it for as long as the use of the surplus by jobs
    has earned that (`saved`).
    """

    __slots__ = (
        "_at",
        "away",
        "borrowing",
        "by_jobs",
        "by_replicas",
        "claimed",
        "first",
        "footprints",
        "forecasts",
        "inventory",
        "kept_for",
        "kept_for_replicas",
        "nowhere",
        "price",
        "saved",
        "savers",
        "saving",
        "spot",
        "surplus",
    )

    def __init__(self, quota: Quota, loans: Loans, forecasts: dict[str, Forecast]) -> None:
        super().__init__(quota.pool, quota, loans)
        self.forecasts = forecasts
        self.by_replicas = 0
        self.by_jobs = 0
        self.away = 0  # what was held on nodes that are gone, when that was last looked at
        # The tenant whose job waits for room in another resource: no job borrows until it has it. Requests may go on.
        self.claimed = ""
        self.borrowing = True  # whether it is the turn of jobs that borrow; those that do not come first
        self.kept_for: Entry | None = None  # the overdue job for which all that frees is kept
        self.first: Entry | None = None  # the one that is next to be kept room for
        self.price = 0  # what must have been saved before that
        self.surplus = 0  # what jobs use that started from the surplus
        self.saved = 0  # milli_gpu × ns that may be kept idle for overdue jobs
        self._at = 0  # the time up to which that is right
        self.spot = Spot()
        self.inventory: Inventory | None = None  # where each job lies; None: the pool's nodes are not known
        self.footprints: dict[str, Footprint] = {}  # what each job asks for of the devices
        # By footprint and tenant, what found no place since anything changed, and whether one can come free.
        self.nowhere: dict[tuple[Footprint, str], bool] = {}
        self.savers: dict[str, Entry] = {}  # jobs that run and can save their state
        self.saving: dict[str, int] = {}  # those of them that were asked to, and until when they may take over it
        self.kept_for_replicas: dict[str, int] = {}  # what frees is kept from borrowers, by model, up to so much
        self.pace.expected = 1  # the unit of a job's service is a nanosecond

    @property
    def free(self) -> int:
        held = self.by_replicas + self.by_jobs
        inventory = self.inventory
        if inventory is None or not inventory.known:
            return self.quota.capacity - held
        # What runs on a node that is gone takes nothing of the others; what has no place takes it of all.
        unplaced = held - (inventory.capacity - inventory.free) - self.away
        return inventory.free - max(0, unplaced)

    @property
    def kept(self) -> int:
        """What of the free devices is kept for replicas that are missing; jobs that borrow do not get it."""
        return sum(self.kept_for_replicas.values())

    def spare(self) -> bool:
        return self.free > 0

    def busy(self) -> Cause:
        return Cause.DEVICES

    def keeps(self, now: int) -> bool:
        """Whether all that frees is kept for an overdue job now; then it comes before everybody in the surplus.

        One at a time, the longest overdue first: small ones would spend what a large one has to wait for. It needs
        savings for what it asks, for its max_wait; where they were not enough, twice as much the next time.
        """
        self._accrue(now)
        entry = self.kept_for
        if entry is not None and (self.saved <= 0 or not entry.waiting):
            self.kept_for = entry = None
            self.price *= 2
        if entry is None:
            flow = self.line.most_overdue(now)
            if flow is not None:
                self._put_first(flow.earliest())
            entry = self.first
            if entry is None or not entry.waiting or entry.flow.parked or self.saved < self.price:
                return False
            self.saved = self.price
            self.kept_for = entry
        self.claimed = self.claimed or entry.flow.tenant
        return True

    def _accrue(self, now: int) -> None:
        """What jobs use of the surplus saves a fifth as much for keeping: 20 % of it, as for requests."""
        spent = self.free if self.kept_for is not None else 0
        self.saved += (now - self._at) * (self.surplus // PASS_PRICE - spent)
        self._at = now

    def _put_first(self, entry: Entry) -> None:
        """It is overdue and borrows: it is the next to be kept room for, unless another is overdue for longer."""
        first = self.first
        if entry.ask > self.quota.capacity - self.by_replicas:
            return  # nothing that ends will make room enough
        if first is None or not first.waiting or first.flow.parked or entry.deadline < first.deadline:
            self.first = entry
            self.price = entry.ask * (entry.deadline - entry.arrived)

    def choose(self, flow: Flow, now: int) -> tuple[Entry, Spot] | None:
        head = flow.head(now)
        if head is None:
            return None
        spot = self.fit(head, now)
        if spot is not None:
            return head, spot
        why = self.cause, self.about
        blocker = self._blocker(head)
        if head.deadline > now:
            least = self.quota.capacity + 1 if head.also else head.ask  # of those that ask for GPUs alone
            for seen, entry in enumerate(flow.waiting()):
                if seen >= _LOOK_AHEAD:
                    break
                # What asks for as much fits no better, but on known nodes another kind of device may be free.
                if entry is not head and (entry.ask < least or entry.also or self.inventory is not None):
                    spot = self.fit(entry, now)
                    if spot is not None:
                        return entry, spot
                    least = least if entry.also else min(least, entry.ask)
                    if blocker is not None and self._blocker(entry) is None:
                        blocker = None  # it waits for something else than room on its own path
        self.cause, self.about = why
        if blocker is not None:
            self._blocked(flow, blocker)
        return None

    def _blocker(self, entry: Entry) -> Node | None:
        blocker = self.quota.blocker(entry.flow.node, entry.ask)
        for quota, its, amount in entry.also:
            blocker = blocker or quota.blocker(its, amount)
        return blocker

    def fit(self, entry: Entry, now: int) -> Spot | None:
        flow = entry.flow
        node = flow.node
        # 1. Its tenant's own bounds, in every resource.
        blocker = self._blocker(entry)
        if blocker is not None:
            self.cause, self.about = _bound(blocker), blocker.name
            return None
        # 2. What it borrows: nothing while somebody waits for its own, and nothing that is wanted back too soon.
        borrowed = node.use + entry.ask - max(node.use, node.guaranteed)
        own = self.owns(entry)
        claimed = self.quota.claimed or self.claimed
        if not own and claimed not in ("", flow.tenant):
            self.cause, self.about = Cause.BORROWING_DENIED, claimed
            return None
        if not own and not self.borrowing:
            self.cause, self.about = Cause.TURN, ""
            return None
        if not self._there(entry, now, own=own):
            return None
        # Lenders who wait themselves are forecast to want what they lend: without an end they would hold up each other.
        held_until = min(entry.deadline, entry.arrived + entry.work // entry.ask)
        if borrowed > 0 and now < held_until and borrowed > self._long_lendable(entry, now):
            self.cause, self.about = Cause.FORECAST, ""
            return None
        return self.spot

    def owns(self, entry: Entry) -> bool:
        """Whether all that it asks for is within its tenant's guarantee."""
        node = entry.flow.node
        own = node.use + entry.ask <= node.guaranteed
        return own and all(its.use + amount <= its.guaranteed for _, its, amount in entry.also)

    def _there(self, entry: Entry, now: int, *, own: bool) -> bool:
        """Whether what it asks for is free, in every resource and on the devices; if not, its own is claimed."""
        tenant, node = entry.flow.tenant, entry.flow.node
        possible = entry.ask <= self.quota.capacity - self.by_replicas  # else nothing that frees will do
        claims = possible and (own or entry is self.kept_for)
        if self.quota.free_for(node) < entry.ask:
            self._no_room(entry.flow, own=own and possible)
            if claims:
                self.quota.claimed = self.quota.claimed or tenant
        elif any(quota.free_for(its) < amount for quota, its, amount in entry.also):
            self.cause, self.about = Cause.POOL_FULL, ""
            if claims:
                self.claimed = self.claimed or tenant
        elif self.held or self.free - (0 if own else self.kept) < entry.ask or not self._placed(entry, now):
            self.cause, self.about = Cause.DEVICES, self.name
            self.held = self.held or (claims and entry.deadline <= now and self._comes_free(entry))
        else:
            return True
        if not claims and entry.deadline <= now:
            self._put_first(entry)
        return False

    def _placed(self, entry: Entry, now: int) -> bool:
        """Whether there is a place for it; `spot` is that place then."""
        if self.inventory is None:
            return True
        footprint = self.footprints.get(entry.id)
        if footprint is None:  # taken in before the pool's nodes were known
            task = cast("Job", entry.task)
            asked = self.inventory.footprint(task.hardware or Hardware(milli_gpu=entry.ask), task.resources)
            if isinstance(asked, str):
                return False
            footprint = self.footprints[entry.id] = asked
        key = footprint, entry.flow.tenant
        if key in self.nowhere:
            return False
        placement = self.inventory.find(footprint, entry.flow.tenant, now, now + entry.work // entry.ask)
        if placement is None:
            found = self.inventory.candidates(footprint, entry.flow.tenant, now, now + entry.work // entry.ask)
            self.nowhere[key] = any(candidate.barrier not in _FOR_GOOD for candidate in found)
            return False
        self.spot = placement
        return True

    def _comes_free(self, entry: Entry) -> bool:
        """Whether a place for it can come free by the end of what runs; else nothing is held for it."""
        footprint = self.footprints.get(entry.id)
        if self.inventory is None or footprint is None:
            return self.inventory is None
        return self.nowhere.get((footprint, entry.flow.tenant), True)

    def again(self, entry: Entry, devices: tuple[str, ...], milli_gpu: int, memory_mib: int) -> Spot:
        """Where a job runs that was started before this machine was made, with so much of each device."""
        if devices and milli_gpu:
            entry.ask = milli_gpu * len(devices)
        if self.inventory is not None and devices:
            footprint = self.footprints.get(entry.id)
            if not memory_mib and footprint is not None:
                memory_mib = footprint.memory_mib
            self.inventory.adopt(entry.id, entry.flow.tenant, devices, entry.ask // len(devices), memory_mib)
        return Spot()

    def asked(self, job_id: str) -> None:
        """A job was taken in: fragmentation is measured over what is asked for."""
        footprint = self.footprints.get(job_id)
        if self.inventory is not None and footprint is not None:
            self.inventory.asked(footprint)

    def wanted_within(self, now: int) -> int:
        """The milli_gpu for which tenants within their guarantee wait, beyond what is free."""
        wanted = 0
        for flow in self.line.flows.values():
            if flow.length and not flow.parked:
                head = flow.head(now)
                if head is not None and self.owns(head):
                    wanted += head.ask
        return max(0, wanted - self.free) if wanted else 0

    def forget(self, job_id: str) -> None:
        """It is over, or was never taken."""
        self.footprints.pop(job_id, None)

    def _long_lendable(self, entry: Entry, now: int) -> int:
        return self.loans.long_lendable(entry.flow.node, now, entry.work // entry.ask, self.forecasts)

    def occupy(self, spot: Spot, entry: Entry) -> None:
        self.nowhere.clear()
        if isinstance(spot, Placement) and self.inventory is not None:
            self.inventory.take(entry.id, entry.flow.tenant, spot)
        task = entry.task
        if isinstance(task, Job) and task.reclaim == "checkpoint":
            self.savers[entry.id] = entry
        if entry is self.kept_for:
            self.kept_for = None
            self.claimed = ""
        self._accrue(entry.dispatched)
        self.by_jobs += entry.ask
        entry.flow.account.by_jobs += entry.ask
        if entry.surplus:
            self.surplus += entry.ask

    def vacate(self, entry: Entry, now: int) -> None:
        self._accrue(now)
        self.nowhere.clear()
        self.savers.pop(entry.id, None)
        self.saving.pop(entry.id, None)
        if self.inventory is not None:
            self.inventory.give(entry.id)
        self.by_jobs -= entry.ask
        entry.flow.account.by_jobs -= entry.ask
        if entry.surplus:
            self.surplus -= entry.ask

    def begun(self, entry: Entry) -> Effect:
        held = None if self.inventory is None else self.inventory.held(entry.id)
        wait_ns = entry.dispatched - entry.arrived
        if held is None or not held.devices:
            return Start(entry.id, entry.attempt, wait_ns, entry.waits)
        milli_gpu, memory_mib = held.milli_gpu[0], held.memory_mib[0]
        return Start(entry.id, entry.attempt, wait_ns, entry.waits, held.node, held.devices, milli_gpu, memory_mib)

    def service(self, entry: Entry) -> int:
        return entry.work // NS_PER_S


def _bound(blocker: Node) -> Cause:
    full = blocker.running_max is not None and blocker.running >= blocker.running_max
    return Cause.CONCURRENCY if full else Cause.ELASTIC_CAP
