"""Billing periods: how they are called, which there are, and closing a month for ever."""

import msgspec

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import BadRequestError, Month, Operations
from commonpool.api.subjects import ACROSS, PLATFORM, Who
from commonpool.api.wire import bill as wire
from commonpool.config.calendar import Calendar

BETWEEN = ".."


class Interval(msgspec.Struct, frozen=True):
    """A period by name, from when (included) until when (excluded)."""

    name: str
    start_ns: int
    end_ns: int


def interval(operations: Operations, name: str) -> Interval:
    """The period of a name: `2026-11`, `2026-11-03`, or from one through another, `2026-11-01..2026-11-15`.

    "" is the month that goes on. BadRequestError where there is no such period.
    """
    calendar = Calendar(operations.config().billing.time_zone)
    name = name or calendar.month_of(operations.now_ns())
    first, between, last = name.partition(BETWEEN)
    start_ns, end_ns = _one(calendar, first)
    if between:
        _, end_ns = _one(calendar, last)
    if end_ns <= start_ns:
        raise BadRequestError(f"the period {name} ends before it begins; write the earlier day first", param="period")
    return Interval(name, start_ns, end_ns)


def _one(calendar: Calendar, name: str) -> tuple[int, int]:
    try:
        return calendar.month(name) if name.count("-") == 1 else calendar.day(name)
    except ValueError as error:
        raise BadRequestError(
            f"{error}, or a period like 2026-11, 2026-11-03 or 2026-11-01..2026-11-15", param="period"
        ) from None


async def periods(operations: Operations, _: Nothing, __: Who) -> wire.BillingPeriods:
    return wire.BillingPeriods(tuple(map(_shown, await operations.bills().months())))


async def close(operations: Operations, _: Nothing, wanted: wire.ClosePeriod, who: Who) -> wire.BillingPeriod:
    try:
        Calendar(operations.config().billing.time_zone).month(wanted.name)
    except ValueError as error:
        raise BadRequestError(str(error), param="name") from None
    return _shown(await operations.bills().close(wanted.name, who.name))


def _shown(month: Month) -> wire.BillingPeriod:
    return wire.BillingPeriod(
        month.name,
        "closed" if month.closed_ns is not None else "over" if month.over else "open",
        month.start_ns,
        month.end_ns,
        month.closed_ns,
        month.by,
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/periods",
        periods,
        Permission.READ_BILLS,
        ACROSS,
        "The months since the books began",
        wire.BillingPeriods,
    ),
    Endpoint(
        "POST",
        "/admin/v1/periods",
        close,
        Permission.CLOSE_PERIOD,
        PLATFORM,
        "Close a month that is over: its bill never changes again",
        wire.BillingPeriod,
        body=wire.ClosePeriod,
        status=201,
    ),
)
