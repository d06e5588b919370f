"""The bills of the running product, made of the store's books (`api.operations.Bills`).

Only hours that are in the books count. What lies in a closed month comes from the snapshot that was taken when it was
closed; the rest is worked out anew each time, from postings that never change and the shared costs in force.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import msgspec

from commonpool.api import text
from commonpool.api.looking import LOOKED_MAX
from commonpool.api.operations import Billed, ConflictError, Month, OperationError, Settled, Worked
from commonpool.app.whole_days import WholeDays
from commonpool.config import Config
from commonpool.config.billing import rates
from commonpool.config.calendar import Calendar
from commonpool.control.books import REMEMBERED_NS
from commonpool.core.billing import Bill, Day, Lent, bill, forecast, matrices, matrix
from commonpool.core.ledger import Kind, LedgerError, Rates, tenant_account
from commonpool.core.model import NS_PER_HOUR, UNPRICED, UsageRecord
from commonpool.core.said import Said, say
from commonpool.core.settling import hours_of, settle
from commonpool.core.statement import CORRECTION, FINEST, WORK, Statement, added, fold
from commonpool.store.contract import Filters, Store
from commonpool.store.ledger import (
    EndPlace,
    Period,
    PeriodClosedError,
    Reading,
    ReadingConflictError,
    Reconciliation,
    books_begin,
)

Matrix = Mapping[tuple[str, str], Lent]  # by lender and borrower

_BY = ("tenant", *WORK)
BEHIND_NS = 2 * NS_PER_HOUR  # an hour that is not in the books so long after its beginning is worth a word


class UnpricedError(OperationError):
    """A pool has no price in an hour that is over, so its books stop there."""

    status = 409
    kind = "conflict_error"
    code = "unpriced"


class Bills:
    """Answers from the store, in threads. `flush` returns when the newest records are in it.

    Of records it looks through `looked_max` at once.
    """

    def __init__(
        self,
        store: Store,
        config: Callable[[], Config],
        now: Callable[[], int],
        flush: Callable[[], object],
        looked_max: int = LOOKED_MAX,
    ) -> None:
        self._store = store
        self._config = config
        self._now = now
        self._flush = flush
        self._looked_max = looked_max
        self._tables = WholeDays[Bill](lambda some, more: added((some, more), some.by), lambda table: len(table.lines))
        self._matrices = WholeDays[Matrix](lambda some, more: matrices((some, more)), len)
        self._last: tuple[int, int, Config, Statement] | None = None

    async def bill(self, start_ns: int, end_ns: int, by: Sequence[str], filters: Filters) -> Billed:
        return await asyncio.to_thread(self._bill, start_ns, end_ns, by, filters)

    async def lending(self, start_ns: int, end_ns: int, tenants: Sequence[str] | None) -> tuple[int, Matrix]:
        return await asyncio.to_thread(self._lending, start_ns, end_ns, tenants)

    async def months(self) -> Sequence[Month]:
        return await asyncio.to_thread(self._months)

    async def close(self, name: str, by: str) -> Month:
        return await asyncio.to_thread(self._close, name, by)

    async def read(self, reading: Reading) -> bool:
        try:
            return await asyncio.to_thread(self._store.add_reading, reading)
        except (ReadingConflictError, PeriodClosedError) as error:
            raise ConflictError(str(error)) from None

    async def reconciliations(self, since_ns: int, until_ns: int) -> Sequence[Reconciliation]:
        found = await asyncio.to_thread(self._store.reconciliations, since_ns, until_ns)
        return [each for each in found if each.pool]

    async def settled(self, request_id: str) -> Sequence[Settled]:
        def ask() -> list[Settled]:
            self._flush()
            return self._settle(self._store.record(request_id))

        return await asyncio.to_thread(ask)

    async def worked(self, start_ns: int, end_ns: int, filters: Filters, after: EndPlace | None, limit: int) -> Worked:
        def ask() -> Worked:
            until_ns = min(end_ns, self._until(start_ns))
            if until_ns <= start_ns:
                return Worked()
            looked_ns = None
            if filters:  # without one, as many are looked at as are found
                since_ns = start_ns if after is None else max(start_ns, after[0] - 1)
                looked_ns = self._store.ending(since_ns, until_ns, self._looked_max)
            records = self._store.worked(start_ns, until_ns, filters, after, limit, looked_ns)
            found = [_within(each, start_ns, until_ns) for each in self._settle(records)]
            if len(records) == limit:
                last = records[-1]
                return Worked(found, (last.arrived_ns + last.total_ns, last.request_id, last.attempt))
            return Worked(found, None if looked_ns is None else (looked_ns + 1, "", 0), looked_ns)

        return await asyncio.to_thread(ask)

    # -- bills ---------------------------------------------------------------------------------------------------------

    def _bill(self, start_ns: int, end_ns: int, by: Sequence[str], filters: Filters) -> Billed:
        self._check_prices(end_ns)
        until_ns = max(start_ns, min(end_ns, self._until(start_ns)))
        closed = _overlapping(self._store.periods(), start_ns, end_ns)
        if end_ns <= self._began(start_ns) and not closed:
            until_ns = start_ns  # there are no books of then
        tables = [fold([_kept(period, start_ns, end_ns)], by, filters) for period in closed]
        tables += [self._open(start, end, by, filters) for start, end in _gaps(closed, start_ns, until_ns)]
        folded = added(tables, by)
        expected = self._expected(folded, start_ns, until_ns, end_ns) if start_ns < until_ns < end_ns else None
        notes = self._behind(end_ns)
        if start_ns > self._now():
            notes = (say("note.future", at=self._moment(start_ns)),)
        elif until_ns == start_ns and not (closed or notes):
            notes = (self._first(start_ns, end_ns),)
        return Billed(folded, until_ns, not _gaps(closed, start_ns, end_ns), expected, notes)

    def _expected(self, folded: Bill, start_ns: int, until_ns: int, end_ns: int) -> int:
        """Shared costs go on as since the start of the period, all else as since the books began."""
        shared = sum(sum(line.shared.values()) for line in folded.lines)
        began_ns = max(start_ns, self._began(start_ns))
        return forecast(shared, start_ns, until_ns, end_ns) + forecast(
            folded.total_micro - shared, began_ns, until_ns, end_ns
        )

    def _open(self, start_ns: int, end_ns: int, by: Sequence[str], filters: Filters) -> Bill:
        """The table of a time that is not closed. Its last day grows hour by hour; those before are worked out once."""
        config = self._config()
        day_ns = self._last_midnight(start_ns, end_ns)

        def table(since_ns: int, until_ns: int) -> Bill:
            return fold([self._statement(since_ns, until_ns)], by, filters)

        days = []
        if start_ns < day_ns:
            of = (tuple(by), _settled(filters))
            days = [self._tables.get(config, start_ns, day_ns, of, table, self._closed_before)]
        return added([*days, fold([self._last_day(config, day_ns, end_ns)], by, filters)], by)

    def _last_midnight(self, start_ns: int, end_ns: int) -> int:
        """When the last day of a time began, or the time itself where that was later."""
        calendar = Calendar(self._config().billing.time_zone)
        *_, last = calendar.days(start_ns, end_ns)
        return max(start_ns, calendar.day(last)[0])

    def _closed_before(self, at_ns: int) -> int:
        """How many hours are closed of the time in which those of a pool that is gone may be closed late."""
        return len(self._store.reconciliations(at_ns - REMEMBERED_NS, at_ns))

    def _last_day(self, config: Config, start_ns: int, end_ns: int) -> Statement:
        """The same for whoever asks until another hour is in the books."""
        known = self._last
        if known is None or known[:2] != (start_ns, end_ns) or known[2] is not config:
            known = self._last = (start_ns, end_ns, config, self._statement(start_ns, end_ns))
        return known[3]

    def _statement(self, start_ns: int, end_ns: int) -> Statement:
        """Of hours that are in the books, in one month or several."""
        config = self._config()
        days = {}
        for name, day in self._days(start_ns, end_ns, {}):
            counts = self._store.hourly_sums(_BY, day.start_ns, day.end_ns, {})
            counted = tuple(msgspec.structs.replace(each, keys=(*each.keys, "")) for each in counts)
            days[name] = bill((msgspec.structs.replace(day, counts=counted),), FINEST, config.billing.costs)
        return Statement(days, _groups(config))

    def _days(self, start_ns: int, end_ns: int, filters: Filters) -> Iterator[tuple[str, Day]]:
        """The days, or parts of days, of this time with their postings, as fine as a bill has them."""
        calendar = Calendar(self._config().billing.time_zone)
        for name in calendar.days(start_ns, end_ns):
            day_start, day_end = calendar.day(name)
            since, until = max(start_ns, day_start), min(end_ns, day_end)
            postings = tuple(
                msgspec.structs.replace(each, keys=(*each.keys, CORRECTION if each.correction else ""))
                for each in self._store.posting_sums(_BY, since, until, filters)
            )
            yield name, Day(since, until, *calendar.month(name[:7]), postings)

    def _lending(self, start_ns: int, end_ns: int, tenants: Sequence[str] | None) -> tuple[int, Matrix]:
        self._check_prices(end_ns)
        until_ns = max(start_ns, min(end_ns, self._until(start_ns)))
        filters = {"kind": [Kind.BORROWED.value]}
        if tenants is not None:
            filters["account"] = [tenant_account(tenant) for tenant in tenants]

        def lent(since_ns: int, end_ns: int) -> Matrix:
            return matrix(day for _, day in self._days(since_ns, end_ns, filters))

        if until_ns == start_ns:
            return until_ns, {}
        days = []
        day_ns = self._last_midnight(start_ns, until_ns)
        if start_ns < day_ns:
            days = [self._matrices.get(self._config(), start_ns, day_ns, _settled(filters), lent, self._closed_before)]
        return until_ns, matrices([*days, lent(day_ns, until_ns)])

    # -- how far the books are -----------------------------------------------------------------------------------------

    def _pools(self) -> tuple[str, ...]:
        """Those that have books: "" has those of what was read of no pool."""
        return *self._config().policy.pools, ""

    def _until(self, default_ns: int) -> int:
        """Until when the books of every pool are closed; `default_ns` where no hour is."""
        if all(self._store.closed_until(pool) is None for pool in self._pools()):
            return default_ns
        return min(end for pool in self._pools() if (end := self._booked(pool)) is not None)

    def _began(self, default_ns: int) -> int:
        begins = [self._store.first_noted(pool) for pool in self._config().policy.pools]
        first = min((begin for begin in begins if begin is not None), default=None)
        began = books_begin(self._store.first_noted(""), first)  # also of pools that are gone, to the hour
        return default_ns if began is None else began

    def _booked(self, pool: str) -> int | None:
        """Until when its books are closed; where no hour is, when they begin. None where nothing was noted of it."""
        until = self._store.closed_until(pool)
        if until is None and (first := self._store.first_noted(pool)) is not None:
            until = self._hour_of(first)
        return until

    def _hour_of(self, at_ns: int) -> int:
        return Calendar(self._config().billing.time_zone).hour_of(at_ns)

    def _next_hours(self, end_ns: int) -> Iterator[tuple[str, int]]:
        """The first hour of each pool before `end_ns` that is over and not in the books."""
        for pool in self._pools():
            start = self._booked(pool)
            if start is not None and start < end_ns and start + NS_PER_HOUR <= self._now():
                yield pool, start

    def _check_prices(self, end_ns: int) -> None:
        for pool, hour_ns in self._next_hours(end_ns):
            if pool and rates(self._config(), pool, hour_ns).micro_per_gpu_hour == UNPRICED:
                raise UnpricedError(
                    f"pool {pool} has no price in the hour from {self._moment(hour_ns)} on, so its books stop there;"
                    f" add one that holds from then on, or earlier, to prices.gpu_hour.{pool}"
                )

    def _behind(self, end_ns: int) -> tuple[Said, ...]:
        behind = {pool: at for pool, at in self._next_hours(end_ns) if at + BEHIND_NS <= self._now()}
        if len(behind) > 1:
            behind.pop("", None)  # the same stops them
        return tuple(
            say("note.behind", pool=pool, at=self._moment(hour_ns))
            if pool
            else say("note.readings_behind", at=self._moment(hour_ns))
            for pool, hour_ns in behind.items()
        )

    def _first(self, start_ns: int, end_ns: int) -> Said:
        """When there is something to be seen of a period that nothing is in the books of, or that it was too early."""
        begins = [begin for pool in self._pools() if (begin := self._booked(pool)) is not None]
        began_ns = min(begins, default=self._hour_of(self._now()))
        if end_ns <= self._began(began_ns):
            return say("note.before", at=self._moment(self._began(began_ns)))
        first_ns = max(start_ns, began_ns)
        return say("note.first", at=self._moment(first_ns + NS_PER_HOUR))

    def _moment(self, at_ns: int) -> str:
        return text.local(at_ns, self._config().billing.time_zone)

    # -- periods -------------------------------------------------------------------------------------------------------

    def _months(self) -> list[Month]:
        calendar = Calendar(self._config().billing.time_zone)
        kept = {period.name: period for period in self._store.periods()}
        names = dict.fromkeys(kept)
        began, now = self._began(self._now()), self._now()
        names.update(dict.fromkeys(day[:7] for day in calendar.days(began, now + 1)))
        return [self._month(name, kept.get(name)) for name in sorted(names)]

    def _month(self, name: str, period: Period | None) -> Month:
        if period is not None:
            return Month(
                name, period.start_ns, period.end_ns, over=True, closed_ns=period.closed_ns, by=period.closed_by
            )
        start_ns, end_ns = Calendar(self._config().billing.time_zone).month(name)
        over = end_ns <= self._now() and not any(self._next_hours(end_ns))
        return Month(name, start_ns, end_ns, over)

    def _close(self, name: str, by: str) -> Month:
        start_ns, end_ns = Calendar(self._config().billing.time_zone).month(name)
        if end_ns > self._now():
            raise ConflictError(f"{name} is not over; it can be closed from {self._moment(end_ns)} on", param="name")
        self._check_prices(end_ns)
        for pool, hour_ns in self._next_hours(end_ns):
            raise ConflictError(
                f"{name} cannot be closed yet: the hour of {_named(pool)} from {self._moment(hour_ns)} on is not in the"
                " books; try again when it is, `commonpool status` says what hinders it",
                param="name",
            )
        if not self._store.reconciliations(start_ns, end_ns):
            raise ConflictError(f"there are no books of {name}, so there is nothing to close", param="name")
        # Closed in another time zone, the month before may have hours of this one.
        start_ns = max(start_ns, *(each.end_ns for each in self._store.periods() if each.start_ns < start_ns), 0)
        statement = msgspec.json.encode(self._statement(start_ns, end_ns))
        period = Period(name, start_ns, end_ns, self._now(), by, statement)
        try:
            self._store.add_period(period)
        except PeriodClosedError as error:
            raise ConflictError(str(error), param="name") from None
        return self._month(name, period)

    # -- records -------------------------------------------------------------------------------------------------------

    def _settle(self, records: Sequence[UsageRecord]) -> list[Settled]:
        """Each with its postings: those of closed hours at the prices they were closed at."""
        known: dict[tuple[str, int], tuple[Rates, bool]] = {}
        offset_ns = Calendar(self._config().billing.time_zone).hour_offset_ns
        groups = self._config().policy.groups
        found = []
        for record in records:
            hours = hours_of(record, offset_ns)
            for hour in hours:
                if (record.pool, hour) not in known:
                    known[record.pool, hour] = self._rates(record.pool, hour)
            booked = frozenset(hour for hour in hours if known[record.pool, hour][1])
            try:
                postings = settle(record, [(hour, known[record.pool, hour][0]) for hour in hours], groups)
                found.append(Settled(record, postings, booked))
            except LedgerError as error:
                found.append(Settled(record, (), booked, str(error)))
        return found

    def _rates(self, pool: str, hour_ns: int) -> tuple[Rates, bool]:
        """The prices in an hour, and whether it is in the books."""
        for each in self._store.reconciliations(hour_ns, hour_ns + NS_PER_HOUR):
            if each.pool == pool:
                return each.rates, True
        return rates(self._config(), pool, hour_ns), False


def _settled(filters: Filters) -> Hashable:
    """The same for filters that keep the same."""
    return tuple(sorted((name, tuple(sorted(values))) for name, values in filters.items()))


def _named(pool: str) -> str:
    return f"pool {pool}" if pool else "what is of no pool"


def _groups(config: Config) -> dict[str, str]:
    """The path of groups of each account."""
    groups = config.policy.groups

    def path(name: str | None) -> str:
        if name is None or name not in groups:
            return ""
        above = path(groups[name].parent)
        return f"{above}/{name}" if above else name

    found = {f"group:{name}": path(name) for name in groups}
    return found | {f"tenant:{each.name}": path(each.group) for each in config.policy.tenants.values()}


def _overlapping(periods: Sequence[Period], start_ns: int, end_ns: int) -> list[Period]:
    return [each for each in periods if each.start_ns < end_ns and start_ns < each.end_ns]


def _kept(period: Period, start_ns: int, end_ns: int) -> Statement:
    """A closed month, as it was when it was closed: those of its days that begin in what is asked for.

    In another time zone its days may go on beyond that; so each is in one day, and in one month, all the same.
    """
    statement = msgspec.json.decode(period.bill, type=Statement)
    days = {name: day for name, day in statement.days.items() if start_ns <= day.start_ns < end_ns}
    return Statement(days, statement.groups)


def _gaps(closed: Sequence[Period], start_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """The time from start to end that no closed month has; `closed` are in order."""
    found = []
    for period in closed:
        if start_ns < min(period.start_ns, end_ns):
            found.append((start_ns, min(period.start_ns, end_ns)))
        start_ns = max(start_ns, period.end_ns)
    return [*found, (start_ns, end_ns)] if start_ns < end_ns else found


def _within(settled: Settled, start_ns: int, end_ns: int) -> Settled:
    postings = tuple(each for each in settled.postings if start_ns <= each.about_ns < end_ns)
    return msgspec.structs.replace(settled, postings=postings)
