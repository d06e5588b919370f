"""The core's time at a gateway on another node, whose clock is another one.

A call that was answered at the core's time `then` says that the core's clock is ahead of ours by no more than `then`
minus when the call was sent, and by no less than `then` minus when the answer came. The first is taken, from the call
that came quickest there: so nothing is said to have been before the decision of the core that led to it.
"""

from collections.abc import Callable
from typing import Final

DRIFT: Final = 10_000  # clocks drift apart by less than one part in so many


class CoreTime:
    """`clock` is the gateway's own, in nanoseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._ahead_ns = 0
        self._sure = False
        self._at = 0

    def __call__(self) -> int:
        """The time by the core's clock."""
        return self._clock() + self._ahead_ns

    def begin(self, then: int) -> None:
        """Another core has answered now. It may have made us wait, so its first answer to what follows says more."""
        self._ahead_ns, self._sure, self._at = then - self._clock(), False, self._clock()

    def answered(self, sent: int, then: int) -> None:
        """A call that was `sent` at our time was answered by the core at its time."""
        now = self._clock()
        ahead_ns = then - sent
        if not self._sure or ahead_ns <= self._ahead_ns + (now - self._at) // DRIFT:
            self._ahead_ns, self._sure, self._at = ahead_ns, True, now
