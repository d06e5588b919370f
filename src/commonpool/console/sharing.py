"""What several readers are given: worked out once for all who ask the same within a few seconds and may see the same.

The key has to name what a reader may see. Who asks is identified each time, before, so a session that is over gets
nothing from here.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

KEPT_MAX: Final = 128


class Shared:
    """Answers by key. Who asks while one is worked out waits for it; a failure is not kept. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[bytes, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: bytes, kept_s: float, make: Callable[[], Awaitable[T]]) -> T:
        """The answer of this key that is at most `kept_s` old."""
        now = self._clock()
        for old in [each for each, (until, asked) in self._kept.items() if until <= now and asked.done()]:
            del self._kept[old]
        if key in self._kept:
            return cast("T", await asyncio.shield(self._kept[key][1]))
        asked = asyncio.ensure_future(make())
        if len(self._kept) < KEPT_MAX:
            self._kept[key] = (now + kept_s, asked)
        try:
            return await asyncio.shield(asked)
        except BaseException:
            if asked.done() and self._kept.get(key, (0.0, None))[1] is asked:
                del self._kept[key]
            raise
