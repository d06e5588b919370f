"""The product's clock: it never goes back, not even behind what an earlier run has noted."""

import time


class Clock:
    """Nanoseconds since the epoch that never go back: the time at the start plus a monotonic clock.

    Where the machine's clock is `behind_ns` behind what was noted last, it goes on from there.
    """

    def __init__(self, noted_last: int = 0) -> None:
        now = time.time_ns()
        self.behind_ns = max(0, noted_last - now)
        self._offset = now + self.behind_ns - time.monotonic_ns()

    def __call__(self) -> int:
        return time.monotonic_ns() + self._offset
