"""Laws of rounding: lines sum to the total, none is off by one, order and grouping do not matter."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.model import NS_PER_HOUR, UNPRICED, Outcome
from commonpool.core.pricing import COST_UNIT, charged_price, exact_cost, is_charged, round_half_up, round_lines
from tests.core.ledgers import record

names = st.text("abc", min_size=1, max_size=3)
amounts = st.integers(0, 10**24)
bills = st.dictionaries(names, amounts, max_size=12)


def test_one_gpu_for_one_hour_costs_its_price() -> None:
    assert round_half_up(exact_cost(1000 * NS_PER_HOUR, 2_500_000)) == 2_500_000


@pytest.mark.parametrize(
    ("outcome", "exited", "charged"),
    [
        (Outcome.COMPLETED, False, True),
        (Outcome.CANCELLED, False, True),
        (Outcome.RUNNING, False, True),  # until it turns out otherwise
        (Outcome.FAILED, False, False),  # the engine, the machine or the product
        (Outcome.FAILED, True, True),  # the job's own command, with its state saved or not
        (Outcome.REFUSED, False, False),
    ],
)
def test_settlement(outcome: Outcome, exited: bool, charged: bool) -> None:
    """The table of docs/billing.md."""
    price = charged_price(outcome, 7, exited)
    assert price == (7 if charged else 0)
    assert is_charged(record(outcome=outcome, micro_per_gpu_hour=price)) == charged


def test_charged_work_without_a_price_is_charged_work_that_costs_nothing_yet() -> None:
    assert charged_price(Outcome.COMPLETED, UNPRICED) == UNPRICED
    assert charged_price(Outcome.FAILED, UNPRICED) == 0
    assert is_charged(record(outcome=Outcome.FAILED, micro_per_gpu_hour=UNPRICED))
    assert exact_cost(5, UNPRICED) == 0


@pytest.mark.parametrize(
    ("exact", "lines"),
    [
        ({"a": 5, "b": 5, "c": 5}, {"a": 1, "b": 1, "c": 0}),  # 1.5 is 2: one of three halves stays down, ties by name
        ({"a": 4, "b": 4}, {"a": 1, "b": 0}),  # 0.8 is 1
        ({"a": 1, "b": 9}, {"a": 0, "b": 1}),  # the larger remainder
        ({"a": 20, "b": 4}, {"a": 2, "b": 0}),  # 2.4 is 2
        ({"a": -3, "b": -4}, {"a": 0, "b": -1}),  # a credit: -0.7 is -1
        ({}, {}),
    ],
)
def test_largest_remainder(exact: dict[str, int], lines: dict[str, int]) -> None:
    assert round_lines(exact, 10) == lines


def test_half_goes_up() -> None:
    assert [round_half_up(value, 10) for value in (4, 5, 14, 15, -5, -6)] == [0, 1, 1, 2, 0, -1]


@given(bills)
def test_lines_sum_to_the_rounded_total(exact: dict[str, int]) -> None:
    assert sum(round_lines(exact).values()) == round_half_up(sum(exact.values()))


@given(bills)
def test_no_line_is_off_by_one(exact: dict[str, int]) -> None:
    for name, line in round_lines(exact).items():
        assert abs(line * COST_UNIT - exact[name]) < COST_UNIT


@given(bills)
def test_what_is_exact_stays(exact: dict[str, int]) -> None:
    lines = round_lines(exact)
    assert all(lines[name] * COST_UNIT == value for name, value in exact.items() if value % COST_UNIT == 0)


@given(bills, st.randoms(use_true_random=False))
def test_order_does_not_matter(exact: dict[str, int], random: Random) -> None:
    shuffled = list(exact.items())
    random.shuffle(shuffled)
    assert round_lines(dict(shuffled)) == round_lines(exact)


@given(st.lists(st.tuples(names, names, amounts), max_size=12))
def test_two_groupings_of_the_same_records_have_one_total(records: list[tuple[str, str, int]]) -> None:
    by_first: dict[str, int] = {}
    by_both: dict[tuple[str, str], int] = {}
    for first, second, amount in records:
        by_first[first] = by_first.get(first, 0) + amount
        by_both[first, second] = by_both.get((first, second), 0) + amount
    assert sum(round_lines(by_first).values()) == sum(round_lines(by_both).values())
