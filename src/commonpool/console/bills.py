"""The bill of a period: what it is made of, who lent to whom, whether the books close, and the records of a line."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api import bill_files, bill_formats, focus, text
from commonpool.api.terms import TenantEntry, Tenants
from commonpool.api.wire import bill as wire
from commonpool.console.asking import Problem, RefusedError
from commonpool.console.frame import HEADERS, Form, Page, View, together
from commonpool.console.platform import matrix
from commonpool.core.billing import LAYERS
from commonpool.core.statement import DIMENSIONS, FILTERS

LINES_MAX: Final = 300  # what follows is in the files
RECORDS_MAX: Final = 100
HOURS_MAX: Final = 48
TIMES: Final = ("guaranteed", "used", "borrowed", "lent")
# What a reader splits a bill by; any other list of dimensions goes into the address.
SPLITS: Final = ("tenant", "group", "tenant,app", "cost_center", "model", "model,version", "type", "tier", "day")


class Line(msgspec.Struct, frozen=True):
    """A line as it is shown: `hours` are of TIMES and add up, `to` are the filters of its records."""

    line: wire.BillLine
    hours: tuple[str, ...]
    to: str


class Pool(msgspec.Struct, frozen=True):
    """All reconciled hours of a pool together, GPU seconds; `odd` are those whose two sides differ."""

    pool: str
    hours: int
    devices: Decimal
    charged: Decimal
    held: Decimal
    reported: Decimal
    causes: Mapping[str, Decimal]
    closes: bool
    odd: Sequence[wire.ReconciledHour]


def lines(bill: wire.BillTable, kept: Mapping[str, str]) -> list[Line]:
    """The lines and, last, their total; every column of hours adds up as shown."""
    columns = []
    for name in TIMES:
        column = text.gpu_hours([getattr(line, name).gpu_seconds for line in bill.lines])
        columns.append([*column, *text.gpu_hours([getattr(bill.total, name).gpu_seconds])])
    return [
        Line(line, hours, _records(bill, line, kept))
        for line, hours in zip((*bill.lines, bill.total), zip(*columns, strict=True), strict=True)
    ]


def _records(bill: wire.BillTable, line: wire.BillLine, kept: Mapping[str, str]) -> str:
    """The address of the attempts that a line's work is made of; "" where nothing says which they are."""
    named = dict(zip(bill.by, line.group, strict=False))
    query = {"period": named.pop("day", "") or bill.period, **kept}
    if any(name not in FILTERS or not value for name, value in named.items()):
        return ""
    return "/bills/records?" + urlencode(query | named)


def pools(table: wire.ReconciliationTable) -> list[Pool]:
    by_pool: dict[str, list[wire.ReconciledHour]] = {}
    for hour in table.hours:
        by_pool.setdefault(hour.pool, []).append(hour)
    return [_pool(name, hours) for name, hours in sorted(by_pool.items())]


def _pool(name: str, hours: Sequence[wire.ReconciledHour]) -> Pool:
    causes: dict[str, Decimal] = {}
    for hour in hours:
        for cause, seconds in hour.causes.items():
            causes[cause] = causes.get(cause, Decimal(0)) + seconds
    odd = [hour for hour in hours if not hour.closes or hour.causes]
    return Pool(
        pool=name,
        hours=len(hours),
        devices=_sum(hour.devices for hour in hours),
        charged=_sum(hour.charged for hour in hours),
        held=_sum(hour.held for hour in hours),
        reported=_sum(hour.reported for hour in hours),
        causes=causes,
        closes=all(hour.closes for hour in hours),
        odd=sorted(odd, key=lambda hour: (hour.closes, -hour.hour_ns))[:HOURS_MAX],
    )


def _sum(values: Iterable[Decimal]) -> Decimal:
    return sum(values, Decimal(0))


def _filters(view: View) -> dict[str, str]:
    return {name: value for name in FILTERS if (value := view.query.get(name, ""))}


async def show(view: View) -> Response:
    kept = _filters(view)
    by = view.query.get("by", "") or "tenant"
    period = view.query.get("period")
    bill, periods, lent, tenants = await together(
        view.get("/admin/v1/bill", wire.BillTable, by=by, period=period, **kept),
        view.attempt("/admin/v1/periods", wire.BillingPeriods),
        view.attempt("/admin/v1/bill/matrix", wire.LendingTable, period=period),
        view.slow(Permission.READ_TENANTS, "/admin/v1/tenants", Tenants),
    )
    shown = lines(bill, kept)
    reconciled = await _reconciled(view, bill)
    return view.render(
        "bills.html",
        bill=bill,
        by=by,
        splits=SPLITS,
        dimensions=DIMENSIONS,
        kept=kept,
        known={} if isinstance(tenants, Problem) else known(tenants.tenants),
        lines=shown[:-1][:LINES_MAX],
        total=shown[-1],
        more=max(0, len(bill.lines) - LINES_MAX),
        layers=[(layer, bill.total.layers.get(layer, 0)) for layer in LAYERS],
        periods=() if isinstance(periods, Problem) else tuple(reversed(periods.periods)),
        booked=bill.until_ns > bill.start_ns and _has_books(bill, periods),
        matrix=lent if isinstance(lent, Problem) else matrix(lent.pairs, ()),
        pools=[] if reconciled is None or isinstance(reconciled, Problem) else pools(reconciled),
        reconciled=reconciled,
        downloads=[(form, _file(form, bill.period, by, kept)) for form in bill_files.MEDIA],
        measured=bill_formats.measured,
    )


def known(tenants: Sequence[TenantEntry]) -> dict[str, list[str]]:
    """What a bill of these tenants can be filtered by, as far as it is configured now."""
    apps = [app for tenant in tenants for app in tenant.apps]
    return {
        "tenant": [each.name for each in tenants],
        "group": sorted({each.group for each in tenants if each.group}),
        "app": sorted({each.name for each in apps}),
        "cost_center": sorted({each.cost_center for each in apps if each.cost_center}),
    }


def _has_books(bill: wire.BillTable, periods: wire.BillingPeriods | Problem) -> bool:
    """Whether it is of a time since the books began: what was before has an end, and nothing in it."""
    first = min((each.start_ns for each in periods.periods), default=None) if not isinstance(periods, Problem) else 0
    return first is not None and bill.until_ns > first


async def _reconciled(view: View, bill: wire.BillTable) -> wire.ReconciliationTable | Problem | None:
    """Of the period; None for who may not see the whole platform's, and while nothing of it is in the books."""
    if not view.may_platform(Permission.READ_BILLS) or bill.until_ns <= bill.start_ns:
        return None
    return await view.attempt(
        "/admin/v1/reconciliation", wire.ReconciliationTable, since_ns=bill.start_ns, until_ns=bill.until_ns
    )


def _file(form: str, period: str, by: str, kept: Mapping[str, str]) -> str:
    return f"/bills/file/{form}?" + urlencode({"period": period, "by": by, **kept})


async def file(view: View) -> Response:
    """The same bill as a file. FOCUS has a row for each charge, and its own lines."""
    form = view.path["form"]
    if form not in bill_files.MEDIA:
        raise RefusedError(404, f"a bill is written as {', '.join(bill_files.MEDIA)}, not as {form!r}")
    by = ",".join(focus.BY) if form == "focus" else view.query.get("by", "") or "tenant"
    bill = await view.get("/admin/v1/bill", wire.BillTable, by=by, period=view.query.get("period"), **_filters(view))
    name = f"bill-{bill.period}{'-focus' if form == 'focus' else ''}.{'csv' if form == 'focus' else form}"
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{name}"'}
    return Response(bill_files.written(bill, form), headers=headers, media_type=bill_files.MEDIA[form])


async def records(view: View) -> Response:
    kept = _filters(view)
    found = await view.get(
        "/admin/v1/bill/records",
        wire.BilledAttempts,
        period=view.query.get("period"),
        limit=RECORDS_MAX,
        after=view.query.get("after"),
        **kept,
    )
    query = {"period": view.query.get("period", ""), **kept}
    return view.render(
        "bill_records.html",
        records=found.records,
        query=query,
        bill="/bills?" + urlencode(query),
        more="/bills/records?" + urlencode(query | {"after": found.after}) if found.after else "",
        looked_ns=found.looked_ns,
        currency=await _currency(view),
    )


async def _currency(view: View) -> str:
    """What the amounts are in: the lending of a day is the smallest answer that says so."""
    answer = await view.get("/admin/v1/bill/matrix", wire.LendingTable, period=view.query.get("period"))
    return answer.currency


async def close(view: View, form: Form) -> Response:
    await view.send("POST", "/admin/v1/periods", wire.BillingPeriod, {"name": form.get("name")})
    return view.go(f"/bills?{urlencode({'period': form.get('name')})}", said="bills.closed_now")


PAGES = (
    Page("/bills", "bills", show, needs=(Permission.READ_BILLS,), group="money", key="b"),
    Page("/bills/records", "bill_records", records, needs=(Permission.READ_BILLS,)),
    Page("/bills/file/{form}", "bills", file, needs=(Permission.READ_BILLS,)),
    Page("/bills/close", "bills", act=close),
)
