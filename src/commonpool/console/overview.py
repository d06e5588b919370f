"""The first screen: how what is the reader's stands, what was promised and kept, what it costs, what was decided."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire.bill import BillLine, BillTable, ReconciliationTable
from commonpool.api.wire.decisions import Decision, Decisions
from commonpool.api.wire.status import Status, TenantStatus
from commonpool.api.wire.usage import UsageRow, UsageTable
from commonpool.api.wire.waits import Promises, WaitTable
from commonpool.console.asking import Problem
from commonpool.console.frame import Page, View, together
from commonpool.core.billing import LAYERS
from commonpool.core.burn import Promise
from commonpool.core.model import NS_PER_HOUR
from commonpool.core.waits import WINDOW_NS

DAY_NS = 24 * NS_PER_HOUR
ROWS_MAX = 8  # of a list whose whole is on a page of its own
DECISIONS_MAX = 10
DECISIONS_ASKED = 300  # of a configuration with many new tenants each is one
ALIKE_MAX = 2  # of a kind at one moment; the others are counted


class Quota(msgspec.Struct, frozen=True):
    """The tenants of the reader, those first that need most attention, and their sums; milli_gpu."""

    rows: Sequence[TenantStatus]
    tenants: int
    guaranteed: int
    used: int
    lent: int
    borrowed: int
    due: int
    waiting: int
    running: int
    returns: Mapping[str, int]


class Promised(msgspec.Struct, frozen=True):
    """What one tier of a tenant was promised, and how it was kept in the last hour."""

    tenant: str
    tier: str
    queue: Promise
    first_token: Promise

    @property
    def burn(self) -> float | None:
        """How fast the faster one burns its budget over the last hour; None where nothing was promised in it."""
        return max(
            (rate for each in (self.queue, self.first_token) if (rate := _hourly(each)) is not None), default=None
        )

    @property
    def severity(self) -> str:
        """Of the most urgent rule that says that somebody is to know: page, ticket, or ""."""
        rules = {each.burning.severity for each in (self.queue, self.first_token) if each.burning}
        return "page" if "page" in rules else "ticket" if rules else ""

    @property
    def urgency(self) -> tuple[int, float, int]:
        """Those first for whom somebody is called, then those that burn fastest, then those that wait longest."""
        return ("", "ticket", "page").index(self.severity), self.burn or 0.0, self.queue.spread.p99_ns or 0


def _hourly(promise: Promise) -> float | None:
    return next((burn.rate for burn in promise.burns if burn.over_ns == NS_PER_HOUR), None)


def quota(status: Status) -> Quota:
    tenants = status.tenants
    returns: dict[str, int] = {}
    for loan in status.loans:
        if loan.return_ns is not None:
            for party in (loan.lender, loan.borrower):
                returns[party] = max(returns.get(party, 0), loan.return_ns)
    return Quota(
        rows=sorted(tenants, key=_attention)[:ROWS_MAX],
        tenants=len(tenants),
        guaranteed=sum(each.guaranteed_milli_gpu for each in tenants),
        used=sum(each.in_use_milli_gpu for each in tenants),
        lent=sum(each.lent_milli_gpu for each in tenants),
        borrowed=sum(each.borrowed_milli_gpu for each in tenants),
        due=sum(each.due_milli_gpu for each in tenants),
        waiting=sum(each.waiting for each in tenants),
        running=sum(each.running for each in tenants),
        returns=returns,
    )


def _attention(tenant: TenantStatus) -> tuple[int, int, int, int, str]:
    return (
        -tenant.due_milli_gpu,
        -tenant.waiting,
        -tenant.borrowed_milli_gpu - tenant.lent_milli_gpu,
        -tenant.in_use_milli_gpu,
        tenant.name,
    )


def promised(promises: Iterable[Promise]) -> list[Promised]:
    """By tenant and tier, the most urgent first; those of which nothing is known are left out."""
    pairs: dict[tuple[str, str], dict[str, Promise]] = {}
    for each in promises:
        pairs.setdefault((each.tenant, each.tier), {})[each.name] = each
    found = [Promised(*key, pair["queue"], pair["first_token"]) for key, pair in pairs.items() if len(pair) > 1]
    known = [each for each in found if each.queue.spread.count or each.first_token.spread.count]
    return sorted(known, key=lambda each: (*(-part for part in each.urgency), each.tenant, each.tier))


class Told(msgspec.Struct, frozen=True):
    """A decision, and how many more of its kind that moment brought which are not shown."""

    decision: Decision
    alike: int = 0


def told(decisions: Iterable[Decision]) -> list[Told]:
    """The last ones, in which one change of many things does not hide everything else."""
    found: list[Told] = []
    counts: dict[tuple[int, str], int] = {}
    for each in decisions:
        key = (each.at_ns, each.kind)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= ALIKE_MAX:
            found.append(Told(each))
    last = {(each.decision.at_ns, each.decision.kind): at for at, each in enumerate(found)}
    for key, at in last.items():
        found[at] = Told(found[at].decision, max(0, counts[key] - ALIKE_MAX))
    return found[:DECISIONS_MAX]


def costly(lines: Sequence[BillLine]) -> list[BillLine]:
    """Those that cost most, of work that has a name."""
    named = [line for line in lines if all(line.group) and line.total_micro > 0]
    return sorted(named, key=lambda line: (-line.total_micro, line.group))[:ROWS_MAX]


def spent(rows: Sequence[UsageRow]) -> list[UsageRow]:
    """The same of use, for whom bills are not."""
    named = [row for row in rows if all(row.group) and row.cost_micro > 0]
    return sorted(named, key=lambda row: (-row.cost_micro, row.group))[:ROWS_MAX]


async def use(view: View, by: str, length_ns: int, tenant: str = "") -> UsageTable | Problem | None:
    """What work of the last so long cost at list prices, for whom bills are not; None for whom they are."""
    if view.may(Permission.READ_BILLS, tenant or None):
        return None
    since_ns = max(0, view.now_ns - length_ns) // WINDOW_NS * WINDOW_NS
    return await view.slow(
        Permission.READ_USAGE, "/admin/v1/usage", UsageTable, by=by, tenant=tenant, since_ns=since_ns
    )


def layers(total: BillLine) -> list[tuple[str, int]]:
    return [(layer, total.layers.get(layer, 0)) for layer in LAYERS]


async def show(view: View) -> Response:
    if not view.may(Permission.READ_STATUS) and (home := view.home()):
        return view.go(home)  # such as bills, for who may read nothing else
    status = await view.get("/admin/v1/status", Status)
    since_ns = max(0, status.now_ns - DAY_NS) // WINDOW_NS * WINDOW_NS
    bills, usage = Permission.READ_BILLS, Permission.READ_USAGE
    promises, waits, bill, apps, models, decisions, apps_used, models_used = await together(
        view.wish(usage, "/admin/v1/promises", Promises),
        view.slow(usage, "/admin/v1/waits", WaitTable, by="tier", since_ns=since_ns),
        view.slow(bills, "/admin/v1/bill", BillTable, by="tenant"),
        view.slow(bills, "/admin/v1/bill", BillTable, by="tenant,app"),
        view.slow(bills, "/admin/v1/bill", BillTable, by="model"),
        view.wish(Permission.READ_STATUS, "/admin/v1/decisions", Decisions, limit=DECISIONS_ASKED),
        use(view, "tenant,app", DAY_NS),
        use(view, "model", DAY_NS),
    )
    return view.render(
        "overview.html",
        status=status,
        quota=quota(status),
        promises=promises if isinstance(promises, Problem) else promised(promises.promises),
        promises_at_ns=None if isinstance(promises, Problem) else promises.at_ns,
        waits=waits,
        refused=[] if isinstance(waits, Problem) else _most(waits.total.refused),
        bill=bill,
        currency=_currency(bill, apps, models, apps_used, models_used),
        layers=[] if isinstance(bill, Problem) else layers(bill.total),
        apps=apps if isinstance(apps, Problem) else costly(apps.lines),
        models=models if isinstance(models, Problem) else costly(models.lines),
        used=apps_used,
        apps_used=spent(apps_used.rows) if isinstance(apps_used, UsageTable) else apps_used,
        models_used=spent(models_used.rows) if isinstance(models_used, UsageTable) else models_used,
        decisions=decisions if isinstance(decisions, Problem) else told(decisions.decisions),
        reconciliation=await _reconciliation(view, bill),
        hour_ns=NS_PER_HOUR,
        rows_max=ROWS_MAX,
    )


def _currency(*tables: BillTable | UsageTable | Problem | None) -> str:
    return next((each.currency for each in tables if each and not isinstance(each, Problem)), "")


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


async def _reconciliation(view: View, bill: BillTable | Problem) -> ReconciliationTable | Problem | None:
    """Of the last day in the books; None for who may not see the whole platform's."""
    if isinstance(bill, Problem) or not view.may_platform(Permission.READ_BILLS):
        return None
    since_ns = max(0, bill.until_ns - DAY_NS)
    return await view.slow(
        Permission.READ_BILLS,
        "/admin/v1/reconciliation",
        ReconciliationTable,
        since_ns=since_ns,
        until_ns=bill.until_ns,
    )


PAGES = (Page("/", "overview", show, needs=(Permission.READ_STATUS,), group="now", key="o", shared=True),)
