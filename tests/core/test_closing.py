"""Closing: an hour of a pool becomes postings that credit it with capacity × time, whatever happened in it."""

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.closing import charged, close, devices
from commonpool.core.ledger import (
    PLATFORM,
    Counted,
    Hour,
    Kind,
    Late,
    LedgerError,
    Phase,
    Posting,
    Rates,
    Span,
    Standing,
    UnknownPriceError,
    Use,
    Work,
)
from commonpool.core.model import UNPRICED
from tests.core.ledgers import POOL, RATES, H, balances, hour, lines, standing, use

A, B, C, G = "tenant:a", "tenant:b", "tenant:c", "group:g"


def span(phase: Phase, milli_gpu: int, account: str, start: int = 0, end: int = H) -> Span:
    return Span("m-0", phase, "main", "m", account, milli_gpu, start, end)


def test_everybody_pays_for_all_that_is_guaranteed_and_a_borrower_its_lender() -> None:
    closed = close(
        hour(
            standing(4000, a=1000, b=2000, group_g=500),
            uses=(use("a", 2800 * H, b=1000 * H, g=500 * H, nobody=300 * H), use("b", 600 * H)),
        )
    )
    assert lines(closed) == {
        ("used", A, POOL): 1000,
        ("borrowed", A, B): 1000,
        ("borrowed", A, G): 500,
        ("borrowed", A, PLATFORM): 300,
        ("lent", B, POOL): 1000,
        ("lent", G, POOL): 500,
        ("lent", PLATFORM, POOL): 300,
        ("used", B, POOL): 600,
        ("idle", B, POOL): 400,
        ("idle", PLATFORM, POOL): 200,
    }
    gpu = 3_600_000_000_000_000 * 1_000_000  # a GPU-hour at one unit of money, in the unit of exact costs
    assert balances(closed) == {
        POOL: 12 * gpu,
        A: -gpu * 66 // 10,  # 1 at 3, 1.8 at 2
        B: -4 * gpu,  # 2 at 3, less 1 at 2
        G: -gpu // 2,
        PLATFORM: -gpu * 9 // 10,
    }


def test_work_that_is_not_charged_costs_its_tenant_nothing_and_its_lender_is_paid() -> None:
    closed = close(hour(standing(4000, a=1000, b=3000), uses=(use("a", 1500 * H, charged=False, b=500 * H),)))
    assert lines(closed) == {
        ("uncharged", PLATFORM, POOL): 1000,
        ("borrowed", PLATFORM, B): 500,
        ("lent", B, POOL): 500,
        ("idle", B, POOL): 2500,
    }


def test_loading_takes_of_its_holders_idle_then_the_platforms_then_all_others_in_proportion() -> None:
    def closed(milli_gpu: int, account: str = A) -> dict[tuple[str, str, str], int]:
        return lines(
            close(hour(standing(8000, a=1000, b=4000, c=2000), spans=(span(Phase.LOADING, milli_gpu, account),)))
        )

    assert closed(400) == {
        ("loading", A, POOL): 400,
        ("idle", A, POOL): 600,
        ("idle", B, POOL): 4000,
        ("idle", C, POOL): 2000,
        ("idle", PLATFORM, POOL): 1000,
    }
    assert closed(1700)["idle", PLATFORM, POOL] == 300
    beyond = closed(5000)
    assert (beyond["idle", B, POOL], beyond["idle", C, POOL]) == (2000, 1000)
    assert {account for kind, account, _ in beyond if kind == "idle"} == {B, C}
    assert closed(500, PLATFORM)["idle", PLATFORM, POOL] == 500


def test_serving_and_held_are_nobodys_charge_and_draining_is() -> None:
    phases = (Phase.SERVING, Phase.HELD, Phase.DRAINING)
    closed = close(hour(standing(), spans=tuple(span(phase, 1000, A) for phase in phases)))
    assert lines(closed) == {("draining", A, POOL): 1000, ("idle", PLATFORM, POOL): 3000}


def test_a_cut_quota_takes_of_the_platform_first() -> None:
    closed = close(hour(standing(6000, a=1000, b=4000), uses=(use("a", 4000 * H),)))
    assert lines(closed) == {("used", A, POOL): 4000, ("idle", B, POOL): 2000}


def test_a_unit_that_cannot_be_divided_goes_to_the_largest_remainder_by_name() -> None:
    closed = close(hour(standing(3, a=1, b=1, c=1), uses=(use("d", H),)))
    idle = {p.debit: p.quantity for p in closed if p.kind is Kind.IDLE}
    assert idle == {A: 2_400_000_000_000, B: 2_400_000_000_000, C: 2_400_000_000_000}
    closed = close(hour(standing(3, a=1, b=1, c=1), uses=(use("d", 1),)))
    idle = {p.debit: p.quantity for p in closed if p.kind is Kind.IDLE}
    assert idle == {A: H, B: H, C: H - 1}


def test_more_than_there_was_is_posted_as_used() -> None:
    """Devices were lost under what ran."""
    known = hour(standing(2000, a=2000), uses=(use("a", 5000 * H),))
    assert lines(close(known)) == {("used", A, POOL): 5000}
    assert (charged(close(known)), devices(known)) == (5000 * H, 2000 * H)


def test_a_gap_is_the_platforms_at_what_there_was_before_it() -> None:
    known = hour(
        standing(4000, H // 4, H // 2, a=4000),
        standing(8000, 3 * H // 4, H, a=8000),
        before=standing(2000, -H, 0),
        uses=(use("a", 0),),
    )
    assert lines(close(known)) == {("down", PLATFORM, POOL): 1500, ("idle", A, POOL): 3000}
    assert devices(known) == 4500 * H


def test_a_lender_is_a_group_in_an_hour_that_was_all_down_too() -> None:
    down = hour(before=standing(4000, -H, 0, group_g=1000), uses=(use("a", 500 * H, g=500 * H),))
    assert lines(close(down)) == {
        ("borrowed", A, G): 500,
        ("lent", G, POOL): 500,
        ("down", PLATFORM, POOL): 3500,
    }


def test_work_in_a_gap_is_no_longer_down() -> None:
    closed = close(hour(standing(4000, 0, H // 2, a=2000), uses=(use("a", 2000 * H),)))
    assert lines(closed) == {("used", A, POOL): 2000, ("down", PLATFORM, POOL): 1000, ("idle", PLATFORM, POOL): 1000}


def test_what_is_metered_is_paid_to_the_platform_and_a_meter_without_a_price_is_not_posted() -> None:
    rates = Rates(0, 0, {"storage_gib_hour": 1024 * 3600})
    (fee,) = close(Hour("", 0, rates, counted=(Counted(Work("a"), {"storage_gib_hour": 5, "request": 9}),)))
    assert (fee.kind, fee.debit, fee.credit, fee.quantity, fee.meter) == (Kind.FEE, A, PLATFORM, 5, "storage_gib_hour")


def test_late_use_gives_its_idle_back_in_the_open_hour() -> None:
    known = hour(standing(a=1000, b=3000), start_ns=0)
    late = Late(-5 * H, Rates(7, 5), (use("a", 1500 * H, b=500 * H),))
    more = [p for p in close(hour(*known.standings, late=(late,))) if p.about_ns == -5 * H]
    assert {p.hour_ns for p in more} == {0}
    assert lines(more) == {
        ("used", A, POOL): 1000,
        ("borrowed", A, B): 500,
        ("lent", B, POOL): 500,
        ("idle", A, POOL): -1000,
        ("idle", B, POOL): -500,
    }
    assert charged(tuple(more)) == 0
    assert balances(more) == {A: -2500 * H, B: 2500 * H}


def test_what_is_not_charged_after_all_is_taken_back() -> None:
    was, is_ = (use("a", 1500 * H, charged=charged, b=500 * H) for charged in (True, False))
    late = Late(-H, Rates(7, 5), (is_,), returned=(was,))
    more = [p for p in close(hour(standing(a=1000, b=3000), late=(late,))) if p.about_ns == -H]
    assert lines(more) == {
        ("used", A, POOL): -1000,
        ("borrowed", A, B): -500,
        ("uncharged", PLATFORM, POOL): 1000,
        ("borrowed", PLATFORM, B): 500,
    }
    assert balances(more) == {A: 9500 * H, PLATFORM: -9500 * H}


def test_what_is_heard_of_late_has_the_prices_of_its_hour() -> None:
    late = Late(-H, Rates(7, 5, {"request": 2}), counted=(Counted(Work("a"), {"request": 9}),))
    (fee,) = (p for p in close(hour(late=(late,), rates=Rates(7, 5, {"request": 3}))) if p.kind is Kind.FEE)
    assert (fee.hour_ns, fee.about_ns, fee.quantity, fee.micro) == (0, -H, 9, 2)


UNKNOWN = Rates(UNPRICED, UNPRICED)


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        (hour(standing(), rates=UNKNOWN), "A GPU-hour of pool main has no price"),
        (
            hour(late=(Late(-H, UNKNOWN, (use("a", 1),)),)),
            r"begins -3600 s after 1970; add one from then on, or earlier, to",
        ),
        (
            hour(counted=(Counted(Work(), {"request": 1}),), rates=Rates(1, 1, {"request": UNPRICED})),
            "meter request has no",
        ),
    ],
)
def test_no_price_in_force(known: Hour, sentence: str) -> None:
    with pytest.raises(UnknownPriceError, match=sentence):
        close(known)


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        (hour(standing(4, 0, 5), standing(4, 4, 6)), "Two standings of pool main overlap: one goes on until 5 ns"),
        (hour(standing(4, 5, 4)), r"ends at 4 ns, before its start at 5 ns: the clock went backwards"),
        (hour(standing(4, 0, H + 1)), "is not within the hour of pool main"),
        (hour(standing(4), start_ns=H), "is not within the hour of pool main"),
        (hour(standing(-4)), "has -4 milli_gpu; it cannot be below zero"),
        (hour(standing(4, a=5)), "guarantees cannot be below zero or more than there is"),
        (hour(standing(4, a=-1)), "guarantees cannot be below zero or more than there is"),
        (hour(spans=(span(Phase.LOADING, 1, A, 3, 2),)), "A span of m-0 in pool main ends at 2 ns"),
        (hour(spans=(span(Phase.HELD, 1, A, 0, 2 * H),)), "A span of m-0 in pool main from 0 to"),
        (hour(uses=(use("a", -1),)), "used -1 milli_gpu_ns"),
        (hour(uses=(use("a", 5, b=6),)), "a part cannot be below zero or more than the whole"),
        (hour(uses=(use("a", 5, b=-6),)), "a part cannot be below zero or more than the whole"),
        (hour(counted=(Counted(Work("a"), {"request": -1}),)), "-1 of request for tenant a is below zero"),
        (hour(counted=(Counted(Work("a"), {"tokens": 1}),)), "tokens is not a meter; there are gpu_hour, request"),
        (hour(standing(4), rates=Rates(-5, 0)), "has the price -5; a price cannot be below zero"),
    ],
)
def test_what_cannot_be(known: Hour, sentence: str) -> None:
    with pytest.raises(LedgerError, match=sentence):
        close(known)


# -- laws --------------------------------------------------------------------------------------------------------------

TENANTS = ("a", "b", "c")


@st.composite
def standings_of_an_hour(draw: st.DrawFn) -> tuple[Standing, ...]:
    """With gaps, and with guarantees that change."""
    edges = sorted(draw(st.lists(st.integers(0, H), min_size=2, max_size=6)))
    found = []
    for start, end in zip(edges[::2], edges[1::2], strict=False):
        guaranteed = {name: draw(st.integers(0, 900)) for name in ("tenant:a", "tenant:b", "tenant:c", "group:g")}
        found.append(Standing("main", start, end, sum(guaranteed.values()) + draw(st.integers(0, 500)), guaranteed))
    return tuple(found)


@st.composite
def uses(draw: st.DrawFn, most: int = 1000 * H) -> Use:
    tenant, quantity = draw(st.sampled_from(TENANTS)), draw(st.integers(0, most))
    lender = draw(st.sampled_from([name for name in (*TENANTS, "g", "") if name != tenant]))
    borrowed = {lender: draw(st.integers(0, quantity))} if draw(st.booleans()) else {}
    return Use(Work(tenant, draw(st.sampled_from(["x", "y"]))), draw(st.booleans()), quantity, borrowed)


@st.composite
def hours(draw: st.DrawFn) -> Hour:
    start, end = sorted(draw(st.lists(st.integers(0, H), min_size=2, max_size=2)))
    phase = draw(st.sampled_from([Phase.LOADING, Phase.DRAINING, Phase.SERVING]))
    spans = (span(phase, draw(st.integers(0, 1000)), draw(st.sampled_from([A, PLATFORM])), start, end),)
    return hour(
        *draw(standings_of_an_hour()),
        uses=tuple(draw(st.lists(uses(), max_size=5))),
        spans=spans,
        before=standing(draw(st.integers(0, 3000)), -H, 0),
    )


@given(hours())
def test_what_is_supplied_is_capacity_times_time_and_paid_for(known: Hour) -> None:
    postings = close(known)
    taken = sum(each.milli_gpu_ns for each in known.uses)
    taken += sum(each.milli_gpu * (each.end_ns - each.start_ns) for each in known.spans if each.phase != Phase.SERVING)
    assert charged(postings) == max(devices(known), taken)
    assert balances(postings).get(POOL, 0) == charged(postings) * RATES.micro_per_gpu_hour
    assert all(posting.quantity > 0 for posting in postings)


@given(hours())
def test_all_work_is_posted_and_every_lender_pays_for_what_it_is_paid_for(known: Hour) -> None:
    postings = close(known)
    worked: Counter[Work] = Counter()
    lent: Counter[str] = Counter()
    for posting in postings:
        if posting.kind in {Kind.USED, Kind.UNCHARGED, Kind.BORROWED}:
            worked[posting.work] += posting.quantity
        if posting.kind is Kind.BORROWED:
            lent[posting.credit] += posting.quantity
        if posting.kind is Kind.LENT:
            lent[posting.debit] -= posting.quantity
    for each in known.uses:
        worked[each.work] -= each.milli_gpu_ns
    assert not any(worked.values())
    assert not any(lent.values())


@given(hours(), st.randoms(use_true_random=False))
def test_neither_order_nor_how_finely_it_is_told_matters(known: Hour, random: Random) -> None:
    def shuffled(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(random.sample(items, len(items)))

    finer: list[Use] = []
    for each in known.uses:
        lent = {lender: random.randint(0, quantity) for lender, quantity in each.borrowed.items()}
        own = random.randint(0, each.milli_gpu_ns - sum(each.borrowed.values()))
        rest = {lender: quantity - lent[lender] for lender, quantity in each.borrowed.items()}
        first = own + sum(lent.values())
        finer += [
            Use(each.work, each.charged, first, lent),
            Use(each.work, each.charged, each.milli_gpu_ns - first, rest),
        ]
    again = hour(
        *shuffled(known.standings), uses=shuffled(tuple(finer)), spans=shuffled(known.spans), before=known.before
    )
    assert close(again) == close(known)


def by_account(postings: tuple[Posting, ...]) -> dict[tuple[object, ...], int]:
    sums: Counter[tuple[object, ...]] = Counter()
    for p in postings:
        sums[p.about_ns, p.kind, p.debit, p.credit, p.micro, p.work] += p.quantity
    return {key: quantity for key, quantity in sums.items() if quantity}


SMALL = uses(most=100 * H)  # of which any five fit within every guarantee


@given(st.lists(SMALL, max_size=5), st.lists(SMALL, max_size=5), st.lists(SMALL, max_size=3), st.integers(1, 9))
def test_late_and_taken_back_is_as_if_it_had_been_known_at_once(
    known: list[Use], late: list[Use], wrong: list[Use], price: int
) -> None:
    """`wrong` was posted then, and was not so."""
    rates = Rates(price, price + 1)
    roomy = standing(8000, a=2000, b=2000, c=2000, group_g=1000)
    then = close(hour(roomy, rates=rates, uses=(*known, *wrong)))
    now = close(
        Hour(
            "main",
            H,
            RATES,
            standings=(standing(8000, H, 2 * H, group_g=8000),),
            late=(Late(0, rates, tuple(late), tuple(wrong)),),
        )
    )
    at_once = close(hour(roomy, rates=rates, uses=(*known, *late)))
    assert by_account((*then, *(p for p in now if p.about_ns == 0))) == by_account(at_once)
    assert {p.hour_ns for p in now} == {H}
