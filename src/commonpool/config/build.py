"""From checked values to the frozen structs. Nothing can be wrong any more here."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from commonpool.config.access import access
from commonpool.config.alerts import alerts
from commonpool.config.billing import billing, prices
from commonpool.config.calendar import Calendar
from commonpool.config.keys import DEFAULT_APP
from commonpool.config.limits import build_limits
from commonpool.config.machines import node_config
from commonpool.config.resources import RESOURCES
from commonpool.config.secrets import below
from commonpool.config.shape import Values
from commonpool.config.structs import (
    App,
    AttachedEngine,
    Config,
    EmbeddedEngine,
    Listen,
    Model,
    Observe,
    Secrets,
    Timeouts,
    Tls,
    Traces,
)
from commonpool.core.model import (
    NO_LIMITS,
    Attached,
    Budget,
    Deployment,
    Group,
    Hardware,
    Policy,
    Pool,
    Scaling,
    Share,
    Tenant,
    Tier,
)


def build(values: Values, main: str, folder: Path) -> Config:
    """The configuration. Relative paths in it are below `folder`."""
    models = {name: _model(name, model, folder) for name, model in values["models"].items()}
    tenants = values.get("tenants", {})
    placed = {node["pool"] for node in values.get("nodes", {}).values()}
    return Config(
        policy=Policy(
            pools={name: _pool(name, pool, placed=name in placed) for name, pool in values["pools"].items()},
            tiers={
                name: Tier(name, tier.get("queue_target"), tier.get("first_token_target"))
                for name, tier in values["tiers"].items()
            },
            groups={name: _group(name, group) for name, group in values.get("groups", {}).items()},
            tenants={name: _tenant(name, tenant) for name, tenant in tenants.items()},
            deployments={name: deployment(model) for name, model in models.items()},
            prices=prices(values),
            hour_offset_ns=Calendar(values["prices"]["time_zone"]).hour_offset_ns,
        ),
        models=models,
        apps={name: _apps(tenant.get("apps", {})) for name, tenant in tenants.items()},
        currency=values["prices"]["currency"],
        nodes={name: node_config(name, node) for name, node in values.get("nodes", {}).items()},
        listen=_listen(values["listen"], folder),
        timeouts=Timeouts(**{f"{key}_ns": value for key, value in values["timeouts"].items()}),
        body_bytes_max=values["body_max"],
        job_submitters=values["jobs"]["submitters"],
        job_users=values["jobs"].get("users", {}),
        response_cache_ns={
            name: tenant["response_cache"] for name, tenant in tenants.items() if "response_cache" in tenant
        },
        later=tuple(name for name, tenant in tenants.items() if tenant["queue"]["later"]),
        outgoing=tuple(values["outgoing"]) if "outgoing" in values else None,
        billing=billing(values),
        access=access(values, folder),
        alerts=alerts(values, folder),
        observe=_observe(values["observe"]),
        secrets=Secrets(**{key: below(folder, where) for key, where in values["secrets"].items()}),
        state=folder / values["state"],
        store_url=below(folder, values["store"].get("url")),
        source=Path(main),
    )


def _listen(listen: Values, folder: Path) -> Listen:
    return Listen(
        gateway=listen["gateway"],
        control=listen["control"],
        gateway_tls=_tls(listen["gateway_tls"], folder),
        control_tls=_tls(listen["control_tls"], folder),
    )


def _observe(observe: Values) -> Observe:
    traces = observe["traces"]
    return Observe(Traces(traces.get("endpoint"), traces["sample"]))


def _tls(files: Values, folder: Path) -> Tls | None:
    return Tls(**{key: folder / path for key, path in files.items()}) if files else None


def _pool(name: str, pool: Values, *, placed: bool) -> Pool:
    resources = {RESOURCES[key].resource: amount for key, amount in pool["resources"].items()}
    return Pool(name, pool["gpus"], pool["rule"], resources, pool["isolation"], placed)


def _group(name: str, group: Values) -> Group:
    return Group(
        name=name,
        parent=group.get("parent"),
        elastic_cap=group.get("elastic_cap"),
        guaranteed=group.get("guaranteed"),
        reserved=group["reserved"],
    )


def _model(name: str, model: Values, folder: Path) -> Model:
    return Model(
        name=name,
        version=model["version"],
        pool=model["pool"],
        milli_gpu=model["gpu"],
        replicas=model["replicas"],
        slots=model["slots"],
        context_tokens=model["context"],
        kv_tokens=model["kv_tokens"],
        engine=_engine(model["engine"], folder),
        replicas_max=model["replicas_max"],
        residency=model["residency"],
        idle_ns=model["idle_after"],
        start_deadline_ns=model["start_deadline"],
        hardware=model.get("hardware"),
        fallback=model.get("fallback"),
    )


def deployment(model: Model) -> Deployment:
    """A model as the core decides about it."""
    engine = model.engine
    attached: tuple[Attached, ...] = ()
    if isinstance(engine, AttachedEngine):
        devices = engine.devices or ((),) * len(engine.urls)
        attached = tuple(Attached(url, ids) for url, ids in zip(engine.urls, devices, strict=True))
    return Deployment(
        model=model.name,
        version=model.version,
        pool=model.pool,
        milli_gpu=model.milli_gpu,
        slots=model.slots,
        kv_tokens=model.kv_tokens,
        context_tokens=model.context_tokens,
        hardware=model.hardware,
        scaling=Scaling(
            replicas_min=model.replicas,
            replicas_max=model.replicas_max,
            residency=model.residency,
            idle_ns=model.idle_ns,
            start_deadline_ns=model.start_deadline_ns,
        ),
        fallback=model.fallback,
        engine=fingerprint(model),
        attached=attached,
    )


def fingerprint(model: Model) -> str:
    """16 hexadecimal digits that change with whatever is started for a replica, and not with how many there are."""
    engine = msgspec.to_builtins(model.engine)
    for each in ("urls", "devices"):
        engine.pop(each, None)
    started: list[Any] = [
        engine,
        model.pool,
        model.version,
        model.milli_gpu,
        model.slots,
        model.context_tokens,
        model.kv_tokens,
        model.hardware or Hardware(milli_gpu=model.milli_gpu),  # declaring nodes starts nothing anew
    ]
    return hashlib.sha256(msgspec.json.encode(started, order="deterministic")).hexdigest()[:16]


def _engine(engine: Values, folder: Path) -> EmbeddedEngine | AttachedEngine:
    if engine["kind"] == "embedded":
        file = engine["file"]
        return EmbeddedEngine(file if file.startswith("package:") else str(folder / file), engine["threads"])
    return AttachedEngine(
        urls=tuple(engine["urls"]),
        adapter=engine["adapter"],
        credential=below(folder, engine.get("credential")),
        served_model=engine.get("served_model"),
        devices=tuple(engine.get("devices", ())),
    )


def _tenant(name: str, tenant: Values) -> Tenant:
    quota, queue, budget = tenant["tenant"], tenant["queue"], tenant["budget"]
    return Tenant(
        name=name,
        pool=quota["pool"],
        guaranteed=quota["guaranteed"],
        elastic_cap=quota["elastic_cap"],
        hard_cap=quota["hard_cap"],
        priority=queue["priority"],
        max_wait_ns=queue["max_wait"],
        reserved=quota["reserved"],
        weight=quota["weight"],
        group=quota.get("group"),
        models=tuple(quota["models"]) if "models" in quota else None,
        reclaim=tenant["reclaim"]["policy"],
        return_when=tenant["reclaim"]["return_when"],
        limits=build_limits(tenant["limits"]),
        headroom=quota["headroom"],
        fallback=queue["fallback"],
        resources={
            RESOURCES[key].resource: Share(share["guaranteed"], share.get("elastic_cap"))
            for key, share in quota["resources"].items()
            if share
        },
        budget=Budget(budget["month"], budget["soft"]) if "month" in budget else None,
        apps={
            app: limits
            for app, content in tenant.get("apps", {}).items()
            if (limits := build_limits(content["limits"])) != NO_LIMITS
        },
    )


def _apps(apps: Values) -> dict[str, App]:
    named = {name: App(name, app.get("cost_center", "")) for name, app in apps.items()}
    return {DEFAULT_APP: App(DEFAULT_APP), **named}
