"""Given replicas and jobs on devices, when moving them is thought of, then only what can be moved is, at its cost."""

from typing import Any

import msgspec

from commonpool.core import moves
from commonpool.core.events import NodeSeen, ReplicaReady
from commonpool.core.footprint import Footprint
from commonpool.core.hints import TRIED_MAX, Hint
from commonpool.core.model import Deployment, Device, Hardware, Node, Pool, Replica, Scaling
from commonpool.core.reclaim import CHECKPOINT_NS
from tests.core.worlds import S, World, policy, tenant

HOUR = 3600 * S
HALF = Hardware(milli_gpu=500)


def node(name: str) -> Node:
    return Node(name, "main", (Device(f"{name}/0"),))


def world(scaling: Scaling | None = Scaling(replicas_min=1, replicas_max=1)) -> World:  # noqa: B008 - frozen
    """A replica of half a GPU on node n1, which took 12 s to start."""
    deployment = Deployment("m", "1", "main", 500, 4, 4000, 1000, hardware=HALF, scaling=scaling)
    here = World(policy(tenant("a", 4000), tenant("b", 0), deployments={"m": deployment}), replicas=0)
    here.send(NodeSeen(node("n1")))
    here.tick()
    for starting in list(here.machine.state.sites["m"].crew.starting.values()):
        here.later(12).send(ReplicaReady(starting.replica))
    return here


def beside(here: World, **more: Any) -> World:
    """A job of half a GPU on node n2, which came when n1 was full."""
    filler: dict[str, Any] = {"hardware": HALF, "expected_ns": HOUR}
    here.submit("filler", "a", 500, **filler)
    here.send(NodeSeen(node("n2")))
    here.submit("j", "a", 500, **(filler | more))
    here.finish("filler")
    return here


def found(here: World, *savers: str) -> list[Hint]:
    inventory = here.machine.state.inventories["main"]
    before = {device.id: inventory.holders(device.id) for device in inventory.devices()}
    hints = list(moves.worthwhile(here.machine.state, savers, here.now))
    assert {device.id: inventory.holders(device.id) for device in inventory.devices()} == before
    return hints


def costs(hints: list[Hint]) -> dict[tuple[str, str], int]:
    """By what is emptied and who has to drain."""
    return {(hint.name, step.holder): step.cost_ns for hint in hints for step in hint.steps if hint.kind == "gpu"}


def test_a_replica_costs_the_start_up_time_that_was_learned() -> None:
    assert costs(found(beside(world()))) == {("n1/0", "m-0.1"): 12 * S}


def test_a_job_that_saves_itself_costs_what_it_may_take_for_that() -> None:
    hints = found(beside(world()), "j")
    assert costs(hints) == {("n1/0", "m-0.1"): 12 * S, ("n2/0", "j"): CHECKPOINT_NS}
    assert hints[0].cost_ns == CHECKPOINT_NS  # the cheapest first


def test_a_replica_that_drains_and_one_that_others_started_stay() -> None:
    here = beside(world())
    here.machine.state.sites["m"].replicas["m-0.1"].draining = True
    assert found(here) == []
    theirs = world(scaling=None)
    theirs.send(ReplicaReady(Replica("m-0.1", "m", 500, 4, 4000, "n1", ("n1/0",))))
    assert found(beside(theirs)) == []


def test_a_pool_that_is_only_counted_has_no_hints() -> None:
    here = World(policy(tenant("a", 4000)))
    here.submit("j", "a", 500)
    assert moves.worthwhile(here.machine.state, ("j",), here.now) == ()


def test_however_many_pools_there_are_no_more_is_tried_than_in_one() -> None:
    names = [f"p{at}" for at in range(TRIED_MAX // 5)]
    pools = {name: Pool(name, 0, placed=True) for name in names}
    rules = policy(tenant("a", 4000))
    here = World(msgspec.structs.replace(rules, pools=rules.pools | pools), replicas=0)
    for name in names:
        inventory = here.machine.state.inventories[name]
        inventory.asked(Footprint(1, 1000))
        inventory.asked(Footprint(1, 500))
        for at in range(8):
            here.send(NodeSeen(Node(f"{name}n{at}", name, (Device(f"{name}n{at}/0"),))))
            inventory.adopt(f"{name}j{at}", "a", [f"{name}n{at}/0"], 500)
            here.machine.state.devices[name].footprints[f"{name}j{at}"] = Footprint(1, 500)
    savers = [f"{name}j{at}" for name in names for at in range(8)]
    assert len(moves.worthwhile(here.machine.state, savers, here.now)) == TRIED_MAX
    for name in names[1:]:
        del here.machine.state.inventories[name]
    assert len(moves.worthwhile(here.machine.state, savers, here.now)) == 2 * 8, "its devices and its nodes"
