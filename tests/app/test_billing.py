"""Given closed months, when their bills are asked for, then they are what they were when they were closed."""

import asyncio

import pytest

from commonpool.api.operations import Billed, Worked
from commonpool.core.billing import Bill
from commonpool.core.english import english
from commonpool.core.ledger import Standing
from commonpool.core.said import say
from commonpool.store.ledger import Reading
from tests.api.books import BILLED, HOUR, at, billed, keep, work
from tests.api.fakes import FakeOperations, sources

SINCE, UNTIL = "2026-12-30 00:00", "2027-01-02 00:00"


@pytest.fixture
def product() -> FakeOperations:
    product = billed()
    keep(product, SINCE, UNTIL, [work("r1", "2027-01-01 01:00", 2 * HOUR, loan=500)])
    return product


def ask(product: FakeOperations, since: str, until: str, *by: str) -> Billed:
    return asyncio.run(product.bills().bill(at(since), at(until), by, {}))


def close(product: FakeOperations, name: str = "2026-12") -> None:
    asyncio.run(product.bills().close(name, "k1"))


def lines(bill: Bill) -> dict[tuple[str, ...], int]:
    return {line.keys: line.total_micro for line in bill.lines}


def test_closing_changes_no_figure(product: FakeOperations) -> None:
    before = ask(product, SINCE, UNTIL, "day", "tenant", "app")
    close(product)
    assert ask(product, SINCE, UNTIL, "day", "tenant", "app").bill == before.bill


def test_a_closed_month_never_changes(product: FakeOperations) -> None:
    close(product)
    december = ask(product, "2026-12-01 00:00", "2027-01-01 00:00", "tenant", "group")
    january = ask(product, "2027-01-01 00:00", UNTIL, "tenant", "group")
    changed = BILLED.replace("month: 400", "month: 900")
    product.configure(sources(changed.replace(", group: science", "")))
    assert ask(product, "2026-12-01 00:00", "2027-01-01 00:00", "tenant", "group") == december
    assert december.closed
    now = ask(product, "2027-01-01 00:00", UNTIL, "tenant", "group")
    assert not now.closed
    assert now.bill.total_micro > january.bill.total_micro
    assert ("research", "science") in lines(december.bill)
    assert ("research", "") in lines(now.bill)


def test_a_period_of_closed_and_open_days(product: FakeOperations) -> None:
    close(product)
    both = ask(product, "2026-12-31 00:00", UNTIL, "day")
    parts = [
        ask(product, "2026-12-31 00:00", "2027-01-01 00:00", "day"),
        ask(product, "2027-01-01 00:00", UNTIL, "day"),
    ]
    assert lines(both.bill) == lines(parts[0].bill) | lines(parts[1].bill)
    assert [each.closed for each in (both, *parts)] == [False, True, False]
    assert (both.bill.start_ns, both.bill.end_ns) == (at("2026-12-31 00:00"), at(UNTIL))


def test_in_another_time_zone_no_day_is_lost_or_billed_twice() -> None:
    product = billed(BILLED.replace("Europe/Berlin", "UTC"), "2027-02-02 00:30")
    keep(product, "2026-12-30 01:00", "2027-02-01 02:00", [work("r1", "2027-01-01 01:30", 2 * HOUR)])
    close(product)
    product.configure(sources(BILLED))
    later = at("2027-01-01 01:00")  # midnight UTC
    december = ask(product, "2026-12-01 00:00", "2027-01-01 00:00", "day")
    january = ask(product, "2027-01-01 00:00", "2027-02-01 00:00", "day")
    assert [("2026-12-31",) in lines(each.bill) for each in (december, january)] == [True, False]
    assert (december.bill.end_ns, january.bill.start_ns) == (later, later)
    every = product.store.posting_sums([], 0, at("2027-02-01 00:00"), {})
    supplied = sum(each.quantity for each in every if each.credit == "pool:main")
    found = (sum(line.milli_gpu_ns.values()) for billed in (december, january) for line in billed.bill.lines)
    assert sum(found) == supplied
    # and the next month can be closed: it begins where that ends
    close(product, "2027-01")
    assert [(each.start_ns, each.end_ns) for each in product.store.periods()][1] == (later, at("2027-02-01 00:00"))
    assert ask(product, "2027-01-01 00:00", "2027-02-01 00:00", "day").bill == january.bill


def test_who_lent_to_whom_agrees_with_the_bill_to_the_unit(product: FakeOperations) -> None:
    odd = [work(f"o{n}", "2026-12-30 01:00", 3_333 + n, loan=1, app=f"a{n}") for n in range(3)]
    odd += [work(f"p{n}", "2026-12-31 01:00", 7_777_777 + n, loan=333, app=f"a{n}") for n in range(5)]
    product = billed()
    keep(product, SINCE, UNTIL, odd)
    (lender,) = (line for line in ask(product, SINCE, UNTIL, "tenant").bill.lines if line.keys == ("research",))
    _, pairs = asyncio.run(product.bills().lending(at(SINCE), at(UNTIL), None))
    assert pairs["tenant:research", "tenant:support"].micro == -lender.micro["earned"] > 0


def test_a_pool_that_is_new_takes_nothing_off_the_bill(product: FakeOperations) -> None:
    before = ask(product, SINCE, "2027-02-01 00:00", "tenant")
    two = BILLED.replace("main: {gpus: 4_gpu}", "main: {gpus: 4_gpu}\n  other: {gpus: 1_gpu}")
    product.configure(
        sources(
            two.replace("{main: 2.50}", "{main: 2.50, other: 1}")
            .replace("gpu: 2_gpu\n", "gpu: 2_gpu\n    pool: main\n")
            .replace("tenant: {guaranteed", "tenant: {pool: main, guaranteed")
        )
    )
    # an hour of it is over, and is not in the books yet
    product.store.add_meters([Standing("other", at("2027-01-02 00:01"), at("2027-01-02 00:59"), 1000, {})])
    product.now = at("2027-01-02 01:00") + 1
    assert ask(product, SINCE, "2027-02-01 00:00", "tenant").until_ns == before.until_ns == at(UNTIL)


def test_a_reading_takes_nothing_off_the_bill(product: FakeOperations) -> None:
    product.store.add_reading(Reading("s1", "storage_gib_hour", "support", 1, 0, at(SINCE)))
    assert ask(product, SINCE, UNTIL, "tenant").until_ns == at(UNTIL)


def test_a_forecast_counts_from_when_the_books_began(product: FakeOperations) -> None:
    product.configure(sources(BILLED[: BILLED.index("costs:")] + BILLED[BILLED.index("groups:") :]))
    billed = ask(product, "2026-12-01 00:00", "2027-01-03 00:00")
    assert billed.until_ns == at(UNTIL)
    assert billed.forecast_micro == round(billed.bill.total_micro * 4 / 3)


def test_a_forecast_counts_from_the_moment_within_an_hour_at_which_the_books_began() -> None:
    product = billed()
    product.configure(sources(BILLED[: BILLED.index("costs:")] + BILLED[BILLED.index("groups:") :]))
    began, until, end = at(SINCE) + HOUR // 2, at("2026-12-30 02:00"), at("2027-01-01 00:00")
    product.store.add_meters([Standing("main", began, at(SINCE) + HOUR, 4000, {})])
    keep(product, "2026-12-30 01:00", "2026-12-30 02:00")
    billing = ask(product, "2026-12-01 00:00", "2027-01-01 00:00")
    assert billing.until_ns == until
    assert billing.forecast_micro == billing.bill.total_micro * (end - began) // (until - began) > 0


def test_shared_costs_go_on_as_since_the_month_began(product: FakeOperations) -> None:
    billed = ask(product, "2026-12-30 00:00", "2027-01-03 00:00")
    began = ask(product, "2026-12-20 00:00", "2027-01-03 00:00")
    shared = 1_400_010_000 * 2 // 31  # of two days
    assert billed.forecast_micro == pytest.approx(960_000_335 + 2 * shared, abs=9)
    assert began.forecast_micro == pytest.approx(960_000_335 + 7 * shared, abs=30)


def test_of_a_time_before_the_books_began_there_is_nothing(product: FakeOperations) -> None:
    never = ask(product, "2020-01-01 00:00", "2020-02-01 00:00", "tenant")
    assert (never.bill.lines, never.until_ns, never.closed) == ((), at("2020-01-01 00:00"), False)
    (said,) = never.notes
    assert english(said) == "There are no books of it: they began on 2026-12-30 00:00 Europe/Berlin."
    assert ask(product, "2026-12-29 00:00", "2026-12-31 00:00").until_ns > at(SINCE)  # a part of it


@pytest.mark.parametrize("now", ["2027-02-01 00:00", "2027-02-01 00:03", "2027-02-01 00:59"])
def test_the_first_minutes_of_a_month(now: str) -> None:
    product = billed(now=now)
    keep(product, "2027-01-30 00:00", "2027-01-31 23:00", [work("r1", "2027-01-31 12:00", HOUR)])
    month = ask(product, "2027-02-01 00:00", "2027-03-01 00:00", "tenant")
    assert (month.bill.lines, month.forecast_micro, month.closed) == ((), None, False)
    assert month.notes == (say("note.first", at="2027-02-01 01:00 Europe/Berlin"),)
    last = ask(product, "2027-01-01 00:00", "2027-02-01 00:00", "tenant")  # whose last hour is closed any moment
    assert last.until_ns == at("2027-01-31 23:00")
    assert last.forecast_micro is not None
    assert last.forecast_micro > last.bill.total_micro > 0


def test_the_first_hour_of_a_month_is_no_base_for_what_shared_costs_alone_make() -> None:
    product = billed(now="2027-02-01 01:02")
    keep(product, "2027-01-30 00:00", "2027-02-01 01:00", [work("r1", "2027-01-31 12:00", HOUR)])
    month = ask(product, "2027-02-01 00:00", "2027-03-01 00:00", "tenant")
    idle_micro = 4 * 2_500_000 * 28 * 24  # what the pool costs, whoever has it
    assert month.forecast_micro == pytest.approx(idle_micro + 1_400_010_000, rel=0.001)


def test_nothing_is_in_the_books_yet() -> None:
    product = billed()
    empty = ask(product, "2027-01-01 00:00", "2027-02-01 00:00", "tenant")
    assert (empty.bill.lines, empty.until_ns) == ((), at("2027-01-01 00:00"))
    assert empty.notes == (say("note.first", at="2027-01-02 01:00 Europe/Berlin"),)
    (later,) = ask(product, "2027-02-01 00:00", "2027-03-01 00:00", "tenant").notes
    assert english(later) == (
        "This period has not begun: it begins at 2027-02-01 00:00 Europe/Berlin, and is billed hour by hour from then"
        " on."
    )
    assert asyncio.run(product.bills().worked(at(SINCE), at(UNTIL), {}, None, 10)) == Worked()
