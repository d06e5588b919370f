"""The nodes, their devices, and who has them."""

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import Operations
from commonpool.api.subjects import PLATFORM, Who
from commonpool.api.wire import nodes as wire


async def nodes(operations: Operations, _: Nothing, __: Who) -> wire.Nodes:
    return operations.nodes()


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/nodes",
        nodes,
        Permission.READ_NODES,
        PLATFORM,
        "Nodes, devices, and who has them now",
        wire.Nodes,
    ),
)
