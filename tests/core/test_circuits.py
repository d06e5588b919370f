"""What follows from how attempts end: replicas that get nothing new, and requests that are tried again or not."""

from typing import Any

import pytest

from commonpool.core.breaker import Circuit
from commonpool.core.effects import Dispatch, Effect, Fail, Refuse
from commonpool.core.events import Ended, Event
from commonpool.core.model import Cause, Fault, Outcome, Reason
from tests.core.clusters import Cluster, deployment, rules
from tests.core.laws import Choose, Commons, thorough
from tests.core.worlds import SLOTS, S, World, dispatched, policy, refused, tenant


def world(replicas: int = 2, **more: Any) -> World:
    return World(policy(tenant("a", 4000), tenant("b", 4000), milli_gpu=8000, **more), replicas=replicas)


def circuit(world: World, replica_id: str, model: str = "m") -> Circuit:
    return world.machine.state.sites[model].replicas[replica_id].breaker.circuit


def where(effects: list[Effect]) -> list[str]:
    return [effect.replica_id for effect in effects if isinstance(effect, Dispatch)]


def fails(world: World, name: str, fault: Fault = Fault.ENGINE, *, retry: bool = False) -> list[Effect]:
    return world.end(name, Outcome.FAILED, status=502, retry=retry, fault=fault)


def open_it(world: World, replica_id: str) -> None:
    """Three requests fail on it, one after the other."""
    running = world.machine.state.sites["m"].replicas
    while circuit(world, replica_id) is not Circuit.OPEN:
        name = f"f{len(world.log)}"
        if where(world.arrive(name, "a")) == [replica_id]:
            fails(world, name)
            world.tick()
        else:
            world.end(name)
            assert any(each.id == replica_id for each in running.values())


def test_three_failures_in_a_row_and_others_take_everything() -> None:
    here = world()
    open_it(here, "m-0")
    assert where([effect for n in range(6) for effect in here.arrive(f"r{n}", "a")]) == ["m-1"] * SLOTS
    assert here.machine.waits_of("r5", here.now + S) is not None


def test_one_request_is_the_probe_and_when_it_is_answered_all_who_wait_follow() -> None:
    here = world(replicas=1)
    open_it(here, "m-0")
    for n in range(6):
        assert where(here.arrive(f"r{n}", "a")) == []
    assert where(here.later(1).tick()) == []
    assert dispatched(here.later(1).tick()) == ["r0"]
    assert dispatched(here.later(5).tick()) == []
    assert dispatched(here.end("r0")) == ["r1", "r2", "r3", "r4"]
    assert circuit(here, "m-0") is Circuit.CLOSED


def test_a_probe_that_fails_is_tried_again_and_its_replica_left_alone_for_longer() -> None:
    here = world(replicas=1)
    open_it(here, "m-0")
    here.arrive("r", "a")
    assert dispatched(here.later(2).tick()) == ["r"]
    assert dispatched(fails(here, "r", retry=True)) == []
    assert dispatched(here.later(3).tick()) == []
    assert dispatched(here.later(1).tick()) == ["r"]
    here.end("r")
    assert [(record.attempt, record.outcome) for record in here.records[-2:]] == [
        (1, Outcome.FAILED),
        (2, Outcome.COMPLETED),
    ]


def test_a_probe_whose_client_left_makes_way_for_another() -> None:
    here = world(replicas=1)
    open_it(here, "m-0")
    here.arrive("r0", "a")
    here.arrive("r1", "a")
    assert dispatched(here.later(2).tick()) == ["r0"]
    assert dispatched(here.end("r0", Outcome.CANCELLED, status=499)) == ["r1"]


def test_a_lone_client_tries_it_again_though_another_replica_has_as_much_room() -> None:
    here = world()
    here.arrive("keeps m-0 busy", "a")
    open_it(here, "m-1")
    here.end("keeps m-0 busy")
    assert where(here.arrive("r0", "a")) == ["m-0"]
    here.end("r0")
    here.later(2).tick()
    assert where(here.arrive("r1", "a")) == ["m-1"]
    assert where(here.arrive("r2", "a")) == ["m-0"]
    here.end("r1")
    assert circuit(here, "m-1") is Circuit.CLOSED


def test_a_second_attempt_is_no_probe_where_another_replica_has_room() -> None:
    here = world(replicas=3)
    open_it(here, "m-0")
    here.later(2).tick()
    here.arrive("keeps m-0 busy", "a")
    assert circuit(here, "m-0") is Circuit.HALF_OPEN
    here.cancel("keeps m-0 busy")
    here.end("keeps m-0 busy", Outcome.CANCELLED)
    first = where(here.arrive("r", "a"))
    again = where(fails(here, "r", retry=True))
    assert again != first
    assert first == ["m-0"] or again != ["m-0"]


def test_a_model_whose_engine_fails_takes_nothing_from_another() -> None:
    models = {name: deployment(name, scaling=None) for name in "mn"}
    here = World(policy(tenant("a", 2000), tenant("b", 2000), deployments=models), replicas=1)
    here.ready("n-0", "n")
    open_it(here, "m-0")
    for n in range(SLOTS):
        assert where(here.arrive(f"n{n}", "b", model="n")) == ["n-0"]


def test_errors_answered_to_one_tenant_leave_the_replica_to_the_others() -> None:
    here = world(replicas=1)
    for n in range(20):
        assert where(here.arrive(f"a{n}", "a")) == ["m-0"]
        fails(here, f"a{n}", Fault.UNCLEAR)
    assert where(here.arrive("b", "b")) == ["m-0"]


def test_errors_answered_to_everybody_open_it() -> None:
    here = world(replicas=1)
    for n in range(4):
        here.arrive(f"r{n}", "ab"[n % 2])
        fails(here, f"r{n}", Fault.UNCLEAR)
        here.tick()
    assert circuit(here, "m-0") is Circuit.OPEN


def test_an_error_that_another_replica_does_not_repeat_is_the_replicas_own() -> None:
    """A replica that answers everything with an error at once would take most of what comes."""
    here = world()
    for n in range(20):
        first = where(here.arrive(f"r{n}", "a"))
        if first == ["m-0"]:
            assert where(fails(here, f"r{n}", Fault.UNCLEAR, retry=True)) == ["m-1"]
        here.end(f"r{n}")
        here.tick()
    assert circuit(here, "m-0") is Circuit.OPEN
    assert sum(record.outcome is Outcome.FAILED for record in here.records) == 3


def test_a_request_that_every_replica_answers_with_an_error_is_wrong_itself() -> None:
    here = world()
    for n in range(20):
        here.arrive(f"r{n}", "a")
        fails(here, f"r{n}", Fault.UNCLEAR, retry=True)
        fails(here, f"r{n}", Fault.UNCLEAR, retry=True)
        here.later(1).tick()
    assert {circuit(here, "m-0"), circuit(here, "m-1")} == {Circuit.CLOSED}


def test_what_the_client_did_wrong_says_nothing_of_the_replica() -> None:
    here = world(replicas=1)
    for n in range(20):
        here.arrive(f"r{n}", "ab"[n % 2])
        here.end(f"r{n}", Outcome.FAILED, status=400, fault=Fault.NONE)
    assert where(here.arrive("r", "a")) == ["m-0"]


@pytest.mark.parametrize(("fault", "again"), [(Fault.ENGINE, 10), (Fault.UNCLEAR, 5)])
def test_only_so_many_are_tried_again(fault: Fault, again: int) -> None:
    """Ten are kept, of which errors that are answered leave half; with the requests' own tenth and no time passing."""
    here = World(policy(*(tenant(name, 2000) for name in "abcd"), milli_gpu=200_000), replicas=100)
    tried = failed = 0
    for n in range(9):
        here.arrive(f"first{n}", "a")
        here.end(f"first{n}")
    for n in range(40):
        here.arrive(f"r{n}", "abcd"[n % 4])
        effects = fails(here, f"r{n}", fault, retry=True)
        tried += len(dispatched(effects))
        failed += Fail(f"r{n}") in effects
    assert tried + failed == 40
    earned = (9 + 40 + tried) // 10
    assert again <= tried <= again + earned
    assert failed >= 40 - again - earned


def test_the_attempts_of_a_request_have_numbers_and_a_failed_one_costs_nothing() -> None:
    here = world()
    here.arrive("r", "a")
    fails(here.later(1), "r", retry=True)
    here.later(1).end("r")
    assert [(each.attempt, each.outcome, each.micro_per_gpu_hour > 0) for each in here.records] == [
        (1, Outcome.FAILED, False),
        (2, Outcome.COMPLETED, True),
    ]


def failing(**more: Any) -> Cluster:
    """The only replica of m has failed on its probe, too."""
    models = (deployment("m", milli_gpu=1000, **more), deployment("n", milli_gpu=1000))
    here = Cluster(rules(tenant("a", 4000), models=models)).begin()
    open_it(here, "m-0.1")
    here.later(2).tick()
    here.arrive("probe", "a")
    fails(here, "probe")
    assert circuit(here, "m-0.1") is Circuit.OPEN
    return here


def test_where_every_replica_fails_nobody_is_kept_waiting() -> None:
    here = failing()
    (refusal,) = refused(here.later(1).arrive("r", "a"))
    assert (refusal.reason, refusal.retry_after_ns) == (Reason.NO_REPLICA, 3 * S)
    assert "Every replica of m fails; one is tried again in 3 s" in refusal.message
    here.later(3).tick()
    assert where(here.arrive("next probe", "a")) == ["m-0.1"]
    assert refused(here.arrive("behind it", "a")) == []
    assert dispatched(here.end("next probe")) == ["behind it"]


def test_where_every_replica_fails_the_fallback_answers() -> None:
    here = failing(fallback="n")
    assert where(here.arrive("r", "a")) == ["n-0.1"]
    here.end("r")
    assert (here.records[-1].model, here.records[-1].outcome) == ("n", Outcome.COMPLETED)


def test_what_waits_for_it_is_told_so() -> None:
    here = world(replicas=1)
    open_it(here, "m-0")
    here.arrive("r", "a")
    waits = here.machine.waits_of("r", here.now + S)
    assert waits is not None
    assert [wait.cause for wait in waits] == [Cause.NO_REPLICA]


class Circuits(Commons):
    """Attempts fail for every reason. What is started is started where the circuit lets it."""

    def end(self, choose: Choose) -> None:
        self.fault = choose(tuple(Fault))
        super().end(choose)

    def end_of(self, name: str, outcome: Outcome, tokens_out: int, *, retry: bool = False) -> Any:
        event = super().end_of(name, outcome, tokens_out, retry=retry)
        if not isinstance(event, Ended) or outcome is not Outcome.FAILED:
            return event
        return Ended(event.request_id, event.attempt, outcome, event.usage, 502, retry=retry, fault=self.fault)

    fault = Fault.ENGINE

    def laws(self, event: Event, effects: list[Effect]) -> None:
        del event
        started = [effect for effect in effects if isinstance(effect, Dispatch)]
        sites = self.machine.state.sites.values()
        breakers = {each.id: each.breaker for site in sites for each in site.replicas.values()}
        for effect in started:
            breaker = breakers[effect.replica_id]
            assert breaker.circuit is not Circuit.OPEN
            if breaker.circuit is Circuit.HALF_OPEN:
                assert [each.request_id for each in started if each.replica_id == effect.replica_id] == [
                    effect.request_id
                ]
                assert not breaker.takes
        for site in sites:
            assert site.free_slots == sum(
                max(0, each.slots - each.slots_used) for each in site.replicas.values() if each.open
            )
            assert site.troubled or not any(each.breaker.troubled for each in site.replicas.values())
        refusals = [effect for effect in effects if isinstance(effect, Refuse)]
        assert all(each.message for each in refusals)

    def teardown(self) -> None:
        self.finish()
        assert all(not site.accused and not site.avoided for site in self.machine.state.sites.values())


TestCircuits = Circuits.TestCase
TestCircuits.settings = thorough(20)
