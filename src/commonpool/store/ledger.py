"""The ledger's part of a store: what is noted while things run, the hours that are closed, and the postings.

Notes (`save_running`, `add_meters`) come from the journal, as records do. The books of a pool are closed hour by hour,
in order, each once and in one transaction: its postings, its counts, and the parts of attempts that go on.

An attempt's GPU time belongs to the hours it ran in; all else that is counted of it belongs to the hour it ended in,
(start, end]. What is heard of after its hour was closed stands in the books of the hour that is closed next. Readings
of no pool have books of their own, those of the pool "".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, Self

import msgspec

from commonpool.core.billing import HourlySum, PostingSum
from commonpool.core.ledger import Counted, Late, Posting, Rates, Span, Standing, Use, Work
from commonpool.core.model import NS_PER_HOUR, UsageRecord

# What postings and counts can be grouped and filtered by. `type` is sync, stream or batch (jobs). A tenant's postings
# are those of its work and those to or from its account.
BILL_DIMENSIONS = ("tenant", "app", "cost_center", "model", "version", "tier", "endpoint", "type", "pool")
# What postings can be filtered by beside these: an account is that of either side.
POSTING_FILTERS = (*BILL_DIMENSIONS, "account", "kind", "meter")

EndPlace = tuple[int, str, int]  # of an attempt among all: when it ended (ns), request_id, attempt


class Part(msgspec.Struct, frozen=True, order=True):
    """What was posted of an attempt in the books of an hour that it outlasted: its run from there until `until_ns`."""

    request_id: str
    attempt: int
    hour_ns: int
    until_ns: int
    use: Use


class Hourly(msgspec.Struct, frozen=True):
    """Counts of the work of one kind in the books of one hour. A request counts at its first attempt.

    `tokens_cached` is a part of `tokens_in`.
    """

    work: Work
    requests: int = 0
    completed: int = 0
    attempts: int = 0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    milli_gpu_ns: int = 0


class HourWork(msgspec.Struct, frozen=True):
    """What the store knows of one hour of a pool: what `core.ledger.Hour` asks for.

    `uses` are of attempts that ended in it and of the parts in it of those that go on or that began before it.
    `counted` is of attempts that ended in it, and of `readings`, whose ids these are. `late` is what is to be put right
    of the closed hours before it, oldest first.
    """

    pool: str
    start_ns: int
    standings: tuple[Standing, ...]
    spans: tuple[Span, ...]
    uses: tuple[Use, ...]
    counted: tuple[Counted, ...]
    late: tuple[Late, ...]
    hourly: tuple[Hourly, ...]
    parts: tuple[Part, ...]
    readings: tuple[str, ...]
    seq: int  # all records up to this one are in it, or in what was closed before


# The causes of a difference between what was given out and what the backends saw, as they are shown.
LAGS: Final = "started or ended later than told"
DOWN: Final = "down"
BEFORE: Final = "before the books began"
UNSEEN: Final = "not seen by the backend"
UNKNOWN: Final = "not known to the core"


class Reconciliation(msgspec.Struct, frozen=True):
    """One closed hour against what there was, milli_gpu_ns.

    `devices` is capacity × time; `charged` is what the postings credit to the pool: they are equal, or the books are
    wrong. `rates` are those that it was closed at. `held` is what the core gave to replicas and jobs, `reported` what
    the backends saw held; `causes` explain their difference (held - reported) and sum to it.
    """

    pool: str
    hour_ns: int
    devices: int
    charged: int
    rates: Rates
    held: int
    reported: int
    causes: dict[str, int]


class Closing(msgspec.Struct, frozen=True):
    """An hour to close. `work` is what its postings were made of, as the store gave it."""

    pool: str
    hour_ns: int
    postings: tuple[Posting, ...]
    reconciliation: Reconciliation
    work: HourWork


class Period(msgspec.Struct, frozen=True):
    """A billing period that is closed: `2026-11`, from when until when (ns), and its bill as it was then (JSON)."""

    name: str
    start_ns: int
    end_ns: int
    closed_ns: int
    closed_by: str
    bill: bytes


class Reading(msgspec.Struct, frozen=True):
    """Something measured elsewhere, such as storage: a quantity of a meter for a tenant over [start_ns, end_ns).

    It is counted in the hours it is about, in proportion, to the unit; for those that are closed, in the next one.
    `id` is its source's own: a second one with the same content is ignored, with other content refused.
    """

    id: str
    meter: str
    tenant: str
    quantity: int
    start_ns: int
    end_ns: int
    app: str = ""
    cost_center: str = ""
    pool: str = ""

    def until(self, at_ns: int) -> int:
        """How much of the quantity is of the time before `at_ns`: the parts of any hours sum to the whole."""
        if at_ns <= self.start_ns:
            return 0
        if at_ns >= self.end_ns:
            return self.quantity
        return self.quantity * (at_ns - self.start_ns) // (self.end_ns - self.start_ns)


class ReadingConflictError(Exception):
    """A reading with this id and other content is there already."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(
            f"There is a reading {reading.id!r} already and it says otherwise: send this one under an id of its own."
        )


class PeriodClosedError(Exception):
    """The period is closed: nothing can be changed in it; corrections go into an open one."""

    @classmethod
    def of_reading(cls, reading: Reading, period: str) -> Self:
        return cls(
            f"The reading {reading.id!r} ends in the period {period}, which is closed: send what is to be corrected as "
            "a reading of an open one."
        )

    @classmethod
    def of_period(cls, name: str, closed: str) -> Self:
        return cls(
            f"The period {name} is closed already."
            if name == closed
            else f"The period {name} has days of {closed}, which is closed already: close one that follows it."
        )


def books_begin(hour_ns: int | None, standing_ns: int | None) -> int | None:
    """Where the books of a pool begin, whose first closed hour and first standing that is still known are these."""
    if standing_ns is None or (hour_ns is not None and hour_ns + NS_PER_HOUR <= standing_ns):
        return hour_ns
    return standing_ns


class LedgerSink(Protocol):
    """The writer's side."""

    def save_running(self, records: Iterable[UsageRecord]) -> None:
        """These attempts run, and no others: replaces what was saved before. Their records say `running`."""

    def add_meters(self, notes: Iterable[Standing | Span]) -> None:
        """Keeps the notes; one with a key that is there already moves that one's end, never back."""


class LedgerStore(LedgerSink, Protocol):
    """The ledger's part of `contract.Store`. Filters keep what has one of the values of each dimension named."""

    def running(self) -> tuple[UsageRecord, ...]:
        """What was saved last as running, by request and attempt."""

    def hour_work(self, pool: str, start_ns: int) -> HourWork:
        """What is known of the hour from `start_ns` on, which follows the last closed one, or is the first.

        It begins at a quarter of an hour UTC, as hours do in every time zone; ValueError where it does not.
        """

    def close_hour(self, closing: Closing) -> bool:
        """Keeps the hour's books, all or nothing. False, and nothing is changed, where it is closed already."""

    def closed_until(self, pool: str) -> int | None:
        """The end of the last closed hour of a pool; None where there is none."""

    def first_noted(self, pool: str) -> int | None:
        """When the books of a pool begin: its first standing, or closed hour where that is forgotten; None without."""

    def last_standing(self, pool: str, before_ns: int) -> Standing | None:
        """The last standing that began before this time."""

    def posting_sums(
        self, by: Sequence[str], since_ns: int, until_ns: int, filters: Mapping[str, Sequence[str]]
    ) -> tuple[PostingSum, ...]:
        """Postings in the books of the hours in [since_ns, until_ns), by some of BILL_DIMENSIONS; sorted.

        Days and months are the caller's: it asks for each. A correction is about an hour before `since_ns`. QueryError
        for names that are not in BILL_DIMENSIONS, or of filters that are not in POSTING_FILTERS.
        """

    def hourly_sums(
        self, by: Sequence[str], since_ns: int, until_ns: int, filters: Mapping[str, Sequence[str]]
    ) -> tuple[HourlySum, ...]:
        """Counts in the books of the hours in [since_ns, until_ns), by some of BILL_DIMENSIONS, filtered by others."""

    def reconciliations(self, since_ns: int, until_ns: int) -> tuple[Reconciliation, ...]:
        """The closed hours that begin in [since_ns, until_ns), by pool and hour."""

    def worked(
        self,
        since_ns: int,
        until_ns: int,
        filters: Mapping[str, Sequence[str]],
        after: EndPlace | None,
        limit: int,
        looked_ns: int | None = None,
    ) -> tuple[UsageRecord, ...]:
        """Attempts that ended in (since_ns, until_ns], then those that the books of its last hour have a part of.

        What these hours' books were made of, but for what was heard of late; by BILL_DIMENSIONS. In the order of their
        ends: the first `limit` after a place, or of all. `looked_ns` leaves out what ended later than that.
        """

    def ending(self, since_ns: int, until_ns: int, number: int) -> int | None:
        """When this attempt of those that ended in (since_ns, until_ns] did, counted from the first, from 1 on.

        None where there are fewer. So somebody knows how far a question reaches that may look at so many.
        """

    def add_reading(self, reading: Reading) -> bool:
        """Keeps it; False where it is there already. ReadingConflictError, and PeriodClosedError by its end."""

    def add_period(self, period: Period) -> None:
        """Closes a period, once. PeriodClosedError where it is closed."""

    def periods(self) -> tuple[Period, ...]:
        """The closed ones, oldest first."""

    def prune(self, before_ns: int, limit: int) -> int:
        """Forgets records, loans and notes that ended before this and whose hours are closed; postings and counts stay.

        At most `limit` records at a time, the oldest first; how many there were. The last record of all stays.
        """
