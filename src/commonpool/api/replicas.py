"""The replicas alone: what `apply` waits on."""

from commonpool.api import wire
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import Operations


async def replicas(operations: Operations, _: Nothing) -> wire.Replicas:
    return wire.Replicas(operations.replicas())


ENDPOINTS = (Endpoint("GET", "/admin/v1/replicas", replicas, "All replicas and their states", wire.Replicas),)
