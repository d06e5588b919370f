"""Rates: exact, a minute's worth at once, refilled continuously."""

from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.limits import MINUTE_NS, Rate

S = 1_000_000_000


def test_a_full_bucket_gives_a_minutes_worth_and_then_refills() -> None:
    rate = Rate(3)
    for _ in range(3):
        assert rate.wait_ns(1, 0) == 0
        rate.take(1, 0)
    assert rate.now(0) == (0, 60 * S)
    assert rate.wait_ns(1, 0) == 20 * S
    assert rate.wait_ns(1, 20 * S) == 0
    assert rate.now(20 * S) == (1, 40 * S)


def test_giving_back_is_as_if_it_had_not_been_taken() -> None:
    rate = Rate(7)
    rate.take(5, 100)
    rate.take(-5, 100)
    assert rate.now(100) == (7, 0)


@given(
    per_minute=st.integers(1, 10_000),
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 3 * MINUTE_NS)), max_size=60),
)
def test_no_window_sees_more_than_a_minutes_worth_beside_what_refilled(
    per_minute: int, steps: list[tuple[int, int]]
) -> None:
    rate, now, start = Rate(per_minute), 0, 0
    taken = 0
    for units, pause in steps:
        now += pause
        if units <= per_minute and rate.wait_ns(units, now) == 0:
            rate.take(units, now)
            taken += units
        assert 0 <= rate.now(now)[0] <= per_minute
        assert taken * MINUTE_NS <= (now - start) * per_minute + per_minute * MINUTE_NS


@given(per_minute=st.integers(1, 10_000), units=st.integers(1, 10_000), used=st.integers(0, 10_000))
def test_the_wait_that_is_told_is_exactly_enough(per_minute: int, units: int, used: int) -> None:
    units, used = min(units, per_minute), min(used, per_minute)
    rate = Rate(per_minute)
    rate.take(used, 0)
    wait = rate.wait_ns(units, 0)
    assert rate.wait_ns(units, wait) == 0
    assert wait == 0 or rate.wait_ns(units, wait - 1) > 0


def test_more_used_than_was_taken_in_advance_is_owed() -> None:
    rate = Rate(10)
    rate.take(10, 0)
    rate.take(5, 0)
    assert rate.now(0) == (-5, 90 * S)
    assert rate.wait_ns(1, 0) == 36 * S
