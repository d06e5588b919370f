"""The waits in every store: how windows, hours and days are made of one another, and what they answer.

A store keeps rows of three spans, by `Place`; what is here reads and replaces them inside its transactions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

import msgspec

from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Tier
from commonpool.core.waits import DAY_NS, WINDOW_NS, Ended, Judged, Place, Row, Tally, fold
from commonpool.store.contract import QueryError
from commonpool.store.summary import check_names, check_range, day_label
from commonpool.store.waits import (
    WAIT_DIMENSIONS,
    WAIT_LINES_MAX,
    WAIT_SERIES,
    WAIT_TIMES,
    Counted,
    Uncounted,
    WaitLine,
    WaitTable,
)

Filters = Mapping[str, Sequence[str]]
Range = tuple[int, int, int]  # of rows: their span, from which start on, until which one (excluded)

SPANS: Final = (DAY_NS, NS_PER_HOUR, WINDOW_NS)
_OF_TIME: Final = {"": SPANS, "day": SPANS, "hour": SPANS[1:], "window": SPANS[2:]}
_READ_AT_ONCE: Final = 24  # starts of one span


class Made(msgspec.Struct, frozen=True):
    """How far the rows are made: the row of `waits_made`, whose columns have these names."""

    seq: int = 0
    rolled_ns: int = 0
    windows_ns: int = 0
    hours_ns: int = 0


class Came(NamedTuple):
    """Records that came: how many, the number of the last one, and of those that are requests what is counted."""

    records: int
    seq: int
    ends: Iterable[Ended]


# From when on what a line is of can be made of what is left.
_BEGINS: Final[dict[str, Callable[[Made], int]]] = {
    "": lambda _: 0,
    "day": lambda _: 0,
    "hour": lambda made: made.hours_ns,
    "window": lambda made: made.windows_ns,
}


class Rows(Protocol):
    """What is kept of the waits, inside a transaction."""

    def made(self) -> Made:
        """How far they are made."""

    def make(self, made: Made) -> None:
        """They are made this far now."""

    def left(self, seq: int) -> Uncounted:
        """What came after this record."""

    def ends(self, seq: int, limit: int) -> Came:
        """The records that came after this one."""

    def read(self, of: Range, filters: Filters) -> Iterable[tuple[Place, Row]]:
        """The rows of a range."""

    def judged(self, of: Range) -> Iterable[tuple[str, str, Judged]]:
        """What was judged in a range, added up by tenant and tier."""

    def replace(self, span_ns: int, rows: Mapping[Place, Row]) -> None:
        """Keeps these rows, in the place of those that are there."""

    def first(self, span_ns: int, since_ns: int) -> int | None:
        """The first start of this span from a time on; None where there is none."""

    def last(self, span_ns: int) -> int | None:
        """The last start of this span."""

    def forget(self, span_ns: int, before_ns: int) -> None:
        """Drops the rows that start before a time."""


# -- making ------------------------------------------------------------------------------------------------------------


def count(rows: Rows, tiers: Mapping[str, Tier], limit: int) -> Counted:
    """See `WaitStore.count_waits`."""
    made = rows.made()
    came = rows.ends(made.seq, limit)
    if not came.records:
        return Counted(0, {})
    folded = fold(came.ends, tiers)
    # An hour or a day that is made already gets what is heard of late, as its windows do, where those are still kept.
    for span_ns, begins_ns, until_ns in (
        (WINDOW_NS, made.windows_ns, None),
        (NS_PER_HOUR, made.hours_ns, made.rolled_ns),
        (DAY_NS, 0, made.rolled_ns),
    ):
        late: dict[Place, Tally] = {}
        for (start_ns, *series), tally in folded.windows.items():
            at_ns = start_ns - start_ns % span_ns
            if at_ns >= begins_ns and (until_ns is None or at_ns + span_ns <= until_ns):
                late.setdefault(_place(at_ns, series), Tally()).merge(tally)
        _add(rows, span_ns, late)
    rows.make(msgspec.structs.replace(made, seq=came.seq))
    return Counted(came.records, folded.minutes)


def uncounted(rows: Rows) -> Uncounted:
    """See `WaitStore.uncounted_waits`."""
    return rows.left(rows.made().seq)


def roll(rows: Rows, until_ns: int) -> bool:
    """See `WaitStore.roll_waits`."""
    made = rows.made()
    until_ns -= until_ns % NS_PER_HOUR
    if made.rolled_ns >= until_ns:
        return False
    first = rows.first(WINDOW_NS, made.rolled_ns)
    hour = until_ns if first is None else min(until_ns, first - first % NS_PER_HOUR)
    day, rolled_ns = made.rolled_ns - made.rolled_ns % DAY_NS, hour
    if hour >= day + DAY_NS:  # nothing is left to come of this day
        _roll(rows, day, DAY_NS, NS_PER_HOUR)
        rolled_ns = hour - hour % DAY_NS
    elif hour < until_ns:
        _roll(rows, hour, NS_PER_HOUR, WINDOW_NS)
        rolled_ns = hour + NS_PER_HOUR
        if rolled_ns == day + DAY_NS:
            _roll(rows, day, DAY_NS, NS_PER_HOUR)
    rows.make(msgspec.structs.replace(made, rolled_ns=rolled_ns))
    return rolled_ns < until_ns


def forget(rows: Rows, windows_before_ns: int, hours_before_ns: int) -> None:
    """See `WaitStore.forget_waits`."""
    made = rows.made()
    windows_ns = max(made.windows_ns, _whole_days(min(windows_before_ns, made.rolled_ns)))
    hours_ns = max(made.hours_ns, _whole_days(min(hours_before_ns, windows_ns)))
    if (windows_ns, hours_ns) == (made.windows_ns, made.hours_ns):
        return
    rows.forget(WINDOW_NS, windows_ns)
    rows.forget(NS_PER_HOUR, hours_ns)
    rows.make(msgspec.structs.replace(made, windows_ns=windows_ns, hours_ns=hours_ns))


def _roll(rows: Rows, start_ns: int, span_ns: int, of_ns: int) -> None:
    tallies: dict[Place, Tally] = {}
    for (_, *series), row in rows.read((of_ns, start_ns, start_ns + span_ns), {}):
        tallies.setdefault(_place(start_ns, series), Tally()).take(row)
    rows.replace(span_ns, {place: tally.row() for place, tally in tallies.items()})


def _add(rows: Rows, span_ns: int, tallies: dict[Place, Tally]) -> None:
    for start_ns in sorted({start_ns for start_ns, *_ in tallies}):
        for place, row in rows.read((span_ns, start_ns, start_ns + 1), {}):
            if place in tallies:
                tallies[place].take(row)
    rows.replace(span_ns, {place: tally.row() for place, tally in tallies.items()})


# -- answering ---------------------------------------------------------------------------------------------------------


def table(rows: Rows, by: Sequence[str], since_ns: int, until_ns: int, filters: Filters) -> WaitTable:
    """See `WaitStore.waits`."""
    names, time = _checked(by, filters)
    check_range(since_ns, until_ns)
    made = rows.made()
    since_ns, until_ns = _kept(made, since_ns, until_ns)
    since_ns = max(since_ns, _BEGINS[time](made))
    tallies = _tallies(rows, _ranges(rows, made, (since_ns, until_ns), _OF_TIME[time]), names, time, filters)
    total = Tally()
    for tally in tallies.values():
        total.merge(tally)
    lines = [
        WaitLine(_labels(names, time, start_ns, values), start_ns if time else None, tally)
        for (start_ns, values), tally in tallies.items()
    ]
    lines.sort(key=lambda line: line.keys)
    return WaitTable(names, since_ns, max(since_ns, until_ns), tuple(lines) if names else (), total)


def judged(rows: Rows, since_ns: int, until_ns: int) -> dict[tuple[str, str], Judged]:
    """See `WaitStore.judged_waits`."""
    made = rows.made()
    found: dict[tuple[str, str], Judged] = {}
    for of in _ranges(rows, made, _kept(made, since_ns, until_ns), SPANS):
        for tenant, tier, counts in rows.judged(of):
            found.setdefault((tenant, tier), Judged()).add(counts)
    return found


def _tallies(
    rows: Rows, ranges: Iterable[Range], names: Sequence[str], time: str, filters: Filters
) -> dict[tuple[int, tuple[str, ...]], Tally]:
    """What the ranges have, by start (0 where no time is asked for) and the other values of `names`."""
    chosen = [WAIT_SERIES.index(name) for name in names if name != time]
    length_ns = _OF_TIME[time][0]
    found: dict[tuple[int, tuple[str, ...]], Tally] = {}
    for of in ranges:
        for (start_ns, *series), row in rows.read(of, filters):
            key = start_ns - start_ns % length_ns if time else 0, tuple(series[each] for each in chosen)
            tally = found.get(key)
            if tally is None:
                if len(found) == WAIT_LINES_MAX:
                    raise QueryError(
                        f"The answer has more than {WAIT_LINES_MAX:,} lines: ask for less time or fewer tenants, or by"
                        " hour or day."
                    )
                tally = found[key] = Tally()
            tally.take(row)
    return found


def window_label(start_ns: int) -> str:
    """A window or an hour, by its start, UTC."""
    return datetime.fromtimestamp(start_ns // NS_PER_S, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _checked(by: Sequence[str], filters: Filters) -> tuple[tuple[str, ...], str]:
    """The names of `by`, each once, and the time among them, "" for none."""
    check_names("Waits cannot be grouped by", by, WAIT_DIMENSIONS)
    check_names("Waits cannot be filtered by", filters, WAIT_SERIES)
    names = tuple(dict.fromkeys(by))
    times = [name for name in names if name in WAIT_TIMES]
    if len(times) > 1:
        raise QueryError(f"Waits cannot be grouped by {' and '.join(times)} at once; name one of them.")
    return names, "".join(times)


def _kept(made: Made, since_ns: int, until_ns: int) -> tuple[int, int]:
    """The period, widened to what is kept at its two ends."""
    first, last = _finest(made, since_ns), _finest(made, until_ns - 1)
    return since_ns - since_ns % first, until_ns + -until_ns % last


def _finest(made: Made, at_ns: int) -> int:
    return DAY_NS if at_ns < made.hours_ns else NS_PER_HOUR if at_ns < made.windows_ns else WINDOW_NS


def _ranges(rows: Rows, made: Made, period: tuple[int, int], spans: Sequence[int]) -> Iterator[Range]:
    """The part of a period of which there are rows, in the longest of these spans that fit and are made."""
    firsts = [first for span_ns in SPANS if (first := rows.first(span_ns, 0)) is not None]
    last = rows.last(WINDOW_NS)
    if firsts:
        until_ns = made.rolled_ns if last is None else max(made.rolled_ns, last + WINDOW_NS)
        yield from _split(max(period[0], min(firsts)), min(period[1], until_ns), made.rolled_ns, spans)


def _split(since_ns: int, until_ns: int, rolled_ns: int, spans: Sequence[int]) -> Iterator[Range]:
    span_ns, *shorter = spans
    first, last = since_ns, until_ns
    if shorter:
        first, last = since_ns + -since_ns % span_ns, min(until_ns, rolled_ns)
        last -= last % span_ns
        if first >= last:
            yield from _split(since_ns, until_ns, rolled_ns, shorter)
            return
        yield from _split(since_ns, first, rolled_ns, shorter)
    for start_ns in range(first, last, _READ_AT_ONCE * span_ns):
        yield span_ns, start_ns, min(last, start_ns + _READ_AT_ONCE * span_ns)
    if shorter:
        yield from _split(last, until_ns, rolled_ns, shorter)


def _labels(names: Sequence[str], time: str, start_ns: int, values: Sequence[str]) -> tuple[str, ...]:
    label = day_label(start_ns // DAY_NS) if time == "day" else window_label(start_ns)
    each = iter(values)
    return tuple(label if name == time else next(each) for name in names)


def _whole_days(at_ns: int) -> int:
    return max(0, at_ns - at_ns % DAY_NS)


def _place(start_ns: int, series: Sequence[str]) -> Place:
    tenant, model, tier = series
    return start_ns, tenant, model, tier
