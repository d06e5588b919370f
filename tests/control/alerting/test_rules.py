"""What is wrong, by the facts: for each condition, facts in which it holds, and in which it does not."""

import msgspec
import pytest

from commonpool.control.alerting.rules import (
    Away,
    Booked,
    Ends,
    Facts,
    Failing,
    Running,
    Waiting,
    troubles,
    unknown,
)
from commonpool.control.nodes import Listening
from commonpool.core.alerts import CONDITIONS, Trouble
from commonpool.core.burn import RULES, Burn, Promise
from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.core.underuse import Underuse
from commonpool.core.views import Bottleneck, BudgetView, ModelView, PoolView, TenantView
from commonpool.core.waits import Spread

DAY = 24 * NS_PER_HOUR
NOW = 1_800_000_000 * NS_PER_S
TENANT = TenantView("a", "main", 2000, 4000, 0, 0, 0, 0, 0, 0)
MODEL = ModelView("m", "main", "resident", 1, "", 1, 0, 0, 0, Bottleneck.NONE, broken=False, error="", unplaced="")
SPREAD = Spread(0, None, None, None, None)


def promise(rule: int | None) -> Promise:
    burns = tuple(Burn(over, 100, 50, 50.0) for over in (RULES[0].long_ns, RULES[1].long_ns, RULES[2].long_ns))
    return Promise("a", "interactive", "queue", NS_PER_S, SPREAD, burns, None if rule is None else RULES[rule])


def budget(spent: int, *, soft: bool) -> BudgetView:
    return BudgetView(50_000_000, spent, 0, soft, until_ns=1)


def facts(**known: object) -> Facts:
    return Facts(now_ns=NOW, currency="EUR", tenants=[TENANT], **known)  # type: ignore[arg-type]


def replaced(view: ModelView, **fields: object) -> ModelView:
    return msgspec.structs.replace(view, **fields)


BOOKS = Trouble("books_behind", "Pool main has no price.", pool="main")
# Facts, and the conditions that hold by them.
CASES: tuple[tuple[Facts, set[str]], ...] = (
    (facts(models=[MODEL], promises=[promise(None)], budgets={"a": budget(0, soft=False)}), set()),
    (facts(promises=[promise(0)]), {"promise_burning_fast"}),
    (facts(promises=[promise(1)]), {"promise_burning_fast"}),
    (facts(promises=[promise(2)]), {"promise_burning"}),
    (facts(waiting=[Waiting("a", "m", "main", 89, 100)]), set()),
    (facts(waiting=[Waiting("a", "m", "main", 90, 100)]), {"starvation_near"}),
    (facts(overdue={"a": 500}), {"loan_overdue"}),
    (facts(overdue={"gone": 500}), set()),
    (facts(models=[replaced(MODEL, ready=0)]), {"model_down"}),
    (facts(models=[replaced(MODEL, ready=0, wanted=0)]), set()),
    (facts(models=[replaced(MODEL, ready=0, wanted=0, broken=True)]), {"model_down"}),
    (facts(running=[Running("m-0", "m", "main", "unknown")]), {"engine_unknown"}),
    (facts(running=[Running("m-0", "m", "main", "failing")]), {"replica_failing"}),
    (facts(running=[Running("m-0", "m", "main", "ready")]), set()),
    (facts(running=[Running("m-0", "m", "main", "ready", "http://h:1", 7, 5)]), {"engine_shared"}),
    (facts(running=[Running("m-0", "m", "main", "ready", "http://h:1", unread=True)]), {"engine_unread"}),
    (facts(running=[Running("m-0", "m", "main", "starting", "http://h:1", unread=True)]), set()),
    (facts(books=[Trouble("reconciliation_difference", "", pool="main")]), {"reconciliation_difference"}),
    (facts(books=[Trouble("held_difference", "", pool="main")]), {"held_difference"}),
    (facts(books=[BOOKS]), {"books_behind"}),
    (facts(booked=[Booked("main", NOW - 2 * NS_PER_HOUR)]), set()),
    (facts(booked=[Booked("main", NOW - 2 * NS_PER_HOUR - 1)]), {"books_behind"}),
    (facts(away=Away(journal="Full.")), {"journal_away"}),
    (facts(away=Away(store="Away.")), {"store_away"}),
    (facts(away=Away(audit="Away.")), {"audit_away"}),
    (facts(away=Away(tampered="Changed.")), {"audit_broken"}),
    (facts(away=Away(prompts="Away.")), {"prompts_away"}),
    (facts(away=Away(later="Away.")), {"later_away"}),
    (facts(budgets={"a": budget(41_239_999, soft=True)}), {"budget_soft"}),
    (facts(budgets={"a": budget(50_000_001, soft=True)}), {"budget_hard"}),
    (facts(pools=[PoolView("main", 1000, 0, 0, scaled=True)]), {"guarantees_scaled"}),
    (facts(underuse=[Underuse("a", "main", 2000, 80, 100, 20, 500, 500)]), {"underuse"}),
    (facts(missing=[("main", "n1")]), {"node_lost"}),
    (facts(stray=[("main", "n1", "job-1")]), {"node_stray"}),
    (facts(gateways=[Listening("n1", "10.0.0.1:8080")]), set()),
    (facts(gateways=[Listening("n1", "10.0.0.1:8080", "it cannot listen: Address in use")]), {"gateway_away"}),
    (facts(behind_ns=5 * NS_PER_S), {"clock_behind"}),
    (facts(certificates=[Ends("gateway", NOW + 30 * DAY)]), set()),
    (facts(certificates=[Ends("gateway", NOW + 30 * DAY - 1)]), {"certificate_expires"}),
    (facts(certificates=[Ends("gateway", NOW + 3 * DAY - 1)]), {"certificate_ending"}),
    (facts(certificates=[Ends("gateway", 0, "It expired.")]), {"certificate_ending"}),
    (facts(failing=[Failing("ops", "", "it answers 500")]), {"channel_failing"}),
)


@pytest.mark.parametrize(("given", "names"), CASES)
def test_what_holds_by_the_facts(given: Facts, names: set[str]) -> None:
    found = troubles(given)
    assert {each.name for each in found} == names
    for each in found:
        assert each.sentence == "" or each.sentence.endswith(".")
        assert each.sentence.count("..") == 0


def test_each_condition_is_found_by_some_facts() -> None:
    assert {name for _, names in CASES for name in names} == CONDITIONS.keys()


def test_a_tenants_own_are_told_of_no_other() -> None:
    every = [each for given, _ in CASES for each in troubles(given)]
    assert {each.name for each in every if each.tenant} == {
        "promise_burning_fast",
        "promise_burning",
        "starvation_near",
        "loan_overdue",
        "budget_soft",
        "budget_hard",
        "underuse",
    }


def test_a_budget_says_how_much() -> None:
    (soft,) = troubles(facts(budgets={"a": budget(41_239_999, soft=True)}))
    assert "41.23 of its budget of 50.00 EUR this month; what exceeds that will be refused" in soft.sentence
    (hard,) = troubles(facts(budgets={"a": budget(50_000_001, soft=True)}))
    assert "50.00 of its budget of 50.00 EUR this month, so what it asks for is refused" in hard.sentence


def test_an_engine_of_several_replicas_that_somebody_else_uses_is_one_trouble() -> None:
    two = [Running(f"{name}-0", name, "main", "ready", "http://h:1", 7, 5) for name in ("m", "n")]
    (one,) = troubles(facts(running=two))
    assert one.sentence == (
        "The engine of model m at http://h:1 has 7 requests in it, and 5 of them were not sent from here: somebody uses"
        " it past the gateway."
    )
    later = troubles(facts(running=[msgspec.structs.replace(each, replica="m-1", foreign=3) for each in two]))
    assert [each.id for each in later] == [one.id]  # the same alert, whatever it comes to now


def test_books_that_are_known_to_stand_still_are_one_trouble() -> None:
    (one,) = troubles(facts(books=[BOOKS], booked=[Booked("main", 0)]))
    assert one == BOOKS


def test_what_was_not_looked_at_yet_is_not_known() -> None:
    assert unknown(facts()) == {
        "promise_burning_fast",
        "promise_burning",
        "reconciliation_difference",
        "held_difference",
    }
    assert unknown(facts(promises=[promise(None)], booked=[Booked("main", NOW)])) == set()


def test_of_the_same_thing_there_is_one_trouble() -> None:
    assert len(troubles(facts(running=[Running("m-0", "m", "main", "unknown")] * 2))) == 1
