"""Random life cycles of requests and jobs over the end of a month, and what the books make of them.

A *world* is a pool for some hours. Its attempts complete, fail and run again, are cancelled, refused, lost with their
node or sent away with their state saved, over loans that change hands; the product is killed and comes back, says again
what it had said, and hears of some ends hours later. The hours are closed by the code that closes them in the product,
on its store in memory; `book_model` enters every attempt by itself. In the end both must say the same.
"""

import heapq
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final

import msgspec
from benchmarks.book_model import ConflictError, Entry, Ledger, balances, cost, entry_of

from commonpool.control.books import hour_from
from commonpool.core.closing import charged, close, devices
from commonpool.core.ledger import SUPPLIED, Kind, Phase, Rates, Span, Standing
from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Loan, LoanEnd, Outcome, TokenSource, UsageRecord
from commonpool.core.pricing import charged_price, is_charged
from commonpool.core.records import voided
from commonpool.store.ledger import Closing, Reconciliation
from commonpool.store.memory import MemoryStore

POOL: Final = "main"
HOURS: Final = 2  # in which something begins
MONTH_END: Final = 1_796_079_600 * NS_PER_S  # 2026-12-01 00:00 in Berlin
START: Final = MONTH_END - NS_PER_HOUR
PRICES: Final = (2_500_000, 3_000_000)  # a GPU-hour, before the end of the month and after it
LENDING: Final = (2_000_000, 1_500_000)
METERS: Final = {"request": 3, "million_tokens_in": 150_000, "million_tokens_out": 600_000}
TENANTS: Final = ("ads", "chat", "lab", "risk", "search", "tax")
GROUP: Final = "division"
LENDERS: Final = (*TENANTS, GROUP, "")
GUARANTEED: Final = {f"tenant:{name}": 60_000 for name in TENANTS} | {f"group:{GROUP}": 60_000}
MILLI_GPU: Final = 480_000
JOBS: Final = 0.01
LATE: Final = 0.01  # ends that are heard of after hours
DOWN_NS: Final = 600 * NS_PER_S  # at most, after the product was killed
NOTED_NS: Final = 60 * NS_PER_S  # how often it is noted that the product lives
WORKED: Final = frozenset({Kind.USED, Kind.BORROWED, Kind.UNCHARGED})

_BEFORE, _AFTER = (Rates(PRICES[n], LENDING[n], METERS) for n in (0, 1))


def rates(hour_ns: int) -> Rates:
    return _BEFORE if hour_ns < MONTH_END else _AFTER


# When, its place among what happens at once, what it begins or ends; None where the product is killed, until when.
Event = tuple[int, int, UsageRecord | None, bool, int]


class World:
    """`tally` counts what happened; `run` raises AssertionError where the books are wrong."""

    def __init__(self, seed: int, cycles: int) -> None:
        self.tally: Counter[str] = Counter()
        self._random = Random(seed)
        self._store = MemoryStore()
        self._ledger = Ledger(rates, frozenset({GROUP}))
        self._events: list[Event] = []
        self._number = 0
        self._running: dict[tuple[str, int], UsageRecord] = {}  # as they will end
        self._notes: dict[tuple[str, int], UsageRecord] = {}  # as they are known
        self._dead: set[str] = set()  # requests of which nothing comes any more
        self._told: list[UsageRecord] = []
        self._lived: list[tuple[int, int]] = []  # when the books were kept
        self._back = START  # since when
        self._spans: list[Span] = []
        self._books: Counter[Entry] = Counter()
        for number in range(cycles):
            self._plan(number)
        at = START + self._random.randrange(NOTED_NS, HOURS * NS_PER_HOUR)  # the books begin with something noted
        self._push(at, None, until_ns=at + self._random.randrange(NS_PER_S, DOWN_NS))

    def run(self) -> Counter[str]:
        hour = START
        while self._events or self._running or hour < START + HOURS * NS_PER_HOUR:
            self._pass(hour + NS_PER_HOUR)
            self._close(hour)
            hour += NS_PER_HOUR
        self._check()
        return self.tally

    # -- what will happen ----------------------------------------------------------------------------------------------

    def _plan(self, number: int) -> None:
        """A request or job, and all its attempts."""
        random = self._random
        job = random.random() < JOBS
        name = f"{'j' if job else 'r'}{number}"
        tenant, app = random.choice(TENANTS), random.choice(("app", "bot"))
        arrived = began = START + random.randrange(HOURS * NS_PER_HOUR)
        attempt, again = 0, True
        while again and attempt < 4:
            attempt += 1
            began += int(random.expovariate(1 / (5 * NS_PER_S)))
            outcome, again, exited = self._fate(job, attempt)
            ran = outcome is not Outcome.REFUSED
            run = int(random.expovariate(1 / ((1800 if job else 20) * NS_PER_S))) if ran else 0
            milli_gpu = random.choice((1000, 2000, 4000) if job else (63, 125, 500)) if ran else 0
            tokens = random.randrange(2000) if outcome in {Outcome.COMPLETED, Outcome.CANCELLED} and not job else 0
            record = UsageRecord(
                request_id=name,
                attempt=attempt,
                tenant=tenant,
                app=app,
                cost_center="",
                model="" if job else "m",
                version="" if job else "1",
                tier="batch" if job else "interactive",
                endpoint="job" if job else "chat",
                stream=False,
                pool=POOL,
                replica="m-0" if ran else "",
                outcome=outcome,
                status=200,
                reason="",
                arrived_ns=arrived,
                wait_ns=began - arrived,
                first_token_ns=0,
                total_ns=began + run - arrived,
                run_ns=run,
                tokens_in=tokens,
                tokens_cached=tokens // 3,
                tokens_out=tokens // 2,
                token_source=TokenSource.ENGINE,
                milli_gpu=milli_gpu,
                milli_gpu_ns=milli_gpu * run,
                micro_per_gpu_hour=charged_price(outcome, PRICES[began >= MONTH_END], exited),
                loans=self._loans(tenant, name, milli_gpu, began, run) if run and random.random() < 0.3 else (),
            )
            if ran:
                self._push(began, record, begins=True)
            late = random.randrange(3 * NS_PER_HOUR // 2) if random.random() < LATE else 0
            self._push(began + run + late, record)
            self.tally["late"] += late > 0
            began += run

    def _fate(self, job: bool, attempt: int) -> tuple[Outcome, bool, bool]:
        """How an attempt ends, whether another follows, and whether a job's own command ended it."""
        draw = self._random.random()
        if draw < 0.02 and attempt == 1:
            word, fate = "refused", (Outcome.REFUSED, False, False)
        elif draw < 0.06:
            word, fate = "cancelled", (Outcome.CANCELLED, False, False)
        elif draw < 0.10:
            word, fate = "failed", (Outcome.FAILED, False, False)
        elif draw < 0.18:
            word, fate = "migrated" if draw < 0.13 else "retried", (Outcome.FAILED, True, False)
        elif job and draw < 0.4:
            word, fate = "preempted", (Outcome.CANCELLED, True, False)
        elif job and draw < 0.5:
            word, fate = "exited", (Outcome.FAILED, False, True)
        else:
            word, fate = "completed", (Outcome.COMPLETED, False, False)
        self.tally[word] += 1
        self.tally["attempts"] += 1
        return fate

    def _loans(self, tenant: str, name: str, milli_gpu: int, began: int, run: int) -> tuple[Loan, ...]:
        """What it borrows; another lender may take over."""
        random = self._random
        lenders = [lender for lender in LENDERS if lender != tenant]
        part, middle = random.randint(1, milli_gpu), began + random.randrange(run)
        first, second = random.choice(lenders), random.choice(lenders)
        return (
            Loan(first, tenant, name, part, began, middle, LoanEnd.REPLACED),
            Loan(second, tenant, name, part, middle, began + run, LoanEnd.TASK_DONE),
        )

    def _push(self, at_ns: int, record: UsageRecord | None, begins: bool = False, until_ns: int = 0) -> None:
        self._number += 1
        heapq.heappush(self._events, (at_ns, self._number, record, begins, until_ns))

    # -- what happens --------------------------------------------------------------------------------------------------

    def _pass(self, until_ns: int) -> None:
        """Everything until then; until the product is back where it is down at that moment."""
        while self._events and self._events[0][0] < max(until_ns, self._back):
            at_ns, _, record, begins, back_ns = heapq.heappop(self._events)
            if record is None:
                self._kill(at_ns, back_ns)
            elif at_ns < self._back and begins:
                self._dead.add(record.request_id)  # nobody was there to take it
            elif at_ns < self._back:
                self._push(self._back, record)  # it is heard of when the product is back
            elif begins:
                self._begin(record)
            else:
                self._end(record)

    def _begin(self, record: UsageRecord) -> None:
        if record.request_id not in self._dead:
            self._running[_key(record)] = record
            self._note(record, record.arrived_ns + record.wait_ns)

    def _end(self, record: UsageRecord) -> None:
        if record.milli_gpu and self._running.pop(_key(record), None) is None:
            return  # it never began, or was voided
        if not record.milli_gpu and record.request_id in self._dead:
            return
        self._tell(record)

    def _tell(self, record: UsageRecord) -> None:
        """The journal, the store, and the model hear of an end."""
        self._notes.pop(_key(record), None)
        assert self._store.add_usage([record]) == ()
        assert self._ledger.post(record)
        self._told.append(record)

    def _note(self, record: UsageRecord, until_ns: int) -> None:
        note = _noted(record, until_ns)
        self._notes[_key(record)] = note
        self._ledger.pend(note)

    def _kill(self, at_ns: int, back_ns: int) -> None:
        """Requests that ran are voided, jobs go on; what was told last is told again."""
        if at_ns < self._back:
            return
        self.tally["kills"] += 1
        alive = max(self._back, at_ns - at_ns % NOTED_NS)  # as standings are noted
        self._lived.append((self._back, alive))
        self._back = back_ns
        for key, record in list(self._running.items()):
            if record.endpoint != "job" and record.arrived_ns + record.total_ns > at_ns:
                del self._running[key]
                self._dead.add(record.request_id)
                self._tell(voided(self._notes[key], alive))
                self.tally["voided"] += 1
        for record in self._told[-30:]:
            assert not self._ledger.post(record)
            self.tally["told again"] += 1
        assert self._store.add_usage(self._told[-30:]) == ()
        if self._told:
            self._contradict(self._random.choice(self._told))
        self._spans.append(
            Span("m-0", Phase.LOADING, POOL, "m", "platform", 4000, self._back, self._back + 90 * NS_PER_S)
        )

    def _contradict(self, record: UsageRecord) -> None:
        """What is known already comes with other content: what was first stays."""
        other = msgspec.structs.replace(record, milli_gpu_ns=record.milli_gpu_ns + 1)
        try:
            self._ledger.post(other)
        except ConflictError:
            self.tally["contradicted"] += 1
        assert self._store.add_usage([other]) == (other,)

    # -- the books -----------------------------------------------------------------------------------------------------

    def _close(self, start: int) -> None:
        """An hour is closed, as the product does it."""
        end = start + NS_PER_HOUR
        for record in self._running.values():
            if record.arrived_ns + record.wait_ns < end < record.arrived_ns + record.total_ns:
                self._note(record, end)
        self._ledger.close()
        store = self._store
        store.save_running(self._notes.values())
        store.add_meters(self._standings(start, end))
        store.add_meters(_cut(self._spans, start, end))
        work = store.hour_work(POOL, start)
        hour = hour_from(work, store.last_standing(POOL, start), rates(start))
        postings = close(hour)
        there, supplied = devices(hour), charged(postings)
        assert there == MILLI_GPU * NS_PER_HOUR == supplied
        books = Reconciliation(POOL, start, there, supplied, hour.rates, 0, 0, {})
        assert store.close_hour(Closing(POOL, start, postings, books, work))
        for posting in postings:
            assert posting.hour_ns == start
            self._books[entry_of(posting)] += posting.quantity
        self.tally["hours"] += 1
        self.tally["postings"] += len(postings)
        self.tally["corrections"] += sum(posting.about_ns != start for posting in postings)

    def _standings(self, start: int, end: int) -> Iterator[Standing]:
        """Twice each, since they are noted while they last; with a guarantee that is another one from half past on."""
        half = start + NS_PER_HOUR // 2
        for since, until in [*self._lived, (self._back, end)]:
            for first, last, more in ((start, half, 0), (half, end, 500)):
                a, b = max(since, first), min(until, last)
                if a < b:
                    guaranteed = GUARANTEED | {"tenant:lab": GUARANTEED["tenant:lab"] + more}
                    yield Standing(POOL, a, (a + b) // 2, MILLI_GPU, guaranteed)
                    yield Standing(POOL, a, b, MILLI_GPU, guaranteed)

    def _check(self) -> None:
        """The books say what the model says, and what the records are worth; all accounts sum to zero."""
        records = list(self._store._records.values())  # noqa: SLF001 - all of them, whatever they are about
        model = self._ledger
        assert model.pending == 0
        assert len(records) == len(self._told)
        assert _only(self._books, WORKED | {Kind.FEE}) == _only(model.entries, WORKED | {Kind.FEE})
        assert min(self._books.values()) >= 0
        assert sum(q for entry, q in self._books.items() if entry[1] in WORKED) == sum(r.milli_gpu_ns for r in records)
        assert sum(balances(self._books).values()) == 0
        owed: Counter[str] = Counter()
        for record in records:
            if is_charged(record):
                owed[f"tenant:{record.tenant}"] += worth(record)
        for entry, quantity in self._books.items():
            if entry[1] in WORKED and entry[2] == f"tenant:{entry[6].tenant}":
                owed[entry[2]] -= cost(entry, quantity)
        assert not any(owed.values())
        supplied = sum(q for entry, q in self._books.items() if entry[1] in SUPPLIED)
        assert supplied == self.tally["hours"] * MILLI_GPU * NS_PER_HOUR
        self.tally["milli_gpu_ns"] = supplied
        self.tally["records"] = len(records)
        self.tally["cycles"] = len({record.request_id for record in records})


def worth(record: UsageRecord) -> int:
    """What a charged attempt costs its tenant, worked out without hours: what it borrowed, and the rest."""
    began = record.arrived_ns + record.wait_ns
    pieces = [(record.milli_gpu, began, began + record.run_ns, PRICES)]
    for loan in record.loans:
        pieces.append((-loan.milli_gpu, loan.start_ns, loan.end_ns, PRICES))
        pieces.append((loan.milli_gpu, loan.start_ns, loan.end_ns, LENDING))
    total = 0
    for milli_gpu, start, end, (before, after) in pieces:
        turn = min(max(start, MONTH_END), end)
        total += milli_gpu * ((turn - start) * before + (end - turn) * after)
    return total


def _key(record: UsageRecord) -> tuple[str, int]:
    return record.request_id, record.attempt


def _noted(record: UsageRecord, until_ns: int) -> UsageRecord:
    """What is known of an attempt while it runs."""
    began = record.arrived_ns + record.wait_ns
    run = until_ns - began
    loans = record.loans and tuple(
        loan if loan.end_ns <= until_ns else msgspec.structs.replace(loan, end_ns=until_ns, reason=LoanEnd.RUNNING)
        for loan in record.loans
        if loan.start_ns <= until_ns
    )
    return msgspec.structs.replace(
        record,
        outcome=Outcome.RUNNING,
        total_ns=until_ns - record.arrived_ns,
        run_ns=run,
        milli_gpu_ns=record.milli_gpu * run,
        micro_per_gpu_hour=PRICES[began >= MONTH_END],
        tokens_in=0,
        tokens_cached=0,
        tokens_out=0,
        loans=loans,
    )


def _cut(spans: list[Span], start: int, end: int) -> Iterator[Span]:
    for each in spans:
        a, b = max(start, each.start_ns), min(end, each.end_ns)
        if a < b:
            yield msgspec.structs.replace(each, start_ns=a, end_ns=b)


def _only(entries: Counter[Entry], kinds: frozenset[Kind]) -> Counter[Entry]:
    return Counter({entry: quantity for entry, quantity in entries.items() if entry[1] in kinds and quantity})
