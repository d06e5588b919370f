"""The metrics, for Prometheus."""

from commonpool.access.permissions import Permission
from commonpool.api.http import TEXT, Endpoint, Nothing
from commonpool.api.operations import Operations
from commonpool.api.subjects import PLATFORM, Who


async def metrics(operations: Operations, _: Nothing, __: Who) -> bytes:
    return await operations.metrics()


ENDPOINTS = (
    Endpoint(
        "GET",
        "/metrics",
        metrics,
        Permission.READ_METRICS,
        PLATFORM,
        "Metrics in Prometheus' text format",
        bytes,
        media=TEXT,
    ),
)
