"""What a tenant will probably want: its demand by the hour of the week, learned online.

Work that lasts longer than a request keeps what it borrowed for hours, while its lender may want it back with the next
working day. So what may be lent for long is capped by what the lender wanted at these hours of the past weeks.

No clock here: `now` is nanoseconds since the epoch (UTC), and an hour is `now // NS_PER_HOUR`.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from commonpool.core.model import NS_PER_HOUR

HOURS_A_WEEK: Final = 168
HOURS_A_DAY: Final = 24
WEEKS_KEPT: Final = 8
_HOURS_KEPT: Final = WEEKS_KEPT * HOURS_A_WEEK + 1  # with the running one
_UNSEEN: Final = -1


class Forecast:
    """One tenant's peaks of demand (milli_gpu that it uses or waits for), hour by hour, for the last eight weeks."""

    __slots__ = ("_demand", "_first", "_hour_ends", "_known", "_levels", "_peak", "_peaks", "_unseen")

    def __init__(self) -> None:
        self._hour_ends = 0  # the time at which the running hour is over
        self._demand = 0  # since the last change
        self._peak = 0  # of the running hour
        self._first = 0  # the hour of the first peak
        self._peaks = array("q")  # one an hour without a gap; the last is of the running hour, kept up when it is read
        self._levels = array("q", [_UNSEEN]) * HOURS_A_WEEK  # the quantile of each hour of the week
        self._unseen = HOURS_A_WEEK
        self._known: dict[int, int] = {}  # the quantile by the last hour of the horizon, while nothing has changed

    def observe(self, demand: int, now: int) -> None:
        """The demand is this from now on. Call it whenever it changes; until the next call it stays."""
        if now >= self._hour_ends:
            self._advance(now)
        self._demand = demand
        if demand > self._peak:  # noqa: PLR1730 - most often it is not
            self._peak = demand

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
        known = self._known.get(last)
        if known is None:
            known = self._known[last] = self._worst(hour, last)
        return known

    def usual(self, now: int, horizon_ns: int) -> int | None:
        """As `quantile`, from the same hours of the past weeks alone; None when one of them was never seen."""
        if not self._peaks:
            return None
        self._advance(now)
        hour = now // NS_PER_HOUR
        last = min((now + max(1, horizon_ns) - 1) // NS_PER_HOUR, hour + HOURS_A_WEEK - 1)
        levels = [self._levels[each % HOURS_A_WEEK] for each in range(hour, last + 1)]
        return None if _UNSEEN in levels else max(levels)

    def peaks(self, now: int) -> tuple[int, list[int]]:
        """The first hour that is known and the peaks from there on, hour by hour; the last is of the running hour.

        No peaks where nothing was ever observed. Nothing is changed: whoever looks need not be in the order of events.
        """
        found = list(self._peaks)
        if not found:
            return self._first, found
        found[-1] = max(found[-1], self._peak)
        passed = max(0, now // NS_PER_HOUR - self._first - len(found) + 1)
        end = self._first + len(found) + passed  # the hour after the last
        found += [self._demand] * min(passed, _HOURS_KEPT)
        kept = found[-_HOURS_KEPT:]
        return end - len(kept), kept

    def restore(self, first_hour: int, peaks: Sequence[int], now: int) -> None:
        """What was known of complete hours before this forecast was made; only where nothing is observed yet.

        What was wanted in the hours since then is not known: each counts as the largest peak of the day before them.
        """
        hour = now // NS_PER_HOUR
        kept = WEEKS_KEPT * HOURS_A_WEEK
        if self._peaks or not peaks or first_hour + len(peaks) > hour:
            return
        unknown = hour - first_hour - len(peaks)
        every = [*peaks, *([max(peaks[-HOURS_A_DAY:])] * min(unknown, kept))][-kept:]
        self._first = hour - len(every)
        self._peaks = array("q", [*every, 0])
        self._hour_ends = (hour + 1) * NS_PER_HOUR
        self._demand = self._peak = 0
        self._known.clear()
        for over in range(max(hour - HOURS_A_WEEK, self._first), hour):
            self._learn(over)

    def _worst(self, hour: int, last: int) -> int:
        start, end = hour % HOURS_A_WEEK, hour % HOURS_A_WEEK + last - hour + 1
        levels = self._levels[start:end]
        if end > HOURS_A_WEEK:
            levels += self._levels[: end - HOURS_A_WEEK]
        best = max(self._peaks[-1], *levels)
        return max(best, *self._peaks[-HOURS_A_DAY:]) if self._unseen and _UNSEEN in levels else best

    def _advance(self, now: int) -> None:
        """Open the running hour. In the hours since the last one the demand stayed what it was."""
        hour = now // NS_PER_HOUR
        if not self._peaks:
            self._first = hour
            self._peaks.append(0)
            self._hour_ends = (hour + 1) * NS_PER_HOUR
        if self._peak > self._peaks[-1]:
            self._peaks[-1] = self._peak
            self._known.clear()
        passed = hour - self._first - len(self._peaks) + 1
        if passed <= 0:
            return
        self._peaks.extend([self._demand] * min(passed, _HOURS_KEPT))
        if len(self._peaks) > _HOURS_KEPT:
            del self._peaks[: len(self._peaks) - _HOURS_KEPT]
        self._first = hour + 1 - len(self._peaks)
        self._hour_ends = (hour + 1) * NS_PER_HOUR
        self._peak = self._peaks[-1]
        self._known.clear()
        for over in range(hour - min(passed, HOURS_A_WEEK), hour):
            self._learn(over)

    def _learn(self, hour: int) -> None:
        """The hour is over: its hour of the week has another quantile."""
        seen = self._peaks[hour - self._first :: -HOURS_A_WEEK]
        self._unseen -= self._levels[hour % HOURS_A_WEEK] == _UNSEEN
        self._levels[hour % HOURS_A_WEEK] = _quantile(sorted(seen))


def _quantile(ordered: list[int]) -> int:
    """The 0.9-quantile, linear between neighbours (R's type 7, NumPy's default), rounded up."""
    place, tenths = divmod(9 * (len(ordered) - 1), 10)
    if not tenths:
        return ordered[place]
    return ordered[place] - -tenths * (ordered[place + 1] - ordered[place]) // 10
