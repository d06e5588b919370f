"""Offered demand: what tenants would use if every task started when it arrives, whatever the policy.

It says which tasks a tenant's guarantee is meant to carry (`within`), the same set for every policy, and gives
guarantees to tenants of a trace that comes without them (`by_demand`).
"""

import heapq
from array import array
from collections.abc import Callable

import msgspec

from commonpool.core.model import Job, Policy, Request, Tenant
from commonpool.core.pricing import round_lines
from commonpool.core.sizing import Shape, shares
from commonpool.simulator.workload import Arrival, Workload

PERCENT = 60  # the guarantee is in proportion to what a tenant's demand stays under for this part of the time
CAP_FACTOR = 2  # the elastic cap in guarantees


class Demand:
    """Offered demand of a workload, in milli_gpu, from its first arrival to its last.

    By the position of an arrival: `asks` is what it takes, `at_arrival` what its tenant then asks for in all, itself
    included. `lasting` is by tenant and level how long it asks for just that, in nanoseconds.
    """

    __slots__ = ("asks", "at_arrival", "end_ns", "lasting", "start_ns")

    def __init__(self, workload: Workload, policy: Policy, service_ns: Callable[[Arrival], int]) -> None:
        """`service_ns` says how long a task takes that starts at once."""
        arrivals = workload.arrivals
        self.start_ns = arrivals[0].at_ns if arrivals else 0
        self.end_ns = arrivals[-1].at_ns if arrivals else 0
        self.asks = array("q")
        self.at_arrival = array("q")
        asks = Asks(policy)
        tenants: dict[str, _Level] = {}
        for arrival in arrivals:
            name = arrival.task.tenant
            level = tenants.get(name)
            if level is None:
                level = tenants[name] = _Level(self.start_ns)
            milli_gpu = asks.milli_gpu(arrival.task)
            level.advance(arrival.at_ns)
            level.rise(milli_gpu, arrival.at_ns + service_ns(arrival))
            self.asks.append(milli_gpu)
            self.at_arrival.append(level.now)
        for level in tenants.values():
            level.advance(self.end_ns)
        self.lasting = {name: tenants[name].lasting for name in sorted(tenants)}

    def percentile(self, tenant: str, percent: int) -> int:
        """The least milli_gpu that the tenant's demand does not exceed for this part of the time."""
        lasting = self.lasting.get(tenant, {})
        wanted = sum(lasting.values()) * percent
        passed = 0
        for level in sorted(lasting):
            passed += lasting[level]
            if passed * 100 >= wanted:
                return level
        return 0

    def mean(self, tenant: str) -> int:
        """The tenant's mean demand over time, in milli_gpu, rounded down."""
        lasting = self.lasting.get(tenant, {})
        return sum(level * ns for level, ns in lasting.items()) // max(1, sum(lasting.values()))

    def within(self, workload: Workload, policy: Policy) -> bytearray:
        """By position 1 for each arrival at which its tenant asks for no more than its guarantee, else 0."""
        guaranteed = {name: tenant.guaranteed for name, tenant in policy.tenants.items()}
        return bytearray(
            demand <= guaranteed.get(arrival.task.tenant, -1)
            for demand, arrival in zip(self.at_arrival, workload.arrivals, strict=True)
        )


class _Level:
    """One tenant's demand as it rises and falls."""

    __slots__ = ("_ends", "_since", "lasting", "now")

    def __init__(self, start_ns: int) -> None:
        self.now = 0
        self.lasting: dict[int, int] = {}
        self._since = start_ns
        self._ends: list[tuple[int, int]] = []

    def advance(self, to_ns: int) -> None:
        """Let what ends until then end."""
        ends = self._ends
        while ends and ends[0][0] <= to_ns:
            at, milli_gpu = heapq.heappop(ends)
            self._hold(at)
            self.now -= milli_gpu
        self._hold(to_ns)

    def rise(self, milli_gpu: int, end_ns: int) -> None:
        """Ask for more from now until `end_ns`."""
        self.now += milli_gpu
        heapq.heappush(self._ends, (end_ns, milli_gpu))

    def _hold(self, until: int) -> None:
        if until > self._since:
            self.lasting[self.now] = self.lasting.get(self.now, 0) + until - self._since
            self._since = until


class Asks:
    """How much tasks use while they run, under one policy."""

    def __init__(self, policy: Policy) -> None:
        self._shapes = {name: Shape(deployment) for name, deployment in policy.deployments.items()}

    def milli_gpu(self, task: Request | Job) -> int:
        """The milli_gpu of a task; 0 for a request whose model does not exist."""
        if isinstance(task, Job):
            return task.milli_gpu
        shape = self._shapes.get(task.model)
        if shape is None:
            return 0
        return shares(task.tokens_in, task.tokens_out_max, task.sequences, shape)[1]


def by_demand(policy: Policy, demand: Demand, workload: Workload) -> Policy:
    """The policy with guarantees in proportion to the tenants' demand, so that they fill each pool exactly.

    In proportion to the 60th percentile of a tenant's demand, though not below the ask of its median task: else hard
    quotas could run nothing of a tenant that is mostly idle. The elastic cap is twice the guarantee, within the pool.
    Tenants who ask for nothing are left out, and so are groups, reservations and headroom, which are about other
    guarantees.
    """
    usual = _median_asks(demand, workload)
    tenants: dict[str, Tenant] = {}
    for name, pool in policy.pools.items():
        members = [t for t in policy.tenants.values() if t.pool == name and usual.get(t.name)]
        weights = {t.name: max(demand.percentile(t.name, PERCENT), usual[t.name]) for t in members}
        exact = {tenant: weight * pool.milli_gpu for tenant, weight in weights.items()}
        guarantees = round_lines(exact, sum(weights.values())) if exact else {}
        for tenant in members:
            guaranteed = guarantees[tenant.name]
            cap = min(CAP_FACTOR * guaranteed, pool.milli_gpu)
            tenants[tenant.name] = msgspec.structs.replace(
                tenant,
                guaranteed=guaranteed,
                reserved=0,
                headroom=0,
                elastic_cap=cap,
                hard_cap=cap,
                group=None,
                resources={},
            )
    return msgspec.structs.replace(policy, groups={}, tenants=tenants)


def _median_asks(demand: Demand, workload: Workload) -> dict[str, int]:
    asks: dict[str, list[int]] = {}
    for milli_gpu, arrival in zip(demand.asks, workload.arrivals, strict=True):
        asks.setdefault(arrival.task.tenant, []).append(milli_gpu)
    return {tenant: sorted(of)[len(of) // 2] for tenant, of in asks.items()}
