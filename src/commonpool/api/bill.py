"""Bills: what each account pays for a period, who lent to whom, and the attempts that a line is made of."""

from decimal import Decimal
from typing import Annotated

import msgspec

from commonpool.access.permissions import Permission
from commonpool.access.scope import Scope
from commonpool.api import trace
from commonpool.api.http import Endpoint
from commonpool.api.operations import BadRequestError, Billed, Operations
from commonpool.api.periods import Interval, interval
from commonpool.api.places import no_place, number
from commonpool.api.subjects import ACROSS, Who
from commonpool.api.wire import bill as wire
from commonpool.api.wire.bill import Amount, Charge
from commonpool.config.problems import listed
from commonpool.core.billing import EARNED, Bill, BillLine, combined, unit_costs
from commonpool.core.english import english
from commonpool.core.ledger import GPU_HOUR, PLATFORM, Kind, tenant_account
from commonpool.core.statement import DIMENSIONS, FILTERS, label
from commonpool.store.ledger import EndPlace

RECORDS_MAX = 1000  # in one answer


class ByPeriod(msgspec.Struct, frozen=True):
    """`2026-11`, `2026-11-03`, `2026-11-01..2026-11-15`; the month that goes on where it is left out."""

    period: str = ""


class BillFilter(ByPeriod, frozen=True):
    """Each keeps what has one of its values, and may be repeated; `group` keeps all below it."""

    tenant: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    app: tuple[str, ...] = ()
    cost_center: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    tier: tuple[str, ...] = ()
    endpoint: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()


class BillQuery(BillFilter, frozen=True):
    """`by` is a comma-separated list."""

    by: str = "tenant"


class BilledQuery(BillFilter, frozen=True):
    """`after` is the `after` of the answer before, "" for the first."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=RECORDS_MAX)] = RECORDS_MAX
    after: str = ""


async def bill(operations: Operations, query: BillQuery, who: Who) -> wire.BillTable:
    by = tuple(dict.fromkeys(name.strip() for name in query.by.split(",") if name.strip()))
    for name in by:
        if name not in DIMENSIONS:
            raise BadRequestError(
                f"a bill cannot be split by {name!r}; allowed are {', '.join(DIMENSIONS)}", param="by"
            )
    period = interval(operations, query.period)
    await _check_tenants(operations, period, query.tenant, who.scope)
    filters = _filters(query)
    if (names := who.scope.names()) is not None:
        own = [label(tenant_account(name)) for name in names]
        filters["tenant"] = tuple(name for name in own if not query.tenant or name in query.tenant)
    billed = await operations.bills().bill(period.start_ns, period.end_ns, by, filters)
    return _table(operations, period, billed)


async def _check_tenants(operations: Operations, period: Interval, names: tuple[str, ...], scope: Scope) -> None:
    """Refuse a name that neither the configuration nor the books of the period know: its bill would be empty.

    Whose scope is some tenants is told nothing of others, not even whether there are such.
    """
    if scope.tenants is not None:
        return
    policy = operations.config().policy
    accounts = (PLATFORM, *map(tenant_account, policy.tenants), *(f"group:{name}" for name in policy.groups))
    unknown = set(names).difference(map(label, accounts))
    if unknown:
        billed = await operations.bills().bill(period.start_ns, period.end_ns, ("tenant",), {})
        unknown.difference_update(line.keys[0] for line in billed.bill.lines)
    if unknown:
        raise BadRequestError(
            f"neither the configuration nor the books of {period.name} know the tenant {min(unknown)!r};"
            " `commonpool bill` shows who pays",
            param="tenant",
        )


def _filters(query: BillFilter) -> dict[str, tuple[str, ...]]:
    return {name: getattr(query, name) for name in FILTERS if getattr(query, name)}


def _table(operations: Operations, period: Interval, billed: Billed) -> wire.BillTable:
    config = operations.config()
    return wire.BillTable(
        period=period.name,
        start_ns=period.start_ns,
        end_ns=period.end_ns,
        until_ns=billed.until_ns,
        time_zone=config.billing.time_zone,
        currency=config.currency,
        closed=billed.closed,
        by=billed.bill.by,
        lines=tuple(_line(billed.bill, line) for line in billed.bill.lines) if billed.bill.by else (),
        total=_line(billed.bill, combined(billed.bill.lines, "", ())),
        forecast_micro=billed.forecast_micro,
        notes=tuple(map(english, billed.notes)),
        said=billed.notes,
    )


def _line(whole: Bill, line: BillLine) -> wire.BillLine:
    lent, borrowed = Kind.LENT.value, Kind.BORROWED.value
    counts = line.counts
    return wire.BillLine(
        group=line.keys,
        requests=counts.requests,
        completed=counts.completed,
        attempts=counts.attempts,
        tokens_in=counts.tokens_in,
        tokens_cached=counts.tokens_cached,
        tokens_out=counts.tokens_out,
        guaranteed=_amount(line.guaranteed, line.guaranteed_micro),
        used=_amount(line.used, line.micro.get(Kind.USED.value, 0) + line.micro.get(borrowed, 0)),
        borrowed=_amount(line.milli_gpu_ns.get(borrowed, 0), line.micro.get(borrowed, 0)),
        lent=_amount(line.milli_gpu_ns.get(lent, 0), -line.micro.get(EARNED, 0)),
        layers={name: micro for name, micro in whole.layers(line).items() if micro},
        charges=_charges(whole, line),
        unit_costs=unit_costs(whole, line),
        total_micro=line.total_micro,
    )


def _amount(milli_gpu_ns: int, micro: int) -> Amount:
    return Amount(wire.quantity(GPU_HOUR, milli_gpu_ns), micro)


def _charges(whole: Bill, line: BillLine) -> tuple[Charge, ...]:
    costs = {cost.name: cost for cost in whole.costs}
    times = [
        Charge(kind, GPU_HOUR, "runtime", micro, *_measured(GPU_HOUR, line.milli_gpu_ns[kind]))
        for kind, micro in sorted(line.micro.items(), key=_order)
    ]
    fees = [
        Charge(Kind.FEE.value, meter, "request", micro, *_measured(meter, line.metered[meter]))
        for meter, micro in sorted(line.fees.items())
    ]
    shared = [
        Charge("shared", name, costs[name].layer, micro, split=costs[name].split)
        for name, micro in sorted(line.shared.items())
    ]
    return (*times, *fees, *shared)


def _order(kind: tuple[str, int]) -> int:
    """As `core.ledger` lists them, what was earned last."""
    kinds = [*(each.value for each in Kind), EARNED]
    return kinds.index(kind[0])


def _measured(meter: str, amount: int) -> tuple[Decimal, str]:
    return wire.quantity(meter, amount), wire.UNITS[meter]


async def lending(operations: Operations, query: ByPeriod, who: Who) -> wire.LendingTable:
    period = interval(operations, query.period)
    until_ns, pairs = await operations.bills().lending(period.start_ns, period.end_ns, who.scope.names())
    return wire.LendingTable(
        period=period.name,
        start_ns=period.start_ns,
        end_ns=period.end_ns,
        until_ns=until_ns,
        currency=operations.config().currency,
        pairs=tuple(
            wire.LentLine(label(lender), label(borrower), wire.quantity(GPU_HOUR, each.milli_gpu_ns), each.micro)
            for (lender, borrower), each in pairs.items()
        ),
    )


async def records(operations: Operations, query: BilledQuery, who: Who) -> wire.BilledAttempts:
    period = interval(operations, query.period)
    await _check_tenants(operations, period, query.tenant, who.scope)
    filters: dict[str, tuple[str, ...]] = {name: values for name, values in _filters(query).items() if name != "group"}
    if query.group:
        filters["tenant"] = _below(operations, query, who.scope)
    found = await operations.bills().worked(
        period.start_ns, period.end_ns, who.scope.filters(filters), _place(query.after), query.limit
    )
    place = found.after
    after = None if place is None else f"{place[0]}.{place[2]}.{place[1]}"
    return wire.BilledAttempts(tuple(map(trace.shown, found.found)), after, found.looked_ns)


def _below(operations: Operations, query: BillFilter, scope: Scope) -> tuple[str, ...]:
    """The tenants below the groups that are asked for, of those that are asked for."""
    policy = operations.config().policy
    found = []
    for tenant in scope.of(policy.tenants).values():
        at, above = tenant.group, set[str]()
        while at is not None and at in policy.groups:
            above.add(at)
            at = policy.groups[at].parent
        if not above.isdisjoint(query.group) and (not query.tenant or tenant.name in query.tenant):
            found.append(tenant.name)
    if not found:
        raise BadRequestError(f"no tenant is below {listed(query.group)}", param="group")
    return tuple(found)


def _place(after: str) -> EndPlace | None:
    if not after:
        return None
    ended_ns, _, rest = after.partition(".")
    attempt, _, request_id = rest.partition(".")
    at_ns, count = number(ended_ns), number(attempt)
    if at_ns is None or count is None:
        raise no_place(after)
    return at_ns, request_id, count


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/bill",
        bill,
        Permission.READ_BILLS,
        ACROSS,
        "The bill of a period, split and added up",
        wire.BillTable,
        BillQuery,
    ),
    Endpoint(
        "GET",
        "/admin/v1/bill/matrix",
        lending,
        Permission.READ_BILLS,
        ACROSS,
        "Who lent to whom in a period, and what was paid for it",
        wire.LendingTable,
        ByPeriod,
    ),
    Endpoint(
        "GET",
        "/admin/v1/bill/records",
        records,
        Permission.READ_BILLS,
        ACROSS,
        "The attempts that a bill's work is made of, with their postings in the period, in pages",
        wire.BilledAttempts,
        BilledQuery,
    ),
)
