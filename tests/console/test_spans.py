"""Given waits over time, then curves have a point or a gap at each time, of those with most requests."""

from commonpool.console.spans import CURVES_MAX, curves
from commonpool.core.model import NS_PER_S
from commonpool.core.waits import Spread
from tests.console.waited import NONE, row


def spread(seconds: int, count: int = 1) -> Spread:
    return Spread(count, seconds * NS_PER_S, seconds * NS_PER_S, seconds * NS_PER_S, seconds * NS_PER_S)


def test_gaps_stay_gaps_and_times_ascend() -> None:
    rows = [
        row(("batch", "later"), 20 * NS_PER_S, spread(7)),
        row(("interactive", "first"), 10 * NS_PER_S, spread(1, 5)),
        row(("interactive", "later"), 20 * NS_PER_S, NONE),
    ]
    drawn = curves(rows)
    assert list(drawn.at) == [10, 20]
    assert drawn.series == [("interactive", [1.0, None]), ("batch", [None, 7.0])]


def test_of_many_only_those_with_most_requests_are_drawn() -> None:
    rows = [row((f"tier-{number}", "now"), NS_PER_S, spread(1, number)) for number in range(1, 10)]
    assert [name for name, _ in curves(rows).series] == [f"tier-{number}" for number in range(9, 9 - CURVES_MAX, -1)]


def test_nothing_is_no_curve() -> None:
    assert curves([]).at == []
