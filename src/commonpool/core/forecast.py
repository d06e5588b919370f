"""What a tenant will probably want: its demand by the hour of the week, learned online.

Work that lasts longer than a request keeps what it borrowed for hours, while its lender may want it back with the next
working day. So what may be lent for long is capped by what the lender wanted at these hours of the past weeks.

No clock here: `now` is nanoseconds since the epoch (UTC), and an hour is `now // NS_PER_HOUR`.
"""

from array import array
from typing import Final

from commonpool.core.model import NS_PER_HOUR

HOURS_A_WEEK: Final = 168
HOURS_A_DAY: Final = 24
WEEKS_KEPT: Final = 8


class Forecast:
    """One tenant's peaks of demand (milli_gpu that it uses or waits for), hour by hour, for the last eight weeks."""

    __slots__ = ("_demand", "_first", "_peaks")

    def __init__(self) -> None:
        self._demand = 0  # since the last change
        self._first = 0  # the hour of the first peak
        self._peaks = array("q")  # one an hour without a gap; the last is of the running hour

    def observe(self, demand: int, now: int) -> None:
        """The demand is this from now on. Call it whenever it changes; until the next call it stays."""
        self._advance(now)
        self._demand = demand
        self._peaks[-1] = max(self._peaks[-1], demand)

    def quantile(self, now: int, horizon_ns: int) -> int | None:
        """The demand that is reached in one week out of ten in the worst hour from `now` to `now + horizon_ns`.

        That is the largest of the 0.9-quantiles of the peaks in each of those hours of the week, a week's at most, and
        of what this hour has seen already. An hour of the week never seen counts as the largest peak of the last 24
        hours. None when nothing was ever observed.
        """
        if not self._peaks:
            return None
        self._advance(now)
        hour = now // NS_PER_HOUR
        last = min((now + max(1, horizon_ns) - 1) // NS_PER_HOUR, hour + HOURS_A_WEEK - 1)
        recent = max(self._peaks[-HOURS_A_DAY:])
        return max(self._peaks[-1], *(self._hour(each, recent) for each in range(hour, last + 1)))

    def _hour(self, hour: int, unseen: int) -> int:
        """The 0.9-quantile of the peaks at this hour of the past weeks, or `unseen` without any."""
        place = hour - self._first - HOURS_A_WEEK
        return unseen if place < 0 else _quantile(sorted(self._peaks[place::-HOURS_A_WEEK]))

    def _advance(self, now: int) -> None:
        """Open the running hour. In the hours since the last one the demand stayed what it was."""
        hour = now // NS_PER_HOUR
        if not self._peaks:
            self._first = hour
            self._peaks.append(0)
        passed = hour - self._first - len(self._peaks) + 1
        if passed <= 0:
            return
        kept = WEEKS_KEPT * HOURS_A_WEEK + 1
        self._peaks.extend([self._demand] * min(passed, kept))
        if len(self._peaks) > kept:
            del self._peaks[: len(self._peaks) - kept]
        self._first = hour + 1 - len(self._peaks)


def _quantile(ordered: list[int]) -> int:
    """The 0.9-quantile, linear between neighbours (R's type 7, NumPy's default), rounded up."""
    place, tenths = divmod(9 * (len(ordered) - 1), 10)
    if not tenths:
        return ordered[place]
    return ordered[place] - -tenths * (ordered[place + 1] - ordered[place]) // 10
