"""The ledger in memory: the part of `store.memory` that keeps it. Whatever it is asked, it looks at every record."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from commonpool.core.billing import HourlySum, PostingSum
from commonpool.core.ledger import Span, Standing
from commonpool.core.model import NS_PER_HOUR, UsageRecord
from commonpool.core.settling import metered, work_of
from commonpool.store.books import Line, Question, counts_of, posting_question, postings_of, sum_counts, sum_postings
from commonpool.store.hour import HourBooks, began, counts_of_one, ended
from commonpool.store.ledger import (
    Closing,
    EndPlace,
    HourWork,
    Part,
    Period,
    PeriodClosedError,
    Reading,
    ReadingConflictError,
    Reconciliation,
    books_begin,
)

_AttemptKey = tuple[str, int]
_Note = TypeVar("_Note", Standing, Span)


class MemoryLedger:
    """A `ledger.LedgerStore` that forgets everything at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[_AttemptKey, UsageRecord] = {}
        self._seqs: dict[_AttemptKey, int] = {}  # the order in which records came, as far as it was asked for
        self._running: tuple[UsageRecord, ...] = ()
        self._parts: dict[_AttemptKey, dict[int, Part]] = {}
        self._standings: dict[tuple[str, int], Standing] = {}
        self._spans: dict[tuple[str, int, str, str], Span] = {}
        self._readings: dict[str, tuple[Reading, int]] = {}  # until when it is in the books
        self._hours: dict[tuple[str, int], Closing] = {}
        self._periods: list[Period] = []

    # -- what is noted -------------------------------------------------------------------------------------------------

    def save_running(self, records: Iterable[UsageRecord]) -> None:
        """See `LedgerSink.save_running`."""
        self._running = tuple(sorted(records, key=_key))

    def running(self) -> tuple[UsageRecord, ...]:
        """See `LedgerStore.running`."""
        return self._running

    def add_meters(self, notes: Iterable[Standing | Span]) -> None:
        """See `LedgerSink.add_meters`."""
        for note in notes:
            if isinstance(note, Standing):
                standing = self._standings.setdefault((note.pool, note.start_ns), note)
                self._standings[note.pool, note.start_ns] = _longer(standing, note.end_ns)
            else:
                key = note.pool, note.start_ns, note.id, note.phase.value
                self._spans[key] = _longer(self._spans.setdefault(key, note), note.end_ns)

    def first_noted(self, pool: str) -> int | None:
        """See `LedgerStore.first_noted`."""
        hours = [hour_ns for name, hour_ns in self._hours if name == pool]
        standings = [standing.start_ns for standing in self._standings.values() if standing.pool == pool]
        return books_begin(min(hours, default=None), min(standings, default=None))

    def last_standing(self, pool: str, before_ns: int) -> Standing | None:
        """See `LedgerStore.last_standing`."""
        found = [each for each in self._standings.values() if each.pool == pool and each.start_ns < before_ns]
        return max(found, key=lambda each: each.start_ns, default=None)

    # -- the books -----------------------------------------------------------------------------------------------------

    def hour_work(self, pool: str, start_ns: int) -> HourWork:
        """See `LedgerStore.hour_work`."""
        end_ns = start_ns + NS_PER_HOUR
        closed = {
            hour: self._hours[pool, hour] for name, hour in sorted(self._hours) if name == pool and hour < start_ns
        }
        known = closed[max(closed)].work.seq if closed else None
        books = HourBooks(pool, start_ns, {hour: each.reconciliation.rates for hour, each in closed.items()})
        for key, record in self._records.items():
            seq = self._seqs.setdefault(key, len(self._seqs) + 1)
            if record.pool != pool:
                continue
            if start_ns < ended(record) <= end_ns:
                books.add_ended(record, self._parts.get(key, {}))
                books.count(work_of(record), counts_of_one(record), metered(record))
            elif known is not None and seq > known and ended(record) <= start_ns:
                books.add_ended(record, self._parts.get(key, {}))
                books.count_late(record)
            elif began(record) < end_ns < ended(record):
                books.add_going_on(record)
        for record in self._running:
            if record.pool == pool and _key(record) not in self._records:
                books.add_going_on(record)
        for reading, posted_until_ns in self._readings.values():
            if reading.pool == pool and reading.start_ns < end_ns and posted_until_ns < reading.end_ns:
                books.read(reading, posted_until_ns)
        return books.work(
            [each for each in self._standings.values() if each.pool == pool and start_ns <= each.start_ns < end_ns],
            [each for each in self._spans.values() if each.pool == pool and start_ns <= each.start_ns < end_ns],
            len(self._seqs),
        )

    def close_hour(self, closing: Closing) -> bool:
        """See `LedgerStore.close_hour`."""
        if (closing.pool, closing.hour_ns) in self._hours:
            return False
        self._hours[closing.pool, closing.hour_ns] = closing
        for part in closing.work.parts:
            self._parts.setdefault((part.request_id, part.attempt), {})[part.hour_ns] = part
        for reading_id in closing.work.readings:
            reading, _ = self._readings[reading_id]
            self._readings[reading_id] = reading, closing.hour_ns + NS_PER_HOUR
        return True

    def closed_until(self, pool: str) -> int | None:
        """See `LedgerStore.closed_until`."""
        last = max((hour for name, hour in self._hours if name == pool), default=None)
        return None if last is None else last + NS_PER_HOUR

    def posting_sums(
        self, by: Sequence[str], since_ns: int, until_ns: int, filters: Mapping[str, Sequence[str]]
    ) -> tuple[PostingSum, ...]:
        """See `LedgerStore.posting_sums`."""
        question = posting_question(by, since_ns, until_ns, filters)
        return sum_postings(
            question,
            (
                (line, micro, about_ns < since_ns, quantity)
                for closing in self._closings(since_ns, until_ns)
                for (line, about_ns, micro), quantity in postings_of(closing).items()
            ),
        )

    def hourly_sums(
        self, by: Sequence[str], since_ns: int, until_ns: int, filters: Mapping[str, Sequence[str]]
    ) -> tuple[HourlySum, ...]:
        """See `LedgerStore.hourly_sums`."""
        question = Question(by, since_ns, until_ns, filters)
        return sum_counts(
            question, (each for closing in self._closings(since_ns, until_ns) for each in counts_of(closing).items())
        )

    def reconciliations(self, since_ns: int, until_ns: int) -> tuple[Reconciliation, ...]:
        """See `LedgerStore.reconciliations`."""
        return tuple(closing.reconciliation for closing in self._closings(since_ns, until_ns))

    def worked(
        self,
        since_ns: int,
        until_ns: int,
        filters: Mapping[str, Sequence[str]],
        after: EndPlace | None,
        limit: int,
        looked_ns: int | None = None,
    ) -> tuple[UsageRecord, ...]:
        """See `LedgerStore.worked`."""
        question = Question((), since_ns, until_ns, filters)
        last = until_ns - NS_PER_HOUR
        found = [
            record
            for key, record in self._records.items()
            if (since_ns < ended(record) <= until_ns or (ended(record) > until_ns and last in self._parts.get(key, {})))
            and question.keys(Line(record.pool, "", "", "", "", work_of(record))) is not None
            and (after is None or _end_place(record) > after)
            and (looked_ns is None or ended(record) <= looked_ns)
        ]
        return tuple(sorted(found, key=_end_place)[:limit])

    def ending(self, since_ns: int, until_ns: int, number: int) -> int | None:
        """See `LedgerStore.ending`."""
        ends = sorted(end for record in self._records.values() if since_ns < (end := ended(record)) <= until_ns)
        return ends[number - 1] if number <= len(ends) else None

    # -- readings and periods ------------------------------------------------------------------------------------------

    def add_reading(self, reading: Reading) -> bool:
        """See `LedgerStore.add_reading`."""
        if reading.id in self._readings:
            if self._readings[reading.id][0] != reading:
                raise ReadingConflictError(reading)
            return False
        for period in self._periods:
            if period.start_ns < reading.end_ns <= period.end_ns:
                raise PeriodClosedError.of_reading(reading, period.name)
        self._readings[reading.id] = reading, reading.start_ns
        return True

    def add_period(self, period: Period) -> None:
        """See `LedgerStore.add_period`."""
        for each in self.periods():
            if each.start_ns < period.end_ns and period.start_ns < each.end_ns:
                raise PeriodClosedError.of_period(period.name, each.name)
        self._periods.append(period)

    def periods(self) -> tuple[Period, ...]:
        """See `LedgerStore.periods`."""
        return tuple(sorted(self._periods, key=lambda period: period.start_ns))

    # -- retention -----------------------------------------------------------------------------------------------------

    def prune(self, before_ns: int, limit: int) -> int:
        """See `LedgerStore.prune`."""
        limits = {pool: min(before_ns, self.closed_until(pool) or 0) for pool, _ in self._standings}
        newest = next(reversed(self._records), None)
        old = [
            key
            for key, record in self._records.items()
            if ended(record) < before_ns and ended(record) <= limits.get(record.pool, before_ns) and key != newest
        ]
        pruned = sorted(old, key=lambda key: ended(self._records[key]))[:limit]
        for key in pruned:
            del self._records[key]
            self._parts.pop(key, None)
        for place, span in list(self._spans.items()):
            if span.pool in limits and span.end_ns <= limits[span.pool]:
                del self._spans[place]
        for pool, until_ns in limits.items():
            starts = [start_ns for name, start_ns in self._standings if name == pool]
            for start_ns in sorted(starts)[:-1]:
                if self._standings[pool, start_ns].end_ns <= until_ns:
                    del self._standings[pool, start_ns]
        return len(pruned)

    def _closings(self, since_ns: int, until_ns: int) -> list[Closing]:
        """The closed hours that begin in [since_ns, until_ns), by pool and hour."""
        return [self._hours[key] for key in sorted(self._hours) if since_ns <= key[1] < until_ns]


def _key(record: UsageRecord) -> _AttemptKey:
    return record.request_id, record.attempt


def _end_place(record: UsageRecord) -> EndPlace:
    return ended(record), record.request_id, record.attempt


def _longer(note: _Note, end_ns: int) -> _Note:
    return msgspec.structs.replace(note, end_ns=max(note.end_ns, end_ns))
