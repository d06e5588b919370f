"""One request: what it waits or waited for, and its records."""

from typing import Final

import msgspec

from commonpool.access.permissions import Permission
from commonpool.api import views
from commonpool.api.http import Endpoint
from commonpool.api.operations import NotFoundError, OperationError, Operations, UnavailableError
from commonpool.api.subjects import Asked, Subject, Who
from commonpool.api.wire import requests as wire


class ById(msgspec.Struct, frozen=True):
    """One request, by the id in its answer's `x-request-id`."""

    id: str


async def request(operations: Operations, query: ById, _: Who) -> wire.RequestStory:
    live = operations.live(query.id)  # first: what ends meanwhile is among the records then
    return wire.RequestStory(query.id, live, tuple(map(views.attempt, await operations.record(query.id))))


async def _owner(operations: Operations, asked: Asked) -> str | None:
    live = operations.live(asked.params.id)
    if live is not None:
        return live.tenant
    return next((record.tenant for record in await operations.record(asked.params.id)), None)


def _unknown(operations: Operations, asked: Asked) -> OperationError:
    if not operations.recovered():
        return UnavailableError(
            f"request {asked.params.id!r} is not known yet: the product has just started, and what was open before is"
            " being told to it; try again in a moment"
        )
    return NotFoundError(
        f"no request {asked.params.id!r} is known; take the id from the x-request-id of its answer (one that was"
        " refused before it reached a queue leaves no record)"
    )


OF_REQUEST: Final = Subject(_owner, _unknown)
"""The tenant of the request that the path names."""

ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/requests/{id}",
        request,
        Permission.READ_REQUESTS,
        OF_REQUEST,
        "What one request waits or waited for, and its records",
        wire.RequestStory,
        ById,
    ),
)
