"""The nodes, their devices, and who has them."""

from commonpool.api import wire
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import Operations


async def nodes(operations: Operations, _: Nothing) -> wire.Nodes:
    return operations.nodes()


ENDPOINTS = (Endpoint("GET", "/admin/v1/nodes", nodes, "Nodes, devices, and who has them now", wire.Nodes),)
