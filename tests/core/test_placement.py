"""Given nodes that differ, when work asks for a place, then which are ruled out and why, and which one is best."""

import pytest

from commonpool.core.candidates import Barrier, Candidate
from commonpool.core.footprint import Footprint
from commonpool.core.inventory import Inventory
from commonpool.core.model import NS_PER_HOUR, Device, Isolation, Window
from tests.core.sheds import GIB, gpus, node, part, put, shed


def barriers(inventory: Inventory, footprint: Footprint, owner: str = "a", now: int = 0) -> dict[str, Barrier | None]:
    return {each.node: each.barrier for each in inventory.candidates(footprint, owner, now)}


def best(candidates: list[Candidate]) -> str:
    assert candidates[0].barrier is None
    return candidates[0].node


# -- ruled out ---------------------------------------------------------------------------------------------------------


def test_each_node_that_is_ruled_out_says_why() -> None:
    inventory = shed(
        node("cpu", 2, cpu_milli=500),
        node("few", 1),
        node("kind", devices=gpus("kind", 2, model="T4")),
        node("memory", devices=gpus("memory", 2, 8 * GIB)),
        node("old", 2, runtimes=("cuda-11",)),
        node("ram", 2, memory_mib=10),
        node("sick", devices=gpus("sick", 2, healthy=False)),
        node("used", devices=gpus("used", 2, taken_mib=79 * GIB)),
        node("window", 2, windows=(Window(0, 10),)),
        node("apart", devices=(*gpus("apart", 1, island="0"), Device("apart/1", "A100", 80 * GIB, island="1"))),
    )
    for name in ("cpu", "ram", "used", "window", "apart", "sick", "few", "kind", "memory"):
        seen = next(each for each in inventory.nodes() if each.name == name)
        inventory.see(
            type(seen)(**{field: getattr(seen, field) for field in seen.__struct_fields__} | {"runtimes": ("cuda-12",)})
        )
    asked = Footprint(
        2, 1000, 40 * GIB, stated=True, together="island", models=("A100",), runtime="cuda-12", cpu_milli=1000,
        memory_mib_host=100,
    )  # fmt: skip
    assert barriers(inventory, asked) == {
        "apart": Barrier.ISLAND,
        "cpu": Barrier.HOST_CPU,
        "few": Barrier.MODEL,
        "kind": Barrier.MODEL,
        "memory": Barrier.MODEL,
        "old": Barrier.RUNTIME,
        "ram": Barrier.HOST_MEMORY,
        "sick": Barrier.HEALTH,
        "used": Barrier.GPU_MEMORY,
        "window": Barrier.WINDOW,
    }
    assert all(each.reason.endswith(".") for each in inventory.candidates(asked, "a", 0))
    said = inventory.why_not(asked, "a", 0)
    assert "1 by host_cpu" in said
    assert said.endswith("The nearest is apart: At most 1 free devices are linked, and 2 are needed.")


@pytest.mark.parametrize(
    ("isolation", "joined"), [("shared", ("n/0",)), ("guaranteed", ("n/1",)), ("node", ()), ("network", ())]
)
def test_the_isolation_of_a_pool_says_what_tenants_share(isolation: Isolation, joined: tuple[str, ...]) -> None:
    inventory = shed(node("n", 2, isolation="network"), isolation=isolation)
    assert put(inventory, "first", part(300)) == ("n/0",)
    assert put(inventory, "own", part(300)) == ("n/0",), "a tenant may always join itself"
    assert put(inventory, "other", part(300), "b") == joined
    inventory.give("other")
    assert put(inventory, "pool", part(300), "") == joined, "what serves the whole pool is one tenant more"


def test_a_pool_of_networks_takes_nodes_that_have_one_and_no_others() -> None:
    inventory = shed(node("weak", 2), node("strong", 2, isolation="network"), isolation="network")
    assert barriers(inventory, part(100)) == {"strong": None, "weak": Barrier.ISOLATION}
    put(inventory, "first", part(100))
    assert barriers(inventory, part(100), "b")["strong"] == Barrier.TENANT


def test_a_stricter_isolation_holds_for_what_comes_later() -> None:
    inventory = shed(node("n", 1))
    put(inventory, "first", part(300))
    assert inventory.find(part(300), "b", 0) is not None
    inventory.isolate("guaranteed")
    assert inventory.find(part(300), "b", 0) is None
    assert inventory.find(part(300), "a", 0) is not None


def test_work_keeps_off_a_node_whose_maintenance_it_would_meet() -> None:
    hour = NS_PER_HOUR
    inventory = shed(node("n", 1, windows=(Window(10 * hour, 12 * hour),)))
    asked = part(100)
    assert inventory.find(asked, "a", 0, 10 * hour) is not None, "it ends in time"
    assert inventory.find(asked, "a", 0, 10 * hour + 1) is None
    assert inventory.find(asked, "a", 12 * hour, 20 * hour) is not None, "it is over"
    assert inventory.find(asked, "a", 11 * hour, 11 * hour) is None, "it is on"
    assert inventory.find(asked, "a", 9 * hour, None) is not None, "without a known end: an hour ahead"
    assert inventory.find(asked, "a", 9 * hour + 1, None) is None
    inventory.see(node("o", 1))
    assert put(inventory, "h", asked, now=11 * hour) == ("o/0",)
    assert barriers(inventory, asked, now=11 * hour) == {"n": Barrier.WINDOW, "o": None}


# -- which is best -----------------------------------------------------------------------------------------------------


def test_weights_that_were_loaded_there_come_before_anything_else() -> None:
    inventory = shed(node("n", 4), node("o", 4))
    asked = part(500)
    inventory.asked(asked)
    put(inventory, "elsewhere", part(1000))
    inventory.adopt("first", "", ["o/0"], 500, weights="m")
    inventory.give("first")
    assert put(inventory, "second", asked, weights="m") == ("o/0",)
    assert put(inventory, "third", asked, weights="other") == ("n/1",)
    found = inventory.candidates(asked, "a", 0, weights="m")
    assert [(each.node, each.loaded) for each in found] == [("o", True), ("n", False)]


def test_devices_of_one_island_come_before_a_fuller_node() -> None:
    split = tuple(Device(f"a/{at}", "A100", 80 * GIB, island=str(at % 2)) for at in range(4))
    inventory = shed(node("a", devices=split), node("b", devices=gpus("b", 8, island="0")))
    assert put(inventory, "three", Footprint(3, 1000)) == ("b/0", "b/1", "b/2")
    assert put(inventory, "two", Footprint(2, 1000)) == ("a/0", "a/2"), "the smallest island that has enough"
    assert [each.linked for each in inventory.candidates(Footprint(2, 1000, together="node"), "a", 0)] == [True, True]


def test_where_nothing_is_known_of_demand_the_fullest_node_is_best_then_the_name() -> None:
    inventory = shed(node("c", 2), node("b", 2), node("a", 3))
    assert put(inventory, "first", part(100)) == ("b/0",)
    assert best(inventory.candidates(part(100), "x", 0)) == "b"
    put(inventory, "more", Footprint(2, 1000))
    assert best(inventory.candidates(part(950), "x", 0)) == "b"


def test_a_part_goes_where_whole_gpus_are_not_broken() -> None:
    # Given demand for whole GPUs and for halves, and a card of which a half is taken on an emptier node,
    inventory = shed(node("n", 1), node("o", 4))
    inventory.asked(Footprint(1, 1000), 3)
    inventory.asked(part(500), 1)
    inventory.adopt("half", "a", ["o/2"], 500)
    # then a half goes there, not onto the fullest node; its growth is less than nothing.
    found = inventory.candidates(part(500), "a", 0)
    assert [(each.node, each.devices) for each in found] == [("o", ("o/2",)), ("n", ("n/0",))]
    assert found[0].growth < 0 < found[1].growth
