"""The loop that closes the books: each hour of each pool once, in order, as soon as all of it is in the store.

An hour that cannot be closed, for want of a price or since what is known of it cannot be, holds up those of its pool
behind it and nothing else. Requests go on, `warnings` say what to do, and the next look tries again.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import msgspec
import structlog

from commonpool.control.reconciling import Comparison, compare
from commonpool.core.alerts import Trouble, trouble
from commonpool.core.closing import close
from commonpool.core.ledger import Hour, LedgerError, Rates, Standing, hour_of
from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.core.said import say
from commonpool.store.contract import StoreError
from commonpool.store.ledger import Closing, HourWork, LedgerStore, Reconciliation

EVERY_S: Final = 10.0
GRACE_NS: Final = 10 * NS_PER_S  # after an hour's end, for the ends of jobs that are told a moment later
REMEMBERED_NS: Final = 48 * NS_PER_HOUR  # a pool that has left the configuration is found again for so long
PRUNED_AT_ONCE: Final = 5000  # records in one transaction: other writers wait for it
NAMED_MAX: Final = 5  # ids in one sentence
UNPOOLED: Final = ""  # the books of what is of no pool

log = structlog.get_logger()


class Scope(msgspec.Struct, frozen=True):
    """What the books are kept for now: which pools there are, when hours begin, up to which full hour all is noted,
    what is in force in an hour of a pool, and for how long records are kept.
    """

    pools: Collection[str]
    offset_ns: int
    noted_until: int
    rates: Callable[[str, int], Rates]
    retention_ns: int


class Books:
    """Closes hours in a thread. `scope` is asked on the event loop; `flush` returns when all that was noted is stored,
    False where that cannot be now. Both `clock` and the hours are nanoseconds since the epoch.
    """

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Callable[[], int],
        scope: Callable[[], Scope],
        flush: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._clock = clock
        self._scope = scope
        self._flush = flush
        self._sleep = sleep
        self._until: dict[str, int] = {}  # the end of the last closed hour, or the start of the first, by pool
        self._last: dict[str, Comparison] = {}  # of the last closed hour, by pool
        self._rates: dict[str, Rates] = {}  # what was in force last, by pool, also of those that an earlier run closed
        self._refused: dict[str, str] = {}  # why a pool's books cannot be closed, a sentence
        self._closed = 0  # up to this full hour all that can be closed is closed
        self._stopping = False
        self._busy = threading.Lock()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await self._sleep(EVERY_S)

    async def look(self) -> None:
        """Close what is due."""
        scope = self._scope()
        now = self._clock()
        for pool in scope.pools:  # it may be gone before the end of its first hour, prices and all
            self._rates[pool] = scope.rates(pool, hour_of(now, scope.offset_ns))
        due = min(scope.noted_until, hour_of(now - GRACE_NS, scope.offset_ns))
        if due <= self._closed:
            return
        try:
            await asyncio.to_thread(self.close_until, due, scope)
        except StoreError as error:
            log.warning("the books wait for the store", error=str(error))

    async def stop(self) -> None:
        """Return when nothing of the store is used any more."""
        self._stopping = True
        await asyncio.to_thread(self._busy.acquire)

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """What somebody should look at. For any thread."""
        found = [Trouble("books_behind", said, pool=pool) for pool, said in tuple(self._refused.items())]
        for pool in tuple(self._last):
            found += self._said(pool)
        return tuple(found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The same as whole sentences."""
        return tuple(each.sentence for each in self.troubles)

    @property
    def last(self) -> tuple[Reconciliation, ...]:
        """The last closed hour of each pool. For any thread."""
        return tuple(last.reconciliation for pool, last in tuple(self._last.items()) if pool)

    def close_until(self, due: int, scope: Scope) -> None:
        """Close every hour that ends by `due`, and forget what is older than records are kept. Blocks."""
        with self._busy:
            if not self._flush():
                return
            pools = self._pools(scope)
            for pool in pools:
                self._close_pool(pool, due, scope)
            if not self._refused and not self._stopping:
                self._closed = due
                self._prune(self._clock() - scope.retention_ns)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _said(self, pool: str) -> list[Trouble]:
        """What is wrong with the last closed hour of a pool."""
        last = self._last[pool]
        books = last.reconciliation
        found = []
        if books.charged != books.devices:
            said = say("alert.reconciliation_difference", pool=pool, charged=books.charged, devices=books.devices)
            found.append(trouble("reconciliation_difference", said, pool=pool))
        if last.odd:
            holders = [say("name", name=name) for name in last.odd[:NAMED_MAX]]
            if len(last.odd) > NAMED_MAX:
                holders.append(say("alert.and_others"))
            said = say("alert.held_difference", pool=pool, holders=tuple(holders))
            found.append(trouble("held_difference", said, pool=pool))
        return found

    def _pools(self, scope: Scope) -> list[str]:
        """Those that are there, and those that were until lately."""
        if not self._until:
            now = self._clock()
            for known in self._store.reconciliations(now - REMEMBERED_NS, now):
                self._until[known.pool] = 0
                self._rates.setdefault(known.pool, known.rates)
        return sorted({UNPOOLED, *scope.pools, *self._until, *self._rates})

    def _close_pool(self, pool: str, due: int, scope: Scope) -> None:
        until = self._until.get(pool) or self._begin(pool, scope)
        if until is None:
            return
        if pool and pool not in scope.pools:
            due = min(due, self._end_of(pool, scope.offset_ns))
        while not self._stopping:
            start = hour_of(until + NS_PER_HOUR - 1, scope.offset_ns)  # a new grid begins at its next hour
            if start + NS_PER_HOUR > due:
                break
            try:
                self._last[pool] = self._close(pool, start, self._rates_of(pool, start, scope))
                for trouble in self._said(pool):
                    log.warning(trouble.sentence)
            except LedgerError as error:
                if self._refused.get(pool) != str(error):
                    log.warning("the books of a pool cannot be closed", pool=pool, hour_ns=start, reason=str(error))
                self._refused[pool] = str(error)
                break
            self._refused.pop(pool, None)
            until = start + NS_PER_HOUR
        self._until[pool] = until

    def _begin(self, pool: str, scope: Scope) -> int | None:
        """Where the books of a pool go on, or begin; None where nothing was noted of it yet. Those of no pool begin as
        the first ones of a pool do.
        """
        until = self._store.closed_until(pool)
        if until is None:
            begins = map(self._store.first_noted, [pool] if pool else scope.pools)
            first = min((begin for begin in begins if begin is not None), default=None)
            until = None if first is None else hour_of(first, scope.offset_ns)
        return until

    def _rates_of(self, pool: str, start: int, scope: Scope) -> Rates:
        """What is in force in an hour. A pool that has left the configuration, prices and all, keeps its last ones."""
        gone = pool != UNPOOLED and pool not in scope.pools
        return self._rates[pool] if gone and pool in self._rates else scope.rates(pool, start)

    def _end_of(self, pool: str, offset_ns: int) -> int:
        """The end of the last hour of a pool that is not there any more."""
        last = self._store.last_standing(pool, self._clock())
        return 0 if last is None else hour_of(last.end_ns - 1, offset_ns) + NS_PER_HOUR

    def _close(self, pool: str, start: int, rates: Rates) -> Comparison:
        work = self._store.hour_work(pool, start)
        hour = hour_from(work, self._store.last_standing(pool, start), rates)
        postings = close(hour)
        compared = compare(hour, postings)
        self._store.close_hour(Closing(pool, start, postings, compared.reconciliation, work))
        return compared

    def _prune(self, before_ns: int) -> None:
        while not self._stopping and self._store.prune(before_ns, PRUNED_AT_ONCE) == PRUNED_AT_ONCE:
            continue


def hour_from(work: HourWork, before: Standing | None, rates: Rates) -> Hour:
    """An hour as it is closed. `before` is the last standing before it, `rates` what is in force in it."""
    return Hour(
        pool=work.pool,
        start_ns=work.start_ns,
        rates=rates,
        standings=work.standings,
        spans=work.spans,
        uses=work.uses,
        counted=work.counted,
        late=work.late,
        before=before,
    )
