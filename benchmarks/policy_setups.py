"""What the policies are compared on: a day of requests and 109 days of jobs, with guarantees that follow from demand.

The day is ServeGen's eight tenants, replayed ten times as fast, since at their own pace they keep less than one replica
busy; and from 09:00 on, since so little happens before that no pool which carries the rest is in use then. The jobs are
Philly's.
"""

from fractions import Fraction
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Final

import msgspec

from commonpool.core.model import (
    NS_PER_HOUR,
    NS_PER_S,
    Deployment,
    Limits,
    Policy,
    Pool,
    Tenant,
    Tier,
)
from commonpool.simulator.demand import WINDOW_NS, Demand
from commonpool.simulator.policies.base import with_tenants
from commonpool.simulator.presets import PRESETS
from commonpool.simulator.scenario import Scenario, cluster, scenario
from commonpool.simulator.traces import Target, read
from commonpool.simulator.workload import Arrival, Workload, workload

REQUESTS: Final = "servegen_tenants_1day.csv.gz"
JOBS: Final = "philly_jobs.csv.gz"

SPEED: Final = 10
FROM_HOUR: Final = 9
PRESET: Final = PRESETS["72b-a100"]
CONTEXT_TOKENS: Final = 8192
INTERACTIVE: Final = "interactive"
BATCH: Final = "batch"
BATCH_TENANTS: Final = ("analytics", "crawler", "research")
TARGETS_NS: Final = {INTERACTIVE: 5 * NS_PER_S, BATCH: NS_PER_HOUR}
PRIORITY: Final = {INTERACTIVE: 9, BATCH: 3}
# Nobody waits for batch work at a screen: it is refused only when the queue is longer than the trace.
MAX_WAIT_NS: Final = {INTERACTIVE: 60 * NS_PER_S, BATCH: 14 * 24 * NS_PER_HOUR}

JOB_MAX_WAIT_NS: Final = 7 * 24 * NS_PER_HOUR
JOB_PATIENCE_NS: Final = 8 * JOB_MAX_WAIT_NS
JOB_POOL_PERCENT: Final = 120  # of the mean demand

LOAD_FACTOR: Final = 3

_MODEL: Final = "qwen2.5-72b"
_QUEUE_LENGTH: Final = 1_000_000  # only max_wait refuses here


def requests(traces: Path, *, speed: int = SPEED, from_hour: int = FROM_HOUR, most: int | None = None) -> Workload:
    """The day from an hour on, or its first `most` requests. Raises TraceError."""
    target = Target(
        model=_MODEL,
        pool="main",
        tier=INTERACTIVE,
        tiers=dict.fromkeys(BATCH_TENANTS, BATCH),
    )
    day = read(traces / REQUESTS, target, speed=Fraction(speed), limit=most)
    if most is not None:
        return day
    begin = day.arrivals[0].at_ns + from_hour * NS_PER_HOUR // speed
    return workload(day.name, [arrival for arrival in day.arrivals if arrival.at_ns >= begin])


def day(work: Workload, replicas: int, *, speed: int = SPEED) -> Scenario:
    """Requests on a pool of so many replicas."""
    pool = Pool("main", replicas * PRESET.milli_gpu)
    tenants = [
        _tenant(name, pool, PRIORITY, MAX_WAIT_NS[BATCH if name in BATCH_TENANTS else INTERACTIVE])
        for name in work.tenants
    ]
    shape = Deployment(_MODEL, PRESET.name, pool.name, PRESET.milli_gpu, PRESET.slots, PRESET.kv_tokens, CONTEXT_TOKENS)
    policy = _policy(pool, (INTERACTIVE, BATCH), tenants, {_MODEL: shape})
    return scenario(policy, work, cluster(policy, PRESET), p60=True, window_ns=WINDOW_NS // speed)


def jobs(traces: Path, *, most: int | None = None) -> Scenario:
    """The jobs, or the first `most` of them, on a pool 20 % above their mean demand. Raises TraceError."""
    work = read(traces / JOBS, Target(model="", pool="main", tier=BATCH), limit=most)
    mean = sum(
        map(Demand(work, _policy(Pool("main", 0), (BATCH,), [], {}), attrgetter("duration_ns")).mean, work.tenants)
    )
    pool = Pool("main", round(Fraction(mean * JOB_POOL_PERCENT, 100_000)) * 1000)
    tenants = [_tenant(name, pool, {BATCH: PRIORITY[BATCH]}, JOB_MAX_WAIT_NS) for name in work.tenants]
    policy = _policy(pool, (BATCH,), tenants, {})
    return scenario(policy, work, cluster(policy, PRESET), p60=True)


def lifted(shared: Scenario) -> Scenario:
    """The same with elastic caps at the pool: who borrows is bounded by what is idle alone."""
    pools = shared.policy.pools

    def lift(tenant: Tenant) -> Tenant:
        whole = pools[tenant.pool].milli_gpu
        return msgspec.structs.replace(tenant, elastic_cap=whole, hard_cap=whole)

    return msgspec.structs.replace(shared, policy=with_tenants(shared.policy, lift))


def patient(shared: Scenario) -> Scenario:
    """The same with a max_wait of JOB_PATIENCE_NS."""
    policy = with_tenants(shared.policy, lambda tenant: msgspec.structs.replace(tenant, max_wait_ns=JOB_PATIENCE_NS))
    return msgspec.structs.replace(shared, policy=policy)


def burstiest(demand: Demand, count: int = 2) -> tuple[str, ...]:
    """The tenants whose demand is at times farthest above its mean: largest 99th percentile over mean, ties by name."""
    bursts = {name: Fraction(demand.percentile(name, 99), max(1, demand.mean(name))) for name in demand.windows}
    return tuple(sorted(sorted(bursts, key=lambda name: (-bursts[name], name))[:count]))


def loaded(shared: Scenario, tenants: tuple[str, ...]) -> Scenario:
    """The same guarantees and caps, and each arrival of these tenants three times."""
    arrivals: list[Arrival] = []
    for arrival in shared.workload.arrivals:
        arrivals.append(arrival)
        if arrival.task.tenant in tenants:
            arrivals += (_again(arrival, number) for number in range(1, LOAD_FACTOR))
    return scenario(
        shared.policy,
        workload(shared.workload.name, arrivals),
        shared.cluster,
        window_ns=shared.demand.window_ns,
    )


def fluid_ppm(shared: Scenario) -> int:
    """What no schedule can exceed: the use of the pool, in ppm, if demand were a fluid that fits everywhere.

    By any time no tenant can have used more than it asked for until then, nor more than its cap lets through, and all
    together no more than the pool lets through. A request is counted as on a replica full of its like.
    """
    demand, policy = shared.demand, shared.policy
    edges = [*range(demand.start_ns, demand.end_ns, demand.window_ns), demand.end_ns]
    lengths = [until - since for since, until in pairwise(edges)]
    totals = [0] * len(lengths)
    for name, windows in demand.windows.items():
        asked = [mean * length for mean, length in zip(windows, lengths, strict=True)]
        cap = policy.tenants[name].elastic_cap
        totals = [total + part for total, part in zip(totals, _through(asked, cap, lengths), strict=True)]
    capacity = sum(pool.milli_gpu for pool in policy.pools.values())
    used = sum(_through(totals, capacity, lengths))
    return used * 1_000_000 // max(1, capacity * (demand.end_ns - demand.start_ns))


def _through(asked: list[int], milli_gpu: int, lengths: list[int]) -> list[int]:
    """What comes out of a queue in each window, in milli_gpu_ns, when so much is served at a time."""
    backlog = 0
    served = []
    for more, length in zip(asked, lengths, strict=True):
        backlog += more
        served.append(min(backlog, milli_gpu * length))
        backlog -= served[-1]
    return served


def _again(arrival: Arrival, number: int) -> Arrival:
    task = msgspec.structs.replace(arrival.task, id=f"{arrival.task.id}+{number}")
    return msgspec.structs.replace(arrival, task=task)


def _tenant(name: str, pool: Pool, priority: dict[str, int], max_wait_ns: int) -> Tenant:
    whole = pool.milli_gpu
    limits = Limits(queue_length=_QUEUE_LENGTH)
    return Tenant(name, pool.name, 0, whole, whole, priority, max_wait_ns, limits=limits)


def _policy(pool: Pool, tiers: tuple[str, ...], tenants: list[Tenant], deployments: dict[str, Deployment]) -> Policy:
    return Policy(
        pools={pool.name: pool},
        tiers={name: Tier(name, TARGETS_NS[name]) for name in tiers},
        groups={},
        tenants={tenant.name: tenant for tenant in tenants},
        deployments=deployments,
        prices={},
    )
