"""How long requests waited, and how promises are kept."""

import msgspec

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint
from commonpool.api.named import check_named
from commonpool.api.operations import Operations
from commonpool.api.subjects import ACROSS, Who
from commonpool.api.usage import Period, between
from commonpool.api.wire.waits import Promises, WaitRow, WaitTable
from commonpool.core.burn import OBJECTIVE_PERMILLE, kept
from commonpool.core.waits import Tally, spread
from commonpool.store.waits import WAIT_SERIES


class WaitsQuery(Period, frozen=True):
    """`by` is a list of tenant, model, tier and one of window, hour and day, with commas; every other parameter keeps
    what has one of its values, and may be repeated.
    """

    by: str = "tenant"
    tenant: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    tier: tuple[str, ...] = ()


class PromisesQuery(msgspec.Struct, frozen=True):
    """Both keep what has one of the values, and may be repeated."""

    tenant: tuple[str, ...] = ()
    tier: tuple[str, ...] = ()


async def waits(operations: Operations, query: WaitsQuery, who: Who) -> WaitTable:
    by = tuple(name.strip() for name in query.by.split(",") if name.strip())
    since_ns, until_ns = between(operations, query)
    filters = {name: getattr(query, name) for name in WAIT_SERIES if getattr(query, name)}
    table, complete, left = await operations.waits().table(by, since_ns, until_ns, who.scope.filters(filters))
    await check_named(operations, {"tenant": query.tenant}, who, found=bool(table.lines))
    return WaitTable(
        by=table.by,
        since_ns=table.since_ns,
        until_ns=table.until_ns,
        complete=complete,
        rows=tuple(_row(line.keys, line.start_ns, line.tally) for line in table.lines),
        total=_row((), None, table.total),
        counted_until_ns=left.since_ns or None,
        left_records=left.records or None if who.scope.everything else None,
    )


async def promises(operations: Operations, query: PromisesQuery, who: Who) -> Promises:
    books = operations.waits()
    found = tuple(
        each
        for each in books.promises
        if each.tenant in who.scope
        and (not query.tenant or each.tenant in query.tenant)
        and (not query.tier or each.tier in query.tier)
    )
    await check_named(operations, {"tenant": query.tenant}, who, found=bool(found))
    return Promises(books.looked_ns, OBJECTIVE_PERMILLE, found)


def _row(group: tuple[str, ...], start_ns: int | None, tally: Tally) -> WaitRow:
    return WaitRow(
        group=group,
        start_ns=start_ns,
        completed=tally.completed,
        failed=tally.failed,
        cancelled=tally.cancelled,
        abandoned=tally.abandoned,
        refused=dict(sorted(tally.refused.items())),
        wait=spread(tally.wait),
        first_token=spread(tally.first_token),
        unserved=spread(tally.unserved),
        queue=kept(tally.judged, "queue"),
        first_token_promise=kept(tally.judged, "first_token"),
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/waits",
        waits,
        Permission.READ_USAGE,
        ACROSS,
        "How long the requests of a period waited, grouped",
        WaitTable,
        WaitsQuery,
    ),
    Endpoint(
        "GET",
        "/admin/v1/promises",
        promises,
        Permission.READ_USAGE,
        ACROSS,
        "How the promises of tenants' tiers are kept now",
        Promises,
        PromisesQuery,
    ),
)
