"""What a valid policy guarantees of each pool. More than there is is allowed, and worth a warning."""

from commonpool.config.problems import Report
from commonpool.config.quantities import format_gpu
from commonpool.config.resources import RESOURCES
from commonpool.core.model import Policy, Pool, Resource, Tenant


def promised(policy: Policy, pool: str) -> int:
    """The milli_gpu that are guaranteed of a pool: to its tenants, and to their groups beyond that."""
    sums: dict[str, int] = {}  # by the group that it is directly below, "" the pool itself
    for tenant in policy.tenants.values():
        if tenant.pool == pool:
            sums[tenant.group or ""] = sums.get(tenant.group or "", 0) + tenant.guaranteed
            for above in _above(tenant.group, policy):
                sums.setdefault(above, 0)
    # The deepest first, so that each sum is whole before it is added to the next.
    for name in sorted(sums.keys() & policy.groups.keys(), key=lambda name: (-len(_above(name, policy)), name)):
        group = policy.groups[name]
        whole = sums[name] if group.guaranteed is None else group.guaranteed
        sums[group.parent or ""] = sums.get(group.parent or "", 0) + whole
    return sums.get("", 0)


def promised_resource(policy: Policy, pool: Pool, resource: Resource) -> int:
    """The same for one of the other resources that the pool counts, in its unit."""
    return sum(_share(t, pool, resource) for t in policy.tenants.values() if t.pool == pool.name)


def warn_of_scaling(policy: Policy, report: Report) -> None:
    """Warn where guarantees exceed what there is, since they are scaled pro rata then."""
    for name, pool in policy.pools.items():
        guaranteed = promised(policy, name)
        if guaranteed > pool.milli_gpu:
            shown, whole = format_gpu(pool.milli_gpu), format_gpu(guaranteed)
            sentence = f"{shown} are fewer than is guaranteed ({whole}): guarantees are scaled pro rata"
            report.warn(("pools", name, "gpus"), sentence)
        for key, each in RESOURCES.items():
            named = any(t.pool == name and each.resource in t.resources for t in policy.tenants.values())
            if named and (guaranteed := promised_resource(policy, pool, each.resource)) > pool.resources[each.resource]:
                shown, whole = each.shown(pool.resources[each.resource]), each.shown(guaranteed)
                sentence = f"{shown} is less than is guaranteed ({whole}): guarantees are scaled pro rata"
                report.warn(("pools", name, "resources", key), sentence)


def _above(group: str | None, policy: Policy) -> list[str]:
    line = []
    while group is not None:
        line.append(group)
        group = policy.groups[group].parent
    return line


def _share(tenant: Tenant, pool: Pool, resource: Resource) -> int:
    named = tenant.resources.get(resource)
    return named.guaranteed if named else tenant.guaranteed * pool.resources[resource] // pool.milli_gpu
