"""One request: what it waits or waited for, and its records. A tenant may ask about its own."""

import msgspec

from commonpool.api import views, wire
from commonpool.api.http import Endpoint
from commonpool.api.operations import NotFoundError, Operations, Principal


class ById(msgspec.Struct, frozen=True):
    """One request, by the id in its answer's `x-request-id`."""

    id: str


async def request(operations: Operations, query: ById, who: Principal | None) -> wire.RequestStory:
    live = operations.live(query.id)  # first: what ends meanwhile is among the records then
    attempts = tuple(map(views.attempt, await operations.record(query.id)))
    owner = next((known.tenant for known in (live, *attempts) if known), None)
    if owner is None or (who is not None and who.tenant != owner):
        raise NotFoundError(
            f"no request {query.id!r} is known; take the id from the x-request-id of its answer (one that was refused"
            " before it reached a queue leaves no record)"
        )
    return wire.RequestStory(query.id, live, attempts)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/requests/{id}",
        request,
        "What one request waits or waited for, and its records",
        wire.RequestStory,
        ById,
        by_tenant=True,
    ),
)
