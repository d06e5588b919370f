"""Advice: which quotas the last two weeks speak for, tested, with the configuration that has them."""

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import Operations
from commonpool.api.subjects import PLATFORM, Who
from commonpool.api.wire.advice import Advised


async def advice(operations: Operations, _: Nothing, __: Who) -> Advised:
    return operations.advice()


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/advice",
        advice,
        Permission.READ_ADVICE,
        PLATFORM,
        "The quotas that the last two weeks speak for, made when it is asked for: ask again while it is being made",
        Advised,
    ),
)
