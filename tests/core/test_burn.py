"""How fast a budget burns, and when somebody is to know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.burn import OVER_NS, RULES, Burn, Kept, Promise, burning, kept, promise, rate
from commonpool.core.waits import Judged, Spread

FIVE_MINUTES, HALF_HOUR, HOUR, SIX_HOURS, THREE_DAYS = OVER_NS


def burns(*rates: float | None) -> tuple[Burn, ...]:
    return tuple(Burn(over_ns, 1, 0, each) for over_ns, each in zip(OVER_NS, rates, strict=True))


def test_a_rate_of_one_spends_the_budget_exactly() -> None:
    assert rate(Kept(1000, 10)) == 1.0
    assert rate(Kept(1000, 1000)) == 100.0
    assert rate(Kept(1000, 0)) == 0.0
    assert rate(Kept(1000, 1), objective_permille=999) == 1.0
    assert rate(Kept()) is None


@given(st.integers(1, 10**9), st.data())
def test_the_rate_is_the_late_share_over_the_allowed_one(promised: int, data: st.DataObject) -> None:
    late = data.draw(st.integers(0, promised))
    assert rate(Kept(promised, late)) == pytest.approx(late / promised / 0.01)


@pytest.mark.parametrize(
    ("rates", "severity", "over_ns"),
    [
        ((14.4, 0, 14.4, 0, 0), "page", HOUR),
        ((14.3, 0, 99, 0, 0), None, None),  # it is over: the short time says so
        ((99, 0, 14.3, 0, 0), None, None),  # a few late ones
        ((0, 6, 0, 6, 0), "page", SIX_HOURS),
        ((0, 0, 0, 1, 1), "ticket", THREE_DAYS),
        ((20, 20, 20, 20, 20), "page", HOUR),  # the most urgent one
        ((None, None, None, None, None), None, None),
    ],
)
def test_a_rule_needs_its_rate_over_both_its_times(
    rates: tuple[float | None, ...], severity: str | None, over_ns: int | None
) -> None:
    found = burning(burns(*rates))
    assert (found and found.severity, found and found.long_ns) == (severity, over_ns)


def test_a_promise_tells_what_was_judged_over_each_time() -> None:
    judged = {FIVE_MINUTES: Judged(10, 10, 5, 0), HOUR: Judged(100, 50, 5, 0), THREE_DAYS: Judged(400, 50, 5, 0)}
    found = promise("a", "fast", "queue", 7, Spread(), judged)
    assert found.burns == (
        Burn(FIVE_MINUTES, 10, 10, 100.0),
        Burn(HALF_HOUR, 0, 0, None),
        Burn(HOUR, 100, 50, 50.0),
        Burn(SIX_HOURS, 0, 0, None),
        Burn(THREE_DAYS, 400, 50, 12.5),
    )
    assert found.burning == RULES[0]
    assert promise("a", "fast", "first_token", 7, Spread(), judged).burning is None
    assert kept(judged[HOUR], "first_token") == Kept(5, 0)


def test_a_tier_that_promises_nothing_burns_nothing() -> None:
    spread = Spread(1, 2, 3, 4, 5)
    judged = dict.fromkeys(OVER_NS, Judged(1, 1, 1, 1))
    assert promise("a", "slow", "queue", None, spread, judged) == Promise("a", "slow", "queue", None, spread)
