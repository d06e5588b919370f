"""Pages drawn beside the loop that serves requests: however many read, models are asked as fast.

A page is up to tens of milliseconds of work. On the loop every request would wait for that, and for all pages that came
together; in a thread the loop goes on after one switch between threads.
"""

import asyncio
from collections.abc import Callable, Mapping

from starlette.responses import HTMLResponse, Response


class Drawn(HTMLResponse):
    """A page whose text is what `text` returns: a pen makes it, later and in a thread, since that takes long."""

    def __init__(self, text: Callable[[], str], status: int, headers: Mapping[str, str]) -> None:
        super().__init__("", status, headers)
        self.text = text

    def fill(self, text: str) -> None:
        """The text is there."""
        self.body = self.render(text)
        self.headers["content-length"] = str(len(self.body))


class Pen:
    """Draws pages, one at a time, as more threads would take the time from the loop."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(1)

    async def draw(self, page: Response) -> Response:
        """The same, with its text; what is no page to be drawn is what it was."""
        if isinstance(page, Drawn):
            async with self._free:
                page.fill(await asyncio.to_thread(page.text))
        return page
