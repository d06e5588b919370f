"""Quotas put to the test: a part of the past decides them, another part is replayed under them by the production core.

Everything is held at its known pace: a request takes its share of a replica for as long as it took, or would take on a
replica that is full of its like, and a job its GPUs. So a card of one's own is neither faster nor slower than one of
the pool, and what differs between two set-ups is who waits for whom.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from commonpool.core.advice import NEVER_NS, Advice, Series, Verdict, advise, high
from commonpool.core.forecast import HOURS_A_WEEK, WEEKS_KEPT
from commonpool.core.model import NS_PER_HOUR, Job, Policy, Reason, Replica, Tenant, UsageRecord
from commonpool.core.underuse import Demand as Known
from commonpool.core.underuse import recall
from commonpool.simulator.cluster import Cluster, Serving, Speed
from commonpool.simulator.demand import WINDOW_NS, Asks, Demand
from commonpool.simulator.policies import POLICIES, machine_for
from commonpool.simulator.policies.base import unpromised, with_tenants
from commonpool.simulator.run import run
from commonpool.simulator.workload import Arrival, Workload, workload

ADVISED: Final = "advised"
TODAY: Final = "today"
PEAKS: Final = "static peaks"
P95: Final = "static p95"
EQUAL: Final = "equal shares"
_PACE_NS: Final = 1_000_000  # a request's time is counted in steps of this length
_PACE: Final = Speed(prefill_token_ns=0, step_ns=_PACE_NS, step_sequence_ns=0, load_ns=0)
_CONTEXT: Final = 1 << 40

Quotas = Mapping[str, tuple[int, int]]


class Setup(msgspec.Struct, frozen=True):
    """A way to divide GPUs: (guaranteed, elastic_cap) by tenant, in milli_gpu; `shared`: what is idle is lent.

    Where it is not each tenant is on cards of its own, as many as it is guaranteed.
    """

    name: str
    capacity: int
    shared: bool
    quotas: dict[str, tuple[int, int]]


class Trial(msgspec.Struct, frozen=True):
    """The past in two parts: `series` of the first, the tasks of the second, and what was known when it began.

    `since_ns` is when the second part begins; tasks before it still run then, and are not counted. `after` is what each
    tenant then wants, as in `series`.
    """

    policy: Policy
    series: tuple[Series, ...]
    tested: Workload
    since_ns: int
    until_ns: int
    known: tuple[Known, ...]
    after: tuple[tuple[int, ...], ...]


def held(work: Workload, service_ns: Callable[[Arrival], int]) -> Workload:
    """The workload with the time that each of its tasks takes once it runs."""
    arrivals = [msgspec.structs.replace(arrival, duration_ns=service_ns(arrival)) for arrival in work.arrivals]
    return msgspec.structs.replace(work, arrivals=arrivals)


def trial(
    work: Workload, policy: Policy, since_ns: int, split_ns: int, until_ns: int, window_ns: int = WINDOW_NS
) -> Trial:
    """Learn from `since_ns` to `split_ns`, test from there to `until_ns`. Times of tasks must be known (`held`)."""
    demand = Demand(work, policy, _duration, window_ns)
    first = max(0, (since_ns - demand.start_ns) // window_ns)
    count = max(1, (split_ns - demand.start_ns) // window_ns - first)
    tasks: dict[str, int] = {}
    jobs: dict[str, list[int]] = {}  # by tenant, GPU time of requests and of jobs
    for ask, arrival in zip(demand.asks, work.arrivals, strict=True):
        if arrival.at_ns < split_ns and arrival.at_ns + arrival.duration_ns > since_ns:
            name = arrival.task.tenant
            tasks[name] = max(tasks.get(name, 0), ask)
            jobs.setdefault(name, [0, 0])[isinstance(arrival.task, Job)] += ask * arrival.duration_ns
    series, after = [], []
    for name in work.tenants:
        windows = demand.windows[name]
        wanted = windows[first : first + count]
        wanted += [0] * (count - len(wanted))
        later = windows[first + count : first + count + (until_ns - split_ns) // window_ns]
        after.append((*later, *[0] * ((until_ns - split_ns) // window_ns - len(later))))
        requests, lasting = jobs.get(name, (0, 0))
        series.append(Series(name, tuple(wanted), tasks.get(name, 0), lasting=lasting > requests))
    return Trial(
        policy=policy,
        series=tuple(series),
        tested=_second(work, split_ns, until_ns),
        since_ns=split_ns,
        until_ns=until_ns,
        known=tuple(_known(name, demand, split_ns) for name in work.tenants),
        after=tuple(after),
    )


def _second(work: Workload, split_ns: int, until_ns: int) -> Workload:
    """What comes in that time, after what still runs from before, with the rest of its time."""
    before, after = [], []
    for arrival in work.arrivals:
        left = arrival.at_ns + arrival.duration_ns - split_ns
        if split_ns <= arrival.at_ns < until_ns:
            after.append(arrival)
        elif arrival.at_ns < split_ns and left > 0:
            before.append(msgspec.structs.replace(arrival, at_ns=split_ns - 1, duration_ns=left))
    return workload(work.name, before + after)


def _known(name: str, demand: Demand, split_ns: int) -> Known:
    """The hourly peaks that the production core would remember when the second part begins."""
    peaks: dict[int, int] = {}
    for at, milli_gpu in enumerate(demand.windows[name]):
        hour = (demand.start_ns + at * demand.window_ns) // NS_PER_HOUR
        if hour < split_ns // NS_PER_HOUR:
            peaks[hour] = max(peaks.get(hour, 0), milli_gpu)
    if not peaks:
        return Known(name, split_ns // NS_PER_HOUR, ())
    first = max(min(peaks), max(peaks) + 1 - WEEKS_KEPT * HOURS_A_WEEK)
    return Known(name, first, tuple(peaks.get(hour, 0) for hour in range(first, max(peaks) + 1)))


def setups(trial: Trial, capacity: int | None = None, today: Quotas | None = None) -> tuple[Advice, list[Setup]]:
    """The advice for a pool of this size (None: of the size that is enough), and what to compare it with.

    `today` are the quotas in force, in a pool of that size.
    """
    series = trial.series
    advice = advise(series, capacity)
    room = advice.capacity
    highs = {each.tenant: high(each) for each in series}
    peaks = {each.tenant: max(each.task, *each.wanted) for each in series}
    part = room // max(1, len(series))
    advised = {each.tenant: (each.guaranteed, each.elastic_cap) for each in advice.proposals}
    found = [] if today is None else [Setup(TODAY, room, shared=True, quotas=dict(today))]
    found += [
        own(PEAKS, peaks),
        own(P95, highs),
        own(EQUAL, {each.tenant: part for each in series}),
        Setup(ADVISED, room, shared=True, quotas=advised),
    ]
    return advice, found


def own(name: str, cards: Mapping[str, int]) -> Setup:
    """Each tenant on cards of its own."""
    quotas = {tenant: (milli_gpu, milli_gpu) for tenant, milli_gpu in cards.items()}
    return Setup(name, sum(cards.values()), shared=False, quotas=quotas)


def backtest(trial: Trial, setup: Setup) -> tuple[Verdict, ...]:
    """What the set-up would have made of the second part, by tenant. Raises SimulationError."""
    policy = _ruled(trial.policy, setup)
    machine = machine_for(POLICIES["commonpool" if setup.shared else "static"], policy)
    arrivals = trial.tested.arrivals
    if arrivals and setup.shared:
        recall(machine.state, [each for each in trial.known if each.peaks], arrivals[0].at_ns)
    counts = Counts(trial.since_ns)
    paced = msgspec.structs.replace(trial.tested, arrivals=_paced(trial.tested, trial.policy))
    run(paced, machine, Cluster() if _has_jobs(trial.tested) else _cluster(policy, setup), counts)
    return tuple(counts.tested(each.tenant) for each in trial.series)


def _ruled(policy: Policy, setup: Setup) -> Policy:
    """The policy with these quotas in one pool of this size, nothing that refuses, and no groups."""
    pools = {name: msgspec.structs.replace(pool, milli_gpu=setup.capacity) for name, pool in policy.pools.items()}

    def quota(tenant: Tenant) -> Tenant:
        guaranteed, cap = setup.quotas.get(tenant.name, (0, 0))
        plain = msgspec.structs.replace(
            unpromised(tenant),
            guaranteed=guaranteed,
            elastic_cap=cap,
            hard_cap=cap,
            reserved=min(tenant.reserved, guaranteed) if setup.name == TODAY else 0,
            headroom=min(tenant.headroom, guaranteed) if setup.name == TODAY else 0,
            group=None,
            resources={},
        )
        limits = msgspec.structs.replace(plain.limits, concurrent_requests=None)
        return msgspec.structs.replace(plain, limits=limits, apps={})

    return with_tenants(msgspec.structs.replace(policy, pools=pools, groups={}), quota)


def _cluster(policy: Policy, setup: Setup) -> Cluster:
    """Whole replicas of each model: as many as the pool holds, or as cards of one's own need."""
    replicas = []
    for name, shape in policy.deployments.items():
        count = setup.capacity // shape.milli_gpu if setup.shared else -(-setup.capacity // shape.milli_gpu)
        for number in range(max(1, count)):
            replica = Replica(f"{name}-{number}", name, shape.milli_gpu, shape.slots, shape.kv_tokens)
            replicas.append(Serving(replica, _PACE, _CONTEXT))
    return Cluster(tuple(replicas))


def _paced(work: Workload, policy: Policy) -> list[Arrival]:
    """A request as so many steps, a job as it is; where there are both, requests are short jobs.

    For replicas would hold the GPUs that are left idle by requests, whoever may have them.
    """
    asks = Asks(policy)
    if not _has_jobs(work):
        return [
            msgspec.structs.replace(
                arrival,
                task=msgspec.structs.replace(arrival.task, tokens_out_max=None),
                tokens_in=0,
                tokens_out=1 + arrival.duration_ns // _PACE_NS,
            )
            for arrival in work.arrivals
        ]
    return [
        arrival
        if isinstance(arrival.task, Job)
        else msgspec.structs.replace(arrival, task=_short(arrival, asks, policy))
        for arrival in work.arrivals
    ]


def _short(arrival: Arrival, asks: Asks, policy: Policy) -> Job:
    task = arrival.task
    pool = policy.tenants[task.tenant].pool
    return Job(task.id, task.tenant, task.app, pool, task.tier, asks.milli_gpu(task), expected_ns=arrival.duration_ns)


def _has_jobs(work: Workload) -> bool:
    return any(isinstance(arrival.task, Job) for arrival in work.arrivals)


def _duration(arrival: Arrival) -> int:
    return arrival.duration_ns


class Counts:
    """An observer that counts what came from `since_ns` on, by tenant."""

    def __init__(self, since_ns: int) -> None:
        self._since_ns = since_ns
        self._waits: dict[str, list[int]] = {}
        self._refused: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self._borrowed: dict[str, int] = {}
        self._lent: dict[str, int] = {}

    def started(self, arrival: Arrival, now: int, wait_ns: int) -> None:  # noqa: ARG002 - as any observer
        """A task starts; nothing fails or is killed here, so it starts once."""
        if arrival.at_ns >= self._since_ns:
            self._waits.setdefault(arrival.task.tenant, []).append(wait_ns)

    def refused(self, arrival: Arrival, reason: Reason, now: int) -> None:  # noqa: ARG002 - as any observer
        """It can never fit under its tenant's quota."""
        if arrival.at_ns >= self._since_ns:
            _more(self._refused, arrival.task.tenant, 1)

    def ended(self, arrival: Arrival, record: UsageRecord, now: int) -> None:  # noqa: ARG002 - as any observer
        """Use, and whose it was."""
        if arrival.at_ns < self._since_ns:
            return
        _more(self._used, record.tenant, record.milli_gpu_ns)
        for loan in record.loans:
            if loan.lender:
                amount = loan.milli_gpu * (loan.end_ns - loan.start_ns)
                _more(self._borrowed, record.tenant, amount)
                _more(self._lent, loan.lender, amount)

    def preempted(self, arrival: Arrival, now: int, lost_milli_gpu_ns: int) -> None:
        """Never here: nothing is killed."""

    def tested(self, tenant: str) -> Verdict:
        """The figures of one tenant."""
        waits = sorted(self._waits.get(tenant, ()))
        refused = self._refused.get(tenant, 0)
        p50, p99 = (_rank(waits, refused, percent) for percent in (50, 99))
        return Verdict(
            tenant=tenant,
            tasks=len(waits) + refused,
            refused=refused,
            wait_ns_p50=p50,
            wait_ns_p99=p99,
            used_milli_gpu_ns=self._used.get(tenant, 0),
            borrowed_milli_gpu_ns=self._borrowed.get(tenant, 0),
            lent_milli_gpu_ns=self._lent.get(tenant, 0),
        )


def _rank(waits: Sequence[int], refused: int, percent: int) -> int:
    count = len(waits) + refused
    at = (count * percent + 99) // 100 - 1
    return 0 if not count else waits[at] if at < len(waits) else NEVER_NS


def _more(sums: dict[str, int], name: str, amount: int) -> None:
    sums[name] = sums.get(name, 0) + amount


def own_cards_needed(trial: Trial, shared: Iterable[Verdict], most: Mapping[str, int], step: int) -> dict[str, int]:
    """By tenant, the fewest cards of its own (milli_gpu, by `step`) with which its p99 wait is no longer than shared.

    No more than `most` are tried. Each tenant alone is a simulation of its own tasks.
    """
    found = {}
    for each in shared:
        alone = _alone(trial, each.tenant)
        low, high_ = 1, max(1, -(-most[each.tenant] // step))
        while low < high_:
            middle = (low + high_) // 2
            (tested,) = backtest(alone, own(P95, {each.tenant: middle * step}))
            low, high_ = (low, middle) if tested.wait_ns_p99 <= each.wait_ns_p99 else (middle + 1, high_)
        found[each.tenant] = low * step
    return found


def _alone(trial: Trial, tenant: str) -> Trial:
    arrivals = [arrival for arrival in trial.tested.arrivals if arrival.task.tenant == tenant]
    return msgspec.structs.replace(
        trial,
        series=tuple(each for each in trial.series if each.tenant == tenant),
        tested=msgspec.structs.replace(trial.tested, arrivals=arrivals, tenants=(tenant,)),
    )


def worse(tested: Iterable[Verdict], than: Iterable[Verdict]) -> list[tuple[str, int, int]]:
    """The tenants whose p99 wait is longer than under the other set-up: who, how long, and how long there."""
    other = {each.tenant: each.wait_ns_p99 for each in than}
    return [(t.tenant, t.wait_ns_p99, other[t.tenant]) for t in tested if t.wait_ns_p99 > other[t.tenant]]
