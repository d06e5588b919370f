"""Given books, when a bill is asked for, then it is exact, adds up however it is cut, and leads to its records."""

import asyncio
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from commonpool.access.callers import LOCAL
from commonpool.access.scope import EVERYTHING, Scope
from commonpool.api import bill
from commonpool.api.operations import BadRequestError
from commonpool.api.subjects import Who
from commonpool.api.wire import bill as wire
from commonpool.app.billing import Bills
from commonpool.core.ledger import METERS
from commonpool.core.model import Outcome, UsageRecord
from commonpool.core.statement import DIMENSIONS, FILTERS
from tests.api.books import BILLED, HOUR, at, billed, keep, work
from tests.api.fakes import FakeOperations, sources

ALL = Who(LOCAL, EVERYTHING)
MINUTE = HOUR // 60
SINCE, UNTIL = "2026-12-30 00:00", "2027-01-02 00:00"
RECORDS = (
    work("r1", "2026-12-30 10:40", 50 * MINUTE, loan=1000),
    work("r2", "2026-12-31 11:00", 30 * MINUTE, tenant="research", app="papers", cost_center="", milli_gpu=500),
    work("r3", "2027-01-01 01:00", 2 * HOUR, endpoint="job", stream=False),
    work("r4", "2026-12-31 12:00", 6 * MINUTE, outcome=Outcome.FAILED),
)


@pytest.fixture
def product() -> FakeOperations:
    product = billed()
    keep(product, SINCE, UNTIL, RECORDS)
    return product


def ask(product: FakeOperations, **query: Any) -> wire.BillTable:
    return asyncio.run(bill.bill(product, bill.BillQuery(**query), ALL))


def records(product: FakeOperations, **query: Any) -> list[wire.AttemptPostings]:
    found: list[wire.AttemptPostings] = []
    after: str | None = ""
    while after is not None:
        page = asyncio.run(bill.records(product, bill.BilledQuery(**query, after=after), ALL))
        found += page.records
        after = page.after
    return found


def refused(local: TestClient, query: str) -> tuple[int, str]:
    answer = local.get(f"/admin/v1/bill?{query}")
    return answer.status_code, answer.json()["error"]["message"]


def test_what_a_tenant_pays_for_a_day(product: FakeOperations) -> None:
    table = ask(product, period="2026-12-30", by="tenant")
    support = {line.group: line for line in table.lines}[("support",)]
    assert (table.start_ns, table.end_ns) == (at("2026-12-30 00:00"), at("2026-12-31 00:00"))
    assert support.guaranteed == wire.Amount(Decimal(48 * 3600), 48 * 2_500_000)
    assert support.used == wire.Amount(Decimal(2 * 3000), 2_083_333 + 1_666_667)
    assert support.borrowed == wire.Amount(Decimal(3000), 1_666_667)
    assert support.layers["runtime"] == 120_000_000 + 1_666_667
    assert support.layers["request"] == 100 + 150 + 1
    research = {line.group: line for line in table.lines}[("research",)]
    assert research.lent == wire.Amount(Decimal(3000), 1_666_667)
    assert research.layers["runtime"] == 60_000_000 - 1_666_667
    assert table.total.total_micro == sum(line.total_micro for line in table.lines)


def test_charges_and_layers_sum_to_their_line(product: FakeOperations) -> None:
    for line in ask(product, period="2026-12", by="tenant,app,day").lines:
        assert sum(charge.cost_micro for charge in line.charges) == line.total_micro
        assert sum(line.layers.values()) == line.total_micro


def test_shared_costs_sum_to_what_the_month_costs(product: FakeOperations) -> None:
    shared = [each for each in ask(product, period="2026-12").total.charges if each.kind == "shared"]
    assert {(each.name, each.split, each.layer) for each in shared} == {
        ("machine room", "guaranteed", "infrastructure"),
        ("platform team", "uniform", "operation"),
    }
    # Each day is rounded once, so a month of 31 days is within 31 micro-units of its cost.
    assert sum(each.cost_micro for each in shared) == pytest.approx(1_400_010_000, abs=31)


def test_the_month_that_goes_on(product: FakeOperations) -> None:
    table = ask(product)
    assert (table.period, table.closed, table.until_ns) == ("2027-01", False, at("2027-01-02 00:00"))
    assert table.forecast_micro == 31 * table.total.total_micro
    assert ask(product, period="2026-12").forecast_micro is None


def test_every_dimension_can_be_asked_for(product: FakeOperations) -> None:
    for name in DIMENSIONS:
        assert ask(product, by=name).by == (name,)
    fields = {field.name for field in msgspec.structs.fields(bill.BillQuery)}
    assert fields == {*FILTERS, "by", "period"}
    types = {line.group[0]: line.requests for line in ask(product, period="2026-12", by="type").lines}
    assert types == {"": 0, "stream": 3, "batch": 0}  # the job counts where it ended
    assert {line.group for line in ask(product, by="group,tenant").lines} == {
        ("", "platform"), ("", "support"), ("science", "research"),
    }  # fmt: skip


def test_filters(product: FakeOperations) -> None:
    period = "2026-12-30..2027-01-01"
    whole = ask(product, period=period).total.total_micro
    tenants = [ask(product, period=period, tenant=(name,)).total.total_micro for name in ("support", "platform")]
    science = ask(product, period=period, group=("science",)).total
    assert science == ask(product, period=period, tenant=("research",)).total
    assert sum(tenants) + science.total_micro == whole
    assert ask(product, period=period, app=("papers", "helpdesk")).total.requests == 4
    assert ask(product, period=period, app=("papers",)).total.requests == 1


def test_a_tenant_that_is_gone_keeps_its_bill(product: FakeOperations) -> None:
    product.configure(sources(BILLED.partition("  research:")[0].replace("split: guaranteed", "split: uniform")))
    assert ask(product, period="2026-12", tenant=("research", "platform")).total.requests == 1
    with pytest.raises(BadRequestError, match="the books of 2027-01-02 know the tenant 'research'"):
        ask(product, period="2027-01-02", tenant=("support", "research"))


def test_wrong_questions(local: TestClient) -> None:
    assert refused(local, "by=colour") == (
        400, f"a bill cannot be split by 'colour'; allowed are {', '.join(DIMENSIONS)}",
    )  # fmt: skip
    assert "2026-13" in refused(local, "period=2026-13")[1]
    assert "2026-11-31" in refused(local, "period=2026-11-01..2026-11-31")[1]
    assert "ends before it begins" in refused(local, "period=2026-11-02..2026-11-01")[1]
    assert refused(local, "colour=red")[0] == 400


def test_a_pool_without_a_price_is_named() -> None:
    product = billed(BILLED.replace("{main: 2.50}", "{main: [{price: 2.50, from: 2027-01-01}]}"))
    keep(product, SINCE, UNTIL)
    with pytest.raises(Exception, match="pool main has no price in the hour from 2026-12-30 00:00 Europe/Berlin on"):
        ask(product, period="2026-12")


def test_books_that_are_behind_are_said(product: FakeOperations) -> None:
    assert ask(product).notes == ()
    product.now = at("2027-01-02 03:00")
    (note,) = ask(product).notes
    assert note == "The books of pool main stop at 2027-01-02 00:00 Europe/Berlin; `commonpool status` says why."
    assert ask(product, period="2027-01-01").notes == ()


def test_lending(product: FakeOperations) -> None:
    table = asyncio.run(bill.lending(product, bill.ByPeriod("2026-12"), ALL))
    assert table.pairs == (wire.LentLine("research", "support", Decimal(3000), 1_666_667),)
    assert asyncio.run(bill.lending(product, bill.ByPeriod("2027-01"), ALL)).pairs == ()


def test_a_tenants_bill_has_its_own_lines_and_is_the_same_for_it_as_for_finance(product: FakeOperations) -> None:
    own = Who(LOCAL, Scope(frozenset({"support"})))
    mine = asyncio.run(bill.bill(product, bill.BillQuery(period="2026-12", by="tenant,app"), own))
    assert {line.group[0] for line in mine.lines} == {"support"}
    assert mine.total == ask(product, period="2026-12", tenant=("support",)).total
    foreign = asyncio.run(bill.bill(product, bill.BillQuery(period="2026-12", tenant=("research", "platform")), own))
    unknown = asyncio.run(bill.bill(product, bill.BillQuery(period="2026-12", tenant=("nobody",)), own))
    assert (foreign.lines, foreign.total, foreign.forecast_micro) == ((), unknown.total, unknown.forecast_micro)
    every = asyncio.run(bill.records(product, bill.BilledQuery(period="2026-12", tenant=("support", "research")), own))
    assert {each.attempt.tenant for each in every.records} == {"support"}
    pairs = asyncio.run(bill.lending(product, bill.ByPeriod("2026-12"), own)).pairs
    assert [(each.lender, each.borrower) for each in pairs] == [("research", "support")]
    nothing = Who(LOCAL, Scope(frozenset()))
    assert asyncio.run(bill.bill(product, bill.BillQuery(period="2026-12"), nothing)).lines == ()
    assert asyncio.run(bill.records(product, bill.BilledQuery(period="2026-12"), nothing)).records == ()
    assert asyncio.run(bill.lending(product, bill.ByPeriod("2026-12"), nothing)).pairs == ()


def test_a_tenant_that_is_called_platform_does_not_get_the_platforms_bill(product: FakeOperations) -> None:
    called_so = Who(LOCAL, Scope(frozenset({"platform"})))
    assert [line.group for line in ask(product, period="2026-12").lines if line.group == ("platform",)]
    for tenant in ((), ("platform",), ("tenant:platform",)):
        table = asyncio.run(bill.bill(product, bill.BillQuery(period="2026-12", tenant=tenant), called_so))
        assert table.lines == ()


def test_the_records_of_a_line_sum_to_it(product: FakeOperations) -> None:
    line = ask(product, period="2026-12-30", tenant=("support",)).total
    (only,) = records(product, period="2026-12-30", tenant=("support",))
    paid = [each for each in only.postings if each.debit == "tenant:support"]
    assert only.attempt.request_id == "r1"
    assert sum(each.cost_micro for each in paid) == only.cost_micro
    assert only.cost_micro == line.used.cost_micro + line.layers["request"]


def test_records_are_cut_at_the_period(product: FakeOperations) -> None:
    before, after = (
        {each.attempt.request_id: each for each in records(product, period=period)}["r3"]
        for period in ("2026-12-31", "2027-01")
    )
    assert {each.hour_ns for each in before.postings} == {at("2026-12-31 23:00")}
    assert {each.hour_ns for each in after.postings} == {at("2027-01-01 00:00")}
    assert [each.attempt.request_id for each in records(product, period="2026-12", group=("science",))] == ["r2"]


def test_records_come_in_pages() -> None:
    product = billed()
    many = [work(f"n{number:04d}", at(SINCE) + number + 2, 1) for number in range(bill.RECORDS_MAX + 1)]
    keep(product, SINCE, "2026-12-30 01:00", many)
    found = records(product, period="2026-12-30")
    assert [each.attempt.request_id for each in found] == [record.request_id for record in many]


@pytest.mark.parametrize("looked_max", [1, 2, 3])
def test_a_rare_filter_is_looked_for_bit_by_bit(product: FakeOperations, looked_max: int) -> None:
    whole = records(product, period="2026-12-30..2027-01", tenant=("research",))
    product.fake_bills = Bills(product.store, product.config, product.now_ns, lambda: None, looked_max)
    first = asyncio.run(
        bill.records(product, bill.BilledQuery(period="2026-12-30..2027-01", tenant=("research",)), ALL)
    )
    ends = [at("2026-12-30 10:40"), at("2026-12-31 11:00"), at("2026-12-31 12:00")]
    assert first.looked_ns == ends[looked_max - 1]
    assert first.after == f"{first.looked_ns + 1}.0."
    assert [each.attempt.request_id for each in whole] == ["r2"]
    assert records(product, period="2026-12-30..2027-01", tenant=("research",)) == whole
    all_of = asyncio.run(bill.records(product, bill.BilledQuery(period="2026-12-30..2027-01"), ALL))
    assert (len(all_of.records), all_of.after, all_of.looked_ns) == (4, None, None)  # as many as are found


def test_a_place_that_is_none(local: TestClient) -> None:
    assert local.get("/admin/v1/bill/records?after=x").json()["error"]["param"] == "after"


# -- laws --------------------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> tuple[UsageRecord, ...]:
    """Work on the two days around the turn of a month and a year."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        tenant, app = draw(st.sampled_from([("support", "helpdesk"), ("research", "papers"), ("research", "slides")]))
        milli_gpu = draw(st.integers(1, 2000))
        found.append(
            work(
                f"r{number}",
                at("2026-12-31 06:00") + draw(st.integers(0, 41 * HOUR)),
                draw(st.integers(1, 5 * HOUR)),
                tenant=tenant,
                app=app,
                milli_gpu=milli_gpu,
                loan=draw(st.integers(0, milli_gpu)) if tenant == "support" else 0,
                outcome=draw(st.sampled_from([Outcome.COMPLETED, Outcome.CANCELLED, Outcome.FAILED])),
                endpoint=draw(st.sampled_from(["chat", "job"])),
                tokens_in=draw(st.integers(0, 10_000)),
            )
        )
    return tuple(found)


def kept(world: tuple[UsageRecord, ...]) -> FakeOperations:
    product = billed()
    keep(product, "2026-12-31 00:00", UNTIL, world)
    return product


@settings(max_examples=15, deadline=None)
@given(worlds(), st.lists(st.sampled_from(DIMENSIONS), unique=True, min_size=1, max_size=3))
def test_a_bill_adds_up_however_it_is_cut(world: tuple[UsageRecord, ...], by: list[str]) -> None:
    product = kept(world)
    whole = ask(product, period="2026-12-31..2027-01-01")
    split = ask(product, period="2026-12-31..2027-01-01", by=",".join(by))
    halves = [ask(product, period=period) for period in ("2026-12-31", "2027-01")]
    assert split.total == whole.total
    assert sum(line.total_micro for line in split.lines) == whole.total.total_micro
    assert sum(half.total.total_micro for half in halves) == whole.total.total_micro
    days = ask(product, period="2026-12", by="day")
    assert sum(line.total_micro for line in days.lines) == ask(product, period="2026-12").total.total_micro
    # Everything the devices could do is on somebody's account.
    supplied = ("used", "idle", "lent", "uncharged", "loading", "draining", "down")
    gpu = [each.quantity for each in whole.total.charges if each.kind in supplied]
    assert sum(quantity or 0 for quantity in gpu) == 4 * 48 * 3600


@settings(max_examples=15, deadline=None)
@given(worlds())
def test_records_sum_to_what_their_tenant_is_charged(world: tuple[UsageRecord, ...]) -> None:
    product = kept(world)
    for period in ("2026-12-31", "2027-01-01"):
        for tenant in ("support", "research"):
            line = ask(product, period=period, tenant=(tenant,)).total
            made: dict[tuple[str, str], Decimal] = {}
            exact = Fraction(0)
            for record in records(product, period=period, tenant=(tenant,)):
                for each in record.postings:
                    if each.debit == f"tenant:{tenant}":
                        key = each.kind, each.meter
                        made[key] = made.get(key, Decimal(0)) + each.quantity
                        units = METERS[each.meter] if each.meter != "gpu_hour" else 3600
                        exact += Fraction(each.quantity) * each.price_micro / units
            charges = [each for each in line.charges if each.kind in {"used", "borrowed", "fee"}]
            assert {(each.kind, each.name): each.quantity for each in charges if each.quantity} == made
            # Each charge of each kind of work is rounded once, to a micro-unit.
            assert abs(sum(each.cost_micro for each in charges) - exact) < 4 * 6 * 5
