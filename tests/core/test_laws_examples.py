"""What the laws have found: each failure once more, as given / event / effects."""

import msgspec

from commonpool.core.events import ReplicaDraining, ReplicaLost, ReplicaReady
from commonpool.core.model import Deployment, Group, Outcome, Replica, Share
from tests.core.worlds import CONTEXT, SLOTS, Paced, S, World, dispatched, policy, refused, started, tenant


def test_the_devices_of_a_lost_replica_are_free_when_the_last_request_on_it_has_ended() -> None:
    world = World(policy(tenant("a", 2000), milli_gpu=2000))
    world.arrive("a0", "a")
    world.submit("job", "a", 1000)
    assert started(world.send(ReplicaLost("m-0"))) == []
    assert started(world.end("a0", Outcome.FAILED, status=502)) == ["job"]


def test_a_job_that_waits_for_cores_keeps_no_slot_from_a_request() -> None:
    a, b = (tenant(n, 2000, elastic_cap=4000, resources={"cpu_milli": Share(4000)}) for n in "ab")
    world = World(policy(a, b, milli_gpu=6000, resources={"cpu_milli": 8000}))
    world.submit("b0", "b", 1000, resources={"cpu_milli": 6000})
    assert started(world.submit("a0", "a", 1000, resources={"cpu_milli": 4000})) == []
    for n in range(2):
        world.arrive(f"b{n + 1}", "b")
    assert dispatched(world.arrive("b3", "b")) == ["b3"]  # it borrows
    assert started(world.submit("b4", "b", 1000)) == []  # for a job nothing is lent
    assert started(world.finish("b0")) == ["a0", "b4"]


def test_what_a_member_gives_back_of_its_groups_guarantee_goes_to_another_member_first() -> None:
    group = Group("g", None, None, 1000)
    rules = policy(tenant("a", group="g"), tenant("b", group="g"), tenant("c"), groups=(group,), milli_gpu=2000)
    world = World(rules)
    for name in ("a0", "b0", "c0", "c1", "c2", "b1"):
        world.arrive(name, name[0])
    assert dispatched(world.later(1).end("a0")) == ["b1"]
    world.arrive("a1", "a")
    assert dispatched(world.end("b1")) == ["a1"]
    assert dispatched(world.end("a1")) == ["c2"]  # nobody of the group waits


def test_a_small_job_behind_one_at_its_cap_is_looked_at_when_what_it_waits_for_comes_free() -> None:
    world = World(policy(tenant("a", 1000, elastic_cap=2000), tenant("b"), milli_gpu=4000), replicas=0)
    world.submit("b0", "b", 2500)
    world.submit("a0", "a", 1000)
    assert started(world.submit("large", "a", 2000)) == []  # above its cap
    assert started(world.submit("small", "a", 1000)) == []  # half of it is free
    assert started(world.later(0.1).finish("b0")) == ["small"]


def test_a_job_that_waits_for_cores_is_passed_by_one_of_its_tenant_that_needs_none() -> None:
    world = World(policy(tenant("a", 4000), resources={"cpu_milli": 8000}), replicas=0)
    world.submit("a0", "a", 1000, resources={"cpu_milli": 6000})
    assert started(world.submit("a1", "a", 1000, resources={"cpu_milli": 6000})) == []
    assert started(world.submit("a2", "a", 1000)) == ["a2"]


def test_a_job_within_its_guarantee_comes_before_one_that_borrows_though_its_tenant_uses_less_of_its_own() -> None:
    world = World(policy(tenant("own", 3000), tenant("torn", 1000), tenant("c"), milli_gpu=4000), replicas=0)
    world.submit("own0", "own", 1000)
    world.submit("c0", "c", 3000)
    world.submit("torn0", "torn", 2000)
    world.submit("own1", "own", 2000)
    assert started(world.finish("c0")) == ["own1"]


def test_small_overdue_jobs_do_not_spend_what_is_saved_for_a_large_one() -> None:
    world = Paced(policy(tenant("a", max_wait_ns=60 * S), tenant("large", max_wait_ns=60 * S)), replicas=0)
    for n in range(300):
        world.until(world.now + 10 * S)
        world.lasts[f"a{n}"] = 100 * S
        world.submit(f"a{n}", "a", 500)
        if n == 50:
            world.lasts["large"] = 100 * S
            world.submit("large", "large", 4000)
    assert world.began["large"] < 2000 * S


def test_when_the_job_has_started_for_which_room_was_kept_others_may_borrow_at_once() -> None:
    world = World(policy(tenant("a", max_wait_ns=10 * S), tenant("b", max_wait_ns=1000 * S)), replicas=0)
    world.submit("a0", "a", 3500)
    world.later(100).submit("large", "a", 2000)
    world.submit("b0", "b", 1000)
    world.later(20).tick()
    assert world.machine.state.devices["main"].kept_for is not None
    assert started(world.finish("a0")) == ["large", "b0"]


def test_a_counter_may_grow_without_end() -> None:
    world = World(policy(tenant("a")), replicas=0)
    assert started(world.submit("a0", "a", 3000, expected_ns=100 * 365 * 86_400 * S)) == ["a0"]
    assert started(world.submit("a1", "a", 1000)) == ["a1"]


def test_a_request_for_another_attempt_is_promised_what_the_policy_of_now_promises() -> None:
    world = World(policy(tenant("a", 2000, max_wait_ns=50 * S), milli_gpu=2000))
    world.arrive("a0", "a")
    world.configure(policy(tenant("a", 2000, max_wait_ns=5 * S), milli_gpu=2000))
    world.end("a0", Outcome.FAILED, status=502, retry=True)
    world.send(ReplicaLost("m-0"))
    world.arrive("a1", "a")
    assert [refusal.request_id for refusal in refused(world.later(6).tick())] == ["a0", "a1"]


def test_the_wait_of_what_came_after_another_attempt_has_its_cause() -> None:
    world = World(policy(tenant("a", 2000), milli_gpu=2000))
    world.arrive("a0", "a")
    world.end("a0", Outcome.FAILED, status=502, retry=True)  # its replica is not asked again at once
    world.arrive("a1", "a")
    effects = [msgspec.structs.astuple(effect) for effect in world.later(1).tick()]
    assert [(name, wait_ns, sum(wait.ns for wait in waits)) for name, _, _, wait_ns, waits in effects] == [
        ("a0", S, S),
        ("a1", S, S),
    ]


def kept_for_a_large_request() -> World:
    """One slot at model m is kept for "large" of tenant a, from b, which has had more: b4 waits. At n 4 are free."""
    models = {name: Deployment(name, "1", "main", 2000, SLOTS, SLOTS * CONTEXT, CONTEXT) for name in "mn"}
    rules = policy(tenant("a", elastic_cap=2000, weight=100), *map(tenant, "bc"), milli_gpu=8000, deployments=models)
    world = World(rules)
    world.ready("n-0", "n")
    for n in range(4):
        world.arrive(f"b{n}", "b")
    world.arrive("large", "a", sequences=4)
    world.arrive("b4", "b")
    assert dispatched(world.end("b0")) == []
    return world


def test_a_slot_kept_for_a_large_request_is_given_out_when_its_tenant_takes_its_room_at_another_model() -> None:
    world = kept_for_a_large_request()
    assert dispatched(world.arrive("small", "a", model="n")) == ["small", "b4"]


def test_a_slot_kept_for_a_large_request_is_given_out_when_its_tenant_gets_its_room_at_another_model_in_turn() -> None:
    world = kept_for_a_large_request()
    for n in range(4):
        assert dispatched(world.arrive(f"c{n}", "c", model="n")) == [f"c{n}"]
    assert dispatched(world.arrive("small", "a", model="n")) == []
    assert dispatched(world.end("c0")) == ["small", "b4"]


def test_a_request_that_waits_for_another_node_waits_no_more_when_the_only_replica_there_drains() -> None:
    world = World(policy(tenant("a", 4000)), replicas=0)
    for n in (1, 2):
        world.send(ReplicaReady(Replica(f"m-{n}", "m", 2000, SLOTS, SLOTS * CONTEXT, f"node-{n}")))
    world.arrive("first", "a", sequences=4)
    world.arrive("second", "a", sequences=4)
    world.end("first", Outcome.FAILED, status=502, retry=True)
    assert dispatched(world.later(1).tick()) == []
    assert dispatched(world.send(ReplicaDraining("m-2"))) == ["first"]
