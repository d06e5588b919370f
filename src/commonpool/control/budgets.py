"""Tells the core what tenants with a budget have spent in this month: at the start, whenever the books have closed
another hour, and when a month begins.

What counts is what a tenant's own work costs: GPU time that it used, borrowed or not, and what is metered beside it. An
idle guarantee costs as much as a used one, so refusing work would not save it, and it does not count.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import structlog

from commonpool.config import Config
from commonpool.config.calendar import Calendar
from commonpool.core.billing import PostingSum
from commonpool.core.events import Spent
from commonpool.core.ledger import Kind, tenant_account
from commonpool.core.pricing import round_half_up
from commonpool.store.contract import Filters, StoreError, UsageTable

EVERY_S: Final = 10.0
COUNTED: Final = (Kind.USED.value, Kind.BORROWED.value, Kind.FEE.value)

log = structlog.get_logger()


class Spendings(Protocol):
    """What is asked of the store."""

    def closed_until(self, pool: str) -> int | None:
        """See `LedgerStore.closed_until`."""

    def posting_sums(
        self, by: tuple[str, ...], since_ns: int, until_ns: int, filters: Mapping[str, tuple[str, ...]]
    ) -> tuple[PostingSum, ...]:
        """See `LedgerStore.posting_sums`."""

    def usage(self, by: tuple[str, ...], since_ns: int, until_ns: int, filters: Filters) -> UsageTable:
        """See `contract.Store.usage`."""


class Budgets:
    """`tell` hands the core an event, on the event loop. `flush` returns when what was recorded so far is stored.

    The core knows itself what was used since `clock` was first asked here; of before, it knows nothing.
    """

    def __init__(
        self,
        store: Spendings,
        *,
        clock: Callable[[], int],
        config: Callable[[], Config],
        tell: Callable[[Spent], None],
        flush: Callable[[], object],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._clock = clock
        self._config = config
        self._tell = tell
        self._flush = flush
        self._sleep = sleep
        self._since = clock()
        self._told: dict[str, tuple[int, int]] = {}  # by tenant: the end of the month, and until when the books were

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._sleep(EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Tell what has changed."""
        config = self._config()
        pools = {name: tenant.pool for name, tenant in config.policy.tenants.items() if tenant.budget is not None}
        self._told = {name: told for name, told in self._told.items() if name in pools}
        if not pools:
            return
        try:
            found = await asyncio.to_thread(self._spent, pools, Calendar(config.billing.time_zone))
        except StoreError as error:
            log.warning("what was spent is not known now", error=str(error))
            return
        for event in found:
            self._tell(event)
            self._told[event.tenant] = event.until_ns, event.booked_until_ns

    def _spent(self, pools: dict[str, str], calendar: Calendar) -> list[Spent]:
        """What is to be told, of tenants with their pools. Blocks."""
        start, end = calendar.month(calendar.month_of(self._clock()))
        booked = {pool: max(start, self._store.closed_until(pool) or start) for pool in set(pools.values())}
        due = {name: pool for name, pool in pools.items() if self._told.get(name) != (end, booked[pool])}
        if not due:
            return []
        spent = dict.fromkeys(due, 0)
        for each in self._store.posting_sums(("tenant",), start, end, {"kind": COUNTED}):
            (name,) = each.keys
            if name in spent and each.debit == tenant_account(name):  # what is not charged the platform pays
                spent[name] += each.exact_cost
        unbooked = self._unbooked({pool: booked[pool] for pool in set(due.values())})
        return [
            Spent(name, max(0, round_half_up(exact) + unbooked.get(name, 0)), booked[due[name]], end)
            for name, exact in spent.items()
        ]

    def _unbooked(self, booked: dict[str, int]) -> dict[str, int]:
        """What came after the books of these pools and ended before this began, micro-units by tenant.

        GPU time alone, and loans at the pool's price: it is so for an hour, until the books have it.
        """
        found: dict[str, int] = {}
        for pool, until in booked.items():
            if until < self._since:
                self._flush()
                for row in self._store.usage(("tenant",), until, self._since, {"pool": (pool,)}).rows:
                    found[row.keys[0]] = found.get(row.keys[0], 0) + row.cost_micro
        return found
