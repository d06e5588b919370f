"""What the books of an hour are made of, the same for every store: attempts cut to the hour, what was posted of them
already, counts and readings.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from commonpool.core.ledger import Counted, Late, Rates, Span, Standing, Use, Work
from commonpool.core.model import NS_PER_HOUR, Outcome, UsageRecord
from commonpool.core.pricing import is_charged
from commonpool.core.settling import metered, parts, work_of
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


def counts_of_one(record: UsageRecord) -> tuple[int, ...]:
    """What is counted of one attempt, as in `Hourly`. A request counts at its first attempt."""
    completed = record.outcome is Outcome.COMPLETED
    return int(record.attempt <= 1), int(completed), 1, *(getattr(record, name) for name in TOKENS)


class _Uses:
    """Uses added up by work and whether they are charged."""

    def __init__(self) -> None:
        self.sums: dict[tuple[Work, bool], tuple[int, dict[str, int]]] = {}

    def add(self, use: Use | None) -> None:
        if use is not None:
            before, lenders = self.sums.get((use.work, use.charged), (0, {}))
            for lender, amount in use.borrowed.items():
                lenders[lender] = lenders.get(lender, 0) + amount
            self.sums[use.work, use.charged] = before + use.milli_gpu_ns, lenders

    def made(self) -> tuple[Use, ...]:
        return tuple(Use(*key, *self.sums[key]) for key in sorted(self.sums))


class _Hour:
    """What is posted about one hour."""

    def __init__(self) -> None:
        self.uses = _Uses()
        self.returned = _Uses()
        self._metered: dict[Work, dict[str, int]] = {}

    def meter(self, work: Work, metered: Mapping[str, int]) -> None:
        for meter, quantity in metered.items():
            if quantity:
                quantities = self._metered.setdefault(work, {})
                quantities[meter] = quantities.get(meter, 0) + quantity

    def counted(self) -> tuple[Counted, ...]:
        return tuple(Counted(work, self._metered[work]) for work in sorted(self._metered))


class HourBooks:
    """Gathers what `hour_work` returns. `closed` are the hours of the pool before it that are closed, with their rates.

    What was posted in one of them stays where it was so.
    """

    def __init__(self, pool: str, start_ns: int, closed: Mapping[int, Rates]) -> None:
        if start_ns % QUARTER_NS:
            raise ValueError(f"An hour of the books begins at a quarter of an hour, not at {start_ns} ns.")
        self._pool = pool
        self._start = start_ns
        self._end = start_ns + NS_PER_HOUR
        self._closed = closed
        self._own = _Hour()
        self._late: dict[int, _Hour] = {}
        self._counts: dict[Work, list[int]] = {}
        self._parts: list[Part] = []
        self._readings: list[str] = []

    def add_whole(self, use: Use) -> None:
        """Attempts that lie wholly in the hour."""
        self._own.uses.add(use)

    def add_ended(self, record: UsageRecord, posted: Mapping[int, Part]) -> None:
        """An attempt that ended by the hour's end and was not settled before; `posted` are its parts, by hour."""
        self._own.uses.add(parts(record, self._start, self._end))
        for hour in self._closed:
            if hour in posted:
                self._put_right(record, posted[hour])
            elif hour < ended(record) and began(record) < hour + NS_PER_HOUR:
                self._about(hour).uses.add(parts(record, hour, hour + NS_PER_HOUR))

    def add_going_on(self, record: UsageRecord) -> None:
        """An attempt that goes on in the next hour, as far as is known."""
        use = parts(record, self._start, self._end)
        self._own.uses.add(use)
        if use is not None:
            until = min(ended(record), self._end)
            self._parts.append(Part(record.request_id, record.attempt, self._start, until, use))

    def count(self, work: Work, counts: Sequence[int], metered: Mapping[str, int]) -> None:
        """Attempts that ended in the hour: as in `Hourly`, and what is metered."""
        self._count(work, counts)
        self._own.meter(work, metered)

    def count_late(self, record: UsageRecord) -> None:
        """An attempt that ended before the hour and was not counted then: at the prices of when it ended."""
        self._count(work_of(record), counts_of_one(record))
        end = ended(record)
        hour = next((hour for hour in self._closed if hour < end <= hour + NS_PER_HOUR), None)
        about = self._own if hour is None else self._about(hour)
        about.meter(work_of(record), metered(record))

    def read(self, reading: Reading, posted_until_ns: int) -> None:
        """A reading that is about this hour, or that was not counted in hours before it."""
        work = Work(tenant=reading.tenant, app=reading.app, cost_center=reading.cost_center)
        self._own.meter(work, {reading.meter: reading.until(self._end) - reading.until(posted_until_ns)})
        self._readings.append(reading.id)

    def work(self, standings: Iterable[Standing], spans: Iterable[Span], seq: int) -> HourWork:
        """All of it, in an order of its own."""
        return HourWork(
            pool=self._pool,
            start_ns=self._start,
            standings=tuple(sorted(standings, key=lambda each: each.start_ns)),
            spans=tuple(sorted(spans, key=lambda each: (each.start_ns, each.id, each.phase))),
            uses=self._own.uses.made(),
            counted=self._own.counted(),
            late=tuple(
                Late(at, self._closed[at], each.uses.made(), each.returned.made(), each.counted())
                for at, each in sorted(self._late.items())
            ),
            hourly=tuple(self._hourly()),
            parts=tuple(sorted(self._parts)),
            readings=tuple(sorted(self._readings)),
            seq=seq,
        )

    def _put_right(self, record: UsageRecord, part: Part) -> None:
        """What was posted of an attempt is taken back where its record says otherwise: of whether it is charged, or of
        its end. Its loans stay as they were then: after a restart it has others, and its record those alone.
        """
        end, charged = part.hour_ns + NS_PER_HOUR, is_charged(record)
        longer = parts(record, part.until_ns, end)
        if ended(record) < part.until_ns:
            self._about(part.hour_ns).returned.add(part.use)
            self._about(part.hour_ns).uses.add(parts(record, part.hour_ns, end))
        elif part.use.charged != charged:
            self._about(part.hour_ns).returned.add(part.use)
            self._about(part.hour_ns).uses.add(msgspec.structs.replace(part.use, charged=charged))
        if longer is not None:
            self._about(part.hour_ns).uses.add(longer)

    def _about(self, hour: int) -> _Hour:
        return self._late.setdefault(hour, _Hour())

    def _count(self, work: Work, counts: Sequence[int]) -> None:
        known = self._counts.setdefault(work, [0] * len(counts))
        for place, count in enumerate(counts):
            known[place] += count

    def _hourly(self) -> Iterable[Hourly]:
        used: dict[Work, int] = {}
        every = (self._own, *self._late.values())
        for sign, uses in (*((1, each.uses) for each in every), *((-1, each.returned) for each in every)):
            for (work, _), (milli_gpu_ns, _) in uses.sums.items():
                used[work] = used.get(work, 0) + sign * milli_gpu_ns
        for work in sorted(self._counts.keys() | used.keys()):
            requests, completed, attempts, *tokens = self._counts.get(work, (0,) * 6)
            tokens_in, tokens_cached, tokens_out = tokens
            yield Hourly(work, requests, completed, attempts, tokens_in, tokens_cached, tokens_out, used.get(work, 0))
