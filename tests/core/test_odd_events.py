"""Events that should not come, or come twice, and demands that can never be met: nothing leaks, nobody is held up."""

from typing import Any

import msgspec

from commonpool.core import views
from commonpool.core.effects import Dispatch, Fail, Refuse
from commonpool.core.events import DevicesChanged, Granted, ReplicaReady
from commonpool.core.model import Deployment, Outcome, Pool, Reason, Replica
from tests.core.worlds import CONTEXT, S, World, dispatched, policy, refused, started, tenant


def jobs(*tenants: Any, milli_gpu: int = 8000, **more: Any) -> World:
    return World(policy(*tenants, milli_gpu=milli_gpu, **more), replicas=0)


def test_an_id_that_waits_or_runs_is_not_taken_twice() -> None:
    world = World(policy(tenant("a", 2000, elastic_cap=2000), milli_gpu=4000))
    world.arrive("r", "a")
    assert world.arrive("r", "a") == []
    assert world.submit("j", "a", 500) != []
    assert world.submit("j", "a", 500) == []
    world.end("r")
    world.finish("j")
    assert (world.end("r"), world.finish("j")) == ([], [])
    assert world.machine.state.quotas["main"].use == 0


def test_a_replica_that_is_ready_twice_keeps_what_runs_on_it() -> None:
    world = World(policy(tenant("a", 4000)))
    for n in range(4):
        world.arrive(f"a{n}", "a")
    world.ready("m-0")
    assert dispatched(world.arrive("a4", "a")) == []


def test_what_asks_for_nothing_or_less_is_refused() -> None:
    world = jobs(tenant("a", 4000), resources={"cpu_milli": 8000})
    for amount, resources in ((0, {}), (-4000, {}), (1000, {"cpu_milli": -900})):
        (refusal,) = refused(world.submit("j", "a", amount, resources=resources))
        assert refusal.reason is Reason.NEVER_FITS
    (refusal,) = refused(World(policy(tenant("a", 1000))).arrive("r", "a", sequences=0))
    assert "at least 1" in refusal.message


def test_while_all_devices_are_lost_new_work_waits() -> None:
    world = jobs(tenant("a", 4000, elastic_cap=8000))
    world.send(DevicesChanged("main", -5))
    assert world.submit("j", "a", 1000) == []
    assert started(world.send(DevicesChanged("main", 8000))) == ["j"]


def test_a_pool_that_is_removed_refuses_the_jobs_that_wait_in_it() -> None:
    rules = policy(tenant("a", 4000), milli_gpu=4000)
    world = World(rules, replicas=0)
    world.submit("runs", "a", 4000)
    world.submit("waits", "a", 4000)
    world.finish("runs")
    world.submit("more", "a", 4000)
    other = msgspec.structs.replace(rules, pools={"b": Pool("b", 4000)}, tenants={}, deployments={})
    effects = world.configure(other)
    assert {effect.request_id for effect in effects if isinstance(effect, Refuse)} == {"more"}
    world.cancel("more")
    world.finish("waits")
    world.configure(other)
    assert set(world.machine.state.quotas) == {"b"}


def test_a_job_that_no_end_can_make_room_for_holds_nobody_up() -> None:
    world = jobs(tenant("a", 4000, max_wait_ns=60 * S), tenant("b", 4000))
    world.send(ReplicaReady(Replica("m-0", "m", 6000, 4, 4 * CONTEXT)))
    assert started(world.submit("large", "a", 4000)) == []
    world.later(120).tick()
    assert started(world.submit("small", "b", 1000)) == ["small"]
    assert dispatched(world.arrive("r", "b")) == ["r"]


def test_a_request_wider_than_every_replica_there_is_holds_nobody_up() -> None:
    world = World(policy(tenant("a", 2000, max_wait_ns=10 * S), tenant("b", 2000)), replicas=0)
    world.ready("m-0", slots=2)
    assert dispatched(world.arrive("wide", "a", sequences=3)) == []
    world.later(15).tick()
    assert dispatched(world.arrive("b0", "b")) == ["b0"]


def test_a_token_guarantee_does_not_keep_others_jobs_out() -> None:
    world = jobs(
        tenant("a", 1, elastic_cap=8000, max_wait_ns=60 * S), tenant("b", 0, elastic_cap=8000, max_wait_ns=60 * S)
    )
    done = {"a": 0, "b": 0}
    for n in range(600):
        for name in "ab":
            if world.machine.state.accounts[name].waiting < 3:
                world.submit(f"{name}{n}", name, 8000, expected_ns=10 * S)
        (running,) = world.running
        done[running[0]] += 1
        world.later(10).finish(running)
    assert done["b"] > 60


def test_an_attempt_that_was_taken_off_its_replica_is_not_a_failed_one() -> None:
    world = World(policy(tenant("a", 4000)))
    world.arrive("r", "a")
    assert dispatched(world.end("r", Outcome.CANCELLED, retry=True)) == ["r"]
    assert dispatched(world.end("r", Outcome.FAILED, retry=True)) == []  # its replica is doubted until the next tick
    assert dispatched(world.later(1).tick()) == ["r"]
    assert any(isinstance(effect, Fail) for effect in world.end("r", Outcome.FAILED, retry=True))


def test_the_wait_of_a_second_attempt_begins_with_the_first_ones_end() -> None:
    world = World(policy(tenant("a", 4000)))
    world.arrive("r", "a")
    world.later(30).end("r", Outcome.FAILED, retry=True)
    (effect,) = [e for e in world.later(2).tick() if isinstance(e, Dispatch)]
    assert sum(wait.ns for wait in effect.waits) == 2 * S


def test_a_cancelled_job_ends_like_a_request_whose_client_left() -> None:
    world = jobs(tenant("a", 4000))
    world.submit("j", "a", 1000)
    world.finish("j", Outcome.CANCELLED)
    assert world.records[-1].status == 499


def test_expected_work_follows_what_a_request_asks_for() -> None:
    rules = policy(tenant("a", 2000, elastic_cap=2000), milli_gpu=4000)
    world = World(rules)
    for n in range(5):
        world.arrive(f"a{n}", "a")
    (entry,) = [e for e in world.machine.tasks.entries.values() if e.waiting]
    service = entry.work // entry.ask
    shape = Deployment("m", "2", "main", 2000, 20, 20 * CONTEXT, CONTEXT)
    world.configure(msgspec.structs.replace(rules, deployments={"m": shape}))
    assert (entry.ask, entry.work // entry.ask) == (100, service)


def test_a_grant_goes_with_its_tenant_to_another_pool() -> None:
    rules = policy(tenant("a", 1000, elastic_cap=1000, hard_cap=3000))
    world = World(rules, replicas=0)
    world.send(Granted("a", 3000, 1000 * S))
    moved = msgspec.structs.replace(rules.tenants["a"], pool="b")
    pools = {"main": rules.pools["main"], "b": Pool("b", 4000)}
    world.configure(msgspec.structs.replace(rules, pools=pools, tenants={"a": moved}))
    (view,) = views.tenants(world.machine.state)
    assert (view.pool, view.elastic_cap, view.granted_until) == ("b", 3000, 1000 * S)
