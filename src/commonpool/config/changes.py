"""What differs between two configurations, in the words and units that people write, and what applying it does."""

import enum
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from commonpool.config.access import describe_access
from commonpool.config.alerts import describe_alerts
from commonpool.config.billing import describe_billing
from commonpool.config.instants import format_instant
from commonpool.config.limits import describe_limits
from commonpool.config.problems import KeyPath
from commonpool.config.quantities import (
    format_cores,
    format_duration,
    format_gpu,
    format_memory,
    format_money,
    format_permille,
    format_size,
    format_tokens,
)
from commonpool.config.resources import RESOURCES
from commonpool.config.structs import AttachedEngine, Config, Model, NodeConfig, Tls, Traces
from commonpool.core.model import NO_LIMITS, Group, Hardware, Pool, Tenant

_T = TypeVar("_T")

# Sections of named things.
_NAMED = frozenset({"pools", "nodes", "models", "tiers", "groups", "tenants"})

# What of a model is only about how many replicas there are, or who answers in their place.
_ABOUT_REPLICAS = frozenset({"replicas_max", "residency", "idle_after", "start_deadline", "fallback"})


class Kind(enum.StrEnum):
    """How far a change reaches."""

    AT_ONCE = "at_once"
    REPLICAS = "replicas"  # replicas start, drain or are replaced; running requests finish first
    RESTART = "restart"  # the product has to be started again


class Change(msgspec.Struct, frozen=True):
    """One key that differs. `old` is None where it is new (or was not set), `new` where it goes.

    `effect` is what applying it does, in words.
    """

    key: str
    old: str | None
    new: str | None
    kind: Kind
    effect: str


def diff(old: Config, new: Config) -> list[Change]:
    """The changes from `old` to `new`, what is gone at the end; empty when both mean the same."""
    before, after = describe(old), describe(new)
    # Named things that only one side has: each is one change, with all that is said of it.
    whole = {_entity(path) for path in before} ^ {_entity(path) for path in after}
    changes: dict[KeyPath, Change] = {}
    for path in dict.fromkeys([*after, *before]):
        at = entity if (entity := _entity(path)) in whole else path
        if at in changes or before.get(path) == after.get(path):
            continue
        texts = (_summary(before, at), _summary(after, at)) if at in whole else (before.get(path), after.get(path))
        changes[at] = Change(".".join(at), *texts, *_effect(at, old, new))
    return list(changes.values())


def describe(config: Config) -> dict[KeyPath, str]:
    """Every setting under its key, as people write it, defaults included. What is not set is not there."""
    policy = config.policy
    said: dict[KeyPath, str | None] = {
        ("listen", "gateway"): str(config.listen.gateway),
        ("listen", "control"): str(config.listen.control),
        **_tls("gateway_tls", config.listen.gateway_tls),
        **_tls("control_tls", config.listen.control_tls),
        ("state",): str(config.state),
        ("store", "url"): config.store_url,
        ("secrets", "master_key"): config.secrets.master_key,
        ("secrets", "previous_master_key"): config.secrets.previous_master_key,
        ("body_max",): format_size(config.body_bytes_max),
        ("jobs", "submitters"): config.job_submitters,
        **{("jobs", "users", tenant): user for tenant, user in config.job_users.items()},
        **{("tenants", name, "queue", "later"): "true" for name in config.later},
        **{("tenants", name, "response_cache"): format_duration(ns) for name, ns in config.response_cache_ns.items()},
        ("outgoing",): _maybe(_list, config.outgoing),
    }
    for field in msgspec.structs.fields(config.timeouts):
        said["timeouts", field.name.removesuffix("_ns")] = format_duration(getattr(config.timeouts, field.name))
    for name, pool in policy.pools.items():
        said |= _below(("pools", name), _pool(pool))
    for name, node in config.nodes.items():
        said |= _below(("nodes", name), _node(node))
    for name, model in config.models.items():
        said |= _below(("models", name), _model(model))
    for name, tier in policy.tiers.items():
        targets = {
            "queue_target": _maybe(format_duration, tier.queue_target_ns),
            "first_token_target": _maybe(format_duration, tier.first_token_target_ns),
        }
        # A tier without targets is a tier all the same.
        said |= _below(("tiers", name), targets if any(targets.values()) else {"": "no targets"})
    said |= describe_access(config.access)
    said |= describe_alerts(config.alerts, config.billing.time_zone)
    said |= _below(("observe", "traces"), _traces(config.observe.traces))
    said |= describe_billing(config)
    for name, group in policy.groups.items():
        said |= _below(("groups", name), _group(group))
    for name, tenant in policy.tenants.items():
        said |= _below(("tenants", name), _tenant(tenant))
        for app, content in config.apps.get(name, {}).items():
            said["tenants", name, "apps", app] = f"cost_center {content.cost_center}" if content.cost_center else "{}"
            for key, amount in describe_limits(tenant.apps.get(app, NO_LIMITS)).items():
                said["tenants", name, "apps", app, "limits", key] = amount
    return {path: text for path, text in said.items() if text is not None}


def _traces(traces: Traces) -> dict[str, str | None]:
    return {"endpoint": traces.endpoint, "sample": format_permille(traces.sample_permille)}


def _tls(listener: str, files: Tls | None) -> dict[KeyPath, str | None]:
    return {
        ("listen", listener, field.name): None if files is None else _maybe(str, getattr(files, field.name))
        for field in msgspec.structs.fields(Tls)
    }


def _pool(pool: Pool) -> dict[str, str | None]:
    counted = {
        f"resources.{key}": _maybe(each.shown, pool.resources.get(each.resource)) for key, each in RESOURCES.items()
    }
    return {"gpus": format_gpu(pool.milli_gpu), "rule": pool.rule, "isolation": pool.isolation, **counted}


def _node(node: NodeConfig) -> dict[str, str | None]:
    windows = [f"{{from: {format_instant(w.start_ns)}, until: {format_instant(w.end_ns)}}}" for w in node.windows]
    return {
        "pool": node.pool,
        "gpus": _maybe(str, node.gpus),
        "gpu_model": node.gpu_model,
        "gpu_memory": _maybe(format_memory, node.gpu_memory_mib),
        "links": None if node.links is None else _list(_list(map(str, linked)) for linked in node.links),
        **{f"mig.{index}": _list(profiles) for index, profiles in (node.mig or {}).items()},
        "cpus": _maybe(format_cores, node.cpu_milli),
        "memory": _maybe(format_memory, node.memory_mib),
        "isolation": node.isolation,
        "network": node.network,
        "runtimes": _maybe(_list, node.runtimes),
        "driver": node.driver,
        "maintenance": _list(windows) if windows else None,
        "unhealthy": _list(map(str, node.unhealthy)) if node.unhealthy else None,
        "discover": "true" if node.discover else "false",
    }


def _group(group: Group) -> dict[str, str | None]:
    return {
        "parent": group.parent,
        "guaranteed": _maybe(format_gpu, group.guaranteed),
        "reserved": format_gpu(group.reserved),
        "elastic_cap": _maybe(format_gpu, group.elastic_cap),
    }


def _model(model: Model) -> dict[str, str | None]:
    engine = model.engine
    if isinstance(engine, AttachedEngine):
        keys = {
            "kind": "attached",
            "urls": _list(engine.urls),
            "adapter": engine.adapter,
            "credential": engine.credential,
            "served_model": engine.served_model,
            "devices": _list(map(format_devices, engine.devices)) if engine.devices else None,
        }
    else:
        keys = {"kind": "embedded", "file": engine.file, "threads": str(engine.threads)}
    return {
        "version": model.version,
        "pool": model.pool,
        **_hardware(model.milli_gpu, model.hardware or Hardware(milli_gpu=model.milli_gpu)),
        "replicas": str(model.replicas),
        "replicas_max": str(model.replicas_max),
        "residency": model.residency,
        "idle_after": format_duration(model.idle_ns),
        "start_deadline": format_duration(model.start_deadline_ns),
        "fallback": model.fallback,
        "slots": str(model.slots),
        "context": format_tokens(model.context_tokens),
        "kv_tokens": format_tokens(model.kv_tokens),
        **{f"engine.{key}": text for key, text in keys.items()},
    }


def _hardware(milli_gpu: int, hardware: Hardware) -> dict[str, str | None]:
    """What a replica holds, and what it asks for where that is something else."""
    asked = hardware.milli_gpu
    held = format_gpu(milli_gpu)
    return {
        "gpu": f"{held} ({format_gpu(asked)} asked for)" if asked not in (0, milli_gpu) else held,
        "gpu_memory": format_memory(hardware.memory_mib) if hardware.memory_mib else None,
        "mig": hardware.profile or None,
        "gpu_models": _list(hardware.models) if hardware.models else None,
        "together": hardware.together,
        "runtime": hardware.runtime or None,
    }


def _tenant(tenant: Tenant) -> dict[str, str | None]:
    return {
        "tenant.pool": tenant.pool,
        "tenant.group": tenant.group,
        "tenant.guaranteed": format_gpu(tenant.guaranteed),
        "tenant.reserved": format_gpu(tenant.reserved),
        "tenant.headroom": format_gpu(tenant.headroom),
        "tenant.elastic_cap": format_gpu(tenant.elastic_cap),
        "tenant.hard_cap": format_gpu(tenant.hard_cap),
        "tenant.weight": str(tenant.weight),
        "tenant.models": _maybe(_list, tenant.models),
        **_shares(tenant),
        **{f"queue.priority.{tier}": str(priority) for tier, priority in tenant.priority.items()},
        "queue.max_wait": format_duration(tenant.max_wait_ns),
        "queue.fallback": str(tenant.fallback).lower(),
        "reclaim.policy": tenant.reclaim,
        "reclaim.return_when": tenant.return_when,
        **{f"limits.{key}": said for key, said in describe_limits(tenant.limits).items()},
        "budget.month": None if tenant.budget is None else format_money(tenant.budget.micro),
        "budget.soft": None if tenant.budget is None else f"{tenant.budget.soft_percent}%",
    }


def _shares(tenant: Tenant) -> dict[str, str | None]:
    said: dict[str, str | None] = {}
    for key, each in RESOURCES.items():
        if share := tenant.resources.get(each.resource):
            said[f"tenant.resources.{key}.guaranteed"] = each.shown(share.guaranteed)
            said[f"tenant.resources.{key}.elastic_cap"] = _maybe(each.shown, share.elastic_cap)
    return said


def _effect(path: KeyPath, old: Config, new: Config) -> tuple[Kind, str]:
    match path:
        case (
            ("listen" | "state" | "store" | "secrets" | "outgoing" | "observe", *_)
            | ("jobs", "users", *_)
            | ("prices", "time_zone")
        ):
            return Kind.RESTART, "needs a restart of the product"
        case ("models", name, *keys) if _ABOUT_REPLICAS.isdisjoint(keys):
            return Kind.REPLICAS, _model_effect(name, keys, old.models.get(name), new.models.get(name))
        case ("nodes", name) if name not in new.nodes or name not in old.nodes:
            comes = name in new.nodes
            return Kind.AT_ONCE, f"at once: {'work may be' if comes else 'nothing new is'} placed there"
        case ("tenants", name) if name not in new.policy.tenants:
            return Kind.AT_ONCE, "at once: admits nothing new; what runs goes on"
        case ("prices" | "costs", *_):
            return Kind.AT_ONCE, "at once, for hours and months that are not closed yet"
        case _:
            return Kind.AT_ONCE, "at once"


def _model_effect(name: str, keys: list[str], old: Model | None, new: Model | None) -> str:
    if old is not None and new is not None and keys != ["replicas"]:
        return f"restarts replicas of {name} (drained)"
    more = (new.replicas if new else 0) - (old.replicas if old else 0)
    return f"starts {_replicas(more)} of {name}" if more > 0 else f"stops {_replicas(-more)} of {name} (drained)"


def _replicas(count: int) -> str:
    return f"{count} replica{'' if count == 1 else 's'}"


def _entity(path: KeyPath) -> KeyPath:
    """The named thing that a key belongs to, or else the key."""
    return path[:2] if path[0] in _NAMED else path


def _summary(said: dict[KeyPath, str], entity: KeyPath) -> str | None:
    """All that is said of one named thing, on one line."""
    parts = [
        f"{'.'.join(path[len(entity) :])}: {text}".removeprefix(": ")
        for path, text in said.items()
        if path[: len(entity)] == entity
    ]
    return ", ".join(parts) or None


def _below(path: KeyPath, keys: dict[str, str | None]) -> dict[KeyPath, str | None]:
    return {(*path, *filter(None, [key])): text for key, text in keys.items()}


def format_devices(ids: tuple[str, ...]) -> str:
    """The devices of one engine, which follow one another: `node-1/0-3`."""
    return ids[0] if len(ids) == 1 else f"{ids[0]}-{ids[-1].rpartition('/')[2]}"


def _list(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"


def _maybe(text: Callable[[_T], str], value: _T | None) -> str | None:
    return None if value is None else text(value)
