"""The metrics, for Prometheus."""

from commonpool.api.http import TEXT, Endpoint, Nothing
from commonpool.api.operations import Operations


async def metrics(operations: Operations, _: Nothing) -> bytes:
    return operations.metrics()


ENDPOINTS = (Endpoint("GET", "/metrics", metrics, "Metrics in Prometheus' text format", bytes, media=TEXT),)
