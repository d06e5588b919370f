"""What runs in the background for as long as the product does."""

import asyncio
from collections.abc import Coroutine

import structlog

log = structlog.get_logger()


class Tasks:
    """Belongs to one event loop. A task that fails is logged, and ends no other."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._over)

    async def cancel(self) -> None:
        """Cancel all that run; returns when they have ended."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a task ended", task=task.get_name(), error=str(error), exc_info=error)
