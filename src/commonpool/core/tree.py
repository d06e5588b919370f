"""The quota tree of one pool and one resource: its nodes, and what a policy promises to each of them.

Leaves are tenants, inner nodes are groups, the root is the pool. `quota` counts what runs in it.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from commonpool.core.model import Policy, Pool, Resource, Tenant

Counted = Literal["milli_gpu"] | Resource  # what a tree can be about

# Use / guarantee in fixed point: shares of a guarantee that differ by less than a millionth of a millionth are equal.
RATIO_BITS: Final = 40
# Ranks are below this for a tenant under its own guarantee, and from this for one that is only under its group's.
GROUP_RANK: Final = 1 << RATIO_BITS
NO_RANK: Final = 2 * GROUP_RANK


class Party:
    """What the loan books keep of a tenant."""

    __slots__ = ()


class Node:
    """A group or a tenant in the tree, with what runs below it now. Amounts are in the tree's unit.

    `waiters` are flows that found no room here, in order; whoever gives room back lets them try again. They are kept
    as opaque objects, since the tree does not know what waits.
    """

    __slots__ = (
        "cap",
        "elastic_cap",
        "firm",
        "guaranteed",
        "hard_cap",
        "headroom",
        "held",
        "home",
        "kept",
        "most",
        "name",
        "own",
        "parent",
        "party",
        "pool",
        "reach",
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
        self.home: Node | None = None  # the lowest group above it that has a part of its own
        self.guaranteed = 0
        self.own = 0  # of a group: what it is guaranteed beyond its members
        self.reserved = 0
        self.headroom = 0
        self.firm = False  # a group that owns or reserves more than its members do: its loans are its own concern
        self.elastic_cap = 0
        self.hard_cap = 0
        self.cap = 0
        self.reach = 0  # what the pool could leave to it if everything else were idle, whatever the caps
        self.most = 0  # what it could use if everything else were idle: what is above that can never fit
        self.use = 0
        self.kept = 0
        self.held = 0  # use, and what is kept by it and below it
        self.running = 0
        self.running_max: int | None = None
        self.waiters: dict[object, None] = {}
        self.party: Party | None = None  # of a tenant; the loan books' own

    def reset(self) -> None:
        """As one that the policy does not have: nothing is promised to it. What it uses stays."""
        self.parent = self.home = None
        self.guaranteed = self.own = self.reserved = self.headroom = 0
        self.elastic_cap = self.hard_cap = self.cap = self.reach = self.most = 0
        self.firm = False

    @property
    def reserved_idle(self) -> int:
        """What is kept for it beyond its use: the idle part of its reservation, or its headroom if that is more."""
        return self.kept

    @property
    def missing(self) -> int:
        """How much more it would keep if it were there: above 0 the node is short."""
        base = self.held - self.kept
        wanted = self.reserved - base
        if self.headroom:
            wanted = max(wanted, min(self.headroom, self.guaranteed - base))
        return wanted - self.kept if wanted > self.kept else 0

    @property
    def lendable(self) -> int:
        """The part of its guarantee that nobody below it uses or keeps, whether lent already or not."""
        return self.guaranteed - self.held if self.guaranteed > self.held else 0

    @property
    def over_guarantee(self) -> int:
        return self.use - self.guaranteed if self.use > self.guaranteed else 0

    @property
    def entitled(self) -> bool:
        """Whether more for this tenant is its own or its group's, and not borrowed: borrowers come after it."""
        return self.use < self.guaranteed or (self.home is not None and self._sponsor() is not None)

    @property
    def rank(self) -> int:
        """Its place among the entitled, smallest first.

        By use / guarantee: first those under their own guarantee, then those that are only under their group's.
        """
        if self.use < self.guaranteed:
            return (self.use << RATIO_BITS) // self.guaranteed
        group = self._sponsor()
        return NO_RANK if group is None else GROUP_RANK + (group.use << RATIO_BITS) // group.guaranteed

    def path(self) -> Iterator["Node"]:
        """The node and those above it, upwards, the pool's root excluded."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def _sponsor(self) -> "Node | None":
        """The lowest group with a part of its own that has room for this tenant within its guarantee."""
        kept = self.kept
        group = self.parent if self.home is not None else None
        while group is not None:
            kept += group.kept  # for any of its members, so for this one too
            if group.own and group.held - kept < group.guaranteed:
                return group
            group = group.parent
        return None


def capacity(pool: Pool, resource: Counted) -> int:
    """How much of a resource a pool has by its policy."""
    return pool.milli_gpu if resource == "milli_gpu" else pool.resources.get(resource, 0)


def wire(policy: Policy, tenants: Iterable[Tenant], nodes: dict[str, Node], known: dict[str, Node]) -> dict[str, Node]:
    """Give each tenant's node its parent. Returns the groups above them by name, deepest first, known nodes reused."""
    depth: dict[str, int] = {}
    for tenant in tenants:
        line = []
        name = tenant.group
        while name:
            line.append(name)
            name = policy.groups[name].parent
        depth |= {name: height for height, name in enumerate(reversed(line))}
    names = sorted(depth, key=lambda name: (-depth[name], name))
    groups = {name: known.get(name) or Node(name, "") for name in names}
    for name, node in groups.items():
        node.reset()
        above = policy.groups[name].parent
        node.parent = groups[above] if above else None
    for tenant in tenants:
        nodes[tenant.name].parent = groups[tenant.group] if tenant.group else None
        for group in nodes[tenant.name].path():
            group.pool = tenant.pool
    return groups


def promise(
    policy: Policy,
    resource: Counted,
    tenants: Iterable[Tenant],
    nodes: dict[str, Node],
    groups: dict[str, Node],
    *,
    part: int = 1,
    whole: int = 1,
) -> int:
    """Set guarantees, reservations and headroom to `part / whole` of the policy's. Returns what is guaranteed in all.

    Groups come deepest first. A group's guarantee is rounded as the sum of its members' and of its own part, so that
    no rounding gives a part of its own to a group that has none.
    """
    total = 0
    stated = dict.fromkeys(groups.values(), 0)  # guaranteed to the members of each by the policy
    reserved = dict.fromkeys(groups.values(), 0)  # by the members of each
    for group in groups.values():
        group.guaranteed = 0
    for tenant in tenants:
        node = nodes[tenant.name]
        full = _figures(policy, resource, tenant)
        node.guaranteed, node.reserved, node.headroom = (figure * part // whole for figure in full)
        if node.parent is None:
            total += node.guaranteed
        else:
            node.parent.guaranteed += node.guaranteed
            reserved[node.parent] += node.reserved
            stated[node.parent] += full[0]
    for name, node in groups.items():
        promised = policy.groups[name]
        own = 0
        if resource == "milli_gpu":
            own = max(0, (promised.guaranteed or 0) - stated[node])
            node.own = own * part // whole
            node.guaranteed += node.own
            node.reserved = min(promised.reserved * part // whole, node.guaranteed)
        node.reserved = max(node.reserved, reserved[node])
        node.firm = node.own > 0 or node.reserved > reserved[node]
        if node.parent is None:
            total += node.guaranteed
        else:
            node.parent.guaranteed += node.guaranteed
            reserved[node.parent] += node.reserved
            stated[node.parent] += stated[node] + own
    return total


def _figures(policy: Policy, resource: Counted, tenant: Tenant) -> tuple[int, int, int]:
    """Guaranteed, reserved and headroom. Of another resource the same fractions are kept as of the GPUs."""
    if resource == "milli_gpu":
        return tenant.guaranteed, tenant.reserved, tenant.headroom
    pool = policy.pools[tenant.pool]
    if share := tenant.resources.get(resource):
        guaranteed = share.guaranteed
    else:
        guaranteed = capacity(pool, resource) * tenant.guaranteed // pool.milli_gpu if pool.milli_gpu else 0
    whole = tenant.guaranteed or 1
    return guaranteed, guaranteed * tenant.reserved // whole, guaranteed * tenant.headroom // whole


def reach(free: int, nodes: Iterable[Node], groups: Iterable[Node]) -> None:
    """What a pool of this capacity could leave to each node if all others were idle, and whose own part is for it.

    Groups come deepest first.
    """
    tenants, inner = tuple(nodes), tuple(groups)
    held = {node: max(node.reserved, min(node.headroom, node.guaranteed)) for node in tenants}
    below = dict.fromkeys(inner, 0)
    for node in (*tenants, *inner):
        if node in below:
            held[node] = max(below[node], node.reserved)
        if node.parent is None:
            free -= held[node]
        else:
            below[node.parent] += held[node]
    for node in (*reversed(inner), *tenants):
        node.reach = held[node] - below.get(node, 0)  # what it would keep for those below it
        if node.parent is None:
            node.home = None
            node.reach += free
        else:
            node.home = node.parent if node.parent.own else node.parent.home
            node.reach += node.parent.reach
