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

    def remaining(self, now: int) -> int:
        """Whole units that can be taken now."""
        return (MINUTE_NS * self.per_minute - self._owed(now)) // MINUTE_NS

    def wait_ns(self, units: int, now: int) -> int:
        """How long until `units` can be taken; 0 when they can be taken now. Only for units <= per_minute."""
        excess = self._owed(now) + units * MINUTE_NS - MINUTE_NS * self.per_minute
        return max(0, -(-excess // self.per_minute))

    def take(self, units: int, now: int) -> None:
        """Take units that `wait_ns` found to be there, or correct an earlier take (negative gives back)."""
        self._full_at = max(self._full_at, now * self.per_minute) + units * MINUTE_NS

    def reset_ns(self, now: int) -> int:
        """How long until the bucket is full again."""
        return -(-self._owed(now) // self.per_minute)
