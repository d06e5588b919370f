"""Tenants: a list to find one in, and for each what it has, waits, may, is refused and pays."""

from collections.abc import Mapping, Sequence

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.terms import Tenants, TenantTerms
from commonpool.api.wire.bill import BillTable
from commonpool.api.wire.decisions import Decisions
from commonpool.api.wire.status import Status, TenantStatus
from commonpool.api.wire.waits import Promises, WaitRow, WaitTable
from commonpool.console import gone, spans
from commonpool.console.asking import Problem
from commonpool.console.frame import Page, View, together
from commonpool.console.overview import layers, promised, quota, use
from commonpool.core.model import Limits

ROWS = 50
DECISIONS_MAX = 10
SORTS = ("wait", "refused", "waiting", "borrowed", "lent", "used", "name")


class Line(msgspec.Struct, frozen=True):
    """A tenant in the list: how it stands, and its waits over the time that is looked at, None where it had none."""

    tenant: TenantStatus
    waits: WaitRow | None

    @property
    def p99_ns(self) -> int:
        return (self.waits.wait.p99_ns or 0) if self.waits else 0

    @property
    def refused(self) -> int:
        return sum(self.waits.refused.values()) if self.waits else 0


def lines(tenants: Sequence[TenantStatus], waits: Sequence[WaitRow], sort: str, named: str) -> list[Line]:
    """Those whose name has `named` in it, the largest of what it is sorted by first; alike, the smallest tenant."""
    rows = {row.group[0]: row for row in waits}
    found = [Line(each, rows.get(each.name)) for each in tenants if named.lower() in each.name.lower()]
    return sorted(found, key=lambda line: (-_measure(line, sort), _size(line, sort), line.tenant.name))


def _measure(line: Line, sort: str) -> int:
    tenant = line.tenant
    return {
        "wait": line.p99_ns,
        "refused": line.refused,
        "waiting": tenant.waiting,
        "borrowed": tenant.borrowed_milli_gpu,
        "lent": tenant.lent_milli_gpu,
        "used": tenant.in_use_milli_gpu,
    }.get(sort, 0)


def _size(line: Line, sort: str) -> int:
    return 0 if sort == "name" else line.tenant.guaranteed_milli_gpu


async def show(view: View) -> Response:
    if not view.may(Permission.READ_STATUS):
        return await _names(view)
    span = spans.span(view)
    status = await view.get("/admin/v1/status", Status)
    waits = await view.wish(
        Permission.READ_USAGE, "/admin/v1/waits", WaitTable, by="tenant", since_ns=status.now_ns - span.length_ns
    )
    sort = view.query.get("sort", SORTS[0])
    rows = () if isinstance(waits, Problem) else waits.rows
    found = lines(status.tenants, rows, sort, view.query.get("q", ""))
    return view.render(
        "tenants.html",
        part=spans.part(view, found, ROWS),
        returns=quota(status).returns,
        waits=waits,
        span=span,
        spans=spans.SPANS,
        sort=sort,
        sorts=SORTS,
    )


async def _names(view: View) -> Response:
    """For who may know which tenants there are, and not how they stand."""
    found = (await view.get("/admin/v1/tenants", Tenants)).tenants
    named = view.query.get("q", "")
    rows = [each for each in found if named.lower() in each.name.lower()]
    return view.render("tenant_names.html", part=spans.part(view, rows, ROWS))


async def one(view: View) -> Response:
    name = view.path["tenant"]
    span = spans.span(view)
    terms = await view.attempt(f"/admin/v1/tenants/{name}", TenantTerms)
    if isinstance(terms, Problem):
        return await gone.show(view, name, terms)
    status = await view.get("/admin/v1/status", Status)
    since_ns = status.now_ns - span.length_ns
    usage, bills = Permission.READ_USAGE, Permission.READ_BILLS
    promises, waits, over_time, bill, decisions, used = await together(
        view.wish(usage, "/admin/v1/promises", Promises, tenant=name),
        view.wish(usage, "/admin/v1/waits", WaitTable, by="tier,model", tenant=name, since_ns=since_ns),
        view.wish(usage, "/admin/v1/waits", WaitTable, by=f"tier,{span.step}", tenant=name, since_ns=since_ns),
        view.wish(bills, "/admin/v1/bill", BillTable, by="tenant", tenant=name),
        view.wish(Permission.READ_STATUS, "/admin/v1/decisions", Decisions, tenant=name, limit=DECISIONS_MAX),
        use(view, "app", span.length_ns, name),
    )
    return view.render(
        "tenant.html",
        terms=terms,
        tenant=next((each for each in status.tenants if each.name == name), None),
        returns=quota(status).returns.get(name),
        loans=[loan for loan in status.loans if name in (loan.lender, loan.borrower)],
        jobs=next((each for each in status.jobs if each.tenant == name), None),
        promises=promises if isinstance(promises, Problem) else promised(promises.promises),
        promises_at_ns=None if isinstance(promises, Problem) else promises.at_ns or None,
        waits=waits,
        refused=[] if isinstance(waits, Problem) else sorted(waits.total.refused.items(), key=lambda pair: -pair[1]),
        curves=None if isinstance(over_time, Problem) else spans.curves(over_time.rows),
        bill=bill,
        used=used,
        layers=[] if isinstance(bill, Problem) else layers(bill.total),
        decisions=decisions,
        limits=limits(terms),
        span=span,
        spans=spans.SPANS,
    )


def limits(terms: TenantTerms) -> list[tuple[str, Mapping[str, int]]]:
    """The limits that are set, of the tenant ("") and of each of its apps."""
    owners = [("", terms.limits), *((app.name, app.limits) for app in terms.apps)]
    return [(name, given) for name, own in owners if (given := _set(own))]


def _set(own: Limits) -> dict[str, int]:
    return {name: value for name in own.__struct_fields__ if (value := getattr(own, name)) is not None}


PAGES = (
    Page("/tenants", "tenants", show, needs=(Permission.READ_TENANTS,), group="now", key="t", shared=True),
    Page(
        "/tenants/{tenant}",
        "tenant",
        one,
        needs=(Permission.READ_STATUS,),
        shared=True,
        instead="/bills?tenant={tenant}",
    ),
)
