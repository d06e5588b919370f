"""How many pages are worked out at once, and how many wait for that; the rest is told to come again.

Working one out is asking the API, then drawing it (`api.drawing`).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

AT_ONCE_MAX: Final = 4  # pages that are worked out; what they ask the API takes turns
WAITING_MAX: Final = 64  # others that wait for their turn: some seconds of pages
RETRY_S: Final = 2


class BusyError(Exception):
    """So many wait for a page that one more would only wait too."""


class Turns:
    """Who may have a page worked out: so many at once, in the order in which they came, and so many wait."""

    def __init__(self, at_once: int = AT_ONCE_MAX, waiting_max: int = WAITING_MAX) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._waiting_max = waiting_max
        self.waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Held while a page is worked out. Raises BusyError."""
        if self._free.locked() and self.waiting >= self._waiting_max:
            raise BusyError
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._free.release()
