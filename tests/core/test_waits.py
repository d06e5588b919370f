"""What is counted of attempts in a window, what is late, and that tallies add up however they are divided."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.model import NS_PER_S as S
from commonpool.core.model import Outcome, Reason, Tier
from commonpool.core.waits import MINUTE_NS, NO_ROOM, WINDOW_NS, End, Judged, Spread, Tally, fold, judge, spread

TIER = Tier("fast", queue_target_ns=2 * S, first_token_target_ns=3 * S)
TIERS = {"fast": TIER, "slow": Tier("slow")}
BASE = End("a", "m", "fast", "m-0", "completed", "", 5 * WINDOW_NS, S, 2 * S, 9 * S)


def end(**changes: Any) -> End:
    return BASE._replace(**changes)


def waiting(wait_ns: int, outcome: str = "cancelled", reason: str = "") -> End:
    """It never ran."""
    return end(replica="", outcome=outcome, reason=reason, wait_ns=wait_ns, first_token_ns=0, total_ns=wait_ns)


def counts(judged: Judged) -> tuple[int, int, int, int]:
    return judged.queue_promised, judged.queue_late, judged.first_token_promised, judged.first_token_late


def tally(*ends: End) -> Tally:
    made = Tally()
    for each in fold(ends, TIERS).windows.values():
        made.merge(each)
    return made


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (end(), (1, 0, 1, 0)),
        (end(wait_ns=2 * S), (1, 0, 1, 0)),  # just in time
        (end(wait_ns=2 * S + 1), (1, 1, 1, 0)),
        (end(first_token_ns=3 * S + 1), (1, 0, 1, 1)),
        (end(outcome="failed", first_token_ns=0, total_ns=3 * S), (1, 0, 0, 0)),  # it may still have come in time
        (end(outcome="failed", first_token_ns=0, total_ns=3 * S + 1), (1, 0, 1, 1)),
        (waiting(2 * S), (0, 0, 0, 0)),  # left in time
        (waiting(2 * S + 1), (1, 1, 0, 0)),
        (waiting(3 * S + 1), (1, 1, 1, 1)),
        (waiting(0, "refused", "budget"), (0, 0, 0, 0)),
        (waiting(0, "refused", "promise"), (1, 1, 1, 1)),
        (waiting(3 * S, "refused", "key_revoked"), (1, 1, 0, 0)),  # refused after it had waited
        (waiting(0, "completed", "response_cache"), (0, 0, 0, 0)),
    ],
)
def test_what_is_promised_and_what_is_late(what: End, expected: tuple[int, int, int, int]) -> None:
    assert judge(what, TIER) == expected
    assert judge(what, Tier("slow")) == (0, 0, 0, 0)


def test_each_attempt_is_counted_as_one_thing() -> None:
    made = tally(
        end(),
        waiting(0, "completed", "response_cache"),
        end(outcome="failed"),
        end(outcome="cancelled"),
        waiting(5 * S),
        waiting(0, "refused", "promise"),
        waiting(7 * S, "refused", "promise"),
        waiting(0, "refused", "budget"),
    )
    assert (made.completed, made.failed, made.cancelled, made.abandoned) == (2, 1, 1, 1)
    assert made.refused == {"promise": 2, "budget": 1}
    # waits are of those that ran, apart from those that gave up; one refused at once has not waited
    assert spread(made.wait).count == 3
    assert spread(made.first_token).count == 3
    assert (spread(made.unserved).count, spread(made.unserved).max_ns) == (2, 7 * S)


def test_windows_and_minutes_are_those_of_the_end() -> None:
    folded = fold([end(ended_ns=WINDOW_NS - 1), end(ended_ns=WINDOW_NS), end(ended_ns=WINDOW_NS, tier="gone")], TIERS)
    assert list(folded.windows) == [
        (0, "a", "m", "fast"),
        (WINDOW_NS, "a", "m", "fast"),
        (WINDOW_NS, "a", "m", "gone"),
    ]
    assert {place: counts(judged) for place, judged in folded.minutes.items()} == {
        (WINDOW_NS - MINUTE_NS, "a", "fast"): (1, 0, 1, 0),
        (WINDOW_NS, "a", "fast"): (1, 0, 1, 0),
        (WINDOW_NS, "a", "gone"): (0, 0, 0, 0),
    }


def test_a_spread_of_nothing_says_nothing() -> None:
    assert spread(Tally().wait) == Spread(0, None, None, None, None)


reasons = st.sampled_from([*NO_ROOM, Reason.BUDGET])
times = st.integers(0, 2**40)
ends = st.builds(
    lambda replica, outcome, reason, tier, wait, first, more: end(
        replica=replica,
        tier=tier,
        outcome="cancelled" if outcome is Outcome.REFUSED and replica else outcome,
        reason=reason if outcome is Outcome.REFUSED and not replica else "",
        wait_ns=wait,
        first_token_ns=first if replica else 0,
        total_ns=wait + more,
        ended_ns=more,
    ),
    st.sampled_from(["", "m-0"]),
    st.sampled_from([Outcome.COMPLETED, Outcome.CANCELLED, Outcome.FAILED, Outcome.REFUSED]),
    reasons,
    st.sampled_from(["fast", "slow"]),
    times,
    times,
    times,
)


@given(st.lists(ends, max_size=30), st.integers(0, 30))
def test_tallies_add_up_to_what_was_counted_however_it_was_divided(all_of_it: list[End], cut: int) -> None:
    whole = tally(*all_of_it)
    taken = Tally()
    for part in (all_of_it[cut:], all_of_it[:cut]):
        taken.take(tally(*part).row())
    assert taken.row() == whole.row()
    assert len(all_of_it) == sum(
        (whole.completed, whole.failed, whole.cancelled, whole.abandoned, sum(whole.refused.values()))
    )
    assert whole.wait.count == sum(bool(each.replica) for each in all_of_it)
    assert whole.judged.queue_late <= whole.judged.queue_promised <= len(all_of_it)
    assert whole.judged.first_token_late <= whole.judged.first_token_promised <= len(all_of_it)
