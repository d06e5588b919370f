"""The replicas alone: what `apply` waits on."""

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import Operations
from commonpool.api.subjects import PLATFORM, Who
from commonpool.api.wire import status as wire


async def replicas(operations: Operations, _: Nothing, __: Who) -> wire.Replicas:
    return wire.Replicas(operations.replicas())


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/replicas",
        replicas,
        Permission.READ_STATUS,
        PLATFORM,
        "All replicas and their states",
        wire.Replicas,
    ),
)
