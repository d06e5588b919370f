"""The sliding window of waits: what is in it, what has left it, and what has no wait."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.model import NS_PER_S, Outcome
from commonpool.core.sketch import ERROR
from commonpool.observe.waits import PART_NS, TENANTS_MAX, WINDOW_NS, Waits
from tests.store.records import refused, usage_record

NOW = 10**6 * PART_NS
US = 1000


def about(wait_ns: int) -> object:
    return pytest.approx(wait_ns, rel=ERROR)


def test_quantiles_by_nearest_rank() -> None:
    waits = Waits()
    for wait in range(1, 1001):
        waits.record(usage_record(wait_ns=wait * US), NOW)
    assert waits.quantiles("a", NOW) == (about(500 * US), about(990 * US))


def test_a_tenant_that_was_not_seen_has_no_waits() -> None:
    assert Waits().quantiles("a", NOW) == (None, None)


def test_tenants_are_apart() -> None:
    waits = Waits()
    waits.record(usage_record(tenant="a", wait_ns=US), NOW)
    waits.record(usage_record(tenant="b", wait_ns=9 * US), NOW)
    assert [waits.quantiles(tenant, NOW)[0] for tenant in "ab"] == [about(US), about(9 * US)]


def test_what_was_not_dispatched_has_no_wait() -> None:
    waits = Waits()
    waits.record(usage_record(wait_ns=70, outcome=Outcome.CANCELLED, replica=""), NOW)  # its client left the queue
    waits.record(usage_record(wait_ns=0, replica="", reason="response_cache"), NOW)  # answered from before
    waits.record(refused("r"), NOW)
    assert waits.quantiles("a", NOW) == (None, None)
    waits.record(usage_record(wait_ns=6 * US, outcome=Outcome.CANCELLED), NOW)  # its client left while it ran
    assert waits.quantiles("a", NOW) == (about(6 * US), about(6 * US))


def test_what_is_answered_later_makes_no_wait() -> None:
    waits = Waits()
    waits.record(usage_record(wait_ns=10**13, endpoint="batch"), NOW)
    assert waits.quantiles("a", NOW) == (None, None)


@given(st.lists(st.tuples(st.integers(0, 2 * PART_NS), st.integers(US, 10**13)), max_size=60))
def test_the_window_has_what_ended_in_the_last_ten_minutes_and_what_is_older_has_left(
    found: list[tuple[int, int]],
) -> None:
    waits, now, kept = Waits(), NOW, []
    for later, wait in found:
        now += later
        waits.record(usage_record(wait_ns=wait), now)
        kept.append((now, wait))
        # The window moves by whole parts: the one in which it begins is out of it.
        inside = sorted(wait for at, wait in kept if at - at % PART_NS > now - WINDOW_NS)
        exact = tuple(inside[(len(inside) * percent + 99) // 100 - 1] for percent in (50, 99))
        assert waits.quantiles("a", now) == tuple(map(about, exact))
    assert waits.quantiles("a", now + WINDOW_NS + PART_NS) == (None, None)


def test_a_window_is_bounded_and_has_all_of_a_busy_tenant() -> None:
    waits = Waits()
    for number in range(20_000):
        waits.record(usage_record(wait_ns=US if number < 19_000 else 1000 * US), NOW)
    assert waits.quantiles("a", NOW + WINDOW_NS - 1) == (about(US), about(1000 * US))
    window = waits._windows["a"]
    for second in range(3 * WINDOW_NS // NS_PER_S):
        waits.record(usage_record(wait_ns=US), NOW + second * NS_PER_S)
    assert len(window._parts) < WINDOW_NS // PART_NS
    assert sum(map(sys.getsizeof, (part for _, part in window._parts))) < 10_000


def test_tenants_are_bounded() -> None:
    waits = Waits()
    for number in range(TENANTS_MAX + 1):
        waits.record(usage_record(tenant=f"t{number}", wait_ns=US), NOW)
    assert waits.quantiles("t0", NOW) == (None, None)
    assert waits.quantiles(f"t{TENANTS_MAX}", NOW) == (about(US), about(US))
