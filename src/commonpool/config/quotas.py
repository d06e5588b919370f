"""The quota of one tenant or group: what it does not say follows from what it does, and what it says agrees.

Absent values have been reported already, or cannot be known here; what depends on them stays open.
"""

from itertools import pairwise

from commonpool.config.problems import KeyPath, Report
from commonpool.config.quantities import format_gpu
from commonpool.config.resources import RESOURCES
from commonpool.config.shape import Values

QUOTA_ORDER = ("reserved", "guaranteed", "elastic_cap", "hard_cap")
GROUP_ORDER = QUOTA_ORDER[:3]


def settle_tenant(quota: Values, path: KeyPath, pool: Values, report: Report) -> None:
    """Complete a tenant's quota and report its contradictions. An unknown pool is {}: its defaults stay open."""
    at = (*path, "tenant")
    _guarantee(quota, at, pool, report)
    _reservation(quota, at, report)
    _order(quota, at, QUOTA_ORDER, report)
    _headroom(quota, at, report)
    _without_loans(quota, at, pool, report)
    _caps(quota, at, pool, report)
    _resources(quota, at, pool, report)


def settle_group(group: Values, path: KeyPath, below: int, report: Report) -> None:
    """Complete a group's quota and report its contradictions. `below` is what is guaranteed directly below it."""
    stated = "guaranteed" if "guaranteed" in group else "elastic_cap"
    if group.get(stated, below) < below:
        shown, needed = format_gpu(group[stated]), format_gpu(below)
        sentence = f"{shown} is less than what is guaranteed below it ({needed}); raise it or lower guarantees there"
        report.fail((*path, stated), sentence, shown)
    elif stated == "guaranteed" or not report.problems:  # else the sum may lack what is wrong
        whole = {"guaranteed": below, **group}
        _reservation(whole, path, report)
        _order(whole, path, GROUP_ORDER, report)
        group["reserved"] = whole.get("reserved", 0)


def lineage(group: str | None, values: Values) -> list[str]:
    """The group and those above it, innermost first; a circle is cut where it closes."""
    groups, line = values.get("groups", {}), dict[str, None]()
    while group is not None and group in groups and group not in line:
        line[group] = None
        group = groups[group].get("parent")
    return list(line)


def guaranteed_below(values: Values) -> dict[str, int]:
    """The sum of what is guaranteed directly below each group. A group that does not say counts as that sum."""
    groups = values.get("groups", {})
    below = dict.fromkeys(groups, 0)
    for tenant in values.get("tenants", {}).values():
        quota = tenant.get("tenant", {})
        if quota.get("group") in below:
            below[quota["group"]] += quota.get("guaranteed", 0)
    # The deepest first, so that each sum is whole before it is added to the next.
    for name in sorted(groups, key=lambda name: -len(lineage(name, values))):
        if (parent := groups[name].get("parent")) in below:
            below[parent] += groups[name].get("guaranteed", below[name])
    return below


def _guarantee(quota: Values, at: KeyPath, pool: Values, report: Report) -> None:
    if "guaranteed" in quota or report.is_bad((*at, "guaranteed")):
        return
    if pool.get("rule") != "dedicated":
        quota["guaranteed"] = 0
    elif "gpus" in pool:
        quota["guaranteed"] = min(pool["gpus"], *(quota.get(key, pool["gpus"]) for key in QUOTA_ORDER[2:]))


def _reservation(quota: Values, at: KeyPath, report: Report) -> None:
    """Which part of the guarantee is never lent: written as that, as its opposite, or as all of it."""
    guaranteed = quota.get("guaranteed")
    if guaranteed is None or any(report.is_bad((*at, key)) for key in ("reserved", "lending_limit")):
        return
    if quota.get("borrowable") is False and quota.setdefault("reserved", guaranteed) != guaranteed:
        given = format_gpu(quota["reserved"])
        sentence = f"is {given}, but borrowable: false reserves all of guaranteed; remove one"
        report.fail((*at, "reserved"), sentence, given)
    elif "lending_limit" in quota:
        _lending_limit(quota, (*at, "lending_limit"), report)
    quota.setdefault("reserved", 0)


def _lending_limit(quota: Values, at: KeyPath, report: Report) -> None:
    guaranteed, limit = quota["guaranteed"], quota["lending_limit"]
    shown, whole = format_gpu(limit), format_gpu(guaranteed)
    if limit > guaranteed:
        report.fail(at, f"{shown} is more than guaranteed ({whole}), and no more than that can be lent", shown)
    elif quota.setdefault("reserved", guaranteed - limit) != guaranteed - limit:
        left = format_gpu(max(0, guaranteed - quota["reserved"]))
        report.fail(at, f"is {shown}, but of guaranteed ({whole}) what is reserved leaves {left}; remove one", shown)


def _order(quota: Values, at: KeyPath, order: tuple[str, ...], report: Report) -> None:
    for low, high in pairwise(key for key in order if key in quota):
        if quota[low] > quota[high]:
            small, large = format_gpu(quota[high]), format_gpu(quota[low])
            report.fail((*at, low), f"{large} is more than {high} ({small}); {' ≤ '.join(order)}", large)


def _headroom(quota: Values, at: KeyPath, report: Report) -> None:
    headroom, guaranteed = quota.get("headroom", 0), quota.get("guaranteed")
    if guaranteed is not None and headroom > guaranteed:
        shown = format_gpu(headroom)
        sentence = f"{shown} is more than guaranteed ({format_gpu(guaranteed)}), of which it is a part; lower it"
        report.fail((*at, "headroom"), sentence, shown)


def _without_loans(quota: Values, at: KeyPath, pool: Values, report: Report) -> None:
    """A cap is above the guarantee only where the pool lends."""
    guaranteed = quota.get("guaranteed")
    if pool.get("rule") == "guaranteed" and guaranteed is not None and quota.get("elastic_cap", 0) > guaranteed:
        cap, own = format_gpu(quota["elastic_cap"]), format_gpu(guaranteed)
        sentence = f"{cap} is more than guaranteed ({own}), and the pool's rule guaranteed knows no loans; leave it out"
        report.fail((*at, "elastic_cap"), sentence, cap)


def _caps(quota: Values, at: KeyPath, pool: Values, report: Report) -> None:
    """The caps that are not given: as far as the pool and the given ones allow."""
    guaranteed = quota.get("guaranteed")
    unsaid = "elastic_cap" not in quota and not report.is_bad((*at, "elastic_cap"))
    if unsaid and guaranteed is not None and "gpus" in pool:
        reach = guaranteed if pool.get("rule") == "guaranteed" else pool["gpus"]
        quota["elastic_cap"] = max(guaranteed, min(reach, quota.get("hard_cap", reach)))
    if "elastic_cap" in quota and not report.is_bad((*at, "hard_cap")):
        quota.setdefault("hard_cap", quota["elastic_cap"])


def _resources(quota: Values, at: KeyPath, pool: Values, report: Report) -> None:
    """Its parts of the pool's other resources: those that it names, and of those what it does not say."""
    for key, share in quota.get("resources", {}).items():
        here = (*at, "resources", key)
        guaranteed, cap = share.get("guaranteed"), share.get("elastic_cap")
        if guaranteed is not None and cap is not None and guaranteed > cap:
            large, small = RESOURCES[key].shown(guaranteed), RESOURCES[key].shown(cap)
            sentence = f"{large} is more than elastic_cap ({small}); guaranteed ≤ elastic_cap"
            report.fail((*here, "guaranteed"), sentence, large)
        elif guaranteed is None and cap is not None and "guaranteed" in quota and "gpus" in pool:
            fraction = quota["guaranteed"] * pool.get("resources", {}).get(key, 0) // pool["gpus"]
            share["guaranteed"] = min(cap, fraction)
