"""Pages drawn beside the loop that serves requests, a few at a time: however many read, models are asked as fast.

A page is tens of milliseconds of work. On the loop every request would wait for that, and for all pages that came
together; in a thread the loop goes on after one switch between threads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from starlette.responses import HTMLResponse

from commonpool.api.login import FORMS

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


class Drawn(HTMLResponse):
    """A page whose text is made by `draw`, later and in a thread, since that takes long."""

    def __init__(self, draw: Callable[[], str], code: int) -> None:
        super().__init__("", code, FORMS)
        self._draw = draw

    async def draw(self, pen: asyncio.Semaphore) -> None:
        """Make the text; one page at a time, as more threads would take the time from the loop."""
        async with pen:
            self.body = self.render(await asyncio.to_thread(self._draw))
        self.headers["content-length"] = str(len(self.body))
