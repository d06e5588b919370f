"""Who used what, and what it costs; who lent to whom."""

from typing import Annotated

import msgspec

from commonpool.access.permissions import Permission
from commonpool.api import text, views
from commonpool.api.http import Endpoint
from commonpool.api.looking import look_through
from commonpool.api.named import check_named
from commonpool.api.operations import BadRequestError, Operations
from commonpool.api.places import no_place, number
from commonpool.api.subjects import ACROSS, Who
from commonpool.api.wire import usage as wire
from commonpool.api.wire.requests import Records
from commonpool.api.wire.status import OpenLoans
from commonpool.api.wire.units import Ns, gpu_seconds
from commonpool.store.contract import FILTERABLE, RECORD_FILTERS, Place, UsageRow

RECORDS_MAX = 1000  # in one answer: about a megabyte


class Period(msgspec.Struct, frozen=True):
    """From when (included) until when (excluded, by default now), nanoseconds since the epoch."""

    since_ns: Ns = 0
    until_ns: Ns | None = None


class Kept(Period, frozen=True):
    """Each filter keeps what has one of its values, and may be repeated."""

    tenant: tuple[str, ...] = ()
    app: tuple[str, ...] = ()
    cost_center: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    tier: tuple[str, ...] = ()
    endpoint: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()


class UsageQuery(Kept, frozen=True):
    """`by` is a comma-separated list."""

    by: str = "tenant"


class RecordsQuery(Kept, frozen=True):
    """`newest`: the last ones first. `after` is the `after` of the answer before, "" for the first."""

    reason: tuple[str, ...] = ()
    newest: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=RECORDS_MAX)] = RECORDS_MAX
    after: str = ""


async def records(operations: Operations, query: RecordsQuery, who: Who) -> Records:
    since_ns, until_ns = between(operations, query)
    filters = who.scope.filters({name: getattr(query, name) for name in RECORD_FILTERS if getattr(query, name)})
    found = await look_through(
        operations, (since_ns, until_ns), _place(query.after), query.limit, filters, newest=query.newest
    )
    await check_named(operations, {"tenant": query.tenant}, who, found=bool(found.records or query.after))
    place = found.after
    after = None if place is None else f"{place[0]}.{place[2]}.{place[1]}"
    return Records(tuple(map(views.attempt, found.records)), after, found.looked_ns)


def _place(after: str) -> Place | None:
    if not after:
        return None
    arrived_ns, _, rest = after.partition(".")
    attempt, _, request_id = rest.partition(".")
    at_ns, count = number(arrived_ns), number(attempt)
    if at_ns is None or count is None:
        raise no_place(after)
    return at_ns, request_id, count


async def usage(operations: Operations, query: UsageQuery, who: Who) -> wire.UsageTable:
    by = tuple(name.strip() for name in query.by.split(",") if name.strip())
    since_ns, until_ns = between(operations, query)
    filters = {name: getattr(query, name) for name in FILTERABLE if getattr(query, name)}
    table = await operations.usage(by, since_ns, until_ns, who.scope.filters(filters))
    await check_named(operations, {"tenant": query.tenant}, who, found=bool(table.rows or table.total.attempts))
    return wire.UsageTable(
        by=table.by,
        since_ns=since_ns,
        until_ns=until_ns,
        currency=operations.config().currency,
        rows=tuple(map(_row, table.rows)),
        total=_row(table.total),
    )


class LoansQuery(Period, frozen=True):
    """Both keep what has one of the values, and may be repeated; the lender "" is the pool's unowned part."""

    lender: tuple[str, ...] = ()
    borrower: tuple[str, ...] = ()


class OpenLoansQuery(msgspec.Struct, frozen=True):
    """As of loans of a period."""

    lender: tuple[str, ...] = ()
    borrower: tuple[str, ...] = ()


async def open_loans(operations: Operations, query: OpenLoansQuery, who: Who) -> OpenLoans:
    whole = operations.status()
    seen = whole if who.scope.everything else views.within(whole, who.scope, operations.config().policy)
    found = tuple(loan for loan in seen.loans if _between(query, loan.lender, loan.borrower))
    await check_named(operations, _parties(query), who, found=bool(found))
    return OpenLoans(found)


def _parties(query: LoansQuery | OpenLoansQuery) -> dict[str, tuple[str, ...]]:
    return {"lender": query.lender, "borrower": query.borrower}


def _between(query: LoansQuery | OpenLoansQuery, lender: str, borrower: str) -> bool:
    return (not query.lender or lender in query.lender) and (not query.borrower or borrower in query.borrower)


async def loans(operations: Operations, query: LoansQuery, who: Who) -> wire.LoanTable:
    since_ns, until_ns = between(operations, query)
    sums = tuple(
        wire.LoanSum(
            row.lender,
            row.borrower,
            row.loans,
            gpu_seconds(row.milli_gpu_ns),
            row.length_ns_mean,
            row.length_ns_max,
        )
        for row in await operations.loans(since_ns, until_ns, who.scope.names())
        if _between(query, row.lender, row.borrower)
    )
    await check_named(operations, _parties(query), who, found=bool(sums))
    return wire.LoanTable(since_ns, until_ns, sums)


def between(operations: Operations, period: Period) -> tuple[int, int]:
    until_ns = operations.now_ns() if period.until_ns is None else period.until_ns
    if until_ns < period.since_ns and period.until_ns is None:
        begins = text.moment(period.since_ns)
        raise BadRequestError(f"the period begins ({begins}) in the future; nothing has ended there", param="since_ns")
    if until_ns < period.since_ns:
        ends, begins = text.moment(until_ns), text.moment(period.since_ns)
        raise BadRequestError(f"the period ends ({ends}) before it begins ({begins})", param="until_ns")
    return period.since_ns, until_ns


def _row(row: UsageRow) -> wire.UsageRow:
    lent = row.lent_milli_gpu_ns
    return wire.UsageRow(
        group=row.keys,
        requests=row.requests,
        attempts=row.attempts,
        tokens_in=row.tokens_in,
        tokens_cached=row.tokens_cached,
        tokens_out=row.tokens_out,
        gpu_seconds=gpu_seconds(row.milli_gpu_ns),
        borrowed_gpu_seconds=gpu_seconds(row.borrowed_milli_gpu_ns),
        lent_gpu_seconds=None if lent is None else gpu_seconds(lent),
        wait_ns_mean=row.wait_ns_mean,
        wait_ns_p50=row.wait_ns_p50,
        wait_ns_p99=row.wait_ns_p99,
        wait_ns_max=row.wait_ns_max,
        cost_micro=row.cost_micro,
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/usage",
        usage,
        Permission.READ_USAGE,
        ACROSS,
        "Use and cost of a period, grouped and added up",
        wire.UsageTable,
        UsageQuery,
    ),
    Endpoint(
        "GET",
        "/admin/v1/records",
        records,
        Permission.READ_USAGE,
        ACROSS,
        "Each attempt of a period, in pages",
        Records,
        RecordsQuery,
    ),
    Endpoint(
        "GET",
        "/admin/v1/loans",
        loans,
        Permission.READ_USAGE,
        ACROSS,
        "Who lent to whom in a period",
        wire.LoanTable,
        LoansQuery,
    ),
    Endpoint(
        "GET",
        "/admin/v1/loans/open",
        open_loans,
        Permission.READ_STATUS,
        ACROSS,
        "Who lends to whom now, and since when",
        OpenLoans,
        OpenLoansQuery,
    ),
)
