"""The quota tree of one pool and one resource: who uses how much, what is kept for whom, how much more each may use.

The sums live here; nothing decides.

Two rules bound a tenant (DESIGN section 2): no node on its path goes above its cap, and what is kept for others is
left alone. A node *keeps* idle capacity of the pool: a tenant the idle part of its reservation, or its headroom; a
group what is idle of the reservation of all its members together. What a node *holds* is what it uses and keeps,
everything below it included. So what is free for a tenant is what is kept on its path and what nobody holds.

What is kept is always really there. A tenant that uses its headroom gets new headroom when the pool has something free;
the same goes for what a new policy reserves while others still use it. Until then the node is short, and what comes
free is kept for those who are short, the longest short first, before it can be lent again. (Were the whole headroom
held at once, two tenants that have each lent much could lock each other out of the little that is idle.)

The second rule is also what makes every loan have a lender: what nobody holds is exactly what idle guarantees, the
groups' own parts and the pool's unowned part can still lend.
"""

from typing import Final

import msgspec

from commonpool.core import tree
from commonpool.core.model import Policy, Tenant
from commonpool.core.tree import Counted, Node

__all__ = ["Node", "Quota"]


class Quota:
    """One pool's tree for one resource. Guarantees above the capacity are scaled down pro rata (`scaled` says so)."""

    def __init__(self, pool: str, resource: Counted = "milli_gpu") -> None:
        self.pool = pool
        self.resource: Final = resource
        self.capacity = 0
        self.unowned = 0  # what of the capacity is guaranteed to nobody
        self.use = 0
        self.free = 0  # what nobody holds; below 0 after a cut, until enough has ended
        self.scaled = False
        self.changes = 0  # how often the capacity or a guarantee may have changed
        self.stopped = False  # whether at a site a large head keeps others from the surplus, as long as it has room
        self.claimed = ""  # the entitled tenant that waits for room in the pool: nothing is lent until it has it
        self.tenants: dict[str, Node] = {}
        self.groups: dict[str, Node] = {}  # those with tenants of this pool below them
        self.topped_up: dict[Node, None] = {}  # those that keep more since the loan books last looked
        self._policy: Policy | None = None
        self._devices: int | None = None
        self._grants: dict[str, int] = {}
        self._released: dict[str, int] = {}
        self._short: dict[Node, None] = {}  # the longest short first
        self._groups_keep = False

    @property
    def reserved_idle(self) -> int:
        """What is kept of the capacity in all."""
        return self.capacity - self.use - self.free

    # -- what is in force ---------------------------------------------------------------------------------------------

    def configure(self, policy: Policy) -> None:
        """Take over a policy. What runs keeps counting; a tenant that is gone keeps its use and gets no room."""
        self._policy = policy
        self.changes += 1
        pool = policy.pools.get(self.pool)
        there = tree.capacity(pool, self.resource) if pool else 0
        self.capacity = there if self._devices is None else min(there, self._devices)
        its = [t for t in policy.tenants.values() if pool and t.pool == self.pool]
        self._released = {t.name: self._released[t.name] for t in its if t.name in self._released}
        members = [self._less(t) for t in its]
        self._grants = {t.name: self._grants[t.name] for t in members if t.name in self._grants}

        # 1. The shape of the tree.
        for node in self.tenants.values():
            node.reset()
        nodes = {t.name: self.tenants.get(t.name) or Node(t.name, self.pool) for t in members}
        self.tenants = nodes | {name: node for name, node in self.tenants.items() if name not in nodes and node.use}
        self.groups = tree.wire(policy, members, nodes, self.groups)

        # 2. What each is promised; once more in proportion if that is more than there is.
        promised = tree.promise(policy, self.resource, members, nodes, self.groups)
        self.scaled = promised > self.capacity
        if self.scaled:
            promised = tree.promise(
                policy, self.resource, members, nodes, self.groups, part=self.capacity, whole=promised
            )
        self.unowned = self.capacity - promised

        # 3. How far each may go.
        tree.reach(there, self.tenants.values(), self.groups.values())
        for name, group in self.groups.items():
            cap = policy.groups[name].elastic_cap if self.resource == "milli_gpu" else None
            group.cap = there if cap is None else cap
        for tenant in members:
            node = nodes[tenant.name]
            node.running_max = tenant.limits.concurrent_requests
            node.elastic_cap, node.hard_cap = self._caps(tenant)
            if pool and pool.rule == "guaranteed":
                node.elastic_cap = node.hard_cap = min(node.elastic_cap, node.guaranteed)
            self._bound(node)

        # 4. What runs, and what can be kept beside it.
        self._count()

    def resize(self, amount: int | None) -> None:
        """Devices were lost, or came back: there is this much, whatever the policy says; None: all of the policy's.

        It is never more than the policy's.
        """
        self._devices = amount
        if self._policy:
            self.configure(self._policy)

    def grant(self, tenant: str, elastic_cap: int) -> None:
        """Raise a tenant's elastic_cap, up to its hard_cap, until the grant is taken back with 0.

        A tenant that this pool's policy does not have is none of the tree's business.
        """
        if elastic_cap:
            self._grants[tenant] = elastic_cap
        else:
            self._grants.pop(tenant, None)
        if node := self.tenants.get(tenant):
            self._bound(node)

    def release(self, tenant: str, amount: int) -> None:
        """So much of a tenant's guarantee is nobody's, until it is taken back with 0.

        Not what it has reserved, and not what it uses at this moment.
        """
        policy = self._policy
        if policy is None or tenant not in policy.tenants:
            return
        node, promised = self.tenants[tenant], policy.tenants[tenant]
        idle = promised.guaranteed - max(node.use, promised.reserved)
        self._released[tenant] = max(0, min(amount, idle))
        self.configure(policy)

    def _less(self, tenant: Tenant) -> Tenant:
        """A tenant as the tree sees it: without what it has released."""
        amount = self._released.get(tenant.name, 0)
        if not amount or self.resource != "milli_gpu":
            return tenant
        guaranteed = max(tenant.reserved, tenant.guaranteed - amount)
        return msgspec.structs.replace(tenant, guaranteed=guaranteed, headroom=min(tenant.headroom, guaranteed))

    # -- what runs ----------------------------------------------------------------------------------------------------

    def free_for(self, node: Node) -> int:
        """What the pool has for this tenant: what is kept on its path and what nobody holds. Below 0 after a cut."""
        free = self.free
        step: Node | None = node
        while step is not None:
            free += step.kept
            step = step.parent
        return free

    def blocker(self, node: Node, ask: int) -> Node | None:
        """The first node on the tenant's path that has no room for `ask`, or None.

        A cap at the whole capacity bounds nobody: there it is the pool that is full.
        """
        if node.running_max is not None and node.running >= node.running_max:
            return node
        step: Node | None = node
        while step is not None:
            if step.use + ask > step.cap < self.capacity:
                return step
            step = step.parent
        return None

    def take(self, node: Node, amount: int) -> None:
        """One more request or job of the tenant runs, with this much: what was kept for it first."""
        self.use += amount
        grown = amount  # by how much what the step holds grows
        step: Node | None = node
        while step is not None:
            step.use += amount
            step.running += 1
            if step.kept:
                part = min(grown, step.kept)
                step.kept -= part
                grown -= part
            step.held += grown
            step = step.parent
        self.free -= grown
        if node.headroom and node.missing:
            self._short[node] = None
            self._top_up()

    def give(self, node: Node, amount: int) -> list[object]:
        """It no longer runs. Returns those that waited for room on its path; they wait no more."""
        self.use -= amount
        shrunk = amount
        freed: list[object] = []
        step: Node | None = node
        while step is not None:
            step.use -= amount
            step.running -= 1
            step.held -= shrunk
            if step.reserved or step.headroom:
                part = min(shrunk, step.missing)
                step.kept += part
                step.held += part
                shrunk -= part
            if step.waiters:
                freed += step.waiters
                step.waiters = {}
            step = step.parent
        self.free += shrunk
        if self._short:
            self._top_up()
        return freed

    # -- inside -------------------------------------------------------------------------------------------------------

    def _caps(self, tenant: Tenant) -> tuple[int, int]:
        if self.resource == "milli_gpu":
            return tenant.elastic_cap, tenant.hard_cap
        share = tenant.resources.get(self.resource)
        cap = self.capacity if share is None or share.elastic_cap is None else share.elastic_cap
        return cap, cap

    def _bound(self, node: Node) -> None:
        """A tenant's cap, with its grant, and the most it could ever use."""
        node.cap = min(max(node.elastic_cap, self._grants.get(node.name, 0)), node.hard_cap)
        node.most = min(node.reach, *(step.cap for step in node.path()))

    def _count(self) -> None:
        """Sum up what runs, then keep what there is room for."""
        nodes = (*self.tenants.values(), *self.groups.values())
        for group in self.groups.values():
            group.use = group.running = 0
        self.use = sum(node.use for node in self.tenants.values())
        for node in nodes:
            node.held, node.kept = node.use, 0
            if node.parent:
                node.parent.use += node.use
                node.parent.running += node.running
        self.free = self.capacity - self.use
        self._groups_keep = any(group.reserved for group in self.groups.values())
        self._short = {node: None for node in nodes if node.missing}
        self._top_up()
        self.topped_up.clear()

    def _top_up(self) -> None:
        """Keep what has come free for those who are short."""
        for node in tuple(self._short):
            missing = node.missing
            if missing:
                if self.free <= 0 and not self._groups_keep:
                    return
                part = min(missing, self.free_for(node) - node.kept)
                if part <= 0:
                    continue
                self._keep(node, part)
            if not node.missing:
                del self._short[node]

    def _keep(self, node: Node, amount: int) -> None:
        """The node keeps this much more, which the groups above it no longer need to keep for all their members."""
        node.kept += amount
        node.held += amount
        self.topped_up[node] = None
        step = node.parent
        while step is not None:
            part = min(amount, step.kept)
            step.kept -= part
            amount -= part
            step.held += amount
            step = step.parent
        self.free -= amount
