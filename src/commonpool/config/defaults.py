"""Defaults that follow from other keys, filled into what was read. What cannot be known stays absent."""

from commonpool.config.hardware import settle_hardware
from commonpool.config.keys import PRIORITY, TIERS
from commonpool.config.machines import machines_of, settle_nodes, settle_pools
from commonpool.config.problems import KeyPath, Report, listed
from commonpool.config.quantities import parse_duration
from commonpool.config.quotas import guaranteed_below, lineage, settle_group, settle_tenant
from commonpool.config.reader import entries
from commonpool.config.shape import Values

# Classes of residency in which nothing runs while nobody asks.
ASLEEP = ("on_demand", "async")


def fill(values: Values, report: Report) -> None:
    """Fill in every derived default, and report where one is needed and does not follow."""
    if "tiers" not in values and not report.is_bad(("tiers",)):
        values["tiers"] = {
            name: {key: parse_duration(text) for key, text in targets.items()} for name, targets in TIERS.items()
        }
    for path, _, node in entries(values, "nodes", report):
        _pool(node, path, values, report)
    settle_nodes(values, report)
    settle_pools(values, report)
    for path, _, model in entries(values, "models", report):
        _pool(model, path, values, report)
    settle_hardware(values, machines_of(values, report), report)
    for path, _, model in entries(values, "models", report):
        _shape(model, path, report)
        _replicas(model, path, report)
    for path, _, tenant in entries(values, "tenants", report):
        quota = tenant.get("tenant")
        if quota is not None:
            _pool(quota, (*path, "tenant"), values, report)
            settle_tenant(quota, path, values.get("pools", {}).get(quota.get("pool"), {}), report)
        if "queue" in tenant:
            _priority(tenant["queue"], (*path, "queue"), values.get("tiers"), report)
    below = guaranteed_below(values)
    for path, name, group in entries(values, "groups", report):
        # Around a circle there is no sum; that it is one is told elsewhere.
        if values["groups"][lineage(name, values)[-1]].get("parent") not in values["groups"]:
            settle_group(group, path, below[name], report)


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
    if "kv_tokens" not in model and not report.is_bad((*path, "kv_tokens")) and {"slots", "context"} <= model.keys():
        model["kv_tokens"] = model["slots"] * model["context"]


def _replicas(model: Values, path: KeyPath, report: Report) -> None:
    """How many there are at least and at most: of attached engines just those."""
    engine = model.get("engine", {})
    if "replicas" not in model and not report.is_bad((*path, "replicas")):
        if engine.get("kind") == "embedded" and "residency" in model:
            model["replicas"] = 0 if model["residency"] in ASLEEP else 1
        elif "urls" in engine:
            model["replicas"] = len(engine["urls"])
    if "replicas_max" not in model and "replicas" in model and not report.is_bad((*path, "replicas_max")):
        model["replicas_max"] = max(model["replicas"], 1)


def _priority(queue: Values, path: KeyPath, tiers: Values | None, report: Report) -> None:
    at = (*path, "priority")
    if "priority" in queue or tiers is None or report.is_bad(at):
        return
    queue["priority"] = {tier: priority for tier, priority in PRIORITY.items() if tier in tiers}
    if not queue["priority"]:
        report.fail(
            at, f"is missing, and no tier is called {' or '.join(PRIORITY)}; give a priority to {listed(tiers)}"
        )
