"""Defaults that follow from other keys, filled into what was read. What cannot be known stays absent."""

from collections.abc import Iterator
from itertools import pairwise

from commonpool.config.keys import PRIORITY, TIERS
from commonpool.config.problems import KeyPath, Report, listed
from commonpool.config.quantities import format_gpu, parse_duration
from commonpool.config.shape import Values

QUOTA_ORDER = ("reserved", "guaranteed", "elastic_cap", "hard_cap")


def entries(values: Values, section: str, report: Report) -> Iterator[tuple[KeyPath, str, Values]]:
    """Path, name and content of each thing in a section, those left out that could not be read at all."""
    for name, value in values.get(section, {}).items():
        path = (section, name)
        if not report.is_bad(path):
            yield path, name, value


def fill(values: Values, report: Report) -> None:
    """Fill in every derived default, and report where one is needed and does not follow."""
    if "tiers" not in values and not report.is_bad(("tiers",)):
        values["tiers"] = {
            name: {key: parse_duration(text) for key, text in targets.items()} for name, targets in TIERS.items()
        }
    for path, _, model in entries(values, "models", report):
        _pool(model, path, values, report)
        _shape(model, path, report)
    for path, _, tenant in entries(values, "tenants", report):
        quota = tenant.get("tenant")
        if quota is not None:
            _pool(quota, (*path, "tenant"), values, report)
            settle_quota(quota, path, values.get("pools", {}).get(quota.get("pool"), {}), report)
        if "queue" in tenant:
            _priority(tenant["queue"], (*path, "queue"), values.get("tiers"), report)


def _pool(holder: Values, path: KeyPath, values: Values, report: Report) -> None:
    at = (*path, "pool")
    pools = values.get("pools")
    if "pool" in holder or pools is None or report.is_bad(at):
        return
    if len(pools) == 1:
        holder["pool"] = next(iter(pools))
    else:
        report.fail(at, f"is missing, and there are several pools; write one of {listed(pools)}")


def _shape(model: Values, path: KeyPath, report: Report) -> None:
    engine = model.get("engine", {})
    if "replicas" not in model and not report.is_bad((*path, "replicas")):
        if engine.get("kind") == "embedded":
            model["replicas"] = 1
        elif "urls" in engine:
            model["replicas"] = len(engine["urls"])
    if "kv_tokens" not in model and not report.is_bad((*path, "kv_tokens")) and {"slots", "context"} <= model.keys():
        model["kv_tokens"] = model["slots"] * model["context"]


def _priority(queue: Values, path: KeyPath, tiers: Values | None, report: Report) -> None:
    at = (*path, "priority")
    if "priority" in queue or tiers is None or report.is_bad(at):
        return
    queue["priority"] = {tier: priority for tier, priority in PRIORITY.items() if tier in tiers}
    if not queue["priority"]:
        report.fail(
            at, f"is missing, and no tier is called {' or '.join(PRIORITY)}; give a priority to {listed(tiers)}"
        )


def settle_quota(quota: Values, path: KeyPath, pool: Values, report: Report) -> None:
    """Complete a tenant's quota and report its contradictions. An unknown pool is {}: its defaults stay open."""
    at = (*path, "tenant")
    unknown = {key for key in QUOTA_ORDER if report.is_bad((*at, key))}
    _guarantee(quota, at, pool, unknown, report)
    _contradictions(quota, at, pool, report)
    _caps(quota, pool, unknown)


def _guarantee(quota: Values, at: KeyPath, pool: Values, unknown: set[str], report: Report) -> None:
    """What is guaranteed, and which part of it is never lent."""
    if "guaranteed" not in quota and "guaranteed" not in unknown:
        if pool.get("rule") != "dedicated":
            quota["guaranteed"] = 0
        elif "gpus" in pool:
            quota["guaranteed"] = min(pool["gpus"], *(quota.get(key, pool["gpus"]) for key in QUOTA_ORDER[2:]))
    guaranteed = quota.get("guaranteed")
    if "reserved" in unknown or guaranteed is None:
        return
    if quota.get("borrowable") is not False:
        quota.setdefault("reserved", 0)
    elif quota.setdefault("reserved", guaranteed) != guaranteed:
        given = format_gpu(quota["reserved"])
        report.fail(
            (*at, "reserved"), f"is {given}, but borrowable: false reserves all of guaranteed; remove one", given
        )


def _contradictions(quota: Values, at: KeyPath, pool: Values, report: Report) -> None:
    """What is given is in order, and above its guarantee only where the pool lends."""
    for low, high in pairwise(key for key in QUOTA_ORDER if key in quota):
        if quota[low] > quota[high]:
            small, large = format_gpu(quota[high]), format_gpu(quota[low])
            report.fail((*at, low), f"{large} is more than {high} ({small}); {' ≤ '.join(QUOTA_ORDER)}", large)
    guaranteed = quota.get("guaranteed")
    if pool.get("rule") == "guaranteed" and guaranteed is not None and quota.get("elastic_cap", 0) > guaranteed:
        cap, own = format_gpu(quota["elastic_cap"]), format_gpu(guaranteed)
        sentence = f"{cap} is more than guaranteed ({own}), and the pool's rule guaranteed knows no loans; leave it out"
        report.fail((*at, "elastic_cap"), sentence, cap)


def _caps(quota: Values, pool: Values, unknown: set[str]) -> None:
    """The caps that are not given: as far as the pool and the given ones allow."""
    guaranteed = quota.get("guaranteed")
    if "elastic_cap" not in quota and "elastic_cap" not in unknown and guaranteed is not None and "gpus" in pool:
        reach = guaranteed if pool.get("rule") == "guaranteed" else pool["gpus"]
        quota["elastic_cap"] = max(guaranteed, min(reach, quota.get("hard_cap", reach)))
    if "hard_cap" not in unknown and "elastic_cap" in quota:
        quota.setdefault("hard_cap", quota["elastic_cap"])
