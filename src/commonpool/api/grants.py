"""Grants: a tenant may use more than its elastic_cap for a while, never more than its hard_cap."""

import msgspec

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import BadRequestError, Operations
from commonpool.api.subjects import TENANT_OF_BODY, TENANT_OF_PATH, Who
from commonpool.api.wire import grants as wire
from commonpool.config.quantities import format_duration, format_gpu
from commonpool.core.model import NS_PER_HOUR, Tenant

GRANT_NS_MAX = 366 * 24 * NS_PER_HOUR  # what is to last longer belongs into the configuration


class ByTenant(msgspec.Struct, frozen=True):
    """One tenant, by its name."""

    tenant: str


async def create(operations: Operations, _: Nothing, new: wire.NewGrant, __: Who) -> wire.Grant:
    tenant = operations.config().policy.tenants[new.tenant]
    if operations.config().policy.pools[tenant.pool].rule == "guaranteed":
        raise BadRequestError(
            f"pool {tenant.pool} of tenant {tenant.name} has the rule guaranteed, which knows no loans, so a grant "
            "would change nothing; raise guaranteed in the configuration",
            param="tenant",
        )
    _check(tenant, new)
    until_ns = operations.now_ns() + new.for_ns
    operations.grant(tenant.name, new.elastic_cap_milli_gpu, until_ns)
    return wire.Grant(tenant.name, new.elastic_cap_milli_gpu, until_ns)


async def end(operations: Operations, which: ByTenant, _: Who) -> wire.Grant:
    tenant = operations.config().policy.tenants[which.tenant]
    operations.grant(tenant.name, 0, operations.now_ns())
    return wire.Grant(tenant.name, tenant.elastic_cap, None)


def _check(tenant: Tenant, new: wire.NewGrant) -> None:
    wanted, param = new.elastic_cap_milli_gpu, "elastic_cap_milli_gpu"
    if wanted > tenant.hard_cap:
        raise BadRequestError(
            f"{format_gpu(wanted)} is more than the hard_cap of tenant {tenant.name} ({format_gpu(tenant.hard_cap)}), "
            "which no grant exceeds; ask for less, or raise hard_cap in the configuration",
            param=param,
        )
    if wanted <= tenant.elastic_cap:
        raise BadRequestError(
            f"tenant {tenant.name} may use {format_gpu(tenant.elastic_cap)} without a grant, so {format_gpu(wanted)} "
            "would change nothing; ask for more",
            param=param,
        )
    if not 0 < new.for_ns <= GRANT_NS_MAX:
        raise BadRequestError(
            f"a grant for {format_duration(new.for_ns)} is not for a while; it lasts more than 0s and at most "
            f"{format_duration(GRANT_NS_MAX)}, and what is to last longer belongs into the configuration",
            param="for_ns",
        )


ENDPOINTS = (
    Endpoint(
        "POST",
        "/admin/v1/grants",
        create,
        Permission.GRANT,
        TENANT_OF_BODY,
        "A tenant may use more for a while, in place of what it was granted before",
        wire.Grant,
        body=wire.NewGrant,
        status=201,
    ),
    Endpoint(
        "POST",
        "/admin/v1/grants/{tenant}/end",
        end,
        Permission.GRANT,
        TENANT_OF_PATH,
        "The tenant's own elastic_cap holds again",
        wire.Grant,
        ByTenant,
    ),
)
