"""The quota tree of one pool: who uses how much, and how much more each may use now.

The pool is the root, groups are inner nodes, tenants are leaves. A node's use is the sum over what runs below it. All
quantities are milli_gpu. Pure arithmetic: `blocker` and `free_for` answer, `take` and `give` record, nothing decides.

Two rules bound a tenant (DESIGN section 2): no node on its path goes above its cap, and what others have reserved is
left alone. The second one is also what makes every loan have a lender: the pool's free capacity less the idle
reservations is exactly what idle guarantees and the unowned part can still lend.
"""

from collections.abc import Iterator

from commonpool.core.model import Policy, Tenant


class Node:
    """A group or a tenant in the tree, with what runs below it now.

    `waiters` are flows that found no room here, in order; whoever gives room back lets them try again. They are kept
    as opaque objects, since the tree does not know what waits.
    """

    __slots__ = (
        "cap",
        "guaranteed",
        "most",
        "name",
        "parent",
        "pool",
        "reserved",
        "running",
        "running_max",
        "use",
        "waiters",
    )

    def __init__(self, name: str, pool: str) -> None:
        self.name = name
        self.pool = pool
        self.parent: Node | None = None
        self.guaranteed = 0
        self.reserved = 0
        self.cap = 0
        self.most = 0  # what it could use if everything else were idle: what is above that can never fit
        self.use = 0
        self.running = 0
        self.running_max: int | None = None
        self.waiters: dict[object, None] = {}

    @property
    def reserved_idle(self) -> int:
        """The part of its reservation that the tenant does not use."""
        return self.reserved - self.use if self.reserved > self.use else 0

    @property
    def lendable(self) -> int:
        """The idle part of its guarantee beyond what is reserved, whether lent already or not."""
        kept = max(self.use, self.reserved)
        return self.guaranteed - kept if self.guaranteed > kept else 0

    @property
    def over_guarantee(self) -> int:
        return self.use - self.guaranteed if self.use > self.guaranteed else 0

    def path(self) -> Iterator["Node"]:
        """The node and those above it, upwards, the pool's root excluded."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


class Quota:
    """One pool's tree. Guarantees above the pool's capacity are scaled down pro rata (`scaled` says so)."""

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self.capacity = 0
        self.unowned = 0
        self.use = 0
        self.reserved = 0
        self.reserved_idle = 0
        self.scaled = False
        self.claimed = False  # a tenant under its guarantee waits for room in the pool: nothing is lent until it has it
        self.tenants: dict[str, Node] = {}
        self._groups: dict[str, Node] = {}

    def configure(self, policy: Policy) -> None:
        """Take over a policy. What runs keeps counting; a tenant that is gone keeps its use and gets no room."""
        pool = policy.pools.get(self.pool)
        self.capacity = pool.milli_gpu if pool else 0
        members = [t for t in policy.tenants.values() if pool and t.pool == self.pool]
        promised = sum(t.guaranteed for t in members)
        self.scaled = promised > self.capacity
        self._groups = self._build_groups(policy)
        for node in self.tenants.values():
            node.guaranteed = node.reserved = node.cap = 0
            node.parent = None
        for tenant in members:
            node = self.tenants.setdefault(tenant.name, Node(tenant.name, self.pool))
            self._configure_tenant(node, tenant, promised)
            if pool and pool.rule == "guaranteed":
                node.cap = min(node.cap, node.guaranteed)
        names = {tenant.name for tenant in members}
        self.tenants = {n: node for n, node in self.tenants.items() if n in names or node.use}
        self.reserved = sum(node.reserved for node in self.tenants.values())
        self.unowned = self.capacity - sum(node.guaranteed for node in self.tenants.values())
        self.reserved_idle = sum(node.reserved_idle for node in self.tenants.values())
        for node in self.tenants.values():
            node.most = min(self.capacity - self.reserved + node.reserved, *(step.cap for step in node.path()))
            for group in node.path():
                if group is not node:
                    group.use += node.use
                    group.running += node.running

    def _build_groups(self, policy: Policy) -> dict[str, Node]:
        groups = {name: Node(name, self.pool) for name in policy.groups}
        for name, group in policy.groups.items():
            groups[name].parent = groups[group.parent] if group.parent else None
            groups[name].cap = self.capacity if group.elastic_cap is None else group.elastic_cap
        return groups

    def _configure_tenant(self, node: Node, tenant: Tenant, promised: int) -> None:
        node.guaranteed, node.reserved = tenant.guaranteed, tenant.reserved
        if self.scaled:
            node.guaranteed = tenant.guaranteed * self.capacity // promised
            node.reserved = tenant.reserved * self.capacity // promised
        node.cap = min(tenant.elastic_cap, tenant.hard_cap)
        node.running_max = tenant.limits.concurrent_requests
        node.parent = self._groups[tenant.group] if tenant.group else None

    def free_for(self, node: Node) -> int:
        """What is left of the pool for this tenant: free capacity less what the others have reserved."""
        free = self.capacity - self.use - self.reserved_idle
        return free + node.reserved_idle if node.reserved else free

    def blocker(self, node: Node, ask: int) -> Node | None:
        """The first node on the tenant's path that has no room for `ask`, or None."""
        if node.running_max is not None and node.running >= node.running_max:
            return node
        step: Node | None = node
        while step is not None:
            if step.use + ask > step.cap:
                return step
            step = step.parent
        return None

    def take(self, node: Node, amount: int) -> None:
        """One more request of the tenant runs, with this much."""
        idle = node.reserved_idle if node.reserved else 0
        self.use += amount
        step: Node | None = node
        while step is not None:
            step.use += amount
            step.running += 1
            step = step.parent
        if node.reserved:
            self.reserved_idle += node.reserved_idle - idle

    def give(self, node: Node, amount: int) -> list[object]:
        """It no longer runs. Returns those that waited for room on its path; they wait no more."""
        idle = node.reserved_idle if node.reserved else 0
        self.use -= amount
        freed: list[object] = []
        step: Node | None = node
        while step is not None:
            step.use -= amount
            step.running -= 1
            if step.waiters:
                freed += step.waiters
                step.waiters = {}
            step = step.parent
        if node.reserved:
            self.reserved_idle += node.reserved_idle - idle
        return freed
