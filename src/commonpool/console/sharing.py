"""What several readers are given: worked out once for all who ask the same within a few seconds and may see the same.

The key has to name what a reader may see. Who asks is identified each time, before, so a session that is over gets
nothing from here.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar, cast

T = TypeVar("T")

KEPT_MAX: Final = 512  # a page is several of them, for those who may see the same


class _Kept(NamedTuple):
    """An answer, or one that is being worked out, the one before it, and until when each counts."""

    until: float
    usable_until: float
    asked: asyncio.Future[Any]
    before: asyncio.Future[Any] | None

    def is_over(self, now: float) -> bool:
        return self.asked.done() and (
            self.usable_until <= now or self.asked.cancelled() or self.asked.exception() is not None
        )


class Shared:
    """Answers by key. Who asks while one is worked out waits for it; a failure is not kept. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[bytes, _Kept] = {}

    async def get(self, key: bytes, kept_s: float, make: Callable[[], Awaitable[T]], usable_s: float = 0.0) -> T:
        """The answer of this key that is at most `kept_s` old.

        One that is older, by `usable_s` at most, is given while the next is worked out, for `kept_s` at most: who comes
        after a silence does not wait.
        """
        now = self._clock()
        for old in [each for each, kept in self._kept.items() if kept.is_over(now)]:
            del self._kept[old]
        kept = self._kept.get(key)
        if kept is None or (kept.until <= now and kept.asked.done()):
            kept = self._ask(key, now + kept_s, usable_s, make, kept and kept.asked)
        if kept.before is not None and not kept.asked.done() and now < kept.until:
            return cast("T", kept.before.result())
        return cast("T", await asyncio.shield(kept.asked))

    def _ask(
        self,
        key: bytes,
        until: float,
        usable_s: float,
        make: Callable[[], Awaitable[Any]],
        before: asyncio.Future[Any] | None,
    ) -> _Kept:
        asked = asyncio.ensure_future(make())
        kept = _Kept(until, until + usable_s, asked, before)
        if key not in self._kept and len(self._kept) >= KEPT_MAX:
            self._make_room()
        if key in self._kept or len(self._kept) < KEPT_MAX:
            self._kept[key] = kept

        asked.add_done_callback(_heard)
        return kept

    def _make_room(self) -> None:
        """The answer that gets old first goes; what is being worked out stays, since it would be begun again."""
        made = [(kept.until, key) for key, kept in self._kept.items() if kept.asked.done()]
        if made:
            del self._kept[min(made)[1]]


def _heard(asked: asyncio.Future[Any]) -> None:
    """A failure that nobody waits for any more is no news."""
    if not asked.cancelled():
        asked.exception()
