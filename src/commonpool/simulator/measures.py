"""What is seen of a simulation, in a few bytes a task, and the figures that follow from it."""

from array import array
from collections.abc import Iterable

from commonpool.core.model import Job, Outcome, Policy, Reason, Tenant, UsageRecord
from commonpool.core.queueing import INPUT_COST, OUTPUT_COST
from commonpool.simulator.demand import Demand
from commonpool.simulator.figures import Figures, Lending, Outcomes, Part, ppm, spread
from commonpool.simulator.policies import SharingPolicy
from commonpool.simulator.sweeps import Turns, fragmentation, service_gap
from commonpool.simulator.workload import Arrival, Workload

PARTS = 240  # of the time that is shown, each with its mean use
_NEVER = -1

# What became of an arrival.
_OPEN, _SERVED, _REFUSED, _FAILED = range(4)


class Measures:
    """An observer of one simulation.

    `policy` is the operator's, whatever the machine runs by: it has the tenants, their guarantees and the tiers'
    targets. Everything is kept by the position of the arrival, in arrays, since a trace may have millions.
    """

    def __init__(self, workload: Workload, policy: Policy, demand: Demand) -> None:
        count = len(workload.arrivals)
        self._workload = workload
        self._policy = policy
        self._demand = demand
        self._position = {arrival.task.id: at for at, arrival in enumerate(workload.arrivals)}
        self._fate = bytearray(count)
        self._started = array("q", [_NEVER]) * count
        self._ended = array("q", [_NEVER]) * count
        self._tokens_out = array("q", [0]) * count
        self._refusals: dict[str, int] = {}
        self._killed: list[tuple[int, int, int]] = []  # (position, start, end)
        self._lost: dict[str, int] = {}
        self._preemptions: dict[str, int] = {}
        self._use = Use(demand.start_ns, demand.end_ns)
        self._used: dict[str, int] = {}
        self._lent: dict[str, int] = {}
        self._borrowed: dict[str, int] = {}
        self._loans: dict[str, array[int]] = {}  # by borrower, the length of each loan

    # -- what the simulation tells -------------------------------------------------------------------------------------

    def started(self, arrival: Arrival, now: int, wait_ns: int) -> None:  # noqa: ARG002 - the last start is what counts
        """A task starts; again when an attempt was lost."""
        self._started[self._position[arrival.task.id]] = now

    def refused(self, arrival: Arrival, reason: Reason, now: int) -> None:
        """A task is refused, at its arrival or later."""
        at = self._position[arrival.task.id]
        self._fate[at] = _REFUSED
        self._ended[at] = now
        self._refusals[reason.value] = self._refusals.get(reason.value, 0) + 1

    def ended(self, arrival: Arrival, record: UsageRecord, now: int) -> None:
        """A task's last attempt ended."""
        task = arrival.task
        tenant = task.tenant
        at = self._position[task.id]
        self._ended[at] = now
        if record.outcome is not Outcome.COMPLETED:
            self._fate[at] = _FAILED
            self._lost[tenant] = self._lost.get(tenant, 0) + record.milli_gpu_ns
            return
        self._fate[at] = _SERVED
        self._tokens_out[at] = record.tokens_out
        use = self._use.add(now - record.run_ns, now, record.milli_gpu)
        self._used[tenant] = self._used.get(tenant, 0) + use
        for loan in record.loans:
            if loan.lender:
                length = loan.end_ns - loan.start_ns
                amount = loan.milli_gpu * length
                self._lent[loan.lender] = self._lent.get(loan.lender, 0) + amount
                self._borrowed[tenant] = self._borrowed.get(tenant, 0) + amount
                lengths = self._loans.get(tenant)
                if lengths is None:
                    lengths = self._loans[tenant] = array("q")
                lengths.append(length)

    def preempted(self, arrival: Arrival, now: int, lost_milli_gpu_ns: int) -> None:
        """An attempt was killed; the task waits again, and this much work is lost."""
        tenant = arrival.task.tenant
        at = self._position[arrival.task.id]
        self._killed.append((at, self._started[at], now))
        self._preemptions[tenant] = self._preemptions.get(tenant, 0) + 1
        self._lost[tenant] = self._lost.get(tenant, 0) + lost_milli_gpu_ns

    # -- what follows --------------------------------------------------------------------------------------------------

    def outcomes(self, sharing: SharingPolicy) -> Outcomes:
        """All figures, once the simulation has ended."""
        tallies = self._tallies()
        tenants = [self._policy.tenants[name] for name in sorted(tallies)]
        pools = sorted({tenant.pool for tenant in tenants})
        capacity = sum(self._policy.pools[pool].milli_gpu for pool in pools)
        unusable = free = 0
        for pool in pools:
            parts = self._fragmentation(pool)
            unusable, free = unusable + parts[0], free + parts[1]
        gap, gap_end = self._service_gap(tenants)
        return Outcomes(
            policy=sharing.name,
            sentence=sharing.sentence,
            total=self._total(tallies.values()),
            tenants=tuple(self._figures(tenant.name, tenant.guaranteed, tallies[tenant.name]) for tenant in tenants),
            capacity_milli_gpu=capacity,
            utilisation_ppm=ppm(sum(self._used.values()), capacity * (self._demand.end_ns - self._demand.start_ns)),
            use_milli_gpu=self._use.means(),
            service_gap=gap,
            service_gap_end=gap_end,
            fragmentation_ppm=ppm(unusable, free),
            refusals=dict(sorted(self._refusals.items())),
        )

    def _tallies(self) -> dict[str, "_Tally"]:
        """What became of each tenant's tasks."""
        policy = self._policy
        within = self._demand.within(self._workload, policy)
        targets = {name: tier.queue_target_ns for name, tier in policy.tiers.items()}
        tallies: dict[str, _Tally] = {}
        for at, arrival in enumerate(self._workload.arrivals):
            task = arrival.task
            tally = tallies.get(task.tenant)
            if tally is None:
                tally = tallies[task.tenant] = _Tally(policy.tenants[task.tenant])
            started, ended = self._started[at] - arrival.at_ns, self._ended[at] - arrival.at_ns
            tally.add(self._fate[at], within[at], started, targets.get(task.tier))
            if not isinstance(task, Job):
                tally.promise(self._fate[at], started, ended)
        return tallies

    def _figures(self, name: str, guaranteed: int, tally: "_Tally") -> Figures:
        lengths = self._loans.get(name, array("q"))
        return Figures(
            tenant=name,
            guaranteed_milli_gpu=guaranteed,
            all=tally.part(0, 1),
            within=tally.part(1),
            beyond=tally.part(0),
            used_milli_gpu_ns=self._used.get(name, 0),
            lost_milli_gpu_ns=self._lost.get(name, 0),
            preemptions=self._preemptions.get(name, 0),
            late=tally.late,
            loans=Lending(len(lengths), self._borrowed.get(name, 0), spread(lengths)),
            lent_milli_gpu_ns=self._lent.get(name, 0),
        )

    def _total(self, tallies: Iterable["_Tally"]) -> Figures:
        everything = _Tally(None)
        for tally in tallies:
            everything.join(tally)
        lengths = [length for of in self._loans.values() for length in of]
        return Figures(
            tenant="",
            guaranteed_milli_gpu=sum(tenant.guaranteed for tenant in self._policy.tenants.values()),
            all=everything.part(0, 1),
            within=everything.part(1),
            beyond=everything.part(0),
            used_milli_gpu_ns=sum(self._used.values()),
            lost_milli_gpu_ns=sum(self._lost.values()),
            preemptions=sum(self._preemptions.values()),
            late=everything.late,
            loans=Lending(len(lengths), sum(self._borrowed.values()), spread(lengths)),
            lent_milli_gpu_ns=sum(self._lent.values()),
        )

    def _service_gap(self, tenants: list[Tenant]) -> tuple[int, int]:
        """Of requests; a job has no tokens."""
        number = {tenant.name: at for at, tenant in enumerate(tenants)}
        left_out = len(tenants) + 1
        arrivals, fate = self._workload.arrivals, self._fate
        which = [at for at, a in enumerate(arrivals) if fate[at] != _REFUSED and not isinstance(a.task, Job)]
        turns = Turns(
            array("L", [number.get(arrivals[at].task.tenant, left_out) for at in which]),
            array("q", [arrivals[at].at_ns for at in which]),
            array("q", [self._started[at] for at in which]),
            array("q", [self._ended[at] for at in which]),
            array("q", [INPUT_COST * arrivals[at].tokens_in for at in which]),
            array("q", [OUTPUT_COST * self._tokens_out[at] for at in which]),
        )
        return service_gap(turns, [tenant.weight for tenant in tenants], self._demand.end_ns)

    def _fragmentation(self, pool: str) -> tuple[int, int]:
        """Of a pool that runs jobs: beside those a request is too small to leave anything unusable."""
        asks, policy = self._demand.asks, self._policy
        held: list[tuple[int, int, int]] = []
        shapes: list[int] = []
        for at, arrival in enumerate(self._workload.arrivals):
            if policy.tenants[arrival.task.tenant].pool != pool:
                continue
            if isinstance(arrival.task, Job):
                shapes.append(asks[at])
            if self._fate[at] == _SERVED:
                held.append((self._started[at], self._ended[at], asks[at]))
        if not shapes:
            return 0, 0
        held += [
            (start, end, asks[at])
            for at, start, end in self._killed
            if policy.tenants[self._workload.arrivals[at].task.tenant].pool == pool
        ]
        whole = policy.pools[pool].milli_gpu
        return fragmentation(held, whole, shapes, self._demand.start_ns, self._demand.end_ns)


class _Tally:
    """What became of a tenant's tasks: those beyond its guarantee at index 0, those within it at index 1."""

    __slots__ = ("_max_wait_ns", "counts", "late", "violations", "waits")

    def __init__(self, tenant: Tenant | None) -> None:
        self.late = 0
        self._max_wait_ns = tenant.max_wait_ns if tenant else 0
        self.counts = ([0, 0, 0, 0], [0, 0, 0, 0])
        self.violations = [0, 0]
        self.waits = (array("q"), array("q"))

    def add(self, fate: int, within: int, wait_ns: int, target_ns: int | None) -> None:
        """Count one task."""
        self.counts[within][fate] += 1
        if fate == _SERVED:
            self.waits[within].append(wait_ns)
            self.violations[within] += target_ns is not None and wait_ns > target_ns
        else:
            self.violations[within] += 1

    def promise(self, fate: int, wait_ns: int, stay_ns: int) -> None:
        """Whether max_wait was kept; `stay_ns` is from arrival to the end or refusal."""
        if fate == _SERVED:
            self.late += wait_ns > self._max_wait_ns
        else:
            self.late += fate == _REFUSED and stay_ns > 0

    def join(self, other: "_Tally") -> None:
        """Add what became of another tenant's."""
        self.late += other.late
        for within in (0, 1):
            self.violations[within] += other.violations[within]
            self.waits[within].extend(other.waits[within])
            for fate, count in enumerate(other.counts[within]):
                self.counts[within][fate] += count

    def part(self, *which: int) -> Part:
        """The figures of one of the two, or of both."""
        waits: array[int] = array("q")
        for at in which:
            waits.extend(self.waits[at])
        return Part(
            arrivals=sum(sum(self.counts[at]) for at in which),
            served=len(waits),
            refused=sum(self.counts[at][_REFUSED] for at in which),
            failed=sum(self.counts[at][_FAILED] for at in which),
            violations=sum(self.violations[at] for at in which),
            wait=spread(waits),
        )


class Use:
    """Use over time, in equal parts from start to end; what lies outside is not counted."""

    def __init__(self, start_ns: int, end_ns: int) -> None:
        self._start_ns = start_ns
        self._end_ns = end_ns
        self._part_ns = max(1, -(-(end_ns - start_ns) // PARTS))
        self._amounts = [0] * PARTS  # milli_gpu_ns of those that only touch a part
        self._levels = [0] * (PARTS + 1)  # changes of the milli_gpu of those that fill whole parts

    def add(self, start: int, end: int, milli_gpu: int) -> int:
        """Count so much in use for a time; return the milli_gpu_ns of it that lie in the window."""
        start, end = max(start, self._start_ns), min(end, self._end_ns)
        if start >= end:
            return 0
        first, into_first = divmod(start - self._start_ns, self._part_ns)
        last, into_last = divmod(end - self._start_ns, self._part_ns)
        if first == last:
            self._amounts[first] += milli_gpu * (end - start)
        else:
            self._amounts[first] += milli_gpu * (self._part_ns - into_first)
            if into_last:
                self._amounts[last] += milli_gpu * into_last
            self._levels[first + 1] += milli_gpu
            self._levels[last] -= milli_gpu
        return milli_gpu * (end - start)

    def means(self) -> tuple[int, ...]:
        """The mean use in each part, in milli_gpu; the last part may be shorter than the others."""
        means = []
        level = 0
        for at, amount in enumerate(self._amounts):
            level += self._levels[at]
            begin = self._start_ns + at * self._part_ns
            length = min(self._part_ns, self._end_ns - begin)
            means.append(level + amount // length if length > 0 else 0)
        return tuple(means)
