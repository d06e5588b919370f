"""The bare devices of a pool, where its jobs run and wait: a site like a deployment with its replicas."""

from typing import Final, cast

from commonpool.core.candidates import Barrier
from commonpool.core.effects import Effect, Start
from commonpool.core.entries import Entry, Spot, holds
from commonpool.core.footprint import Footprint
from commonpool.core.forecast import Forecast
from commonpool.core.inventory import Inventory
from commonpool.core.lanes import at_limit
from commonpool.core.lending import Loans
from commonpool.core.line import PASS_PRICE
from commonpool.core.model import NS_PER_S, Cause, Hardware, Job
from commonpool.core.placement import Placement
from commonpool.core.queueing import Flow
from commonpool.core.quota import Node, Quota
from commonpool.core.sites import Site, bound

# What keeps a job off a node whatever ends there.
_FOR_GOOD: Final = (Barrier.ISOLATION, Barrier.RUNTIME, Barrier.MODEL, Barrier.WINDOW, Barrier.HEALTH)
# How far a tenant's jobs may be looked through for one that fits where its head does not.
_LOOK_AHEAD: Final = 32


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
        "running",
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
        self.running: dict[str, Entry] = {}
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
        elif entry is not None and not _allowed(entry):
            self.kept_for = entry = None
        if entry is None:
            flow = self.line.most_overdue(now)
            if flow is not None:
                self._put_first(flow.earliest())  # one that is overdue has something that may be next
            entry = self.first
            if entry is None or not entry.waiting or entry.flow.parked or self.saved < self.price:
                return False
            if not _allowed(entry):
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
        passed = head is None  # for the limits of their apps
        if head is None:
            head = next(flow.waiting(), None)
        if head is None:
            return None
        spot = self.fit(head, now)
        if spot is not None:
            return head, spot
        why = self.cause, self.about
        tried = [head]
        if head.deadline > now or passed:
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
                    tried.append(entry)
        self.cause, self.about = why
        self._park(flow, (*tried, *flow.fronts(now)))
        return None

    def blocker(self, entry: Entry) -> Node | None:
        blocker = super().blocker(entry)
        for quota, its, amount in entry.also:
            blocker = blocker or quota.blocker(its, amount)
        return blocker

    def fit(self, entry: Entry, now: int) -> Spot | None:
        flow = entry.flow
        node = flow.node
        # 1. Its tenant's and its app's own bounds, in every resource.
        if self._at_bound(entry):
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

    def _at_bound(self, entry: Entry) -> bool:
        blocker = self.blocker(entry)
        if blocker is not None:
            self.cause, self.about = bound(blocker), blocker.name
            return True
        if entry.tallies and not _allowed(entry):
            self.cause, self.about = at_limit(entry.tallies[0])
            return True
        return False

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
        elif (
            self.held_for is not None
            or self.free - (0 if own else self.kept) < entry.ask
            or not self._placed(entry, now)
        ):
            self.cause, self.about = Cause.DEVICES, self.name
            if self.held_for is None and claims and entry.deadline <= now and self._comes_free(entry):
                self.held_for = entry
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
        self.running[entry.id] = entry
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
        self.running.pop(entry.id, None)
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

    def memory_of(self, entry: Entry) -> int:
        """The GPU memory that a job was given, MiB; what it asked for where its devices are not known."""
        held = None if self.inventory is None else self.inventory.held(entry.id)
        return cast("Job", entry.task).resources.get("gpu_memory_mib", 0) if held is None else sum(held.memory_mib)

    def service(self, entry: Entry) -> int:
        return entry.work // NS_PER_S


def _allowed(entry: Entry) -> bool:
    """Whether its app may run it now."""
    return all(tally.allows(holds(entry.task, entry.ask)) for tally in entry.tallies)
