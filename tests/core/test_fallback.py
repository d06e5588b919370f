"""What answers in a model's place when more is asked of it than it can do within its tenant's max_wait."""

from typing import Any

import pytest

from commonpool.core.effects import Dispatch, Effect
from commonpool.core.model import Deployment, Outcome, Reason, Usage
from tests.core.worlds import CONTEXT, SLOTS, S, World, policy, refused, tenant

SMALL = 16  # slots of a replica of the smaller model


def peak(**more: Any) -> World:
    """The large model's four slots are taken, and its tenant's queue is as long as its promise allows."""
    deployments = {
        "m": Deployment("m", "1", "main", 2000, SLOTS, SLOTS * CONTEXT, CONTEXT, fallback="n"),
        "n": Deployment("n", "7", "main", 1000, SMALL, SMALL * CONTEXT, CONTEXT),
    }
    rules = policy(
        tenant("a", 2000, max_wait_ns=10 * S, **more), tenant("b", 1000), deployments=deployments, milli_gpu=4000
    )
    here = World(rules)
    here.ready("n-0", "n", SMALL)
    for model in "mn":  # five seconds each
        here.arrive(f"first {model}", "a", model=model)
        here.later(5).end(f"first {model}", usage=Usage(10, 0, 10))
    while True:
        name = f"q{len(here.log)}"
        if where(here.arrive(name, "a", fallback=False)) == [] and here.machine.waits_of(name, here.now) is None:
            return here


def where(effects: list[Effect]) -> list[str]:
    return [effect.replica_id for effect in effects if isinstance(effect, Dispatch)]


def test_at_a_peak_the_smaller_model_answers_at_once() -> None:
    here = peak()
    assert where(here.arrive("r", "a")) == ["n-0"]
    here.later(1).end("r")
    record = here.records[-1]
    assert (record.model, record.version, record.outcome, record.wait_ns) == ("n", "7", Outcome.COMPLETED, 0)
    assert record.milli_gpu == 1000 // SMALL  # it is charged for what it used, not for what it asked for


def test_a_tenant_that_does_not_allow_it_is_refused() -> None:
    here = peak(fallback=False)
    (refusal,) = refused(here.arrive("r", "a"))
    assert refusal.reason is Reason.PROMISE
    assert here.records[-1].model == "m"


def test_a_key_that_may_not_use_the_smaller_model_is_refused() -> None:
    here = peak()
    assert [each.reason for each in refused(here.arrive("r", "a", fallback=False))] == [Reason.PROMISE]


def test_where_the_smaller_model_has_no_room_now_it_is_refused_and_nothing_waits_there() -> None:
    here = peak()
    answered = [where(here.arrive(f"r{n}", "a")) for n in range(SMALL + 4)]
    assert answered == [["n-0"]] * SMALL + [[]] * 4
    assert [each.request_id for each in refused(here.effects)][-4:] == [f"r{n}" for n in range(SMALL, SMALL + 4)]
    assert here.machine.state.sites["n"].line.waiting == 0
    here.end("r0")
    assert where(here.arrive("again", "a")) == ["n-0"]


def test_it_never_exceeds_a_cap() -> None:
    here = peak(elastic_cap=2100)
    answered = [where(here.arrive(f"r{n}", "a")) for n in range(3)]
    assert answered == [["n-0"], [], []]


def test_it_does_not_borrow_what_another_tenant_waits_for() -> None:
    here = peak()
    for n in range(2 * SMALL):
        here.arrive(f"b{n}", "b", model="n")
    assert where(here.arrive("r", "a")) == []


@pytest.mark.parametrize("name", ["m", "n"])
def test_what_was_promised_still_holds_for_those_who_wait(name: str) -> None:
    """Those that are answered elsewhere take nothing from the queue of the model they asked for."""
    here = peak()
    waiting = here.machine.state.sites["m"].line.waiting
    for n in range(5):
        here.arrive(f"r{n}", "a")
    assert here.machine.state.sites["m"].line.waiting == waiting
    assert here.machine.state.sites[name].line.waiting == (waiting if name == "m" else 0)
