"""What earlier runs of the product left in the store and the journal, taken up by this one."""

import asyncio
from typing import Final

from commonpool.app.house import House
from commonpool.control.recovery import settle_lost
from commonpool.gateway.desk import CoreDesk
from commonpool.store.contract import Store
from commonpool.store.writer import Writer

FLUSH_S: Final = 2.0  # how long one try to store what is written by now may take
_FOR_EVER: Final = (1 << 63) - 1  # later than any time


class Recovery:
    """Gives the attempts of before that are lost their records; `done` when they have them."""

    def __init__(self, store: Store, writer: Writer, desk: CoreDesk, house: House, started_ns: int) -> None:
        self.done = False
        self._store = store
        self._writer = writer
        self._desk = desk
        self._house = house
        self._started_ns = started_ns

    async def run(self) -> None:
        """Begin when all that still runs elsewhere has been heard of."""
        await self._house.recovered()
        await settle_lost(self._desk, lambda: self._writer.running, self._stored, self._known_until)
        self.done = True

    async def _stored(self) -> None:
        stored = False
        while not stored:
            stored = await asyncio.to_thread(self._writer.flush, FLUSH_S)

    async def _known_until(self, pool: str) -> int:
        return await asyncio.to_thread(noted_until, self._store, pool, self._started_ns)


def noted_until(store: Store, pool: str, before_ns: int = _FOR_EVER) -> int:
    """Until when a pool was noted by whoever ran before this time; 0 where nobody did. Blocks."""
    last = store.last_standing(pool, before_ns)
    return 0 if last is None else last.end_ns
