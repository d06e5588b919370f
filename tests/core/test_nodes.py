"""Nodes that come, change and go: jobs and replicas lie on known devices, and no device is given out twice."""

import re
from typing import Any

import msgspec
import pytest

from commonpool.core.effects import Dispatch, Effect, Refuse, Start, StartReplica
from commonpool.core.events import Cancelled, NodeLost, NodeSeen
from commonpool.core.model import (
    NS_PER_HOUR,
    Attached,
    Cause,
    Device,
    Hardware,
    Outcome,
    Pool,
    Reason,
    Usage,
    Wait,
    Window,
)
from tests.core.clusters import (
    Cluster,
    deployment,
    devices,
    held,
    node,
    over_committed,
    placed,
    rules,
    starts,
    stops,
)
from tests.core.worlds import S, dispatched, refused, started, tenant

A100: dict[str, Any] = {"model": "A100", "memory_mib": 80_000}
BROKEN = "The node is gone."


def two_nodes(*tenants: Any, **more: Any) -> Cluster:
    """Two nodes of two GPUs each, for tenants `a` and `b` unless others are named."""
    sharing = tenants or (tenant("a", 2000), tenant("b", 2000))
    return Cluster(placed(*sharing, **more), node("n1"), node("n2"))


def places(effects: list[Effect]) -> dict[str, tuple[str, ...]]:
    """The devices of what was started, by id."""
    found: dict[str, tuple[str, ...]] = {}
    for effect in effects:
        if isinstance(effect, Start):
            found[effect.job_id] = effect.devices
        elif isinstance(effect, StartReplica):
            found[effect.replica.id] = effect.replica.devices
    return found


def waits_for(here: Cluster, job: str) -> tuple[Wait, ...] | None:
    return here.machine.waits_of(job, here.now + S)


# -- seen --------------------------------------------------------------------------------------------------------------


def test_nothing_starts_before_the_nodes_of_its_pool_were_seen() -> None:
    here = Cluster(placed(tenant("a", 4000), models=(deployment(),)))
    assert here.submit("job", "a", 1000) == []
    assert here.tick() == []
    assert waits_for(here, "job") == (Wait(Cause.DEVICES, "main", S),)
    effects = here.later(1).see(node("n1", 4))
    assert places(effects) == {"job": ("n1/0",), "m-0.1": ("n1/1", "n1/2")}


def test_a_start_names_the_node_and_the_devices_that_are_held_until_the_end() -> None:
    here = two_nodes()
    (effect,) = here.submit("job", "a", 2000)
    assert effect == Start("job", 1, 0, (), "n1", ("n1/0", "n1/1"), 1000)
    inventory = here.machine.state.inventories["main"]
    assert [part.owner for part in inventory.holders("n1/0").values()] == ["a"]
    assert (inventory.free, here.bare.free) == (2000, 2000)
    here.later(1).finish("job")
    assert (inventory.free, here.bare.free) == (4000, 4000)


def test_a_pool_has_what_its_nodes_have_up_to_what_its_policy_says() -> None:
    here = Cluster(placed(tenant("a", 4000), milli_gpu=4000), node("n1", 1))
    quota = here.machine.state.quotas["main"]
    assert (quota.capacity, quota.scaled) == (1000, True)
    here.see(node("n2", 2))
    assert quota.capacity == 3000
    here.see(node("n3", 8))
    assert (quota.capacity, here.machine.state.inventories["main"].capacity) == (4000, 11_000)


def test_a_node_that_is_seen_again_as_it_was_changes_nothing() -> None:
    here = two_nodes()
    here.submit("job", "a", 1000)
    free = here.machine.state.inventories["main"].free
    assert here.see(node("n1")) == []
    assert here.machine.state.inventories["main"].free == free


def test_a_node_of_a_pool_that_the_policy_does_not_have_is_none() -> None:
    here = two_nodes()
    assert here.see(node("n3", pool="elsewhere")) == []
    assert here.lose("n3") == []
    assert here.machine.state.quotas["main"].capacity == 4000


def test_a_node_may_move_to_another_pool() -> None:
    policy = placed(tenant("a", 2000))
    pools = {**policy.pools, "two": Pool("two", 4000, placed=True)}
    here = Cluster(msgspec.structs.replace(policy, pools=pools), node("n1"), node("n2"))
    here.see(node("n2", pool="two"))
    assert {name: quota.capacity for name, quota in here.machine.state.quotas.items()} == {"main": 2000, "two": 2000}
    here.lose("n2")
    assert here.machine.state.quotas["two"].capacity == 0


def test_a_job_taken_in_before_the_first_node_was_seen_is_placed_like_any_other() -> None:
    here = Cluster(rules(tenant("a", 4000)))
    here.submit("before", "a", 2000)
    here.submit("waits", "a", 4000)
    here.see(node("n1", 4))
    here.submit("after", "a", 2000)
    here.cancel("waits")
    here.finish("before")
    assert over_committed(here.machine) == []
    here.submit("third", "a", 2000)
    assert over_committed(here.machine) == []
    assert here.machine.state.inventories["main"].free == here.bare.free == 0


def test_a_job_that_waited_when_the_first_node_was_seen_gets_devices_of_its_own() -> None:
    here = Cluster(rules(tenant("a", 4000)))
    here.submit("before", "a", 4000)
    here.submit("waits", "a", 2000)
    here.see(node("n1", 4))
    (effect,) = [each for each in here.finish("before") if isinstance(each, Start)]
    assert effect.devices == ("n1/0", "n1/1")


# -- lost --------------------------------------------------------------------------------------------------------------


def test_a_lost_node_takes_its_capacity_along_and_what_ran_there_comes_back_with_its_end() -> None:
    here = two_nodes(tenant("a", 4000))
    here.submit("j1", "a", 2000)
    here.submit("j2", "a", 2000)
    here.lose("n2")
    quota, inventory = here.machine.state.quotas["main"], here.machine.state.inventories["main"]
    assert (quota.capacity, quota.use, inventory.capacity) == (4000, 4000, 2000)  # what ran there takes nothing of n1
    assert started(here.submit("j3", "a", 1000)) == []
    assert started(here.finish("j2", Outcome.FAILED)) == []  # n1 is full
    here.tick()
    assert (quota.capacity, quota.use, here.bare.free) == (2000, 2000, 0)
    assert started(here.finish("j1")) == ["j3"]
    here.finish("j3")
    assert (inventory.free, inventory.capacity) == (2000, 2000)


def test_a_job_that_ran_on_a_lost_node_runs_again_on_another() -> None:
    here = two_nodes()
    here.submit("job", "a", 2000)
    here.lose("n1")
    (_, effect) = here.finish("job", Outcome.FAILED, retry=True)
    assert isinstance(effect, Start)
    assert (effect.attempt, effect.devices) == (2, ("n2/0", "n2/1"))


def test_a_node_that_comes_back_while_its_work_is_not_reported_ended_is_not_given_out_again() -> None:
    here = two_nodes(tenant("a", 4000))
    here.submit("j1", "a", 2000)
    here.lose("n1")
    here.see(node("n1"))
    assert places(here.submit("j2", "a", 2000)) == {"j2": ("n2/0", "n2/1")}
    assert started(here.submit("j3", "a", 2000)) == []
    assert places(here.finish("j1", Outcome.FAILED)) == {"j3": ("n1/0", "n1/1")}
    assert over_committed(here.machine) == []


def test_the_replicas_of_a_lost_node_start_elsewhere_when_they_are_reported_lost() -> None:
    here = two_nodes(models=(deployment(),)).begin()
    assert here.up["m-0.1"].node == "n1"
    assert places(here.lose("n1")) == {"m-0.2": ("n2/0", "n2/1")}
    assert stops(here.comes("m-0.2")) == ["m-0.1"]  # one whose node was only taken out of the configuration drains
    assert here.goes("m-0.1", BROKEN) + here.later(0.5).tick() == []
    assert here.machine.state.inventories["main"].free == 0


def test_a_device_that_is_not_healthy_any_more_gets_nothing_new() -> None:
    here = two_nodes(tenant("a", 4000))
    here.submit("j1", "a", 1000)
    sick = (Device("n1/0", healthy=False), Device("n1/1"))
    here.see(node("n1", sick))
    assert here.machine.state.quotas["main"].capacity == 4000  # what runs on the sick one takes nothing of the others
    here.submit("j2", "a", 1000)
    here.submit("j3", "a", 1000)
    here.submit("j4", "a", 1000)
    here.finish("j1", Outcome.FAILED)
    on = [held(here.machine, job) for job in ("j2", "j3", "j4")]
    assert sorted(sum(on, ())) == ["n1/1", "n2/0", "n2/1"]
    here.submit("j5", "a", 1000)
    assert "j5" not in here.running
    assert places(here.see(node("n1"))) == {"j5": ("n1/0",)}


def test_a_pool_that_is_removed_takes_its_nodes_along_and_may_come_again() -> None:
    here = two_nodes()
    policy = here.machine.state.policy
    here.configure(msgspec.structs.replace(policy, pools={}, tenants={}, deployments={}))
    assert here.lose("n1") == []
    assert here.see(node("n2")) == []
    here.configure(policy)
    assert started(here.submit("job", "a", 1000)) == []
    assert places(here.see(node("n2"))) == {"job": ("n2/0",)}


# -- what fits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("milli_gpu", "hardware", "sentence"),
    [
        (3000, None, r"3"),
        (0, Hardware(milli_gpu=1500), "1.5 GPUs are more than one and not whole; ask for 1 or 2"),
        (0, Hardware(memory_mib=90_000), "90000"),
        (0, Hardware(profile="9g.99gb"), r"9g\.99gb"),
        (0, Hardware(milli_gpu=1000, models=("B200",)), "B200"),
        (0, Hardware(milli_gpu=2000, together="island"), "island|linked"),
        (0, Hardware(), "asks for no GPU"),
    ],
)
def test_what_no_node_could_ever_take_is_refused_in_one_sentence_and_nothing_is_half_placed(
    milli_gpu: int, hardware: Hardware | None, sentence: str
) -> None:
    nodes = [node(name, devices(name, 2, **A100)) for name in ("n1", "n2")]
    here = Cluster(placed(tenant("a", 4000)), *nodes)
    (refusal,) = refused(here.submit("job", "a", milli_gpu, hardware=hardware))
    assert refusal.reason is Reason.NEVER_FITS
    assert refusal.retry_after_ns is None
    assert refusal.message.count("\n") == 0
    assert refusal.message[-1] == "."
    assert re.search(sentence, refusal.message)
    assert (here.machine.state.inventories["main"].free, here.bare.footprints) == (4000, {})
    assert here.records[-1].outcome is Outcome.REFUSED


def test_a_job_for_several_devices_waits_until_one_node_has_them_all() -> None:
    here = two_nodes(tenant("a", 4000))
    for n in range(3):
        here.submit(f"j{n}", "a", 1000)
    here.finish("j0")
    assert started(here.submit("large", "a", 2000)) == []  # two are free, on two nodes
    assert waits_for(here, "large") == (Wait(Cause.DEVICES, "main", S),)
    assert places(here.submit("small", "a", 1000)) == {"small": ("n1/0",)}
    assert places(here.finish("j2")) == {"large": ("n2/0", "n2/1")}


def test_devices_anywhere_are_taken_on_several_nodes_at_once_or_not_at_all() -> None:
    here = two_nodes(tenant("a", 4000))
    here.submit("j1", "a", 1000)
    anywhere = Hardware(milli_gpu=3000, together="any")
    (effect,) = here.submit("wide", "a", 0, hardware=anywhere)
    assert isinstance(effect, Start)
    assert sorted(effect.devices) == ["n1/1", "n2/0", "n2/1"]
    assert started(here.submit("again", "a", 0, hardware=anywhere)) == []
    assert held(here.machine, "again") == ()


def test_parts_of_a_device_are_packed_and_never_more_than_it_has() -> None:
    here = Cluster(placed(tenant("a", 4000), milli_gpu=2000), node("n1"))
    for n in range(4):
        here.submit(f"j{n}", "a", 400)
    assert here.running == [f"j{n}" for n in range(4)]
    assert started(here.submit("j4", "a", 400)) == []  # 400 are free, 200 on each
    assert started(here.submit("j5", "a", 200)) == ["j5"]
    assert over_committed(here.machine) == []


def test_memory_counts_beside_the_gpus_part() -> None:
    here = Cluster(placed(tenant("a", 2000), milli_gpu=2000), node("n1", devices("n1", 2, **A100)))
    half = Hardware(milli_gpu=100, memory_mib=50_000)
    assert places(here.submit("j1", "a", 0, hardware=half)) == {"j1": ("n1/0",)}
    assert places(here.submit("j2", "a", 0, hardware=half)) == {"j2": ("n1/1",)}
    assert started(here.submit("j3", "a", 0, hardware=half)) == []
    assert places(here.submit("j4", "a", 0, hardware=Hardware(milli_gpu=100, memory_mib=30_000))) != {}
    assert over_committed(here.machine) == []


def test_what_others_use_of_a_devices_memory_is_not_given_out() -> None:
    taken = (Device("n1/0", taken_mib=60_000, **A100), Device("n1/1", **A100))
    here = Cluster(placed(tenant("a", 2000), milli_gpu=2000), node("n1", taken))
    assert places(here.submit("j1", "a", 1000)) == {"j1": ("n1/1",)}
    assert started(here.submit("j2", "a", 1000)) == []


def test_a_mig_slice_is_a_device_of_its_own() -> None:
    slices = tuple(
        Device(f"n1/0.{at}", "H100", 20_000, 285, "2g.20gb") if at else Device("n1/0.0", "H100", 40_000, 428, "3g.40gb")
        for at in range(3)
    )
    here = Cluster(placed(tenant("a", 1000), milli_gpu=1000), node("n1", slices))
    assert here.machine.state.quotas["main"].capacity == 998
    (effect,) = here.submit("j1", "a", 0, hardware=Hardware(profile="2g.20gb"))
    assert isinstance(effect, Start)
    assert effect.devices in (("n1/0.1",), ("n1/0.2",))
    assert here.machine.state.quotas["main"].use == 285
    assert places(here.submit("j2", "a", 0, hardware=Hardware(profile="3g.40gb"))) == {"j2": ("n1/0.0",)}
    (refusal,) = refused(here.submit("j3", "a", 0, hardware=Hardware(profile="2g.20gb", count=3)))
    assert refusal.reason is Reason.NEVER_FITS
    assert over_committed(here.machine) == []


def test_18_gib_do_not_fit_two_slices_of_10_and_the_refusal_says_so() -> None:
    slices = tuple(Device(f"n1/0.{at}", "A100", 10_240, 142, "1g.10gb") for at in range(2))
    here = Cluster(placed(tenant("a", 1000), milli_gpu=1000), node("n1", slices))
    (refusal,) = refused(here.submit("j", "a", 0, hardware=Hardware(memory_mib=18 * 1024)))
    assert "18432" in refusal.message
    assert "10240" in refusal.message


def test_linked_devices_are_taken_within_one_island() -> None:
    cards = tuple(Device(f"n1/{at}", island="n1/0" if at < 2 else "n1/2") for at in range(4))
    here = Cluster(placed(tenant("a", 4000)), node("n1", cards))
    here.submit("j1", "a", 1000)
    linked = Hardware(milli_gpu=2000, together="island")
    (found,) = places(here.submit("j2", "a", 0, hardware=linked)).values()
    assert found in (("n1/0", "n1/1"), ("n1/2", "n1/3"))
    assert started(here.submit("j3", "a", 0, hardware=linked)) == []


def test_maintenance_keeps_off_what_would_meet_it() -> None:
    window = Window(2 * NS_PER_HOUR, 3 * NS_PER_HOUR)
    here = Cluster(placed(tenant("a", 2000), milli_gpu=2000), node("n1", windows=(window,)))
    assert started(here.submit("long", "a", 1000, expected_ns=4 * NS_PER_HOUR)) == []
    assert started(here.submit("short", "a", 500, expected_ns=NS_PER_HOUR)) == ["short"]
    assert started(here.later(3 * 3600).tick()) == ["long"]


def test_a_model_on_hardware_that_it_names_is_placed_there_or_says_why_not() -> None:
    hardware = Hardware(memory_mib=60_000, milli_gpu=1000, models=("H100",))
    model = deployment(milli_gpu=1000, hardware=hardware)
    here = Cluster(placed(tenant("a", 4000), models=(model,)), node("n1", devices("n1", 2, **A100)))
    assert starts(here.tick()) == []
    crew = here.site().crew
    assert "H100" in crew.unplaced
    assert not crew.broken
    effects = here.see(node("n2", devices("n2", 2, model="H100", memory_mib=80_000)))
    assert places(effects) == {"m-0.1": ("n2/0",)}


# -- who may meet ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        ("shared", {"a0": ("n1/0",), "b0": ("n1/0",)}),
        ("guaranteed", {"a0": ("n1/0",), "b0": ("n1/1",)}),
        ("node", {"a0": ("n1/0",), "b0": ("n2/0",)}),
    ],
)
def test_tenants_meet_as_far_as_the_pool_lets_them(isolation: str, expected: dict[str, tuple[str, ...]]) -> None:
    here = two_nodes(isolation=isolation)
    found: dict[str, tuple[str, ...]] = {}
    for job in expected:
        found |= places(here.submit(job, job[0], 300))
    assert found == expected


def test_a_node_that_cannot_isolate_as_its_pool_demands_takes_nothing() -> None:
    here = Cluster(placed(tenant("a", 4000), isolation="network"), node("n1"), node("n2", isolation="network"))
    assert places(here.submit("a0", "a", 1000)) == {"a0": ("n2/0",)}
    here.submit("a1", "a", 1000)
    assert started(here.submit("a2", "a", 1000)) == []


def test_another_isolation_is_for_what_starts_from_then_on() -> None:
    here = two_nodes()
    here.submit("a0", "a", 300)
    policy = here.machine.state.policy
    pools = {"main": msgspec.structs.replace(policy.pools["main"], isolation="node")}
    here.configure(msgspec.structs.replace(policy, pools=pools))
    assert places(here.submit("b0", "b", 300)) == {"b0": ("n2/0",)}
    assert here.running == ["a0", "b0"]


def test_a_replica_that_serves_the_whole_pool_does_not_meet_a_tenants_job_where_tenants_must_not_meet() -> None:
    here = Cluster(
        placed(tenant("a", 4000), isolation="guaranteed", models=(deployment(milli_gpu=500),)), node("n1"), node("n2")
    ).begin()
    assert here.up["m-0.1"].devices == ("n1/0",)
    assert places(here.submit("a0", "a", 300)) == {"a0": ("n1/1",)}


# -- replicas and jobs on the same devices -----------------------------------------------------------------------------


def test_replicas_and_jobs_never_hold_the_same_device() -> None:
    here = two_nodes(tenant("a", 4000), models=(deployment(milli_gpu=1000, replicas=2),))
    here.submit("a0", "a", 1000)
    here.submit("a1", "a", 1000)
    inventory = here.machine.state.inventories["main"]
    on = [held(here.machine, each) for each in (*here.starting, *here.running)]
    assert sorted(on) == [("n1/0",), ("n1/1",), ("n2/0",), ("n2/1",)]
    assert inventory.free == here.bare.free == 0
    assert started(here.submit("a2", "a", 500)) == []
    here.goes("m-0.1", BROKEN)  # it never came up
    assert (inventory.free, "a2" in here.running) == (500, True)


def test_two_models_that_want_the_same_devices_get_them_one_after_the_other() -> None:
    here = Cluster(placed(tenant("a", 4000), models=(deployment("m"), deployment("n")), milli_gpu=4000), node("n1"))
    assert starts(here.tick()) == []  # with the node
    assert list(here.starting) == ["m-0.1"]
    assert here.site("n").crew.unplaced != ""
    assert over_committed(here.machine) == []
    here.begin()
    policy = here.machine.state.policy
    here.configure(msgspec.structs.replace(policy, deployments={"n": policy.deployments["n"]}))
    assert starts(here.later(1).tick()) == []  # the other has not ended yet
    effects = here.goes("m-0.1") + here.later(1).tick()
    assert places(effects) == {"n-0.1": ("n1/0", "n1/1")}


def test_a_model_that_found_no_place_starts_where_its_weights_were_loaded_before() -> None:
    here = two_nodes(models=(deployment(),)).begin()
    first = here.up["m-0.1"].devices
    here.goes("m-0.1", BROKEN)
    here.submit("job", "b", 500)
    assert places(here.later(0.5).tick()) != {}
    assert here.starting["m-0.2"].devices in (first, ("n2/0", "n2/1"))
    assert over_committed(here.machine) == []


def test_attached_engines_hold_the_devices_that_they_have() -> None:
    model = deployment(milli_gpu=1000, attached=(Attached("http://x", ("n1/0",)), Attached("http://y", ("n2/1",))))
    here = two_nodes(tenant("a", 4000), models=(model,))
    assert {replica.devices for replica in here.begin().up.values()} == {("n1/0",), ("n2/1",)}
    here.submit("a0", "a", 1000)
    here.submit("a1", "a", 1000)
    on = [held(here.machine, job) for job in here.running]
    assert sorted(on) == [("n1/1",), ("n2/0",)]


def test_what_a_replica_leaves_is_free_when_the_last_on_it_has_ended() -> None:
    here = two_nodes(models=(deployment(milli_gpu=4000, hardware=Hardware(milli_gpu=4000, together="any")),)).begin()
    assert dispatched(here.arrive("r", "a")) == ["r"]
    here.goes("m-0.1", BROKEN)
    inventory = here.machine.state.inventories["main"]
    assert (inventory.free, here.bare.free) == (0, 0)
    here.end("r", Outcome.FAILED)
    assert (inventory.free, here.bare.free) == (4000, 4000)


@pytest.mark.parametrize("event", [NodeLost("nobody"), NodeSeen(node("n9", pool="none")), Cancelled("nobody")])
def test_what_is_not_known_does_nothing(event: Any) -> None:
    assert [each for each in two_nodes().send(event) if not isinstance(each, Refuse)] == []


def test_a_node_with_impossible_memory_takes_nothing_and_breaks_nothing() -> None:
    impossible = (Device("n1/0", memory_mib=80_000, taken_mib=90_000),)
    here = Cluster(placed(tenant("a", 4000)), node("n1", impossible), node("n2", 1))
    assert places(here.submit("a0", "a", 1000)) == {"a0": ("n2/0",)}
    assert started(here.submit("a1", "a", 1000)) == []
    assert stops(here.tick()) == []


def test_an_overdue_job_whose_devices_are_gone_holds_nobody_up() -> None:
    h100 = Hardware(milli_gpu=1000, models=("H100",))
    here = Cluster(
        placed(tenant("a", 2000, max_wait_ns=60 * S), tenant("b", 2000)),
        node("n1", devices("n1", 4, **A100)),
        node("n2", devices("n2", 1, model="H100")),
    )
    here.submit("runs", "a", 0, hardware=h100)
    here.submit("waits", "a", 0, hardware=h100)
    here.lose("n2")
    here.finish("runs", Outcome.FAILED)
    here.later(120).tick()
    assert started(here.submit("b0", "b", 1000)) == ["b0"]
    assert places(here.see(node("n2", devices("n2", 1, model="H100")))) == {"waits": ("n2/0",)}


def test_an_overdue_job_that_needs_a_whole_node_gets_it_in_the_end() -> None:
    here = two_nodes(tenant("a", 2000, max_wait_ns=60 * S), tenant("b", 2000))
    for n in range(4):
        here.submit(f"b{n}", "b", 1000)
    here.submit("a0", "a", 2000)
    here.later(61).tick()
    here.finish("b0")
    assert started(here.submit("b4", "b", 1000)) == []
    here.finish("b2")
    assert started(here.submit("b5", "b", 1000)) == []
    assert started(here.finish("b1")) == ["a0", "b4"]


def test_what_runs_on_a_node_that_is_gone_takes_nothing_of_those_that_are_there() -> None:
    here = two_nodes(tenant("a", 2000), tenant("b", 2000))
    here.submit("on_n1", "a", 1000)
    here.lose("n1")
    assert here.bare.free == 2000
    assert places(here.submit("b0", "b", 2000)) == {"b0": ("n2/0", "n2/1")}
    assert here.machine.state.inventories["main"].stray() == [("on_n1", "n1")]


def test_a_replica_on_a_node_that_is_gone_serves_on_while_there_is_no_place_for_another() -> None:
    here = Cluster(placed(tenant("a", 2000), models=(deployment(),)), node("n1"))
    here.begin()
    assert here.lose("n1") == []
    assert stops(here.later(1).tick()) == []
    assert dispatched(here.arrive("r", "a")) == ["r"]


def test_a_job_of_another_kind_passes_one_that_finds_no_place() -> None:
    here = Cluster(
        placed(tenant("a", 4000)), node("n1", devices("n1", 1, model="H100")), node("n2", devices("n2", 2, **A100))
    )
    h100 = Hardware(milli_gpu=1000, models=("H100",))
    here.submit("runs", "a", 0, hardware=h100)
    here.submit("waits", "a", 0, hardware=h100)
    assert started(here.submit("other", "a", 1000)) == ["other"]


def test_a_request_that_failed_on_a_node_is_tried_again_on_another() -> None:
    models = (deployment(replicas=3),)
    here = Cluster(placed(tenant("a", 6000), models=models), node("n1", 4), node("n2", 2)).begin()
    nodes = {replica_id: replica.node for replica_id, replica in here.up.items()}
    (first,) = [effect for effect in here.arrive("r", "a") if isinstance(effect, Dispatch)]
    effects = here.end("r", Outcome.FAILED, retry=True, usage=Usage()) + here.later(1).tick()
    (second,) = [effect for effect in effects if isinstance(effect, Dispatch)]
    assert nodes[first.replica_id] != nodes[second.replica_id]
    here.end("r")
    assert here.site().avoided == {}


def test_a_node_that_is_lost_is_no_failure_of_its_replicas() -> None:
    here = two_nodes(models=(deployment(replicas=1),))
    (replica_id,) = here.starting
    assert here.starting[replica_id].node == "n1"
    effects = here.lose("n1")
    assert stops(effects) == [replica_id]
    assert places(effects) == {"m-0.2": ("n2/0", "n2/1")}  # at once, and not after a while
    here.goes(replica_id, BROKEN)
    assert here.site().crew.failures == 0


# -- the memory of devices ---------------------------------------------------------------------------------------------


def test_a_record_has_the_gpu_memory_of_its_devices() -> None:
    here = Cluster(placed(tenant("a", 4000), models=(deployment(),)), node("n1", devices("n1", 4, **A100))).begin()
    # a job of one device, which takes half of its memory
    here.submit("j", "a", 1000, hardware=Hardware(1000, memory_mib=40_000))
    here.later(10).finish("j")
    # a request in one of the four slots of a replica that has two devices whole
    here.arrive("r", "a", tokens_in=10)
    here.later(2).end("r")
    taken = {record.request_id: record.gpu_memory_mib_s for record in here.records}
    assert taken == {"j": 400_000, "r": 2 * 160_000 // 4}
