"""Budgets: held before it is spent, given back once, told by the books, and over when it is over."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core import views
from commonpool.core.budget import HOURS_MAX, Spending, amount
from commonpool.core.effects import Effect, Refuse, Settle
from commonpool.core.events import Spent, Ticked
from commonpool.core.model import NS_PER_HOUR, Budget, Outcome, Price, Reason, Usage
from commonpool.core.pricing import COST_UNIT, exact_cost
from commonpool.core.views import BudgetView
from tests.core.worlds import S, World, dispatched, policy, refused, started, tenant

HOUR = NS_PER_HOUR
PRICE = 2_500_000  # of the pool, micro-units an hour
GPU_HOUR = 2_500_000  # what a GPU-hour costs, in micro-units
# A request has 36 tokens of service and uses 500 milli_gpu; before anything is learned a token lasts 10 ms.
ONE = exact_cost(500 * 36 * S // 100, PRICE) // COST_UNIT  # micro-units: 125, exactly


class Here(World):
    """Its requests are those of which ONE is the expected cost."""

    def arrive(self, request_id: str, tenant_name: str, tier: str = "interactive", **more: Any) -> list[Effect]:
        return super().arrive(request_id, tenant_name, tier, **({"tokens_in": 16} | more))


def world(micro: int, soft_percent: int = 80, **more: Any) -> Here:
    a = tenant("a", 2000, elastic_cap=8000, budget=Budget(micro, soft_percent), **more)
    return Here(policy(a, tenant("b", 2000), milli_gpu=8000))


def budget(here: World) -> BudgetView:
    found = views.budget(here.machine.state, "a", here.now)
    assert found is not None
    return found


def test_eight_first_calls_at_once_do_not_spend_a_budget_for_one() -> None:
    here = world(ONE + 1)
    effects = [effect for n in range(8) for effect in here.arrive(f"a{n}", "a")]
    assert dispatched(effects) == ["a0"]
    assert [effect.reason for effect in refused(effects)] == [Reason.BUDGET] * 7
    assert here.machine.state.accounts["a"].waiting == 0
    assert budget(here).held == ONE


def test_what_is_refused_says_why_and_is_not_to_be_tried_again() -> None:
    here = world(5_000_000)
    here.send(Spent("a", 4_999_950, here.now, 12 * HOUR))
    refusal, settled = here.arrive("a0", "a")
    assert isinstance(refusal, Refuse)
    assert refusal.retry_after_ns is None
    assert refusal.message == (
        "Tenant a has spent 4.99995 of its budget of 5.00; 0.00 more is held for what is open, and this would take "
        "0.000125. Wait for the period's end, in 12 h 0 min, or have the budget raised."
    )
    assert isinstance(settled, Settle)
    assert (settled.record.status, settled.record.reason) == (429, "budget")


def test_what_was_held_is_replaced_by_the_charge_and_others_have_what_is_left() -> None:
    here = world(2 * ONE)
    here.arrive("a0", "a")
    here.later(0.1).end("a0")
    assert budget(here).held == 0
    assert budget(here).spent == 35  # 500 milli_gpu × 0.1 s at 2.50 an hour
    assert dispatched(here.arrive("a1", "a")) == ["a1"]


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.FAILED])
def test_what_is_held_is_held_over_a_retry_and_given_back_once(outcome: Outcome) -> None:
    here = world(10 * ONE)
    here.arrive("a0", "a")
    here.later(0.1).end("a0", outcome, retry=True, usage=Usage(0, 0, 0))
    here.send(Ticked())
    assert here.running == ["a0"]
    assert budget(here).held == ONE
    here.end("a0", outcome)
    here.end("a0", outcome)
    assert budget(here).held == 0
    assert budget(here).spent == (35 if outcome is Outcome.CANCELLED else 0)  # what failed is not charged


def test_what_never_ran_gives_back_what_was_held() -> None:
    here = world(10 * ONE, max_wait_ns=10 * S)
    for n in range(5):
        here.arrive(f"a{n}", "a")
    here.arrive("gone", "a")
    here.cancel("gone")
    assert budget(here).held == 5 * ONE
    here.later(30).send(Ticked())  # what waited past all reason is refused
    assert budget(here).held == 4 * ONE


def test_the_books_set_what_is_spent_and_add_nothing() -> None:
    here = world(5_000_000)
    for _ in range(3):
        here.send(Spent("a", 1_000_000, here.now, HOUR))
    assert budget(here).spent == 1_000_000
    here.send(Spent("a", 400_000, here.now, HOUR))
    assert (budget(here).spent, budget(here).until_ns) == (400_000, HOUR)
    here.send(Spent("nobody", 1, here.now, HOUR))


def test_what_ended_after_the_time_of_the_books_stays_spent() -> None:
    here = world(5_000_000)
    here.now = HOUR - 5 * S
    here.arrive("a0", "a")
    here.later(10).end("a0")  # half of it in the hour that is closed
    half = round(0.5 * 5 / 3600 * GPU_HOUR)
    assert budget(here).spent == 2 * half
    here.later(50).send(Spent("a", 1_000_000 + half, HOUR, 24 * HOUR))
    assert budget(here).spent == 1_000_000 + 2 * half
    here.send(Spent("a", 7, HOUR - 1, 24 * HOUR))  # of an earlier time
    assert budget(here).spent == 1_000_000 + 2 * half


def test_when_the_period_is_over_spending_counts_from_nothing() -> None:
    here = world(1_000_000)
    here.send(Spent("a", 1_000_000, here.now, HOUR))
    assert refused(here.arrive("a0", "a"))
    here.now = HOUR - 5 * S
    assert refused(here.arrive("a1", "a"))
    here.send(Spent("a", 500_000, here.now, HOUR))
    here.arrive("a2", "a")
    here.later(10).end("a2")
    assert (budget(here).spent, budget(here).until_ns) == (round(0.5 * 5 / 3600 * GPU_HOUR), 0)
    here.send(Spent("a", 900_000, here.now, HOUR))  # about the period that is over
    assert budget(here).spent < 900_000


def test_at_its_soft_limit_nothing_is_refused_but_shown() -> None:
    here = world(1_000_000, 50)
    here.send(Spent("a", 499_999, here.now, HOUR))
    assert not budget(here).soft
    here.send(Spent("a", 500_000, here.now, HOUR))
    assert budget(here) == BudgetView(1_000_000, 500_000, 0, soft=True, until_ns=HOUR)
    assert dispatched(here.arrive("a0", "a")) == ["a0"]
    assert views.budget(here.machine.state, "b", here.now) is None
    assert views.budget(here.machine.state, "nobody", here.now) is None


def test_a_job_holds_what_it_is_expected_to_cost_and_one_without_is_refused_when_all_is_spent() -> None:
    here = world(3 * GPU_HOUR)
    assert started(here.submit("a0", "a", 2000, expected_ns=HOUR)) == ["a0"]
    assert budget(here).held == 2 * GPU_HOUR
    assert [each.reason for each in refused(here.submit("a1", "a", 2000, expected_ns=HOUR))] == [Reason.BUDGET]
    assert started(here.submit("a2", "a", 1000)) == ["a2"]
    assert budget(here).held == 2 * GPU_HOUR
    here.send(Spent("a", 3 * GPU_HOUR, here.now, 100 * HOUR))
    assert refused(here.submit("a3", "a", 1000))
    assert here.running == ["a0", "a2"]  # what runs goes on


def test_what_the_books_know_of_a_running_job_is_spent_and_no_longer_held() -> None:
    here = world(20 * GPU_HOUR)
    here.submit("a0", "a", 1000, expected_ns=10 * HOUR)
    here.now = 4 * HOUR + S
    here.send(Spent("a", 4 * GPU_HOUR, 4 * HOUR, 100 * HOUR))
    assert (budget(here).spent, budget(here).held) == (4 * GPU_HOUR, 6 * GPU_HOUR)
    here.now = 12 * HOUR
    here.send(Spent("a", 12 * GPU_HOUR, here.now, 100 * HOUR))
    assert budget(here).held == 0  # it takes longer than it said
    here.later(3600).finish("a0")
    assert (budget(here).spent, budget(here).held) == (13 * GPU_HOUR, 0)


def test_a_new_policy_keeps_what_is_spent_and_held() -> None:
    here = world(1_000_000)
    here.send(Spent("a", 400_000, here.now, HOUR))
    here.arrive("a0", "a")
    here.configure(policy(tenant("a", 1000), tenant("b")))
    assert views.budget(here.machine.state, "a", here.now) is None
    here.configure(policy(tenant("a", 1000, budget=Budget(900_000)), tenant("b")))
    assert (budget(here).limit, budget(here).spent, budget(here).held) == (900_000, 400_000, ONE)


def test_nothing_is_refused_where_nothing_has_a_price() -> None:
    spending = Spending()
    spending.configure(Budget(1), None, 0)
    assert spending.cost(10**30, 0) == 0
    assert spending.refusal("a", 0, 0) is None
    spending.configure(Budget(1), Price("main", -1), 0)  # one that is not in force yet
    assert spending.cost(10**30, 0) == 0


@given(
    st.lists(st.tuples(st.integers(1, 8000), st.integers(0, 5 * HOUR), st.integers(0, 3 * HOUR)), max_size=8),
    st.integers(0, HOUR - 1),
    st.integers(0, 5),
)
def test_what_is_cut_at_hours_adds_up_exactly(used: list[tuple[int, int, int]], offset: int, closed: int) -> None:
    spending = Spending()
    spending.configure(Budget(1), Price("main", PRICE), offset)
    for milli_gpu, start, ns in used:
        spending.charge(milli_gpu, start, start + ns, PRICE)
    assert spending.spent(0) == sum(exact_cost(milli * ns, PRICE) for milli, _, ns in used)
    at = offset + closed * HOUR
    spending.told(0, at, 100 * HOUR, 9 * HOUR)
    later = [(milli, max(0, start + ns - max(at, start))) for milli, start, ns in used]
    assert spending.spent(9 * HOUR) == sum(exact_cost(milli * ns, PRICE) for milli, ns in later)


def test_without_news_of_the_books_the_last_three_days_are_kept_by_the_hour_and_nothing_is_lost() -> None:
    spending = Spending()
    spending.configure(Budget(1), Price("main", PRICE), 0)
    spending.charge(1000, 0, 1000 * HOUR, PRICE)
    assert spending.spent(1000 * HOUR) == 1000 * GPU_HOUR * COST_UNIT
    spending.told(5, (1000 - HOURS_MAX) * HOUR, 2000 * HOUR, 1000 * HOUR)
    assert spending.spent(1000 * HOUR) == (5 + HOURS_MAX * GPU_HOUR) * COST_UNIT
    spending.told(5, (1000 - HOURS_MAX - 1) * HOUR, 2000 * HOUR, 1000 * HOUR)
    assert spending.spent(1000 * HOUR) == (5 + HOURS_MAX * GPU_HOUR) * COST_UNIT


@pytest.mark.parametrize(
    ("micro", "text"),
    [(0, "0.00"), (5_000_000, "5.00"), (4_983_200, "4.9832"), (1, "0.000001"), (-10_000, "-0.01")],
)
def test_an_amount_for_people(micro: int, text: str) -> None:
    assert amount(micro * COST_UNIT) == text
