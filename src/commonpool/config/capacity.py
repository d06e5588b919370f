"""What the quota tree and the models ask of the pools: groups form trees below one pool each, and replicas fit."""

from collections import defaultdict

from commonpool.config.machines import Machines
from commonpool.config.problems import Report, listed
from commonpool.config.quantities import format_gpu
from commonpool.config.quotas import lineage
from commonpool.config.reader import entries
from commonpool.config.resources import RESOURCES
from commonpool.config.shape import Values


def check_capacity(values: Values, machines: dict[str, Machines], report: Report) -> None:
    """Report what cannot be had of the pools, and groups that belong to none, or to several."""
    _replicas(values, machines, report)
    _circles(values, report)
    _one_pool(values, report)
    _resources(values, report)


def _replicas(values: Values, machines: dict[str, Machines], report: Report) -> None:
    """Where the nodes are known, replicas are placed on them instead of counted (`config.hardware`)."""
    held: dict[str, int] = defaultdict(int)
    for _, _, model in entries(values, "models", report):
        held[model.get("pool", "")] += model.get("replicas", 0) * model.get("gpu", 0)
    for path, name, pool in entries(values, "pools", report):
        if not machines.get(name, Machines()).known and held[name] > pool.get("gpus", held[name]):
            shown = format_gpu(pool["gpus"])
            sentence = f"{shown} are fewer than the replicas of its models hold ({format_gpu(held[name])})"
            report.fail((*path, "gpus"), f"{sentence}; lower their replicas or gpu", shown)


def _circles(values: Values, report: Report) -> None:
    for path, name, _ in entries(values, "groups", report):
        line = lineage(name, values)
        # Each member of a circle sees all of it; the first by name tells.
        if values["groups"][line[-1]].get("parent") == name and name == min(line):
            circle = " → ".join([*line, name])
            report.fail((*path, "parent"), f"leads back to itself ({circle}); a group's parents end at the pool")


def _one_pool(values: Values, report: Report) -> None:
    """A group is in the pool of the tenants below it."""
    pools: dict[str, dict[str, str]] = defaultdict(dict)
    for _, name, tenant in entries(values, "tenants", report):
        quota = tenant.get("tenant", {})
        for above in lineage(quota.get("group"), values) if "pool" in quota else ():
            pools[above].setdefault(quota["pool"], name)
    for path, name, group in entries(values, "groups", report):
        if len(pools[name]) > 1:
            tenants = listed(f"{tenant} in {pool}" for pool, tenant in pools[name].items())
            report.fail(path, f"holds tenants of several pools ({tenants}); a group belongs to one pool")
        elif not pools[name] and group.get("guaranteed"):
            report.warn((*path, "guaranteed"), "has no effect, since no tenant is below this group")


def _resources(values: Values, report: Report) -> None:
    """What a tenant has a part of, its pool counts."""
    for path, _, tenant in entries(values, "tenants", report):
        quota = tenant.get("tenant", {})
        name = quota.get("pool", "")
        pool = values.get("pools", {}).get(name, {})
        for key, share in quota.get("resources", {}).items():
            at, there = (*path, "tenant", "resources", key), ("pools", name, "resources", key)
            amount = pool.get("resources", {}).get(key)
            if share and pool and amount is None and not report.is_bad(there):
                sentence = f"pool {name} does not count its {RESOURCES[key].what}"
                report.fail(at, f"{sentence}; write {'.'.join(there)}, or leave this out")
            elif amount is not None and share.get("elastic_cap", 0) > amount:
                cap, whole = RESOURCES[key].shown(share["elastic_cap"]), RESOURCES[key].shown(amount)
                report.warn((*at, "elastic_cap"), f"{cap} is more than pool {name} has ({whole})")
