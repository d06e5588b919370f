"""The simulations of the comparison, and what they found, in structs that the page is made of."""

import heapq
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from benchmarks import policy_setups as setups

from commonpool.core.model import NS_PER_HOUR, Job, Reason, UsageRecord
from commonpool.simulator.demand import Demand
from commonpool.simulator.figures import PPM, Outcomes
from commonpool.simulator.measures import Measures
from commonpool.simulator.policies import POLICIES, machine_for, prepared
from commonpool.simulator.run import run
from commonpool.simulator.scenario import Scenario, service
from commonpool.simulator.workload import Arrival, Workload

FIFO: Final = "fifo"
STATIC: Final = "static"
PREEMPT: Final = "preempt"
COMMONPOOL: Final = "commonpool"
LIFTED: Final = "commonpool, caps lifted"

FIFO_USE_PPM: Final = 800_000

Say = Callable[[str], None]


class Share(msgspec.Struct, frozen=True):
    """Tasks, and how many of them were violations."""

    count: int
    violations: int


class Run(msgspec.Struct, frozen=True):
    """One policy. `first` are the tasks at whose arrival nothing else of their tenant waited in this run, in all and
    within the guarantee.
    """

    outcomes: Outcomes
    first: Share
    first_within: Share


class Owner(msgspec.Struct, frozen=True):
    """A tenant of a trace; GPU in milli_gpu."""

    name: str
    tier: str
    demand_mean: int
    guaranteed: int
    elastic_cap: int


class Neighbours(msgspec.Struct, frozen=True):
    """What the other tenants see of a load that some send three times. Figures by policy, before and with it."""

    loaded: tuple[str, ...]
    before: dict[str, Outcomes]
    after: dict[str, Outcomes]


class Found(msgspec.Struct, frozen=True):
    """One trace. `bounds_ppm` are the uses that no schedule can exceed, by policy whose caps hold; `within_peak` is the
    most that the tasks within guarantee would use together if each of them started at once, in milli_gpu.
    """

    tasks: str
    arrivals: int
    length_ns: int
    pool_milli_gpu: int
    demand_ppm: int
    owners: tuple[Owner, ...]
    runs: dict[str, Run]
    bounds_ppm: dict[str, int]
    within_peak: int
    neighbours: Neighbours | None = None
    patient: Run | None = None  # commonpool, were jobs promised a start within JOB_PATIENCE_NS only
    early_ppm: int = 0  # of the day's work, what lies before the hour at which it begins here


class Watch:
    """The measures, and for each task when it no longer waited."""

    def __init__(self, shared: Scenario) -> None:
        self.measures = Measures(shared.workload, shared.policy, shared.demand)
        self._shared = shared
        self._left_ns: dict[str, int] = {}
        self._violated: set[str] = set()
        self._targets = {name: tier.queue_target_ns for name, tier in shared.policy.tiers.items()}

    def started(self, arrival: Arrival, now: int, wait_ns: int) -> None:
        self._left_ns[arrival.task.id] = now
        target = self._targets[arrival.task.tier]
        if target is not None and wait_ns > target:
            self._violated.add(arrival.task.id)
        self.measures.started(arrival, now, wait_ns)

    def refused(self, arrival: Arrival, reason: Reason, now: int) -> None:
        self._left_ns[arrival.task.id] = now
        self._violated.add(arrival.task.id)
        self.measures.refused(arrival, reason, now)

    def ended(self, arrival: Arrival, record: UsageRecord, now: int) -> None:
        self.measures.ended(arrival, record, now)

    def preempted(self, arrival: Arrival, now: int, lost_milli_gpu_ns: int) -> None:
        self.measures.preempted(arrival, now, lost_milli_gpu_ns)

    def first(self) -> tuple[Share, Share]:
        """Of tasks that came when nothing of their tenant waited: all, and those within the guarantee."""
        shared = self._shared
        within = shared.demand.within(shared.workload, shared.policy)
        waiting: dict[str, list[int]] = {tenant: [] for tenant in shared.workload.tenants}
        counts, violations = [0, 0], [0, 0]
        for inside, arrival in zip(within, shared.workload.arrivals, strict=True):
            line = waiting[arrival.task.tenant]
            while line and line[0] <= arrival.at_ns:
                heapq.heappop(line)
            if not line:
                counts[inside] += 1
                violations[inside] += arrival.task.id in self._violated
            heapq.heappush(line, self._left_ns[arrival.task.id])
        return Share(sum(counts), sum(violations)), Share(counts[1], violations[1])


def measured(shared: Scenario, policy: str) -> Run:
    """What a policy makes of a scenario."""
    sharing = POLICIES[policy]
    machine = machine_for(sharing, shared.policy)
    watch = Watch(shared)
    run(shared.workload, prepared(sharing, shared.policy, machine), shared.cluster, watch)
    return Run(watch.measures.outcomes(sharing), *watch.first())


def day(traces: Path, most: int | None, say: Say) -> Found:
    """The day of requests: every policy, and the flood of the two burstiest tenants."""
    work = setups.requests(traces, most=most)
    shared, fifo = _sized(work, say)
    found = _compared(shared, {FIFO: fifo}, say)
    noisy = setups.burstiest(shared.demand)
    after = {}
    for label, each in ((COMMONPOOL, shared), (LIFTED, setups.lifted(shared))):
        say(f"{label}, the load of {' and '.join(noisy)} three times")
        after[label] = measured(setups.loaded(each, noisy), COMMONPOOL).outcomes
    before = {label: found.runs[label].outcomes for label in after}
    return msgspec.structs.replace(
        found,
        neighbours=Neighbours(noisy, before, after),
        early_ppm=_early(setups.day(setups.requests(traces, speed=1, from_hour=0, most=most), 1, speed=1).demand),
    )


def jobs(traces: Path, most: int | None, say: Say) -> Found:
    """The jobs: every policy."""
    shared = setups.jobs(traces, most=most)
    found = _compared(shared, {}, say)
    say(f"{COMMONPOOL}, a longer max_wait")
    return msgspec.structs.replace(found, patient=measured(setups.patient(shared), COMMONPOOL))


def _sized(work: Workload, say: Say) -> tuple[Scenario, Run]:
    """On as many replicas as bring the use under fifo nearest to 80 %."""
    tried: dict[int, tuple[Scenario, Run]] = {}
    one = setups.day(work, 1)
    slots = sum(map(one.demand.mean, work.tenants)) * PPM // (setups.PRESET.milli_gpu * FIFO_USE_PPM)
    replicas = max(1, slots)
    while replicas and replicas not in tried:
        shared = setups.day(work, replicas)
        say(f"{FIFO}, replicas: {replicas}")
        tried[replicas] = shared, measured(shared, FIFO)
        replicas += 1 if tried[replicas][1].outcomes.utilisation_ppm > FIFO_USE_PPM else -1
    return min(tried.values(), key=lambda each: abs(each[1].outcomes.utilisation_ppm - FIFO_USE_PPM))


def _compared(shared: Scenario, runs: dict[str, Run], say: Say) -> Found:
    runs = dict(runs)
    for name in POLICIES:
        if name not in runs:
            say(name)
            runs[name] = measured(shared, name)
    wide = setups.lifted(shared)
    say(LIFTED)
    runs[LIFTED] = measured(wide, COMMONPOOL)
    demand, policy = shared.demand, shared.policy
    capacity = sum(pool.milli_gpu for pool in policy.pools.values())
    return Found(
        tasks="jobs" if isinstance(shared.workload.arrivals[0].task, Job) else "requests",
        arrivals=len(shared.workload.arrivals),
        length_ns=demand.end_ns - demand.start_ns,
        pool_milli_gpu=capacity,
        demand_ppm=sum(map(demand.mean, policy.tenants)) * PPM // capacity,
        owners=_owners(shared),
        runs=runs,
        bounds_ppm={COMMONPOOL: setups.fluid_ppm(shared), LIFTED: setups.fluid_ppm(wide)},
        within_peak=_within_peak(shared),
    )


def _owners(shared: Scenario) -> tuple[Owner, ...]:
    tiers = {arrival.task.tenant: arrival.task.tier for arrival in shared.workload.arrivals}
    return tuple(
        Owner(name, tiers[name], shared.demand.mean(name), tenant.guaranteed, tenant.elastic_cap)
        for name, tenant in sorted(shared.policy.tenants.items())
    )


def _within_peak(shared: Scenario) -> int:
    """Of the tasks within guarantee alone, each started at its arrival."""
    service_ns = service(shared.policy, shared.cluster)
    within = shared.demand.within(shared.workload, shared.policy)
    ends: list[tuple[int, int]] = []
    use = peak = 0
    for arrival, inside, milli_gpu in zip(shared.workload.arrivals, within, shared.demand.asks, strict=True):
        if inside:
            while ends and ends[0][0] <= arrival.at_ns:
                use -= heapq.heappop(ends)[1]
            heapq.heappush(ends, (arrival.at_ns + service_ns(arrival), milli_gpu))
            use += milli_gpu
            peak = max(peak, use)
    return peak


def _early(demand: Demand) -> int:
    """The part of the day's demand, in ppm, that lies before the hour at which the comparison begins."""
    hours = setups.FROM_HOUR * NS_PER_HOUR // demand.window_ns
    early = sum(sum(windows[:hours]) for windows in demand.windows.values())
    return early * PPM // max(1, sum(map(sum, demand.windows.values())))
