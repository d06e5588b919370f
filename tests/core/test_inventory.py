"""Given nodes and holders, when something is taken, given or lost, then what is free, and never half of anything."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.core.footprint import Footprint
from commonpool.core.inventory import Inventory
from commonpool.core.model import Device, Hardware, Isolation, Node
from tests.core.sheds import GIB, gpus, node, part, put, shed, slices

# -- atomic ------------------------------------------------------------------------------------------------------------


def test_sixteen_halves_put_two_on_each_of_eight_cards() -> None:
    inventory = shed(node("n", 8))
    for at in range(16):
        assert put(inventory, f"h{at}", part(500))
    assert put(inventory, "more", part(500)) == ()
    assert [len(inventory.holders(f"n/{at}")) for at in range(8)] == [2] * 8
    assert inventory.free == 0


def test_three_times_400_never_share_a_card() -> None:
    inventory = shed(node("n", 2))
    assert len({*put(inventory, "a", part(400)), *put(inventory, "b", part(400))}) == 1
    third = put(inventory, "c", part(400))
    assert third
    assert len(inventory.holders(third[0])) == 1


def test_what_does_not_fit_on_one_node_is_taken_on_several_or_not_at_all() -> None:
    inventory = shed(node("n", 2), node("o", 2), node("p", 1))
    apart = Footprint(4, 1000, together="any", cpu_milli=4000)
    assert put(inventory, "node", Footprint(4, 1000)) == ()
    found = put(inventory, "any", apart)
    assert found == ("p/0", "n/0", "n/1", "o/0"), "the fullest node first"
    free = inventory.free
    assert put(inventory, "again", apart) == ()
    assert inventory.free == free == 1000


def test_a_holder_gives_back_once_and_takes_once() -> None:
    inventory = shed(node("n", 2))
    found = inventory.find(part(300), "a", 0)
    assert found is not None
    inventory.take("h", "a", found)
    with pytest.raises(ValueError, match="h holds devices of pool main already"):
        inventory.take("h", "a", found)
    inventory.give("h")
    inventory.give("h")
    assert (inventory.free, inventory.holders("n/0"), inventory.held("h")) == (2000, {}, None)


# -- what there is -----------------------------------------------------------------------------------------------------


def test_a_lost_node_keeps_its_holders_and_is_no_capacity() -> None:
    inventory = shed(node("n", 2), node("o", 1))
    put(inventory, "h", Footprint(2, 1000))
    inventory.lose("n")
    assert (inventory.capacity, inventory.free, list(inventory.holders("n/0"))) == (1000, 1000, ["h"])
    assert put(inventory, "x", Footprint(2, 1000)) == ()
    inventory.see(node("n", 2))
    assert (inventory.capacity, inventory.free) == (3000, 1000)
    inventory.lose("n")
    inventory.give("h")
    assert (inventory.holders("n/0"), inventory.holders("n")) == ({}, {})


def test_an_unhealthy_device_is_no_capacity_and_gets_nothing_new() -> None:
    inventory = shed(node("n", 2))
    put(inventory, "h", part(500))
    sick = (Device("n/0", "A100", 80 * GIB, healthy=False), gpus("n", 2)[1])
    inventory.see(node("n", devices=sick))
    assert (inventory.capacity, inventory.free) == (1000, 1000)
    assert [put(inventory, "x", part(400)), put(inventory, "y", part(400))] == [("n/1",), ("n/1",)]
    assert put(inventory, "z", part(400)) == ()
    inventory.see(node("n", 2))
    assert inventory.free == 2000 - 500 - 800


def test_what_is_adopted_is_held_whatever_is_free_and_even_before_its_node_is_seen() -> None:
    inventory = shed()
    inventory.adopt("early", "a", ["n/0", "n/1"], 1000, cpu_milli=500)
    inventory.see(node("n", 2, cpu_milli=1000))
    assert (inventory.capacity, inventory.free) == (2000, 0)
    inventory.adopt("late", "b", ["n/0"], 600)
    assert inventory.free == -600
    early = inventory.held("early")
    assert early is not None
    assert (early.devices, early.node) == (("n/0", "n/1"), "n")
    inventory.give("early")
    assert inventory.free == 1400
    assert put(inventory, "x", part(500)) == ("n/1",)


def test_memory_that_others_take_is_not_there() -> None:
    inventory = shed(node("n", 1))
    stated = Footprint(1, 500, 40 * GIB, stated=True)
    assert inventory.find(stated, "a", 0) is not None
    busy = Device("n/0", "A100", 80 * GIB, taken_mib=60 * GIB)
    inventory.see(node("n", devices=(busy,)))
    assert inventory.find(stated, "a", 0) is None
    assert inventory.find(part(100), "a", 0) is None, "what says nothing of memory does not go onto a card that is used"
    assert inventory.find(Footprint(1, 250, 20 * GIB, stated=True), "a", 0) is not None


def test_a_little_memory_that_a_driver_takes_costs_no_part_its_place() -> None:
    driver = tuple(Device(f"n/{at}", "A100", 80 * GIB, taken_mib=600) for at in range(2))
    inventory = shed(node("n", devices=driver))
    assert [bool(put(inventory, f"h{at}", part(50))) for at in range(40)] == [True] * 40


def test_cpu_and_memory_of_the_host_count_where_they_are_known() -> None:
    inventory = shed(node("n", 4, cpu_milli=3000, memory_mib=4000))
    assert put(inventory, "a", part(100, cpu_milli=2000, memory_mib_host=1000))
    assert put(inventory, "b", part(100, cpu_milli=2000)) == ()
    assert put(inventory, "c", part(100, memory_mib_host=3001)) == ()
    assert put(inventory, "d", part(100, cpu_milli=1000, memory_mib_host=3000))
    assert put(shed(node("n")), "a", part(100, cpu_milli=10**9))


def test_slices_are_taken_whole_and_never_by_what_asks_for_gpus() -> None:
    inventory = shed(node("n", devices=(*slices("n", "1g.10gb", "1g.10gb"), *gpus("n", 1)[:0])))
    asked = inventory.footprint(Hardware(profile="1g.10gb"), {})
    assert isinstance(asked, Footprint)
    assert put(inventory, "x", part(100)) == ()
    assert {*put(inventory, "a", asked), *put(inventory, "b", asked)} == {"n/0.0", "n/0.1"}
    assert put(inventory, "c", asked) == ()
    assert inventory.free == 0


def test_a_conversion_is_kept_until_the_nodes_change() -> None:
    inventory = shed(node("n", 2))
    assert isinstance(inventory.footprint(Hardware(milli_gpu=4000), {}), str)
    inventory.see(node("o", 4))
    assert isinstance(inventory.footprint(Hardware(milli_gpu=4000), {}), Footprint)


# -- laws --------------------------------------------------------------------------------------------------------------

FOOTPRINTS = st.one_of(
    st.builds(Footprint, st.just(1), st.integers(1, 1000), cpu_milli=st.sampled_from([0, 1000, 4000])),
    st.builds(Footprint, st.integers(1, 5), st.just(1000), together=st.sampled_from(["node", "island", "any"])),
    st.builds(Footprint, st.integers(1, 3), st.integers(1, 600), cpu_milli=st.sampled_from([0, 3000])),
    st.builds(
        Footprint, st.just(1), st.integers(1, 999), st.integers(1, 90).map(lambda gib: gib * GIB), stated=st.just(True)
    ),
    st.builds(Footprint, st.integers(1, 2), st.just(142), profile=st.just("1g.10gb")),
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    devices: tuple[Device, ...] = ()
    if draw(st.booleans()):
        devices = slices(name, *["1g.10gb"] * draw(st.integers(1, 3)))
    devices += tuple(
        Device(
            f"{name}/{at + 1}",
            draw(st.sampled_from(["A100", "H100"])),
            draw(st.sampled_from([0, 24 * GIB, 80 * GIB])),
            island=draw(st.sampled_from(["", "0", "1"])),
            taken_mib=draw(st.sampled_from([0, 0, 500, 30 * GIB])),
            healthy=draw(st.sampled_from([True, True, True, False])),
        )
        for at in range(draw(st.integers(0, 5)))
    )
    return Node(name, "main", devices, draw(st.sampled_from([0, 4000, 16_000])), isolation=draw(ISOLATIONS))


ISOLATIONS: st.SearchStrategy[Isolation] = st.sampled_from(["shared", "guaranteed", "node", "network"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), FOOTPRINTS, st.sampled_from(["", "a", "b"])),
        st.tuples(st.just("asked"), FOOTPRINTS, st.just("")),
        st.tuples(st.just("give"), st.integers(0, 40), st.just("")),
        st.tuples(st.just("see"), st.integers(0, 3).flatmap(lambda at: nodes(f"n{at}")), st.just("")),
        st.tuples(st.just("lose"), st.integers(0, 3), st.just("")),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, ISOLATIONS)
def test_whatever_happens_the_books_hold(steps: list[tuple[str, Any, str]], isolation: Isolation) -> None:
    inventory = shed(*(node(f"n{at}", 3) for at in range(4)), isolation=isolation)
    for at, (step, what, owner) in enumerate(steps):
        if step == "put":
            _put_and_check(inventory, f"h{at}", what, owner)
        elif step == "asked":
            inventory.asked(what)
        elif step == "give":
            inventory.give(f"h{what}")
        elif step == "see":
            inventory.see(what)
        else:
            inventory.lose(f"n{what}")
        healthy = [device for device in inventory.devices() if device.healthy]
        assert inventory.capacity == sum(device.milli_gpu for device in healthy)
        held = sum(part.milli_gpu for device in healthy for part in inventory.holders(device.id).values())
        assert inventory.free == inventory.capacity - held


def _put_and_check(inventory: Inventory, holder: str, footprint: Footprint, owner: str) -> None:
    """The best candidate is what is found, what is found is taken, and nothing new makes a device overfull."""
    found = inventory.find(footprint, owner, 0)
    whole = footprint.together != "any" or footprint.devices == 1
    candidates = inventory.candidates(footprint, owner, 0)
    if whole:
        best = candidates[0] if candidates and candidates[0].barrier is None else None
        assert (found is None) == (best is None)
        assert found is None or best is None or (found.node, found.devices) == (best.node, best.devices)
    assert (found is None) == bool(inventory.why_not(footprint, owner, 0))
    if found is None:
        return
    assert len(set(found.devices)) == footprint.devices
    inventory.take(holder, owner, found)
    sizes = {device.id: device for device in inventory.devices()}
    for device in found.devices:
        holders = inventory.holders(device)
        assert sizes[device].healthy
        assert sum(part.milli_gpu for part in holders.values()) <= sizes[device].milli_gpu
        if footprint.stated and sizes[device].memory_mib:
            taken = sum(part.memory_mib for part in holders.values()) + sizes[device].taken_mib
            assert taken <= sizes[device].memory_mib
        if inventory.isolation != "shared":
            assert {part.owner for part in holders.values()} == {owner}
    if inventory.isolation in ("node", "network"):
        assert all({part.owner for part in inventory.holders(name).values()} == {owner} for name, _, _ in found.hosts)
