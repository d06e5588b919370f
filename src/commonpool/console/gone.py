"""The page of a tenant that is not configured any more: what it was billed, month by month, and its requests."""

from collections.abc import Iterable, Sequence

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire.bill import BillingPeriods, BillLine, BillTable
from commonpool.api.wire.waits import WaitTable
from commonpool.console.asking import Problem, RefusedError
from commonpool.console.frame import NOT_FOUND, View, together
from commonpool.core.waits import DAY_NS


class Month(msgspec.Struct, frozen=True):
    """What it paid for a month, and how many of its requests were in that."""

    name: str
    requests: int
    total_micro: int


def months(days: Iterable[BillLine]) -> list[Month]:
    """The newest first, of lines by day: `2026-11-03`."""
    found: dict[str, Month] = {}
    for line in days:
        name = line.group[0].rpartition("-")[0]
        known = found.get(name, Month(name, 0, 0))
        found[name] = Month(name, known.requests + line.requests, known.total_micro + line.total_micro)
    return [found[name] for name in sorted(found, reverse=True)]


async def show(view: View, name: str, refused: Problem) -> Response:
    """Raises what was `refused` where nothing is known of it, or it was not refused because there is none."""
    if refused.status != NOT_FOUND:
        raise _again(refused)
    waits, periods = await together(
        view.wish(Permission.READ_USAGE, "/admin/v1/waits", WaitTable, by="day", tenant=name, since_ns=0),
        view.wish(Permission.READ_BILLS, "/admin/v1/periods", BillingPeriods),
    )
    bill = await _bill(view, name, [] if isinstance(periods, Problem) else [each.name for each in periods.periods])
    billed = months(bill.lines) if isinstance(bill, BillTable) else []
    counted = [] if isinstance(waits, Problem) else [row for row in waits.rows if row.start_ns is not None]
    if not billed and not counted:
        raise _again(refused)
    return view.render(
        "tenant_gone.html",
        name=name,
        bill=bill,
        months=billed,
        completed=waits.total.completed if counted else None,
        last_ns=max((row.start_ns + DAY_NS // 2 for row in counted), default=None),  # that day in most zones
    )


async def _bill(view: View, name: str, periods: Sequence[str]) -> BillTable | Problem | None:
    """Of all months that there are, by day; None where there are none to be read."""
    if not periods:
        return None
    whole = f"{periods[0]}..{periods[-1]}"
    return await view.wish(Permission.READ_BILLS, "/admin/v1/bill", BillTable, by="day", tenant=name, period=whole)


def _again(refused: Problem) -> RefusedError:
    return RefusedError(refused.status, refused.message, code=refused.code, param=refused.param)
