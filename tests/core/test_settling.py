"""Settling: the pieces of an attempt sum to the whole, and its postings say who pays what to whom."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.ledger import PLATFORM, Kind, LedgerError, Posting, Rates, UnknownPriceError, Work
from commonpool.core.model import UNPRICED, Loan, Outcome, UsageRecord
from commonpool.core.pricing import is_charged
from commonpool.core.settling import hours_of, metered, parts, settle, work_of
from tests.core.ledgers import RATES, H, loan, record

CHEAP = Rates(1_000_000, 500_000)


def at_one_rate(attempt: UsageRecord, rates: Rates = RATES) -> tuple[Posting, ...]:
    return settle(attempt, [(start, rates) for start in hours_of(attempt)])


def test_an_attempt_over_two_hours_pays_each_hours_price() -> None:
    attempt = record(began=H // 2, run=H)
    first, second = settle(attempt, [(0, RATES), (H, CHEAP)])
    assert first == Posting(
        0, 0, "main", Kind.USED, "tenant:a", "pool:main", 1000 * H // 2, 3_000_000, "gpu_hour", work_of(attempt)
    )
    assert (second.about_ns, second.quantity, second.micro) == (H, 1000 * H // 2, 1_000_000)


def test_what_is_borrowed_is_paid_to_its_lender_whatever_it_is() -> None:
    attempt = record(loans=(loan("b", 300, 0, H), loan("g", 200, 0, H), loan("", 100, 0, H)))
    postings = settle(attempt, [(0, RATES)], groups={"g"})
    assert [(p.kind, p.debit, p.credit, p.quantity, p.micro) for p in postings] == [
        (Kind.BORROWED, "tenant:a", "group:g", 200 * H, 2_000_000),
        (Kind.BORROWED, "tenant:a", "platform", 100 * H, 2_000_000),
        (Kind.BORROWED, "tenant:a", "tenant:b", 300 * H, 2_000_000),
        (Kind.USED, "tenant:a", "pool:main", 400 * H, 3_000_000),
    ]


def test_what_is_not_charged_is_the_platforms_also_what_it_borrowed() -> None:
    attempt = record(outcome=Outcome.FAILED, micro_per_gpu_hour=0, loans=(loan("b", 300, 0, H),), tokens_out=5)
    assert [(p.kind, p.debit, p.credit, p.quantity) for p in at_one_rate(attempt)] == [
        (Kind.BORROWED, PLATFORM, "tenant:b", 300 * H),
        (Kind.UNCHARGED, PLATFORM, "pool:main", 700 * H),
    ]


def test_meters_are_paid_in_the_hour_in_which_the_attempt_ended_its_last_nanosecond_included() -> None:
    rates = Rates(0, 0, {"request": 7, "million_tokens_out": 1_000_000, "network_gb": 0})
    attempt = record(began=H // 2, run=H // 2, tokens_out=30, bytes_in=4, bytes_out=6)
    fees = [p for p in settle(attempt, [(0, rates), (H, rates)]) if p.kind is Kind.FEE]
    assert [(p.about_ns, p.meter, p.quantity, p.micro, p.credit) for p in fees] == [
        (0, "million_tokens_out", 30, 1_000_000, PLATFORM),
        (0, "network_gb", 10, 0, PLATFORM),
        (0, "request", 1, 7, PLATFORM),
    ]


@pytest.mark.parametrize(
    ("meters", "expected"),
    [
        ({"million_tokens_in": 3, "million_tokens_cached": 1}, {"million_tokens_in": 60, "million_tokens_cached": 40}),
        ({"million_tokens_in": 3}, {"million_tokens_in": 100}),  # as other tokens in
        ({"million_tokens_cached": 1}, {"million_tokens_cached": 40}),
        ({}, {}),
    ],
)
def test_cached_tokens_are_counted_once(meters: dict[str, int], expected: dict[str, int]) -> None:
    fees = at_one_rate(record(tokens_in=100, tokens_cached=40), Rates(0, 0, meters))
    assert {p.meter: p.quantity for p in fees if p.kind is Kind.FEE} == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"outcome": Outcome.CANCELLED}, {"million_tokens_out": 5, "cpu_hour": 2000, "memory_gib_hour": 3}),
        ({"outcome": Outcome.RUNNING}, {}),
        ({"outcome": Outcome.FAILED, "micro_per_gpu_hour": 0}, {}),
        ({"endpoint": "job"}, {"million_tokens_out": 5, "cpu_hour": 2000, "memory_gib_hour": 3}),
    ],
)
def test_what_is_metered(change: dict[str, object], expected: dict[str, int]) -> None:
    attempt = msgspec.structs.replace(record(tokens_out=5, cpu_ns=2, memory_mib_s=3), **change)
    assert metered(attempt) == expected


def test_what_was_refused_makes_no_postings() -> None:
    refused = record(run=0, outcome=Outcome.REFUSED, micro_per_gpu_hour=0, milli_gpu_ns=0)
    assert at_one_rate(refused) == ()
    assert list(hours_of(refused)) == [-H]  # it ended with the hour


def test_a_price_of_nothing_is_a_price() -> None:
    attempt = record(micro_per_gpu_hour=0)
    assert is_charged(attempt)
    (posting,) = at_one_rate(attempt, Rates(0, 0))
    assert (posting.kind, posting.exact_cost) == (Kind.USED, 0)


def test_no_price_in_force() -> None:
    with pytest.raises(
        UnknownPriceError, match=r"GPU-hour of pool main has no price .* begins 0 s after 1970; add one"
    ):
        at_one_rate(record(), Rates(UNPRICED, UNPRICED))
    with pytest.raises(
        UnknownPriceError, match=r"million_tokens_out has no price .* to prices.meters.million_tokens_out"
    ):
        at_one_rate(record(tokens_out=1), Rates(0, 0, {"million_tokens_out": UNPRICED}))


@pytest.mark.parametrize(
    ("attempt", "hours", "sentence"),
    [
        (record(milli_gpu_ns=-5), [(0, RATES)], "used -5 milli_gpu_ns; neither can be below zero"),
        (record(run=2 * H), [(0, RATES)], "give the rates of every hour it ran in"),
        (record(loans=(loan("b", 2000, 0, H),)), [(0, RATES)], "a part cannot be below zero or more than the whole"),
        (record(), [(0, Rates(-7, 0))], "has the price -7; a price cannot be below zero"),
        (record(tokens_out=-1), [(0, Rates(0, 0, {"million_tokens_out": 1}))], "-1 of million_tokens_out for tenant a"),
        (record(run=-1), [(0, RATES)], "ran for -1 ns"),
    ],
)
def test_what_cannot_be(attempt: UsageRecord, hours: list[tuple[int, Rates]], sentence: str) -> None:
    with pytest.raises(LedgerError, match=sentence):
        settle(attempt, hours)


@st.composite
def attempts(draw: st.DrawFn) -> UsageRecord:
    began, run = draw(st.integers(0, 3 * H)), draw(st.integers(0, 5 * H))
    milli_gpu = draw(st.integers(0, 3000))
    loans: list[Loan] = []
    left = milli_gpu
    while left and draw(st.booleans()):
        part = draw(st.integers(1, left))
        left -= part
        start = draw(st.integers(began, began + run))
        loans.append(loan(draw(st.sampled_from(["b", "c", ""])), part, start, draw(st.integers(start, began + run))))
    more = draw(st.integers(0, 10**6)) if run and milli_gpu else 0  # that cannot be divided evenly
    return record(began=began, run=run, milli_gpu=milli_gpu, milli_gpu_ns=milli_gpu * run + more, loans=tuple(loans))


@given(attempts(), st.lists(st.integers(-H, 9 * H), max_size=5))
def test_pieces_sum_to_the_whole(attempt: UsageRecord, cuts: list[int]) -> None:
    edges = [-2 * H, *sorted(cuts), 10 * H]
    pieces = [parts(attempt, start, end) for start, end in pairwise(edges)]
    whole = parts(attempt, -2 * H, 10 * H)
    found = [piece for piece in pieces if piece is not None]
    assert sum(piece.milli_gpu_ns for piece in found) == attempt.milli_gpu_ns
    borrowed: dict[str, int] = {}
    for piece in found:
        assert sum(piece.borrowed.values()) <= piece.milli_gpu_ns
        for lender, quantity in piece.borrowed.items():
            borrowed[lender] = borrowed.get(lender, 0) + quantity
    assert borrowed == ({} if whole is None else whole.borrowed)


@given(attempts(), st.integers(0, H - 1))
def test_an_attempt_at_one_price_costs_the_same_in_any_hours(attempt: UsageRecord, offset: int) -> None:
    rates = Rates(7, 7)
    hours = hours_of(attempt, offset)
    postings = settle(attempt, [(start, rates) for start in hours])
    assert sum(p.exact_cost for p in postings) == 7 * attempt.milli_gpu_ns
    assert len(hours) == 1 or {p.about_ns for p in postings} == set(hours) or not attempt.milli_gpu
    assert all(p.work == Work("a", "app", "", "m", "1", "interactive", "chat") for p in postings)
