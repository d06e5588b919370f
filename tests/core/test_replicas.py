"""The life of a deployment's replicas: how they start, fail, drain, are replaced, and give way."""

from typing import Any

import msgspec
import pytest

from commonpool.core import views
from commonpool.core.effects import Dispatch, Effect, StartReplica
from commonpool.core.events import HostLoad, ReplicaLost, ReplicaReady
from commonpool.core.model import Attached, Cause, Outcome, Pool, Reason, Replica, Wait
from commonpool.core.replicas import DRAIN_NS
from tests.core.clusters import Cluster, deployment, rules, starts, stops
from tests.core.worlds import CONTEXT, S, dispatched, refused, started, tenant

BROKEN = "The weights are bad."


def one(*, replicas: int = 1, milli_gpu: int = 8000, **more: Any) -> Cluster:
    """Tenant `a`, and model `m` with its replicas."""
    model = deployment(replicas=replicas, **more)
    return Cluster(rules(tenant("a", 4000, elastic_cap=8000), models=(model,), milli_gpu=milli_gpu))


def view(here: Cluster, model: str = "m") -> views.ModelView:
    return next(each for each in views.models(here.machine.state) if each.model == model)


def changed(here: Cluster, **more: Any) -> list[Effect]:
    """What comes of model `m` being another one from now on."""
    policy = here.machine.state.policy
    model = msgspec.structs.replace(policy.deployments["m"], **more)
    return here.configure(msgspec.structs.replace(policy, deployments={**policy.deployments, "m": model}))


# -- start -------------------------------------------------------------------------------------------------------------


def test_fixed_replicas_start_with_the_first_tick_and_hold_their_devices_from_then_on() -> None:
    here = one(replicas=2)
    assert here.log == []
    assert here.tick() == [
        StartReplica(Replica("m-0.1", "m", 2000, 4, 4 * CONTEXT), 0),
        StartReplica(Replica("m-1.1", "m", 2000, 4, 4 * CONTEXT), 1),
    ]
    assert here.bare.free == 4000
    assert here.later(1).tick() == []
    assert (view(here).wanted, view(here).starting, view(here).ready) == (2, 2, 0)


def test_what_waits_for_the_first_replica_runs_when_it_is_ready() -> None:
    here = one()
    here.tick()
    assert here.arrive("r", "a") == []
    assert view(here).bottleneck is views.Bottleneck.START_UP
    (effect,) = here.later(3).comes("m-0.1")
    assert effect == Dispatch("r", 1, "m-0.1", 3 * S, (Wait(Cause.NO_REPLICA, "m", 3 * S),))
    assert view(here).bottleneck is views.Bottleneck.NONE


def test_attached_engines_do_not_wait_for_the_cpu_of_this_machine() -> None:
    own, elsewhere = one(), one(attached=(Attached("http://x"),))
    for here in (own, elsewhere):
        here.tick()
        here.comes("m-0.1")
        here.send(HostLoad("", cpu=990, memory=100))
        for n in range(5):
            here.arrive(f"r{n}", "a")
        assert view(here).waiting == 1
    assert view(own).bottleneck is views.Bottleneck.CPU
    assert view(elsewhere).bottleneck is views.Bottleneck.GPU


def test_a_start_that_fails_is_tried_again_each_time_later_until_the_circuit_opens() -> None:
    here = one()
    assert starts(here.tick()) == ["m-0.1"]
    began = here.now
    at = []
    for number in range(1, 6):
        assert here.bare.free == 6000
        here.goes(f"m-0.{number}", BROKEN)
        assert here.bare.free == 8000
        since = here.now
        while not (found := starts(here.later(0.25).tick())):
            assert here.now - began < 1000 * S
        assert found == [f"m-0.{number + 1}"]
        at.append((here.now - since) / S)
        assert view(here).broken is (number >= 3)
        assert view(here).error == BROKEN
    assert at == [0.5, 1, 30, 30, 30]


def test_while_the_circuit_is_open_nobody_is_kept_waiting_and_a_success_closes_it() -> None:
    here = broken()
    (refusal,) = refused(here.arrive("late", "a"))
    assert (refusal.reason, refusal.retry_after_ns) == (Reason.NO_REPLICA, 30 * S)
    assert refusal.message == (
        "No replica of m could be started; it is tried again from time to time. Try again later, or ask the operator."
    )
    assert starts(here.later(30).tick()) == ["m-0.4"]
    here.comes("m-0.4")
    assert not view(here).broken
    assert view(here).error == ""
    assert dispatched(here.arrive("again", "a")) == ["again"]


def broken(**more: Any) -> Cluster:
    """A world in which the model's circuit has just opened."""
    here = one(**more)
    here.tick()
    for number, pause in ((1, 0.5), (2, 1), (3, 0)):
        here.goes(f"m-0.{number}", BROKEN)
        here.later(pause).tick()
    assert view(here).broken
    return here


def test_those_that_wait_when_the_circuit_opens_are_refused_with_the_next_tick() -> None:
    here = one()
    here.tick()
    here.arrive("r", "a")
    for number, pause in ((1, 0.5), (2, 1)):
        here.goes(f"m-0.{number}", BROKEN)
        assert refused(here.later(pause).tick()) == []
    here.goes("m-0.3", BROKEN)
    (refusal,) = refused(here.tick())
    assert refusal.reason is Reason.NO_REPLICA
    assert here.machine.state.accounts["a"].waiting == 0


def test_a_model_on_demand_that_is_asked_for_is_tried_again_though_all_are_refused_meanwhile() -> None:
    here = one(replicas=0, most=1, residency="on_demand")
    here.tick()
    assert starts(here.arrive("first", "a")) == ["m-0.1"]
    for number, pause in ((1, 0.5), (2, 1), (3, 0)):
        here.goes(f"m-0.{number}", BROKEN)
        here.later(pause).tick()
    assert view(here).broken
    for second in range(29):
        assert len(refused(here.later(1).arrive(f"r{second}", "a"))) == 1
        assert starts(here.tick()) == []
    here.later(1).arrive("last", "a")
    assert starts(here.tick()) == ["m-0.4"]


def test_nobody_asks_for_a_broken_model_on_demand_and_nothing_is_started() -> None:
    here = one(replicas=0, most=1, residency="on_demand")
    here.tick()
    here.arrive("first", "a")
    for number, pause in ((1, 0.5), (2, 1), (3, 0)):
        here.goes(f"m-0.{number}", BROKEN)
        here.later(pause).tick()
    for _ in range(10):
        assert starts(here.later(30).tick()) == []


def with_fallback(**more: Any) -> Cluster:
    models = (deployment("m", fallback="n", **more), deployment("n", milli_gpu=1000))
    return Cluster(rules(tenant("a", 4000, elastic_cap=8000), models=models, milli_gpu=8000))


def test_the_fallback_answers_while_the_circuit_is_open() -> None:
    here = with_fallback()
    here.tick()
    here.comes("n-0.1")
    here.arrive("waits", "a")
    for number, pause in ((1, 0.5), (2, 1), (3, 0)):
        assert dispatched(here.goes(f"m-0.{number}", BROKEN)) == []
        effects = here.later(pause).tick()
    assert dispatched(effects) == ["waits"]
    (effect,) = here.arrive("new", "a")
    assert isinstance(effect, Dispatch)
    assert effect.replica_id == "n-0.1"
    here.end("new")
    assert here.records[-1].model == "n"
    assert here.machine.state.accounts["a"].waiting == 0


def test_what_waits_for_a_first_replica_waits_for_the_start_deadline_at_most() -> None:
    here = one(start_deadline_ns=20 * S)
    here.tick()
    here.arrive("r", "a")
    assert refused(here.later(19).tick()) == []
    (refusal,) = refused(here.later(1).tick())
    assert refusal.message == "No replica of m was ready for 20 s. Try again later, or ask the operator."
    assert here.records[-1].status == 503


def test_after_the_start_deadline_the_fallback_answers() -> None:
    here = with_fallback(start_deadline_ns=20 * S)
    here.tick()
    here.comes("n-0.1")
    here.arrive("r", "a")
    assert dispatched(here.later(19).tick()) == []
    (effect,) = [each for each in here.later(1).tick() if isinstance(each, Dispatch)]
    assert (effect.request_id, effect.replica_id, effect.attempt) == ("r", "n-0.1", 1)
    here.later(1).end("r")
    (record,) = here.records
    assert (record.model, record.wait_ns, sum(wait.ns for wait in record.waits)) == ("n", 20 * S, 20 * S)


def test_a_fallback_that_sleeps_is_woken_for_what_it_is_to_answer() -> None:
    sleeper = deployment("n", 0, 1, residency="on_demand", milli_gpu=1000, start_deadline_ns=60 * S)
    models = (deployment("m", fallback="n", start_deadline_ns=20 * S), sleeper)
    here = Cluster(rules(tenant("a", 4000, elastic_cap=8000), models=models, milli_gpu=8000))
    here.tick()
    here.arrive("r", "a")
    assert starts(here.later(20).tick()) == ["n-0.1"]
    assert dispatched(here.later(30).comes("n-0.1")) == ["r"]


def test_a_fallback_gets_no_more_time_than_one_start_takes() -> None:
    models = (deployment("m", fallback="n", start_deadline_ns=20 * S), deployment("n", start_deadline_ns=60 * S))
    here = Cluster(rules(tenant("a", 4000, elastic_cap=8000), models=models, milli_gpu=8000))
    here.tick()
    here.arrive("r", "a")
    assert refused(here.later(20).tick()) == []
    assert refused(here.later(59).tick()) == []
    assert [refusal.request_id for refusal in refused(here.later(1).tick())] == ["r"]


def test_a_refusal_gives_back_what_of_the_limits_was_taken() -> None:
    here = with_fallback(start_deadline_ns=20 * S)
    here.tick()
    here.arrive("r", "a", tokens_in=10)
    here.cancel("r")
    assert (here.machine.state.accounts["a"].waiting, here.machine.state.accounts["a"].asked) == (0, 0)


# -- sleep -------------------------------------------------------------------------------------------------------------


def test_the_first_request_wakes_a_model_that_sleeps_and_idle_puts_it_to_sleep_again() -> None:
    here = one(replicas=0, most=1, residency="on_demand", idle_ns=300 * S)
    assert here.tick() == []
    assert starts(here.later(5).arrive("r", "a")) == ["m-0.1"]
    assert starts(here.arrive("r2", "a")) == []
    assert dispatched(here.later(2).comes("m-0.1")) == ["r", "r2"]
    here.later(1).end("r")
    here.end("r2")
    for _ in range(29):
        assert stops(here.later(10).tick()) == []
    found = [stopped for _ in range(3) for stopped in stops(here.later(10).tick())]
    assert found == ["m-0.1"]
    here.goes("m-0.1")
    assert here.bare.free == 8000


def test_more_is_started_for_what_waits_up_to_the_most() -> None:
    here = one(replicas=1, most=3).begin()
    for n in range(20):
        here.arrive(f"r{n}", "a")
    effects = here.later(100).tick()
    assert starts(effects) == ["m-1.1", "m-2.1"]
    assert starts(here.later(1).tick()) == []
    assert view(here).wanted == 3


# -- loss --------------------------------------------------------------------------------------------------------------


def test_a_ready_replica_that_is_lost_is_started_again_and_what_ran_there_runs_again() -> None:
    here = one().begin()
    here.arrive("r", "a")
    here.goes("m-0.1", "It was ended by SIGKILL.")
    assert view(here).error == "It was ended by SIGKILL."
    assert here.bare.free == 6000  # it is not known yet that nothing runs there any more
    here.end("r", Outcome.FAILED, status=502, retry=True)
    assert here.bare.free == 8000
    assert starts(here.later(0.5).tick()) == ["m-0.2"]
    assert dispatched(here.comes("m-0.2")) == ["r"]


def test_after_a_healthy_while_the_next_failure_is_a_first_one_again() -> None:
    here = one()
    here.tick()
    here.goes("m-0.1", BROKEN)
    here.later(0.5).tick()
    here.goes("m-0.2", BROKEN)
    here.later(1).tick()
    here.comes("m-0.3")
    here.later(10).goes("m-0.3", BROKEN)
    assert starts(here.later(1).tick()) == []
    assert starts(here.later(1).tick()) == ["m-0.4"]
    here.comes("m-0.4")
    here.later(60).goes("m-0.4", BROKEN)
    assert starts(here.later(0.5).tick()) == ["m-0.5"]


def test_a_second_word_about_a_loss_is_none() -> None:
    here = one().begin()
    here.arrive("r", "a")
    for _ in range(5):
        here.goes("m-0.1", BROKEN)
    assert not view(here).broken
    here.end("r", Outcome.FAILED)
    here.goes("m-0.1", BROKEN)
    assert here.bare.free == 8000
    assert starts(here.later(0.5).tick()) == ["m-0.2"]


def test_what_is_lost_comes_back_before_a_job_that_borrows_takes_its_place() -> None:
    models = (deployment(),)
    here = Cluster(rules(tenant("a", 2000), tenant("b", 0), models=models, milli_gpu=4000)).begin()
    assert started(here.submit("b0", "b", 2000)) == ["b0"]
    assert started(here.submit("b1", "b", 2000)) == []
    assert started(here.goes("m-0.1", BROKEN)) == []
    effects = here.later(0.5).tick()
    assert (started(effects), starts(effects)) == ([], ["m-0.2"])
    here.comes("m-0.2")
    assert started(here.finish("b0")) == ["b1"]


# -- drain -------------------------------------------------------------------------------------------------------------


def test_a_replica_that_drains_gets_nothing_new_and_ends_with_the_last_on_it() -> None:
    here = one(replicas=2).begin()
    for n in range(3):
        here.arrive(f"r{n}", "a")
    on = {replica: views.in_flight(here.machine.state, replica) for replica in here.up}
    assert on == {"m-0.1": 2, "m-1.1": 1}
    assert changed(here, scaling=deployment().scaling) == []
    assert [views.draining(here.machine.state, replica) for replica in here.up] == [False, True]
    for n in range(3, 6):
        effects = here.arrive(f"r{n}", "a")
        assert [effect.replica_id for effect in effects if isinstance(effect, Dispatch)] in (["m-0.1"], [])
    assert stops(here.end("r1")) == ["m-1.1"]
    assert here.bare.free == 4000
    assert here.later(1).tick() == []
    here.goes("m-1.1")
    assert here.bare.free == 6000


def test_a_drain_that_is_over_ends_what_still_runs() -> None:
    here = one(replicas=2).begin()
    for n in range(3):
        here.arrive(f"r{n}", "a")
    changed(here, scaling=deployment().scaling)
    assert stops(here.later(DRAIN_NS // S - 1).tick()) == []
    assert stops(here.later(1).tick()) == ["m-1.1"]
    assert stops(here.later(1).tick()) == []
    assert stops(here.end("r1", Outcome.FAILED)) == []


def test_one_that_comes_up_when_it_is_not_wanted_any_more_gets_nothing() -> None:
    here = one(replicas=2)
    here.tick()
    here.comes("m-0.1")
    assert stops(changed(here, scaling=deployment().scaling)) == ["m-1.1"]  # and not the one that is up
    for n in range(5):
        here.arrive(f"r{n}", "a")
    assert here.send(ReplicaReady(here.starting["m-1.1"])) == []
    assert view(here).ready == 1
    assert stops(here.later(1).tick()) == []
    here.goes("m-1.1")
    assert here.bare.free == 6000


def test_a_way_back_does_not_stop_a_drain_that_has_begun() -> None:
    here = one().begin()
    here.arrive("r", "a")
    policy = here.machine.state.policy
    here.configure(msgspec.structs.replace(policy, deployments={}))
    effects = here.configure(policy)
    assert (starts(effects), stops(effects)) == (["m-0.2"], [])
    here.comes("m-0.2")
    assert stops(here.end("r")) == ["m-0.1"]


def test_a_deployment_that_is_removed_drains_and_is_forgotten() -> None:
    here = one(replicas=2)
    here.tick()
    here.comes("m-0.1")
    here.arrive("r", "a")
    here.arrive("waits", "a", sequences=4)
    effects = here.configure(msgspec.structs.replace(here.machine.state.policy, deployments={}))
    assert stops(effects) == ["m-1.1"]
    assert [(refusal.request_id, refusal.reason) for refusal in refused(effects)] == [("waits", Reason.UNKNOWN_MODEL)]
    here.goes("m-1.1")
    assert stops(here.later(DRAIN_NS // S).tick()) == ["m-0.1"]
    here.end("r", Outcome.FAILED)
    here.goes("m-0.1")
    assert here.machine.state.sites == {}
    assert here.bare.free == 8000


# -- replacement -------------------------------------------------------------------------------------------------------


def test_new_ones_come_before_the_old_ones_go_where_there_is_room_for_both() -> None:
    here = one(replicas=2).begin()
    here.arrive("r0", "a")
    effects = changed(here, engine="two")
    assert (starts(effects), stops(effects)) == (["m-0.2", "m-1.2"], [])
    assert stops(here.comes("m-0.2")) == ["m-1.1"]  # the one on which nothing runs
    assert stops(here.comes("m-1.2")) == []
    assert [replica for replica in here.up if not views.draining(here.machine.state, replica)] == ["m-0.2", "m-1.2"]
    here.goes("m-1.1")
    assert stops(here.end("r0")) == ["m-0.1"]
    here.goes("m-0.1")
    assert here.later(1).tick() == []


def test_where_there_is_room_for_one_more_they_are_replaced_one_after_the_other() -> None:
    here = one(replicas=2, milli_gpu=6000).begin()
    assert starts(changed(here, engine="two")) == ["m-0.2"]
    least = 2
    for new, old in (("m-0.2", "m-1.1"), ("m-1.2", "m-0.1")):
        assert here.later(1).tick() == []
        assert stops(here.comes(new)) == [old]
        assert here.later(1).tick() == []
        least = min(least, view(here).ready)
        here.goes(old)
    assert (least, sorted(here.up), here.later(1).tick()) == (2, ["m-0.2", "m-1.2"], [])


def test_where_there_is_no_room_the_old_ones_go_first_and_one_at_a_time() -> None:
    here = one(replicas=2, milli_gpu=4000).begin()
    for n in range(2):
        here.arrive(f"r{n}", "a")
    assert changed(here, engine="two") == []
    for _ in range(5):
        assert here.later(1).tick() == []
        assert view(here).ready == 1  # one drains, and the other serves
    assert stops(here.end("r1")) == ["m-1.1"]
    assert here.later(1).tick() == []
    assert starts(here.goes("m-1.1")) == ["m-0.2"]
    assert here.later(1).tick() == []
    here.comes("m-0.2")
    here.later(1).tick()
    assert [replica for replica in here.up if not views.draining(here.machine.state, replica)] == ["m-0.2"]
    assert stops(here.end("r0")) == ["m-0.1"]
    assert starts(here.goes("m-0.1")) == ["m-1.2"]


def test_a_job_that_borrows_does_not_take_the_room_that_an_old_one_leaves_for_its_successor() -> None:
    here = Cluster(rules(tenant("a", 2000), tenant("b", 0), models=(deployment(),), milli_gpu=2000)).begin()
    assert started(here.submit("b0", "b", 2000)) == []
    assert stops(changed(here, engine="two")) == ["m-0.1"]
    effects = here.goes("m-0.1")
    assert (started(effects), starts(effects)) == ([], ["m-0.2"])


def test_while_the_new_ones_cannot_start_the_old_ones_serve_and_a_way_back_is_open() -> None:
    here = one().begin()
    assert starts(changed(here, engine="two")) == ["m-0.2"]
    for number, pause in ((2, 0.5), (3, 1), (4, 30)):
        assert stops(here.goes(f"m-0.{number}", BROKEN)) == []
        here.later(pause).tick()
    assert not view(here).broken  # one serves
    assert dispatched(here.arrive("r", "a")) == ["r"]
    effects = changed(here, engine="one")
    assert stops(effects) == ["m-0.5"]
    here.goes("m-0.5")
    assert here.later(60).tick() == []
    assert list(here.up) == ["m-0.1"]


def test_what_can_never_have_a_place_ends_nothing_that_serves() -> None:
    here = one(milli_gpu=4000).begin()
    assert changed(here, engine="two", milli_gpu=5000) == []
    assert here.later(1).tick() == []
    assert view(here).ready == 1
    assert view(here).unplaced == "A replica needs 5000 milli_gpu, and 2000 of pool main are held by nobody."


def test_what_starts_is_given_up_when_it_is_to_be_another_one() -> None:
    here = one()
    here.tick()
    effects = changed(here, engine="two")
    assert (stops(effects), starts(effects)) == (["m-0.1"], ["m-0.2"])
    assert here.send(ReplicaReady(here.starting["m-0.1"])) == []
    here.goes("m-0.1")
    here.comes("m-0.2")
    assert (here.bare.free, view(here).ready, view(here).error) == (6000, 1, "")


# -- engines that run elsewhere ----------------------------------------------------------------------------------------


def attached(*urls: str) -> Cluster:
    return one(attached=tuple(map(Attached, urls)))


def test_each_attached_engine_is_a_replica_and_a_change_touches_only_what_changed() -> None:
    here = attached("http://x", "http://y")
    assert [(effect.replica.id, effect.index) for effect in here.tick() if isinstance(effect, StartReplica)] == [
        ("m-0.1", 0),
        ("m-1.1", 1),
    ]
    here.begin()
    here.arrive("r", "a")
    effects = changed(here, attached=(Attached("http://y"), Attached("http://z")))
    (start,) = [effect for effect in effects if isinstance(effect, StartReplica)]
    assert (start.replica.id, start.index) == ("m-1.2", 1)  # z is the second now
    assert stops(here.comes("m-1.2")) == []
    assert [r for r in here.up if not views.draining(here.machine.state, r)] == ["m-1.1", "m-1.2"]
    assert stops(here.end("r")) == ["m-0.1"]
    here.goes("m-0.1")
    assert here.later(1).tick() == []


def test_one_url_fewer_ends_one_and_the_order_of_urls_nothing() -> None:
    here = attached("http://x", "http://y").begin()
    assert changed(here, attached=(Attached("http://y"), Attached("http://x"))) == []
    assert stops(changed(here, attached=(Attached("http://y"),))) == ["m-0.1"]
    here.goes("m-0.1")
    assert here.later(1).tick() == []
    assert list(here.up) == ["m-1.1"]


def test_an_attached_engine_that_is_gone_is_asked_again() -> None:
    here = attached("http://x", "http://y").begin()
    here.goes("m-1.1", "http://y cannot be reached.")
    found = starts(here.later(0.5).tick())
    assert found == ["m-1.2"]
    assert view(here).ready == 1


# -- room --------------------------------------------------------------------------------------------------------------


def test_models_that_want_the_same_devices_never_have_more_than_there_are() -> None:
    models = (deployment("m", 2), deployment("n", 2))
    here = Cluster(rules(tenant("a", 4000), models=models, milli_gpu=6000))
    assert starts(here.tick()) == ["m-0.1", "m-1.1", "n-0.1"]
    assert here.bare.free == 0
    assert view(here, "n").unplaced == "A replica needs 2000 milli_gpu, and 0 of pool main are held by nobody."
    here.begin()
    effects = changed(here, scaling=deployment().scaling)
    (gone,) = stops(effects)
    assert starts(here.later(1).tick()) == []  # it has not ended yet
    effects = here.goes(gone) + here.later(1).tick()
    assert starts(effects) == ["n-1.1"]
    assert here.bare.free == 0


def test_room_that_a_removed_model_leaves_is_used() -> None:
    here = Cluster(rules(tenant("a", 2000), models=(deployment("m"),), milli_gpu=2000)).begin()
    here.arrive("r", "a")
    assert here.configure(rules(tenant("a", 2000), models=(deployment("n"),), milli_gpu=2000)) == []
    assert stops(here.end("r")) == ["m-0.1"]
    assert starts(here.goes("m-0.1") + here.later(1).tick()) == ["n-0.1"]


def test_a_model_that_moves_to_another_pool_frees_its_devices_where_they_are() -> None:
    here = one()
    here.begin()
    here.arrive("r", "a")
    policy = here.machine.state.policy
    pools = {"main": policy.pools["main"], "two": Pool("two", 4000)}
    moved = msgspec.structs.replace(policy.deployments["m"], pool="two", engine="two")
    here.configure(msgspec.structs.replace(policy, pools=pools, deployments={"m": moved}))
    devices = here.machine.state.devices
    assert (devices["main"].by_replicas, devices["two"].by_replicas) == (2000, 2000)
    here.comes("m-0.2")
    here.end("r")
    here.goes("m-0.1")
    assert (devices["main"].by_replicas, devices["two"].by_replicas) == (0, 2000)


def borrowed() -> Cluster:
    """Tenant `b` has jobs on what is guaranteed to `a`; model `m` sleeps."""
    models = (deployment("m", 0, 1, residency="on_demand"),)
    here = Cluster(rules(tenant("a", 4000), tenant("b", 0), models=models, milli_gpu=4000))
    here.tick()
    for n in range(4):
        assert started(here.submit(f"b{n}", "b", 1000)) == [f"b{n}"]
    assert started(here.submit("b4", "b", 1000)) == []
    return here


def test_what_frees_is_kept_for_a_replica_whose_tenants_wait_within_their_guarantee() -> None:
    here = borrowed()
    here.arrive("r", "a")
    here.later(1).tick()
    assert view(here).unplaced != ""
    assert started(here.finish("b0")) == []
    assert started(here.later(1).tick()) == []
    assert started(here.finish("b1")) == []
    effects = here.later(1).tick()
    assert (starts(effects), started(effects)) == (["m-0.1"], [])
    here.comes("m-0.1")
    here.later(1).tick()
    assert started(here.finish("b2")) == ["b4"]  # nothing is kept any more


def test_what_is_kept_for_a_replica_is_kept_once_however_often_it_is_looked_at() -> None:
    here = borrowed()
    for n in range(6):
        here.arrive(f"r{n}", "a")
        assert here.bare.kept == 2000
    here.later(1).tick()
    assert here.bare.kept == 2000
    for n in range(6):
        here.cancel(f"r{n}")
    here.later(1).tick()
    assert here.bare.kept == 0


def test_a_job_within_its_guarantee_makes_replicas_go_that_serve_borrowers() -> None:
    models = (deployment("m", 0, 2, residency="on_demand"),)
    here = Cluster(rules(tenant("a", 2000), tenant("b", 0), models=models, milli_gpu=4000))
    here.tick()
    for n in range(8):
        here.arrive(f"r{n}", "b")
    here.begin()
    for _ in range(300):
        here.later(1).tick()
        for replica in list(here.starting):
            here.comes(replica)
    assert sorted(here.up) == ["m-0.1", "m-1.1"]
    assert len(here.running) == 8
    assert started(here.submit("job", "a", 2000)) == []
    here.later(1).tick()
    draining = [replica for replica in here.up if views.draining(here.machine.state, replica)]
    assert len(draining) == 1
    assert view(here).why == "claimed"
    for request in list(here.running):
        here.end(request)
    here.goes(draining[0])
    assert "job" in here.running
    assert view(here).ready == 1


@pytest.mark.parametrize("replica_id", ["m-7.3", "elsewhere", "m-0.1"])
def test_a_word_about_a_replica_that_is_not_known_does_nothing(replica_id: str) -> None:
    here = one()
    assert here.send(ReplicaLost(replica_id, BROKEN)) == []
    assert starts(here.tick()) == ["m-0.1"]
