"""What the books of an hour are made of, the same for every store: attempts cut to the hour, what was posted of them
already, counts and readings.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from commonpool.core.ledger import Counted, Span, Standing, Use, Work
from commonpool.core.model import NS_PER_HOUR, UsageRecord
from commonpool.core.pricing import is_charged
from commonpool.core.settling import parts
from commonpool.store.ledger import Hourly, HourWork, Part, Reading

BATCH: Final = ("job", "replica", "batch")  # endpoints whose work is of the type batch
QUARTER_NS: Final = NS_PER_HOUR // 4  # hours of every time zone begin at one
TOKENS: Final = ("tokens_in", "tokens_cached", "tokens_out")


def work_type(work: Work) -> str:
    """The dimension `type`."""
    if work.endpoint in BATCH:
        return "batch"
    return "stream" if work.stream else "sync"


def began(record: UsageRecord) -> int:
    """When an attempt began to run; when it ended where it never did."""
    return ended(record) - record.run_ns


def ended(record: UsageRecord) -> int:
    """When an attempt ended; of one that runs, until when it is known to have run."""
    return record.arrived_ns + record.total_ns


class _Uses:
    """Uses added up by work and whether they are charged."""

    def __init__(self) -> None:
        self.sums: dict[tuple[Work, bool], tuple[int, dict[str, int]]] = {}

    def add(self, work: Work, charged: bool, milli_gpu_ns: int, borrowed: Mapping[str, int]) -> None:
        before, lenders = self.sums.get((work, charged), (0, {}))
        for lender, amount in borrowed.items():
            lenders[lender] = lenders.get(lender, 0) + amount
        self.sums[work, charged] = before + milli_gpu_ns, lenders

    def add_piece(self, record: UsageRecord, start_ns: int, end_ns: int, charged: bool) -> bool:
        """Adds what an attempt used from `start_ns` to `end_ns`; whether that was anything."""
        use = parts(record, start_ns, end_ns)
        if use is not None:
            self.add(use.work, charged, use.milli_gpu_ns, use.borrowed)
        return use is not None

    def made(self) -> tuple[Use, ...]:
        return tuple(Use(*key, *self.sums[key]) for key in sorted(self.sums))


class HourBooks:
    """Gathers what `hour_work` returns. `closed` are the hours of the pool before it that are closed, oldest first."""

    def __init__(self, pool: str, start_ns: int, closed: Sequence[int]) -> None:
        if start_ns % QUARTER_NS:
            raise ValueError(f"An hour of the books begins at a quarter of an hour, not at {start_ns} ns.")
        self._pool = pool
        self._start = start_ns
        self._end = start_ns + NS_PER_HOUR
        self._closed = closed
        self._uses = _Uses()
        self._late: dict[int, _Uses] = {}
        self._reversed: dict[int, _Uses] = {}
        self._counts: dict[Work, list[int]] = {}
        self._metered: dict[Work, dict[str, int]] = {}
        self._parts: list[Part] = []
        self._readings: list[str] = []

    def add_whole(self, work: Work, charged: bool, milli_gpu_ns: int, borrowed: Mapping[str, int]) -> None:
        """Attempts that lie wholly in the hour."""
        self._uses.add(work, charged, milli_gpu_ns, borrowed)

    def add_ended(self, record: UsageRecord, posted: Mapping[int, Part]) -> None:
        """An attempt that ended by the hour's end and was not settled before; `posted` are its parts, by hour."""
        charged = is_charged(record)
        self._uses.add_piece(record, self._start, self._end, charged)
        for hour in self._closed:
            if hour + NS_PER_HOUR <= began(record) or ended(record) <= hour:
                continue
            part = posted.get(hour)
            rest = hour if part is None else part.until_ns
            self._late.setdefault(hour, _Uses()).add_piece(record, rest, hour + NS_PER_HOUR, charged)
            if part is not None and part.charged and not charged:
                self._reversed.setdefault(hour, _Uses()).add_piece(record, hour, part.until_ns, charged=True)

    def add_going_on(self, record: UsageRecord) -> None:
        """An attempt that goes on in the next hour, as far as is known."""
        charged = is_charged(record)
        if self._uses.add_piece(record, self._start, self._end, charged):
            until = min(ended(record), self._end)
            self._parts.append(Part(record.request_id, record.attempt, self._start, until, charged))

    def count(self, work: Work, counts: Sequence[int], metered: Mapping[str, int]) -> None:
        """Attempts that ended by the hour's end and were not counted before: as in `Hourly`, and what is metered."""
        known = self._counts.setdefault(work, [0] * len(counts))
        for place, count in enumerate(counts):
            known[place] += count
        self._meter(work, metered)

    def read(self, reading: Reading, posted_until_ns: int) -> None:
        """A reading that is about this hour, or that was not counted in hours before it."""
        work = Work(tenant=reading.tenant, app=reading.app, cost_center=reading.cost_center)
        self._meter(work, {reading.meter: reading.until(self._end) - reading.until(posted_until_ns)})
        self._readings.append(reading.id)

    def work(self, standings: Iterable[Standing], spans: Iterable[Span], seq: int) -> HourWork:
        """All of it, in an order of its own."""
        return HourWork(
            pool=self._pool,
            start_ns=self._start,
            standings=tuple(sorted(standings, key=lambda each: each.start_ns)),
            spans=tuple(sorted(spans, key=lambda each: (each.start_ns, each.id, each.phase))),
            uses=self._uses.made(),
            counted=tuple(Counted(work, self._metered[work]) for work in sorted(self._metered)),
            late=tuple((hour, use) for hour in sorted(self._late) for use in self._late[hour].made()),
            reversed=tuple((hour, use) for hour in sorted(self._reversed) for use in self._reversed[hour].made()),
            hourly=tuple(self._hourly()),
            parts=tuple(sorted(self._parts)),
            readings=tuple(sorted(self._readings)),
            seq=seq,
        )

    def _hourly(self) -> Iterable[Hourly]:
        used: dict[Work, int] = {}
        for uses in (self._uses, *self._late.values()):
            for (work, _), (milli_gpu_ns, _) in uses.sums.items():
                used[work] = used.get(work, 0) + milli_gpu_ns
        for work in sorted(self._counts.keys() | used.keys()):
            requests, completed, attempts, *tokens = self._counts.get(work, (0,) * 6)
            tokens_in, tokens_cached, tokens_out = tokens
            yield Hourly(work, requests, completed, attempts, tokens_in, tokens_cached, tokens_out, used.get(work, 0))

    def _meter(self, work: Work, metered: Mapping[str, int]) -> None:
        quantities = self._metered.setdefault(work, {})
        for meter, quantity in metered.items():
            if quantity:
                quantities[meter] = quantities.get(meter, 0) + quantity
        if not quantities:
            del self._metered[work]
