"""What a policy to compare is: how the operator's `Policy` becomes the one that the machine runs by.

Every policy drives the production `Machine`; what differs is what the machine is told. A policy may put tasks into
other queues than their tenant's (`queues`), and may kill what runs (`preempts`); nothing else is added.
"""

from collections.abc import Callable, Mapping

import msgspec

from commonpool.core.effects import Effect
from commonpool.core.events import Arrived, Event, Submitted
from commonpool.core.machine import Machine
from commonpool.core.model import NS_PER_HOUR, Limits, Policy, Tenant

# Longer than any trace, and still far below 2^63 when it is added to a time since the epoch.
EVER_NS = 10 * 365 * 24 * NS_PER_HOUR
ENDLESS = 1_000_000_000  # a queue that never fills

# Of what a task belongs to, (tenant, tier), to the queue it waits in.
Queues = Mapping[tuple[str, str], tuple[str, str]]


class SharingPolicy(msgspec.Struct, frozen=True):
    """One way to share a pool. `sentence` says it in a line; `promises`: whether it refuses what would wait too long.

    `rules` makes the `Policy` that the machine runs by; `queues` says where tasks wait (None: where they belong).
    """

    name: str
    sentence: str
    rules: Callable[[Policy], Policy]
    queues: Callable[[Policy], Queues] | None = None
    preempts: bool = False
    promises: bool = False


class Requeued:
    """The machine, with every task put into the queue that a policy has for it."""

    def __init__(self, machine: Machine, queues: Queues) -> None:
        self._machine = machine
        self._queues = queues

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Of a task only the tenant and the tier are changed, and those only for the machine."""
        if isinstance(event, Arrived):
            request = event.request
            queue = self._queues.get((request.tenant, request.tier))
            if queue:
                event = Arrived(msgspec.structs.replace(request, tenant=queue[0], tier=queue[1]))
        elif isinstance(event, Submitted):
            job = event.job
            queue = self._queues.get((job.tenant, job.tier))
            if queue:
                event = Submitted(msgspec.structs.replace(job, tenant=queue[0], tier=queue[1]))
        return self._machine.handle(event, now)


def unpromised(tenant: Tenant) -> Tenant:
    """The tenant without anything that refuses, other than what can never fit."""
    limits = Limits(concurrent_requests=tenant.limits.concurrent_requests, queue_length=ENDLESS)
    apps = {name: Limits(concurrent_requests=its.concurrent_requests) for name, its in tenant.apps.items()}
    return msgspec.structs.replace(tenant, max_wait_ns=EVER_NS, limits=limits, apps=apps)


def with_tenants(policy: Policy, change: Callable[[Tenant], Tenant]) -> Policy:
    """The policy with each tenant changed."""
    return msgspec.structs.replace(policy, tenants={name: change(t) for name, t in policy.tenants.items()})


def owner_of(pool: str) -> str:
    """The one tenant that stands for everybody in a pool. No tenant of a configuration has a space in its name."""
    return f"everybody in {pool}"


def as_one(policy: Policy, priority: dict[str, int]) -> Policy:
    """Everybody in a pool is one tenant that owns it: nobody is guaranteed anything, nothing is lent."""
    used = sorted({tenant.pool for tenant in policy.tenants.values()})
    tenants = {}
    for name in used:
        whole = policy.pools[name].milli_gpu
        owner = Tenant(owner_of(name), name, whole, whole, whole, priority, EVER_NS)
        tenants[owner.name] = unpromised(owner)
    pools = {name: msgspec.structs.replace(pool, rule="elastic") for name, pool in policy.pools.items()}
    return msgspec.structs.replace(policy, pools=pools, groups={}, tenants=tenants)
