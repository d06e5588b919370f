"""Which tenants there are, and what was agreed: of a tenant its quota, tiers, limits; of a model what a replica is.

How they stand now is in `status`. The configuration itself is for operators; this is each one's own part of it.
"""

import msgspec

from commonpool.access.permissions import Permission
from commonpool.api.grants import ByTenant
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import Operations
from commonpool.api.subjects import ACROSS, TENANT_OF_PATH, Who
from commonpool.core.model import NO_LIMITS, Deployment, Limits, ReclaimPolicy


class TierTerms(msgspec.Struct, frozen=True):
    """A tier that a tenant may use: its priority (0 to 9, larger first), and what it promises, None for nothing."""

    name: str
    priority: int
    queue_target_ns: int | None
    first_token_target_ns: int | None


class AppTerms(msgspec.Struct, frozen=True):
    """An app of a tenant. `limits` hold beside those of the tenant."""

    name: str
    cost_center: str
    limits: Limits


class TenantTerms(msgspec.Struct, frozen=True):
    """A tenant as it is configured; quantities in milli_gpu. `group` is the one that it belongs to, "" for none.

    `reserved` is the part of the guarantee that is never lent. `fallback`: whether a model's fallback may answer it.
    """

    name: str
    pool: str
    group: str
    guaranteed_milli_gpu: int
    reserved_milli_gpu: int
    elastic_cap_milli_gpu: int
    hard_cap_milli_gpu: int
    weight: int
    max_wait_ns: int
    reclaim: ReclaimPolicy
    fallback: bool
    limits: Limits
    tiers: tuple[TierTerms, ...]
    models: tuple[str, ...]
    apps: tuple[AppTerms, ...]


class TenantApp(msgspec.Struct, frozen=True):
    """An app, and the cost centre that pays for it, "" for none."""

    name: str
    cost_center: str


class TenantEntry(msgspec.Struct, frozen=True):
    """Which tenant it is: its group, "" for none, and its apps. Nothing of how it stands or of what it may."""

    name: str
    group: str
    apps: tuple[TenantApp, ...]


class Tenants(msgspec.Struct, frozen=True):
    """Tenants, by name."""

    tenants: tuple[TenantEntry, ...]


class ModelTerms(msgspec.Struct, frozen=True):
    """A model as it is configured. Each replica holds `milli_gpu` and runs `slots` sequences at once.

    `attached` engines run elsewhere already; where there are some, they are the replicas. `fallback` is the model that
    answers when this one cannot, "" where there is none, or none that the caller may use.
    """

    name: str
    version: str
    pool: str
    milli_gpu: int
    slots: int
    kv_tokens: int
    context_tokens: int
    replicas_min: int
    replicas_max: int
    attached: int
    fallback: str


class Models(msgspec.Struct, frozen=True):
    """Models, in the order of the configuration."""

    models: tuple[ModelTerms, ...]


async def tenants(operations: Operations, _: Nothing, who: Who) -> Tenants:
    config = operations.config()
    return Tenants(
        tuple(
            TenantEntry(
                name, own.group or "", tuple(TenantApp(app.name, app.cost_center) for app in config.apps[name].values())
            )
            for name, own in sorted(who.scope.of(config.policy.tenants).items())
        )
    )


async def tenant(operations: Operations, which: ByTenant, _: Who) -> TenantTerms:
    config = operations.config()
    policy = config.policy
    own = policy.tenants[which.tenant]
    return TenantTerms(
        name=own.name,
        pool=own.pool,
        group=own.group or "",
        guaranteed_milli_gpu=own.guaranteed,
        reserved_milli_gpu=own.reserved,
        elastic_cap_milli_gpu=own.elastic_cap,
        hard_cap_milli_gpu=own.hard_cap,
        weight=own.weight,
        max_wait_ns=own.max_wait_ns,
        reclaim=own.reclaim,
        fallback=own.fallback,
        limits=own.limits,
        tiers=tuple(
            TierTerms(name, priority, policy.tiers[name].queue_target_ns, policy.tiers[name].first_token_target_ns)
            for name, priority in sorted(own.priority.items(), key=lambda pair: (-pair[1], pair[0]))
        ),
        models=tuple(policy.models_of(own)),
        apps=tuple(
            AppTerms(app.name, app.cost_center, own.apps.get(app.name, NO_LIMITS))
            for app in config.apps[own.name].values()
        ),
    )


async def models(operations: Operations, _: Nothing, who: Who) -> Models:
    policy = operations.config().policy
    if who.scope.everything:
        names = set(policy.deployments)
    else:
        names = {name for own in who.scope.of(policy.tenants).values() for name in policy.models_of(own)}
    return Models(tuple(_model(each, names) for name, each in policy.deployments.items() if name in names))


def _model(deployment: Deployment, visible: set[str]) -> ModelTerms:
    attached, scaling = len(deployment.attached), deployment.scaling
    return ModelTerms(
        name=deployment.model,
        version=deployment.version,
        pool=deployment.pool,
        milli_gpu=deployment.milli_gpu,
        slots=deployment.slots,
        kv_tokens=deployment.kv_tokens,
        context_tokens=deployment.context_tokens,
        replicas_min=scaling.replicas_min if scaling and not attached else attached,
        replicas_max=scaling.replicas_max if scaling and not attached else attached,
        attached=attached,
        fallback=deployment.fallback if deployment.fallback in visible else "",
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/tenants",
        tenants,
        Permission.READ_TENANTS,
        ACROSS,
        "Which tenants there are: groups, apps and cost centres",
        Tenants,
    ),
    Endpoint(
        "GET",
        "/admin/v1/tenants/{tenant}",
        tenant,
        Permission.READ_STATUS,
        TENANT_OF_PATH,
        "What was agreed with a tenant: quota, tiers, limits, models, apps",
        TenantTerms,
        ByTenant,
    ),
    Endpoint(
        "GET",
        "/admin/v1/models",
        models,
        Permission.READ_STATUS,
        ACROSS,
        "The models that the caller's tenants may use, as they are configured",
        Models,
    ),
)
