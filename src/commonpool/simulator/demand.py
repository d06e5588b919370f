"""Offered demand: what tenants would use if every task started when it arrives, whatever the policy.

It says which tasks a tenant's guarantee is meant to carry (`within`), the same set for every policy, and gives
guarantees to tenants of a trace that comes without them (`by_demand`).
"""

import heapq
from array import array
from collections.abc import Callable

import msgspec

from commonpool.core.model import NS_PER_S, Job, Policy, Request, Tenant
from commonpool.core.pricing import round_lines
from commonpool.core.sizing import Shape, shares
from commonpool.simulator.workload import Arrival, Workload

# Demand is looked at in means over ten minutes: at single instants a tenant that sends bursts mostly asks for nothing.
WINDOW_NS = 600 * NS_PER_S
PERCENT = 60  # the guarantee is in proportion to what a tenant's demand stays under in this part of the windows
CAP_FACTOR = 2  # the elastic cap in guarantees


class Demand:
    """Offered demand of a workload, in milli_gpu, from its first arrival to its last.

    By the position of an arrival: `asks` is what it takes, `at_arrival` what its tenant then asks for in all, itself
    included. `windows` is by tenant what it asks for in each window of `window_ns` after the first arrival, the last
    one cut at the last arrival: means in milli_gpu, rounded down.
    """

    __slots__ = ("_areas", "asks", "at_arrival", "end_ns", "start_ns", "window_ns", "windows")

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        service_ns: Callable[[Arrival], int],
        window_ns: int = WINDOW_NS,
    ) -> None:
        """`service_ns` says how long a task takes that starts at once."""
        arrivals = workload.arrivals
        self.start_ns = arrivals[0].at_ns if arrivals else 0
        self.end_ns = arrivals[-1].at_ns if arrivals else 0
        self.window_ns = window_ns
        self.asks = array("q")
        self.at_arrival = array("q")
        asks = Asks(policy)
        tenants: dict[str, _Level] = {}
        for arrival in arrivals:
            name = arrival.task.tenant
            level = tenants.get(name)
            if level is None:
                level = tenants[name] = _Level(self.start_ns, window_ns)
            milli_gpu = asks.milli_gpu(arrival.task)
            level.advance(arrival.at_ns)
            level.rise(milli_gpu, arrival.at_ns + service_ns(arrival))
            self.asks.append(milli_gpu)
            self.at_arrival.append(level.now)
        self._areas: dict[str, int] = {}
        self.windows: dict[str, list[int]] = {}
        for name in sorted(tenants):
            tenants[name].advance(self.end_ns)
            self._areas[name], self.windows[name] = tenants[name].finish()

    def percentile(self, tenant: str, percent: int) -> int:
        """The least milli_gpu that the tenant's demand does not exceed in this part (1 to 100) of the windows."""
        windows = sorted(self.windows.get(tenant, ()))
        return windows[(len(windows) * percent + 99) // 100 - 1] if windows else 0

    def mean(self, tenant: str) -> int:
        """The tenant's mean demand over time, in milli_gpu, rounded down."""
        return self._areas.get(tenant, 0) // max(1, self.end_ns - self.start_ns)

    def within(self, workload: Workload, policy: Policy) -> bytearray:
        """By position 1 for each arrival at which its tenant asks for no more than its guarantee, else 0."""
        guaranteed = {name: tenant.guaranteed for name, tenant in policy.tenants.items()}
        return bytearray(
            demand <= guaranteed.get(arrival.task.tenant, -1)
            for demand, arrival in zip(self.at_arrival, workload.arrivals, strict=True)
        )


class _Level:
    """One tenant's demand as it rises and falls."""

    __slots__ = ("_area", "_ends", "_opened", "_since", "_total", "_window_ns", "_windows", "now")

    def __init__(self, start_ns: int, window_ns: int) -> None:
        self.now = 0
        self._ends: list[tuple[int, int]] = []
        self._since = start_ns
        self._opened = start_ns  # of the window that `_since` lies in
        self._window_ns = window_ns
        self._area = 0  # milli_gpu_ns in that window, and in all
        self._total = 0
        self._windows: list[int] = []

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

    def finish(self) -> tuple[int, list[int]]:
        """The milli_gpu_ns asked for in all, and the mean milli_gpu in each window, of which the last may be short."""
        if self._since > self._opened:
            self._close()
        return self._total, self._windows

    def _hold(self, until: int) -> None:
        while self._since < until:
            end = min(until, self._opened + self._window_ns)
            self._area += self.now * (end - self._since)
            self._since = end
            if end == self._opened + self._window_ns:
                self._close()

    def _close(self) -> None:
        self._windows.append(self._area // (self._since - self._opened))
        self._total += self._area
        self._area = 0
        self._opened = self._since


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

    In proportion to the 60th percentile of a tenant's windows, though not below the ask of its median task: else hard
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
