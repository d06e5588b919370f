"""Double entry attempt by attempt, in memory: what the books that are closed by the hour must come to in the end.

Pending at dispatch, posted or voided at the end, by request and attempt; what is told twice counts once. Where an hour
is closed, what runs is posted in part, and in the end the difference is: more, or less where it is not charged.
"""

from collections import Counter
from collections.abc import Callable

from commonpool.core.ledger import Kind, Posting, Rates, Work
from commonpool.core.model import UsageRecord
from commonpool.core.settling import hours_of, settle

Key = tuple[str, int]  # request, attempt
Entry = tuple[int, Kind, str, str, str, int, Work]  # about which hour, what, debit, credit, meter, price, whose work


class ConflictError(Exception):
    """What is posted came again, with other content."""


class Ledger:
    """`rates` are those of an hour, `entries` all that was posted."""

    def __init__(self, rates: Callable[[int], Rates], groups: frozenset[str]) -> None:
        self.entries: Counter[Entry] = Counter()
        self._rates = rates
        self._groups = groups
        self._pending: dict[Key, UsageRecord] = {}
        self._in_part: dict[Key, Counter[Entry]] = {}
        self._ended: dict[Key, UsageRecord] = {}

    @property
    def pending(self) -> int:
        return len(self._pending)

    def pend(self, note: UsageRecord) -> None:
        """It runs, and has run for so long. What has ended meanwhile, or ran for longer, is known better."""
        key = note.request_id, note.attempt
        known = self._pending.get(key)
        if key not in self._ended and (known is None or known.run_ns <= note.run_ns):
            self._pending[key] = note

    def close(self) -> None:
        """An hour is closed: what runs is posted as far as is known."""
        for key, note in self._pending.items():
            if note.run_ns:
                self._take_back(key)
                self._in_part[key] = part = Counter[Entry]()
                self._enter(note, part)
                self.entries.update(part)

    def post(self, record: UsageRecord) -> bool:
        """It has ended. False where that is known. ConflictError where it is known otherwise."""
        key = record.request_id, record.attempt
        known = self._ended.get(key)
        if known is not None:
            if known != record:
                raise ConflictError(f"Attempt {record.attempt} of {record.request_id} has ended otherwise already.")
            return False
        self._ended[key] = record
        self._pending.pop(key, None)
        self._take_back(key)
        self._enter(record, self.entries)
        return True

    def _take_back(self, key: Key) -> None:
        """What was posted in part is known better now."""
        part = self._in_part.pop(key, None)
        if part is not None:
            self.entries.subtract(part)

    def _enter(self, record: UsageRecord, entries: Counter[Entry]) -> None:
        hours = [(start, self._rates(start)) for start in hours_of(record)]
        for posting in settle(record, hours, self._groups):
            entries[entry_of(posting)] += posting.quantity


def entry_of(posting: Posting) -> Entry:
    """Without the hour in whose books it stands."""
    return (posting.about_ns, posting.kind, posting.debit, posting.credit, posting.meter, posting.micro, posting.work)


def balances(entries: Counter[Entry]) -> Counter[str]:
    """Credits less debits of each account, exact: in 1 / COST_UNIT micro-units."""
    sums: Counter[str] = Counter()
    for entry, quantity in entries.items():
        exact = cost(entry, quantity)
        sums[entry[2]] -= exact
        sums[entry[3]] += exact
    return sums


def cost(entry: Entry, quantity: int) -> int:
    """What a quantity costs, exact."""
    about, kind, debit, credit, meter, micro, work = entry
    return Posting(about, about, "", kind, debit, credit, quantity, micro, meter, work).exact_cost
