"""The ledger in every store: what an hour's books are made of, what is kept of them, and what they answer."""

from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.core import closing as books
from commonpool.core.billing import HourlySum, PostingSum
from commonpool.core.ledger import GPU_HOUR, Counted, Hour, Kind, Phase, Span, Use, Work
from commonpool.core.model import NS_PER_HOUR as HOUR
from commonpool.core.model import Outcome, UsageRecord
from commonpool.core.pricing import is_charged
from commonpool.core.settling import metered, parts, work_of
from commonpool.store.contract import QueryError, Store
from commonpool.store.hour import began, ended
from commonpool.store.ledger import (
    Closing,
    EndPlace,
    Hourly,
    HourWork,
    Part,
    Period,
    PeriodClosedError,
    Reading,
    ReadingConflictError,
)
from commonpool.store.memory import MemoryStore
from commonpool.store.sqlite import SqliteStore
from tests.store.ledgers import MIN, NOTHING, RATES, STANDING, WORK, close, late, lent, noted, posting, ran, use
from tests.store.records import T0, refused

# What is noted


def test_what_runs_replaces_what_ran(store: Store) -> None:
    long = noted(ran("r2", 0, HOUR, milli_gpu_ns=2**70, loans=(lent("b", 0, 9),)), 9)
    store.save_running([long, noted(ran("r1", 0, HOUR), 9)])
    assert [record.request_id for record in store.running()] == ["r1", "r2"]
    store.save_running([long])
    assert store.running() == (long,)
    store.save_running([])
    assert store.running() == ()


def test_a_note_that_comes_again_moves_its_end_and_never_back(store: Store) -> None:
    span = Span("m-0", Phase.LOADING, "main", "m", "tenant:a", 1000, T0 + 5, T0 + 9)
    serving = msgspec.structs.replace(span, phase=Phase.SERVING)
    store.add_meters([STANDING, span, serving])
    longer = msgspec.structs.replace(span, end_ns=T0 + 20)
    store.add_meters([longer, msgspec.structs.replace(STANDING, end_ns=T0 + 7)])
    work = store.hour_work("main", T0)
    assert (work.standings, work.spans) == ((STANDING,), (longer, serving))


def test_the_books_of_a_pool_begin_with_its_first_standing(store: Store) -> None:
    later = msgspec.structs.replace(STANDING, start_ns=T0 + 10, end_ns=T0 + 20)
    store.add_meters([later, msgspec.structs.replace(STANDING, pool="other")])
    assert store.first_noted("main") == T0 + 10
    assert (store.last_standing("main", T0 + 11), store.last_standing("main", T0 + 10)) == (later, None)
    assert store.first_noted("none") is None
    close(store, 0)
    assert store.first_noted("main") == T0 + 10
    close(store, 0, pool="none")
    assert store.first_noted("none") == T0


# What an hour's books are made of


def test_of_a_quiet_hour_there_is_nothing(store: Store) -> None:
    assert store.hour_work("main", T0) == HourWork("main", T0, (), (), (), (), (), (), (), (), 0)


def test_an_hour_begins_at_a_quarter_of_an_hour_as_in_every_time_zone(store: Store) -> None:
    store.add_usage([ran("r1", HOUR // 4 - 10, 30)])
    assert store.hour_work("main", T0 + HOUR // 4).uses == (use(5000),)
    with pytest.raises(ValueError, match="An hour of the books begins at a quarter of an hour, not at"):
        store.hour_work("main", T0 + 1)


def test_attempts_in_the_hour_are_added_up_by_work(store: Store) -> None:
    store.add_usage(
        [
            ran("r1", 5, 10, loans=(lent("b", 5, 4), lent("", 9, 1), lent("b", 10, 1))),
            ran("r2", 5, 20, tokens_in=7, tokens_cached=2, tokens_out=1, bytes_in=10, bytes_out=90),
            ran("r3", 5, 30, outcome=Outcome.FAILED, micro_per_gpu_hour=0, tokens_in=0, tokens_cached=0, tokens_out=0),
            ran("r3", 50, 1, attempt=2, app="other", milli_gpu=1000),
            ran("j1", 0, 9, endpoint="job", outcome=Outcome.FAILED, cpu_ns=2**62, memory_mib_s=8, gpu_memory_mib_s=9),
            refused("r4", arrived_ns=T0 + 3, total_ns=0, micro_per_gpu_hour=0),
            ran("r5", 5, 20, pool="other"),
        ]
    )
    work = store.hour_work("main", T0)
    job, other = (msgspec.structs.replace(WORK, **change) for change in ({"endpoint": "job"}, {"app": "other"}))
    assert work.uses == (
        use(250 * 30, charged=False),
        Use(WORK, True, 250 * 30, {"": 100, "b": 500}),
        Use(job, True, 250 * 9),
        Use(other, True, 1000),
    )
    tokens = {"million_tokens_in": 60, "million_tokens_cached": 40, "million_tokens_out": 30}
    both = {"million_tokens_in": 65, "million_tokens_cached": 42, "million_tokens_out": 31}
    assert work.counted == (
        Counted(WORK, {"request": 2, "network_gb": 100, **both}),
        Counted(job, {"cpu_hour": 1000 * 2**62, "memory_gib_hour": 8, "gpu_memory_gib_hour": 9, **tokens}),
        Counted(other, {"request": 1, **tokens}),
    )
    assert work.hourly == (
        Hourly(WORK, 4, 2, 4, 207, 82, 31, 250 * 60),
        Hourly(job, 1, 0, 1, 100, 40, 30, 250 * 9),
        Hourly(other, 0, 1, 1, 100, 40, 30, 1000),
    )
    assert (work.late, work.parts, work.seq > 0) == ((), (), True)


def test_an_attempt_over_an_hours_end_is_posted_in_parts_and_counted_once(store: Store) -> None:
    long = ran("r1", HOUR - 10, 30, loans=(lent("b", HOUR - 4, 8),))
    # given it runs at the end of the first hour, when that is closed
    store.save_running([noted(long, HOUR)])
    first = close(store, 0)
    assert first.uses == (use(250 * 10, b=400),)
    assert (first.parts, first.counted) == ((Part("r1", 1, T0, T0 + HOUR, use(2500, b=400)),), ())
    # when it has ended, then the next hour has the rest
    store.save_running([])
    store.add_usage([long])
    second = close(store, HOUR)
    assert second.uses == (use(250 * 20, b=400),)
    assert (second.late, second.parts) == ((), ())
    assert [(each.attempts, each.milli_gpu_ns) for each in first.hourly + second.hourly] == [(0, 2500), (1, 5000)]
    assert close(store, 2 * HOUR).uses == ()


def test_one_that_has_ended_since_the_hour_is_posted_in_parts_too(store: Store) -> None:
    long = ran("r1", HOUR - 10, 30)
    store.add_usage([long])
    store.save_running([noted(long, HOUR)])  # the note is older than the record
    first = close(store, 0)
    assert (first.uses, first.parts) == ((use(2500),), (Part("r1", 1, T0, T0 + HOUR, use(2500)),))
    assert close(store, HOUR).uses == (use(5000),)


def test_the_ends_of_an_hour(store: Store) -> None:
    store.add_usage([ran("r1", -10, 10), ran("r2", HOUR - 10, 10), ran("r3", HOUR, 10), ran("r4", -10, 11)])
    work = store.hour_work("main", T0)
    assert work.uses == (use(2500 + 250),)
    assert [each.attempts for each in work.hourly] == [2]


def test_what_failed_after_all_is_taken_back(store: Store) -> None:
    long = ran("r1", HOUR - 10, 2 * HOUR, outcome=Outcome.FAILED, micro_per_gpu_hour=0, loans=(lent("b", HOUR - 1, 9),))
    for hour in (0, HOUR):
        store.save_running([noted(long, hour + HOUR)])
        close(store, hour)
    store.save_running([])
    store.add_usage([long])
    work = close(store, 2 * HOUR)
    assert work.uses == (use(250 * (HOUR - 10), charged=False),)
    assert work.late == (
        late(0, use(2500, charged=False, b=100), returned=(use(2500, b=100),)),
        late(HOUR, use(250 * HOUR, charged=False, b=800), returned=(use(250 * HOUR, b=800),)),
    )
    assert [each.milli_gpu_ns for each in work.hourly] == [250 * (HOUR - 10)]
    assert close(store, 3 * HOUR).late == ()


def test_what_ended_before_it_was_posted_to_have_run_is_taken_back(store: Store) -> None:
    """A job on a node that was cut off: it is heard of two hours later that it had ended long ago."""
    job = ran("j1", HOUR - 10, 2 * HOUR, endpoint="job", loans=(lent("b", HOUR - 8, 2 * HOUR),))
    works = []
    for hour in (0, HOUR):
        store.save_running([noted(job, hour + HOUR)])
        works.append(close(store, hour))
    store.save_running([])
    ended = ran("j1", HOUR - 10, 7, endpoint="job", loans=(lent("b", HOUR - 8, 5),))
    store.add_usage([ended])
    work = close(store, 2 * HOUR)
    kind = msgspec.structs.replace(WORK, endpoint="job")
    assert [(each.about_ns, each.uses, each.returned) for each in work.late] == [
        (T0, (Use(kind, True, 7 * 250, {"b": 500}),), (Use(kind, True, 2500, {"b": 800}),)),
        (T0 + HOUR, (), (Use(kind, True, 250 * HOUR, {"b": 100 * HOUR}),)),
    ]
    assert sum(each.milli_gpu_ns for made in (*works, work) for each in made.hourly) == ended.milli_gpu_ns
    assert close(store, 3 * HOUR).late == ()


def test_what_is_taken_back_is_what_was_posted_whatever_loans_the_record_has(store: Store) -> None:
    """After a restart a job that goes on borrows of others; its record knows those alone."""
    long = ran("j1", HOUR - 10, HOUR, loans=(lent("b", HOUR - 10, HOUR),))
    store.save_running([noted(long, HOUR)])
    close(store, 0)
    store.save_running([])
    store.add_usage([msgspec.structs.replace(long, outcome=Outcome.FAILED, micro_per_gpu_hour=0, loans=())])
    (put_right,) = close(store, HOUR).late
    assert put_right == late(0, use(2500, charged=False, b=1000), returned=(use(2500, b=1000),))


def test_what_is_heard_of_late_is_about_its_hours(store: Store) -> None:
    close(store, 0)
    close(store, HOUR)
    store.add_usage([ran("r1", HOUR - 10, 30), ran("r2", 5, 10), ran("r3", 2 * HOUR - 10, 50)])
    work = close(store, 2 * HOUR)
    assert work.uses == (use(250 * 40),)
    tokens = {"million_tokens_in": 60, "million_tokens_cached": 40, "million_tokens_out": 30, "request": 1}
    assert work.late == (
        late(0, use(2500 + 2500), counted=(Counted(WORK, tokens),)),
        late(HOUR, use(5000 + 2500), counted=(Counted(WORK, tokens),)),
    )
    assert work.counted == (Counted(WORK, tokens),)
    assert [(each.attempts, each.milli_gpu_ns) for each in work.hourly] == [(3, 250 * 90)]
    assert close(store, 3 * HOUR).late == ()


def test_of_what_was_noted_too_early_the_rest_is_late(store: Store) -> None:
    long = ran("r1", HOUR - 30, 100, loans=(lent("b", HOUR - 8, 10),))
    store.save_running([noted(long, HOUR - 10)])
    first = close(store, 0)
    assert first.parts == (Part("r1", 1, T0, T0 + HOUR - 10, use(250 * 20)),)
    store.save_running([noted(long, HOUR - 30)])  # it began: until when it ran is not known
    assert close(store, 0 + HOUR, pool="other").uses == ()
    store.save_running([])
    store.add_usage([long])
    second = close(store, HOUR)
    assert (first.uses, second.uses) == ((use(250 * 20),), (use(250 * 70, b=200),))
    assert second.late == (late(0, use(2500, b=800)),)


def test_what_was_before_the_books_began_is_in_none(store: Store) -> None:
    store.add_usage([ran("r1", -10, 30), ran("r2", -20, 5)])
    work = close(store, 0)
    assert (work.uses, work.late) == ((use(5000),), ())
    store.add_usage([ran("r3", -40, 10)])
    after = close(store, HOUR)
    assert (after.late, [each.attempts for each in after.hourly]) == ((), [1])


# What is kept of them


def test_an_hour_is_closed_once(store: Store) -> None:
    assert store.closed_until("main") is None
    store.save_running([noted(ran("r1", 0, HOUR * 2), HOUR)])
    work = close(store, 0, posting())
    again = Closing("main", T0, (posting(quantity=99),), NOTHING, work)
    assert not store.close_hour(again)
    assert store.posting_sums([], T0, T0 + HOUR, {})[0].quantity == 10
    assert (store.closed_until("main"), store.closed_until("other")) == (T0 + HOUR, None)


def test_reconciliations_come_back(store: Store) -> None:
    big = msgspec.structs.replace(NOTHING, devices=2**70, charged=2**70, held=-(2**65), causes={"not seen": 2**66})
    later = msgspec.structs.replace(big, hour_ns=T0 + HOUR)
    other = msgspec.structs.replace(big, pool="b")
    for each in (later, other, big):
        work = store.hour_work(each.pool, each.hour_ns)
        store.close_hour(Closing(each.pool, each.hour_ns, (), each, work))
    assert store.reconciliations(T0, T0 + 2 * HOUR) == (other, big, later)
    assert store.reconciliations(T0, T0 + HOUR) == (other, big)


def test_postings_are_added_up_by_what_is_asked(store: Store) -> None:
    job = msgspec.structs.replace(WORK, endpoint="job", stream=False)
    close(
        store,
        0,
        posting(quantity=2**70),
        posting(work=job, quantity=7),
        posting(kind=Kind.LENT, debit="tenant:b", work=Work(), quantity=3),
        posting(kind=Kind.BORROWED, credit="tenant:b", micro=4, quantity=3),
        posting(kind=Kind.FEE, credit="platform", meter="request", quantity=2),
    )
    close(
        store,
        HOUR,
        posting(hour_ns=T0 + HOUR, about_ns=T0 + HOUR, quantity=2**70),
        posting(hour_ns=T0 + HOUR, quantity=-5),  # about the hour before
    )
    paid = ("tenant:a", "pool:main", GPU_HOUR, 5)
    assert store.posting_sums(["type"], T0, T0 + 2 * HOUR, {"kind": ("used",)}) == (
        PostingSum(("batch",), "used", *paid, 7, "main"),
        PostingSum(("stream",), "used", *paid, 2**71 - 5, "main"),
    )
    assert store.posting_sums([], T0 + HOUR, T0 + 2 * HOUR, {}) == (
        PostingSum((), "used", *paid, 2**70, "main"),
        PostingSum((), "used", *paid, -5, "main", correction=True),
    )
    of_b = store.posting_sums(["tenant", "app"], T0, T0 + HOUR, {"tenant": ("b",)})
    assert [(each.keys, each.kind, each.quantity) for each in of_b] == [
        (("", ""), "lent", 3),
        (("a", "chat"), "borrowed", 3),
    ]
    assert of_b == store.posting_sums(["tenant", "app"], T0, T0 + HOUR, {"account": ("tenant:b",)})
    assert [each.quantity for each in store.posting_sums([], T0, T0 + HOUR, {"meter": ("request",)})] == [2]
    assert store.posting_sums([], T0, T0 + HOUR, {"type": ("sync",)}) == ()
    assert store.posting_sums([], T0, T0 + HOUR, {"pool": ()}) == ()


def test_counts_are_added_up_by_what_is_asked(store: Store) -> None:
    store.add_usage(
        [ran("r1", 5, 10), ran("r2", 5, 10, tenant="b"), ran("r3", HOUR + 5, 10), ran("r4", 5, 10, pool="p")]
    )
    close(store, 0)
    close(store, HOUR)
    close(store, 0, pool="p")
    one = (100, 40, 30, 2500)
    assert store.hourly_sums(["tenant", "pool"], T0, T0 + 2 * HOUR, {}) == (
        HourlySum(("a", "main"), 2, 2, 2, *(2 * count for count in one)),
        HourlySum(("a", "p"), 1, 1, 1, *one),
        HourlySum(("b", "main"), 1, 1, 1, *one),
    )
    assert store.hourly_sums([], T0 + HOUR, T0 + 2 * HOUR, {"tenant": ("a",)}) == (HourlySum((), 1, 1, 1, *one),)
    assert store.hourly_sums([], T0, T0 + HOUR, {"tenant": ("c",)}) == ()


@pytest.mark.parametrize(
    ("by", "filters", "sentence"),
    [
        (["day"], {}, "Books cannot be grouped by 'day'; allowed are tenant, .* type, pool."),
        ([], {"hour": ("1",)}, "These books cannot be filtered by 'hour'; allowed are tenant, .*"),
        ([], {"tenant": "ab"}, "The filter 'tenant' is a list of values, not the single text 'ab'."),
    ],
)
def test_a_question_that_makes_no_sense_is_told_so(
    store: Store, by: list[str], filters: dict[str, Any], sentence: str
) -> None:
    for ask in (store.posting_sums, store.hourly_sums):
        with pytest.raises(QueryError, match=sentence):
            ask(by, T0, T0 + HOUR, filters)
    with pytest.raises(QueryError, match="until_ns is -1"):
        store.posting_sums([], T0, -1, {})
    with pytest.raises(QueryError, match="cannot be filtered by 'account'"):
        store.hourly_sums([], T0, T0, {"account": ("platform",)})


# Readings and periods


def test_a_reading_is_counted_in_its_hours_in_proportion(store: Store) -> None:
    reading = Reading("d1", "storage_gib_hour", "a", 2**70 + 1, T0 + HOUR // 2, T0 + 3 * HOUR, "chat", "cc-1", "main")
    assert store.add_reading(reading)
    assert not store.add_reading(reading)
    works = [close(store, hour) for hour in (0, HOUR, 2 * HOUR, 3 * HOUR)]
    work = Work(tenant="a", app="chat", cost_center="cc-1")
    counted = [each.quantities["storage_gib_hour"] for made in works for each in made.counted if each.work == work]
    assert (len(counted), sum(counted)) == (3, 2**70 + 1)
    assert counted[0] == (2**70 + 1) // 5


def test_of_a_reading_about_closed_hours_all_is_counted_in_the_next(store: Store) -> None:
    close(store, 0, pool="")
    work = store.hour_work("", T0 + HOUR)
    assert work.readings == ()
    store.add_reading(Reading("d1", "storage_gib_hour", "a", 100, T0 - HOUR, T0 + 3 * HOUR))
    store.close_hour(Closing("", T0 + HOUR, (), NOTHING, work))  # it came too late for this one
    counted = [close(store, hour, pool="").counted for hour in (2 * HOUR, 3 * HOUR)]
    assert counted == [(Counted(Work(tenant="a"), {"storage_gib_hour": 100}),), ()]


def test_a_reading_with_other_content_is_refused(store: Store) -> None:
    reading = Reading("d1", "storage_gib_hour", "a", 100, T0, T0 + HOUR)
    store.add_reading(reading)
    with pytest.raises(ReadingConflictError, match="There is a reading 'd1' already and it says otherwise"):
        store.add_reading(msgspec.structs.replace(reading, quantity=101))


def test_a_period_is_closed_once_and_nothing_is_measured_in_it_later(store: Store) -> None:
    period = Period("2024-01", T0, T0 + 24 * HOUR, T0 + 30 * HOUR, "ops", b'{"total": 5}')
    earlier = msgspec.structs.replace(period, name="2023-12", start_ns=T0 - HOUR, end_ns=T0)
    store.add_period(period)
    store.add_period(earlier)
    assert store.periods() == (earlier, period)
    with pytest.raises(PeriodClosedError, match=r"^The period 2024-01 is closed already\.$"):
        store.add_period(period)
    with pytest.raises(PeriodClosedError, match="The period 2024-01-01 has days of 2024-01, which is closed already"):
        store.add_period(msgspec.structs.replace(period, name="2024-01-01", end_ns=T0 + HOUR))
    reading = Reading("d1", "storage_gib_hour", "a", 100, T0 + 23 * HOUR, T0 + 24 * HOUR)
    with pytest.raises(PeriodClosedError, match="The reading 'd1' ends in the period 2024-01, which is closed"):
        store.add_reading(reading)
    assert store.add_reading(msgspec.structs.replace(reading, end_ns=T0 + 25 * HOUR))


# What the books were made of, and how long it is kept


def test_what_hours_were_made_of_comes_in_pages(store: Store) -> None:
    goes_on, job = ran("r2", 2 * HOUR - 10, 30), ran("r4", HOUR + 5, 10, endpoint="job", stream=False)
    records = [
        ran("r1", HOUR - 10, 30),
        ran("r3", HOUR + 5, 5, tenant="b"),
        job,
        ran("r5", 5, 5),
        ran("r6", 3 * HOUR, 5),
    ]
    store.add_usage(records)
    close(store, 0)
    store.save_running([noted(goes_on, 2 * HOUR)])
    close(store, HOUR)
    store.add_usage([goes_on])
    hour = T0 + HOUR, T0 + 2 * HOUR
    found = store.worked(*hour, {}, None, 9)
    assert [record.request_id for record in found] == ["r3", "r4", "r1", "r2"]
    uses = [parts(record, *hour) for record in found]
    assert sum(each.milli_gpu_ns for each in uses if each) == 250 * 45
    assert store.hourly_sums([], *hour, {})[0].milli_gpu_ns == 250 * 45
    for limit in (1, 2, 3):
        pages: list[UsageRecord] = []
        after: EndPlace | None = None
        while page := store.worked(*hour, {}, after, limit):
            pages += page
            after = ended(page[-1]), page[-1].request_id, page[-1].attempt
        assert tuple(pages) == found
    assert store.worked(*hour, {"type": ("batch",)}, None, 9) == (job,)
    assert [record.request_id for record in store.worked(*hour, {"tenant": ("b",), "pool": ("main",)}, None, 9)] == [
        "r3"
    ]
    assert store.worked(*hour, {"tenant": ()}, None, 9) == ()
    with pytest.raises(QueryError, match="cannot be filtered by 'kind'"):
        store.worked(*hour, {"kind": ("used",)}, None, 9)
    # As far as the second of them that ended: those that go on are behind it.
    assert [store.ending(*hour, number) for number in (1, 2, 3, 4)] == [*map(ended, found[:3]), None]
    assert store.ending(ended(found[0]), hour[1], 1) == ended(found[1])
    assert store.worked(*hour, {}, None, 9, ended(found[1])) == found[:2]
    assert store.worked(*hour, {}, (ended(found[1]) + 1, "", 0), 9) == found[2:]


def test_old_records_are_forgotten_once_their_hours_are_closed(store: Store) -> None:
    span = Span("m-0", Phase.LOADING, "main", "m", "tenant:a", 1000, T0 + 5, T0 + 9)
    later = msgspec.structs.replace(STANDING, start_ns=T0 + HOUR, end_ns=T0 + 2 * HOUR)
    store.add_meters([STANDING, later, span, msgspec.structs.replace(span, start_ns=T0 + HOUR, end_ns=T0 + HOUR + 1)])
    loans = (lent("b", 5, 9),)
    store.add_usage([ran(f"r{n}", n, 10, loans=loans) for n in (3, 1, 2)] + [ran("r9", HOUR + 1, 10)])
    store.add_usage([ran("old", 1, 1, pool="gone")])  # of no pool whose books are kept
    # given nothing is closed, then only what has no books goes
    assert store.prune(T0 + 5 * HOUR, 100) == 0  # it is the last record of all
    store.add_usage([ran("last", 1, 1, pool="gone")])
    assert store.prune(T0 + 5 * HOUR, 100) == 1
    # when the first hour is closed, then what was in it goes, the oldest first
    close(store, 0, posting())
    assert store.prune(T0 + 5 * HOUR, 2) == 2
    assert [len(store.record(name)) for name in ("old", "r1", "r2", "r3", "r9", "last")] == [0, 0, 0, 1, 1, 1]
    assert store.prune(T0 + 5, 2) == 0
    assert store.prune(T0 + 5 * HOUR, 2) == 1
    assert [(row.loans, row.lender) for row in store.loans(T0 - HOUR, T0 + HOUR)] == []
    # and its notes, but for the last standing; what was posted stays
    assert store.hour_work("main", T0).spans == ()
    assert len(store.hour_work("main", T0 + HOUR).spans) == 1
    assert (store.first_noted("main"), store.last_standing("main", T0 + 9 * HOUR)) == (T0, later)
    assert len(store.posting_sums([], T0, T0 + HOUR, {})) == 1
    # and the next hour knows what it must
    assert close(store, HOUR).uses == (use(2500),)


def test_the_parts_of_what_runs_long_are_kept_as_long_as_it_runs(store: Store) -> None:
    job = ran("j1", 0, 3 * HOUR)
    for hour in (0, HOUR):
        store.save_running([noted(job, hour + HOUR)])
        close(store, hour)
    store.add_usage([ran("r1", 0, 10, pool="gone")])
    assert store.prune(T0 + 2 * HOUR, 10) == 0
    store.save_running([])
    store.add_usage([job])
    work = close(store, 2 * HOUR)
    assert (work.uses, work.late) == ((use(250 * HOUR),), ())


def test_books_that_are_closed_credit_the_pool_with_all_it_had(store: Store) -> None:
    store.add_meters([STANDING, Span("m-0", Phase.LOADING, "main", "m", "tenant:a", 1000, T0, T0 + MIN)])
    store.add_usage([ran("r1", 5, MIN, milli_gpu=2000, loans=(lent("g", 5, MIN, 500), lent("", 5, MIN, 7)))])
    work = store.hour_work("main", T0)
    hour = Hour("main", T0, RATES, work.standings, work.spans, work.uses, work.counted, work.late)
    postings = books.close(hour)
    store.close_hour(Closing("main", T0, postings, NOTHING, work))
    sums = store.posting_sums(["tenant"], T0, T0 + HOUR, {})
    assert sum(each.quantity for each in sums if each.credit == "pool:main") == 8000 * HOUR
    assert {(each.debit, each.credit, each.quantity) for each in sums if each.kind == "borrowed"} == {
        ("tenant:a", "group:g", 500 * MIN),
        ("tenant:a", "platform", 7 * MIN),
    }


# Laws


def world(random: Random, count: int) -> tuple[list[UsageRecord], list[UsageRecord]]:
    """Attempts over two hours, and those of them that are heard of late."""
    records = []
    for number in range(count):
        start, length = (
            1 + random.randrange(2 * HOUR),
            random.choice([0, 5, random.randrange(HOUR), random.randrange(2 * HOUR)]),
        )
        charged = random.random() < 0.8
        loans = []
        if random.random() < 0.5 and length:
            cut = random.randrange(length)
            loans = [lent(random.choice("bc"), start, cut), lent(random.choice(["", "b"]), start + cut, length - cut)]
        records.append(
            ran(
                f"r{number // 2 if random.random() < 0.1 else number}",
                start,
                length,
                attempt=number + 1,
                tenant=random.choice("ab"),
                stream=random.random() < 0.5,
                endpoint=random.choice(["chat", "job"]),
                milli_gpu=random.choice([100, 8000]),
                loans=tuple(loans),
                pool=random.choice(["main", "main", "p"]),
                outcome=Outcome.COMPLETED if charged else Outcome.FAILED,
                micro_per_gpu_hour=random.choice([2_000_000, 0, -1]) if charged else 0,
                tokens_in=random.randrange(50, 99),
            )
        )
    return records, [record for record in records if random.random() < 0.2]


def live(store: Store, records: list[UsageRecord], delayed: list[UsageRecord], hours: int) -> list[HourWork]:
    """Closes hour by hour, a little after its end, what was noted until then; late ones come two hours later."""
    closed = []
    come: set[tuple[str, int]] = set()
    for end in range(HOUR, (hours + 1) * HOUR, HOUR):
        now = end + MIN
        new = [
            record
            for record in records
            if (record.request_id, record.attempt) not in come
            and ended(record) + (2 * HOUR if record in delayed else 0) <= T0 + now
        ]
        come |= {(record.request_id, record.attempt) for record in new}
        store.add_usage(new)
        known = (
            record for record in records if (record.request_id, record.attempt) not in come and record not in delayed
        )
        store.save_running(noted(record, end) for record in known if began(record) < T0 + end)
        closed += [close(store, end - HOUR), close(store, end - HOUR, pool="p")]
    return closed


def check_all_is_posted_once(records: list[UsageRecord], closed: list[HourWork]) -> None:
    used: dict[tuple[Work, bool], int] = {}
    borrowed: dict[tuple[Work, bool, str], int] = {}
    for work in closed:
        changes = [(1, each) for each in work.uses]
        for right in work.late:
            changes += [*((1, each) for each in right.uses), *((-1, each) for each in right.returned)]
        for sign, each in changes:
            key = each.work, each.charged
            used[key] = used.get(key, 0) + sign * each.milli_gpu_ns
            for lender, amount in each.borrowed.items():
                borrowed[*key, lender] = borrowed.get((*key, lender), 0) + sign * amount
    for record in records:
        key = work_of(record), is_charged(record)
        used[key] = used.get(key, 0) - record.milli_gpu_ns
        for loan in record.loans:
            length = loan.end_ns - loan.start_ns
            borrowed[*key, loan.lender] = borrowed.get((*key, loan.lender), 0) - loan.milli_gpu * length
    assert not any(used.values())
    assert not any(borrowed.values())
    assert sum(each.attempts for work in closed for each in work.hourly) == len(records)
    for meter in ("million_tokens_in", "request"):
        every = [
            each for work in closed for each in (*work.counted, *(c for right in work.late for c in right.counted))
        ]
        counted = sum(each.quantities.get(meter, 0) for each in every)
        assert counted == sum(metered(record).get(meter, 0) for record in records)


def test_every_store_makes_the_same_books(store: Store) -> None:
    records, delayed = world(Random(7), 150)
    closed = live(store, records, delayed, 7)
    check_all_is_posted_once(records, closed)
    memory = MemoryStore()
    assert live(memory, records, delayed, 7) == closed
    assert store.hourly_sums(["tenant", "type", "pool"], T0, T0 + 7 * HOUR, {}) == memory.hourly_sums(
        ["tenant", "type", "pool"], T0, T0 + 7 * HOUR, {}
    )


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 25))
def test_all_that_ran_is_posted_once_whenever_it_is_heard_of(random: Random, count: int) -> None:
    records, delayed = world(random, count)
    with TemporaryDirectory() as folder, closing(SqliteStore(Path(folder))) as sqlite:
        closed = live(sqlite, records, delayed, 7)
        assert closed == live(MemoryStore(), records, delayed, 7)
    check_all_is_posted_once(records, closed)
