"""One request down to the money: every attempt of it, and every posting that it made or will make."""

from commonpool.access.permissions import Permission
from commonpool.api import views
from commonpool.api.http import Endpoint
from commonpool.api.operations import NotFoundError, Operations, Settled
from commonpool.api.requests import ById
from commonpool.api.subjects import Asked, Subject, Who
from commonpool.api.wire import bill as wire
from commonpool.core.ledger import Posting, tenant_account
from commonpool.core.pricing import round_lines


async def trace(operations: Operations, query: ById, _: Who) -> wire.RequestPostings:
    attempts = tuple(map(shown, await operations.bills().settled(query.id)))
    return wire.RequestPostings(
        query.id, operations.config().currency, attempts, sum(attempt.cost_micro for attempt in attempts)
    )


async def _owner(operations: Operations, asked: Asked) -> str | None:
    return next((record.tenant for record in await operations.record(asked.params.id)), None)


def _unknown(_: Operations, asked: Asked) -> NotFoundError:
    return NotFoundError(
        f"no attempt at {asked.params.id!r} has ended, or it is older than the records that are kept; take the id from"
        " the x-request-id of its answer"
    )


def shown(settled: Settled) -> wire.AttemptPostings:
    """An attempt with its postings; their costs are rounded together, so that they add up."""
    costs = round_lines({f"{at:09d}": posting.exact_cost for at, posting in enumerate(settled.postings)})
    lines = tuple(
        _line(posting, costs[f"{at:09d}"], posting.about_ns in settled.booked)
        for at, posting in enumerate(settled.postings)
    )
    own = tenant_account(settled.record.tenant)
    return wire.AttemptPostings(
        views.attempt(settled.record),
        lines,
        sum(line.cost_micro for line in lines if line.debit == own),
        settled.problem,
    )


def _line(posting: Posting, cost_micro: int, booked: bool) -> wire.PostingLine:
    return wire.PostingLine(
        hour_ns=posting.about_ns,
        kind=posting.kind.value,
        debit=posting.debit,
        credit=posting.credit,
        meter=posting.meter,
        quantity=wire.quantity(posting.meter, posting.quantity),
        unit=wire.UNITS[posting.meter],
        price_micro=posting.micro,
        cost_micro=cost_micro,
        booked=booked,
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/requests/{id}/postings",
        trace,
        Permission.READ_REQUESTS,
        Subject(_owner, _unknown),
        "What one request or job cost: every attempt with its postings by hour",
        wire.RequestPostings,
        ById,
    ),
)
