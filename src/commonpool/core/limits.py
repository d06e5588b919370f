"""Rates: so many units a minute, in exact integers.

A bucket holds one minute's worth and refills continuously (GCRA: one number, the time at which the bucket is full
again). That number is kept multiplied by the rate, so that no division ever rounds.
"""

from commonpool.core.model import NS_PER_S

MINUTE_NS = 60 * NS_PER_S


class Rate:
    """`per_minute` units a minute, at most a minute's worth at once."""

    __slots__ = ("_full_at", "per_minute")

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._full_at = 0  # ns × per_minute

    def _owed(self, now: int) -> int:
        return max(0, self._full_at - now * self.per_minute)

    def now(self, now: int) -> tuple[int, int]:
        """Whole units that can be taken now (below 0 where more was used than expected), and how long until full."""
        owed = self._owed(now)
        return self.per_minute - -(-owed // MINUTE_NS), -(-owed // self.per_minute)

    def wait_ns(self, units: int, now: int) -> int:
        """How long until `units` can be taken; 0 when they can be taken now. Only for units <= per_minute."""
        excess = self._owed(now) + (units - self.per_minute) * MINUTE_NS
        return -(-excess // self.per_minute) if excess > 0 else 0

    def take(self, units: int, now: int) -> None:
        """Take units that `wait_ns` found to be there, or correct an earlier take (negative gives back)."""
        self._full_at = now * self.per_minute + self._owed(now) + units * MINUTE_NS
