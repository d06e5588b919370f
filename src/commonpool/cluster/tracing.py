"""The traces of a gateway that may outlive the run of the product which has started it.

The next run takes the gateway over with a configuration of its own, so where traces go is asked again at each welcome.
"""

import asyncio
from collections.abc import Callable

from commonpool.app import exporter, traces
from commonpool.config import Config
from commonpool.observe.exporting import Became, Exporter
from commonpool.observe.traces import Traces


class Tracing:
    """Belongs to one event loop. `clock` gives nanoseconds since the epoch."""

    def __init__(self, config: Config, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._config = config
        self._exporter = exporter(config)
        self._leaving: dict[asyncio.Task[None], Exporter] = {}  # those that send what is left
        self._before = Became()  # of those that are no more

    def begin(self) -> Traces | None:
        """What begins the traces of requests from now on."""
        return traces(self._config, self._exporter, self._clock)

    def follow(self, config: Config) -> bool:
        """Have traces be as this configuration says. True where that is otherwise than before, so `begin` again."""
        if (config.observe, config.outgoing) == (self._config.observe, self._config.outgoing):
            return False
        left, self._config, self._exporter = self._exporter, config, exporter(config)
        if left is not None:
            task = asyncio.create_task(asyncio.to_thread(left.close), name="traces of before")
            self._leaving[task] = left
            task.add_done_callback(self._left)
        return True

    @property
    def became(self) -> Became:
        """What became of all traces until now."""
        total = self._before
        for each in (*self._leaving.values(), *([] if self._exporter is None else [self._exporter])):
            total = total.plus(each.became)
        return total

    def _left(self, task: asyncio.Task[None]) -> None:
        self._before = self._before.plus(self._leaving.pop(task).became)
