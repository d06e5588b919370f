"""The arithmetic of books, the same for every store: what postings and counts are about, and their sums."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from commonpool.core.billing import HourlySum, PostingSum
from commonpool.core.ledger import Posting, Work
from commonpool.store.hour import work_type
from commonpool.store.ledger import BILL_DIMENSIONS, POSTING_FILTERS, Closing, Hourly
from commonpool.store.summary import check_lists, check_names, check_range

COUNTS: Final = Hourly.__struct_fields__[1:]  # what is counted, in order


class Line(msgspec.Struct, frozen=True, order=True):
    """What a posting is about, but for hours, price and quantity. Where it is counts, all but pool and work are ""."""

    pool: str
    kind: str
    debit: str
    credit: str
    meter: str
    work: Work


Entry = tuple[Line, int, int]  # what, the hour it is about, micro-units for one unit: once in the books of an hour


def postings_of(closing: Closing) -> dict[Entry, int]:
    """An hour's postings: the quantity of each."""
    quantities: dict[Entry, int] = {}
    for posting in closing.postings:
        entry = _line(closing.pool, posting), posting.about_ns, posting.micro
        quantities[entry] = quantities.get(entry, 0) + posting.quantity
    return quantities


def counts_of(closing: Closing) -> dict[Line, tuple[int, ...]]:
    """An hour's counts, in the order of COUNTS."""
    return {
        Line(closing.pool, "", "", "", "", each.work): tuple(getattr(each, name) for name in COUNTS)
        for each in closing.work.hourly
    }


class Question:
    """What is asked of the books. QueryError names what is wrong with it and what is allowed."""

    def __init__(
        self,
        by: Sequence[str],
        since_ns: int,
        until_ns: int,
        filters: Mapping[str, Sequence[str]],
        filterable: Sequence[str] = BILL_DIMENSIONS,
    ) -> None:
        check_names("Books cannot be grouped by", by, BILL_DIMENSIONS)
        check_names("These books cannot be filtered by", filters, filterable)
        check_lists(filters)
        check_range(since_ns, until_ns)
        self.by = tuple(by)
        self.since_ns = since_ns
        self.until_ns = until_ns
        self.filters = {name: frozenset(values) for name, values in filters.items()}

    def keys(self, line: Line) -> tuple[str, ...] | None:
        """The values of what is asked by; None where a filter leaves the line out."""
        if not all(self._keeps(line, name, allowed) for name, allowed in self.filters.items()):
            return None
        return tuple(_value(line, name) for name in self.by)

    @staticmethod
    def _keeps(line: Line, name: str, allowed: frozenset[str]) -> bool:
        match name:
            case "account":
                return line.debit in allowed or line.credit in allowed
            case "tenant":
                accounts = {f"tenant:{tenant}" for tenant in allowed}
                return line.work.tenant in allowed or line.debit in accounts or line.credit in accounts
            case "kind" | "meter":
                return getattr(line, name) in allowed
            case _:
                return _value(line, name) in allowed


def posting_question(by: Sequence[str], since_ns: int, until_ns: int, filters: Mapping[str, Sequence[str]]) -> Question:
    """A question about postings."""
    return Question(by, since_ns, until_ns, filters, POSTING_FILTERS)


def sum_postings(question: Question, rows: Iterable[tuple[Line, int, bool, int]]) -> tuple[PostingSum, ...]:
    """The answer, from lines, prices, whether they are corrections, and quantities."""
    sums: dict[tuple[tuple[str, ...], str, str, str, str, int, str, bool], int] = {}
    for line, micro, correction, quantity in rows:
        keys = question.keys(line)
        if keys is not None:
            key = keys, line.kind, line.debit, line.credit, line.meter, micro, line.pool, correction
            sums[key] = sums.get(key, 0) + quantity
    return tuple(
        PostingSum(keys, kind, debit, credit, meter, micro, sums[key], pool, correction)
        for key in sorted(sums)
        for keys, kind, debit, credit, meter, micro, pool, correction in (key,)
    )


def sum_counts(question: Question, rows: Iterable[tuple[Line, Sequence[int]]]) -> tuple[HourlySum, ...]:
    """The answer, from lines and counts in the order of COUNTS."""
    sums: dict[tuple[str, ...], list[int]] = {}
    for line, counts in rows:
        keys = question.keys(line)
        if keys is not None:
            known = sums.setdefault(keys, [0] * len(COUNTS))
            for place, count in enumerate(counts):
                known[place] += count
    return tuple(HourlySum(keys, *sums[keys]) for keys in sorted(sums))


def _line(pool: str, posting: Posting) -> Line:
    return Line(pool, posting.kind.value, posting.debit, posting.credit, posting.meter, posting.work)


def _value(line: Line, name: str) -> str:
    match name:
        case "pool":
            return line.pool
        case "type":
            return work_type(line.work) if line.work.endpoint else ""
        case _:
            value: str = getattr(line.work, name)
            return value
