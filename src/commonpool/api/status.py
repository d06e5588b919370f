"""The state of the whole product at one moment."""

from commonpool.api import wire
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import Operations


async def status(operations: Operations, _: Nothing) -> wire.Status:
    return operations.status()


ENDPOINTS = (Endpoint("GET", "/admin/v1/status", status, "Pools, tenants, replicas and open loans now", wire.Status),)
