"""Whether the process lives, and whether it can serve. Open to all: a load balancer has no key."""

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import Operations, UnavailableError
from commonpool.api.subjects import PLATFORM, Who
from commonpool.api.wire import status as wire


async def healthz(_: Operations, __: Nothing, ___: Who) -> wire.Health:
    return wire.Health(ok=True, message="alive")


async def readyz(operations: Operations, _: Nothing, __: Who) -> wire.Health:
    ready, message = operations.ready()
    if not ready:
        raise UnavailableError(message)
    return wire.Health(ok=True, message=message)


ENDPOINTS = (
    Endpoint("GET", "/healthz", healthz, Permission.READ_HEALTH, PLATFORM, "200 while the process lives", wire.Health),
    Endpoint(
        "GET",
        "/readyz",
        readyz,
        Permission.READ_HEALTH,
        PLATFORM,
        "200 while every model can be served, else 503",
        wire.Health,
    ),
)
