"""The state of the product at one moment, as far as the caller may know of it."""

from commonpool.access.permissions import Permission
from commonpool.api import views
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import Operations
from commonpool.api.subjects import ACROSS, Who
from commonpool.api.wire import status as wire


async def status(operations: Operations, _: Nothing, who: Who) -> wire.Status:
    whole = operations.status()
    return whole if who.scope.everything else views.within(whole, who.scope, operations.config().policy)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/status",
        status,
        Permission.READ_STATUS,
        ACROSS,
        "Pools, tenants, replicas and open loans now; of a tenant's own what concerns it",
        wire.Status,
    ),
)
