"""The waits' part of a store: how long requests of each series waited, by window of ten minutes, by hour and by day.

They are made of the records that are in the store, in the order in which those came: each is counted once, in the
transaction that says how far that has come. So whatever ends the process, none is lost and none counts twice. What is
heard of late is counted where it belongs.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from commonpool.core.model import Tier
from commonpool.core.waits import Judged, Tally

WAIT_SERIES = ("tenant", "model", "tier")
WAIT_TIMES = ("window", "hour", "day")
WAIT_DIMENSIONS = WAIT_SERIES + WAIT_TIMES
WAIT_LINES_MAX = 10_000  # in one answer: a few megabytes


class WaitLine(msgspec.Struct, frozen=True):
    """One line of a table: `keys` are the values of its `by`, `start_ns` is of its time, if any."""

    keys: tuple[str, ...]
    start_ns: int | None
    tally: Tally


class WaitTable(msgspec.Struct, frozen=True):
    """What ended in [since_ns, until_ns), lines sorted by their keys; they add up to `total`."""

    by: tuple[str, ...]
    since_ns: int
    until_ns: int
    lines: tuple[WaitLine, ...]
    total: Tally


class Counted(msgspec.Struct, frozen=True):
    """Records that were counted now, and what was judged of them by minute (its start), tenant and tier."""

    records: int
    minutes: Mapping[tuple[int, str, str], Judged]


class Uncounted(msgspec.Struct, frozen=True):
    """What is not counted yet: at most so many records, and when the first of them ended; 0 where there are none."""

    records: int = 0
    since_ns: int = 0


class WaitStore(Protocol):
    """The waits' part of `contract.Store`."""

    def uncounted_waits(self) -> Uncounted:
        """What came and is not counted, as far as is known without counting it."""

    def count_waits(self, tiers: Mapping[str, Tier], limit: int) -> Counted:
        """Counts the next records that came, at most `limit`, judged by the promises of these tiers."""

    def roll_waits(self, until_ns: int) -> bool:
        """Makes the next hour or day that ended by then of what is counted. False where there is none left to make."""

    def forget_waits(self, windows_before_ns: int, hours_before_ns: int) -> None:
        """Forgets windows of before a time, and hours of before another one, once longer times are made of them.

        Those end with whole days (UTC). Days are kept for ever.
        """

    def waits(self, by: Sequence[str], since_ns: int, until_ns: int, filters: Mapping[str, Sequence[str]]) -> WaitTable:
        """What is counted, by some of WAIT_DIMENSIONS, one of WAIT_TIMES at most, filtered by some of WAIT_SERIES.

        The period is made to begin and end with windows, or with what is left there of longer times; the table says
        with which. No value given for a dimension keeps nothing. QueryError for other names, and for more than
        WAIT_LINES_MAX lines.
        """

    def judged_waits(self, since_ns: int, until_ns: int) -> Mapping[tuple[str, str], Judged]:
        """What is counted of promises, by tenant and tier; the period is made to begin and end as that of `waits`."""
