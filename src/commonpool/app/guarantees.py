"""What tenants do with their guarantees: the demand that is learned from, what is not used, and what is released."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from commonpool.core import underuse
from commonpool.core.model import NS_PER_HOUR
from commonpool.core.underuse import Underuse
from commonpool.gateway.desk import CoreDesk
from commonpool.store.contract import Store, StoreError
from commonpool.store.releases import Release

KEEP_DEMAND_S = 3600.0

log = structlog.get_logger()


class Guarantees:
    """Belongs to one event loop. What the core has learned and was told is kept in the store, for the next start."""

    def __init__(self, store: Store, desk: CoreDesk, clock: Callable[[], int]) -> None:
        self._store = store
        self._desk = desk
        self._clock = clock
        self._found: tuple[Underuse, ...] = ()
        self._found_for: tuple[object, ...] = ()

    def recall_demand(self) -> None:
        """The core knows again what it had learned. Blocks."""
        underuse.recall(self._desk.machine.state, self._store.demand(), self._clock())

    def recall_releases(self) -> None:
        """What was released is released again. Blocks."""
        for tenant, milli_gpu in self._store.released().items():
            self._desk.released(tenant, milli_gpu)

    async def run(self) -> None:
        """Keep the demand again and again, until cancelled."""
        while True:
            await asyncio.sleep(KEEP_DEMAND_S)
            await self.keep_demand()

    async def keep_demand(self) -> None:
        demands = underuse.demands(self._desk.machine.state, self._clock())
        try:
            await asyncio.to_thread(self._store.save_demand, demands)
        except StoreError as error:
            log.warning("what is known of the demand could not be kept", error=str(error))

    def underuse(self) -> Sequence[Underuse]:
        """Worked out anew every hour, since it goes through weeks of every tenant, and after a change."""
        state, now = self._desk.machine.state, self._clock()
        key = (now // NS_PER_HOUR, state.policy.revision, tuple(state.released.items()))
        if self._found_for != key:
            self._found_for, self._found = key, tuple(underuse.underuse(state, now))
        return self._found

    def releasable(self, tenant: str) -> int:
        """How many milli_gpu of its guarantee a tenant can release."""
        return underuse.releasable(self._desk.machine.state, tenant)

    async def release(self, release: Release) -> Release:
        """It is kept and holds when this returns."""
        kept = await asyncio.to_thread(self._store.add_release, release)
        log.info("released", tenant=kept.tenant, milli_gpu=kept.milli_gpu, by=kept.released_by, reason=kept.reason)
        self._desk.released(kept.tenant, (await asyncio.to_thread(self._store.released)).get(kept.tenant, 0))
        return kept

    async def undo(self, tenant: str, by: str) -> Sequence[Release]:
        """All that the tenant has released; its whole guarantee holds when this returns."""
        undone = await asyncio.to_thread(self._store.undo_releases, tenant, self._clock(), by)
        log.info("releases undone", tenant=tenant, by=by, releases=len(undone))
        self._desk.released(tenant, 0)
        return undone

    async def releases(self, tenants: Sequence[str] | None) -> Sequence[Release]:
        """As the store's."""
        return await asyncio.to_thread(self._store.releases, tenants=tenants)
