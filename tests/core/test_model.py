"""Prices that change, and what lending costs by the hour of the day."""

import pytest

from commonpool.core.model import UNPRICED, Lending, Price


def test_a_price_is_in_force_from_its_first_moment_on() -> None:
    price = Price("main", 5, ((100, 7), (200, 0)))
    assert [price.at(now) for now in (0, 99, 100, 199, 200, 10**18)] == [5, 5, 7, 7, 0, 0]


def test_before_its_first_date_a_list_has_no_price() -> None:
    price = Price("main", UNPRICED, ((100, 7),))
    assert (price.at(99), price.at(100)) == (UNPRICED, 7)


@pytest.mark.parametrize(
    ("hour", "micro"), [(19, 80), (20, 50), (23, 50), (0, 50), (5, 50), (6, 80), (12, 100), (13, 80)]
)
def test_lending_has_rates_by_the_hour_also_past_midnight(hour: int, micro: int) -> None:
    lending = Lending("main", 800, ((20, 6, 500), (12, 13, 1000), (0, 24, 800)))
    assert lending.micro(100, hour) == micro


def test_lending_costs_the_pools_price_unless_said_otherwise_and_is_rounded_half_up() -> None:
    assert Lending("main").micro(2_500_000, 3) == 2_500_000
    assert [Lending("main", 500).micro(price, 0) for price in (1, 2, 3)] == [1, 1, 2]
    assert Lending("main", 333).micro(1000, 0) == 333


def test_without_a_price_there_is_none_for_lending() -> None:
    assert Lending("main", 500).micro(UNPRICED, 0) == UNPRICED
