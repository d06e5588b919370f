"""Given half-empty cards and nodes, then what could be moved together, what for, and the books stay as they are."""

from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.core.footprint import Footprint
from commonpool.core.hints import HINTS_MAX, TRIED_MAX, Move, Step, hints
from commonpool.core.hosts import Part
from commonpool.core.inventory import Inventory
from tests.core.sheds import node, part, put, shed
from tests.core.worlds import S


def books(inventory: Inventory) -> dict[str, object]:
    held = {device.id: inventory.holders(device.id) for device in inventory.devices()}
    hosts = {each.name: inventory.holders(each.name) for each in inventory.nodes()}
    return {"held": held, "hosts": hosts, "free": inventory.free, "fragmented": inventory.fragmented}


def halves(*devices: str) -> tuple[Inventory, dict[str, Move]]:
    """A half on each of these devices, as the first holders of a pool that is asked for halves and whole GPUs."""
    inventory = shed(node("n", 2), node("o", 2))
    inventory.asked(Footprint(1, 1000))
    inventory.asked(part(500))
    moves = {}
    for at, device in enumerate(devices):
        inventory.adopt(f"h{at}", "a", [device], 500)
        moves[f"h{at}"] = Move(part(500), "a", (at + 1) * S)
    return inventory, moves


def test_two_half_empty_cards_make_a_whole_one() -> None:
    inventory, moves = halves("n/0", "n/1")
    before = books(inventory)
    found = hints(inventory, moves, 0)
    assert [(each.kind, each.name, each.whole_gpus, each.free_nodes, each.cost_ns) for each in found] == [
        ("gpu", "n/0", 1, 0, 1 * S),
        ("gpu", "n/1", 1, 0, 2 * S),
    ]
    assert found[0].steps == (Step("h0", ("n/0",), "n", ("n/1",), 1 * S),)
    assert found[0].defragmented_milli_gpu == 500, "twice 500 of no use to whole GPUs: half of what is asked for"
    assert books(inventory) == before


def test_a_half_empty_node_is_made_free() -> None:
    inventory, moves = halves("n/0", "o/0")
    found = hints(inventory, moves, 0)
    assert {(each.kind, each.name, each.free_nodes) for each in found} == {
        (kind, name, 1) for kind, name in (("gpu", "n/0"), ("gpu", "o/0"), ("node", "n"), ("node", "o"))
    }


def test_what_cannot_be_moved_or_ends_sooner_stays() -> None:
    inventory, moves = halves("n/0", "n/1")
    assert hints(inventory, {}, 0) == []
    ends = {holder: Move(move.footprint, "a", move.cost_ns, until=S) for holder, move in moves.items()}
    assert hints(inventory, ends, 0) == []
    inventory.adopt("wide", "a", ["n/0", "o/0"], 100)
    wide = moves | {"wide": Move(Footprint(2, 100), "a", S)}
    assert all("wide" not in {step.holder for step in each.steps} for each in hints(inventory, wide, 0))


def test_where_nothing_would_be_gained_there_is_no_hint() -> None:
    inventory, moves = halves("n/0")
    assert hints(inventory, moves, 0) == [], "moving a half to an empty card frees one and breaks one"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 999), max_size=14))
def test_following_the_best_hint_gives_what_it_says(parts: list[int]) -> None:
    inventory = shed(*(node(f"n{at}", 2) for at in range(4)))
    moves: dict[str, Move] = {}
    for at, milli in enumerate(parts):
        inventory.asked(part(milli))
        inventory.adopt(f"h{at}", "a", [f"n{at % 4}/{at // 4 % 2}"], milli)
        moves[f"h{at}"] = Move(part(milli), "a", S)
    before = books(inventory)
    found = hints(inventory, moves, 0)
    assert books(inventory) == before
    assert len(found) <= HINTS_MAX
    if not found:
        return
    empty = sum(not inventory.holders(device.id) for device in inventory.devices())
    for step in found[0].steps:
        inventory.give(step.holder)
    for step in found[0].steps:
        inventory.adopt(step.holder, "a", step.to_devices, moves[step.holder].footprint.milli_gpu)
    assert sum(not inventory.holders(device.id) for device in inventory.devices()) - empty == found[0].whole_gpus
    for step in found[0].steps:
        held = sum(each.milli_gpu for each in inventory.holders(step.to_devices[0]).values())
        assert held <= 1000


def test_nothing_is_put_on_what_is_emptied() -> None:
    inventory = shed(node("n", 4))
    put(inventory, "whole", Footprint(2, 1000))
    inventory.adopt("x", "a", ["n/2"], 300)
    inventory.adopt("y", "a", ["n/3"], 300)
    moves = {"x": Move(part(300), "a", S), "y": Move(part(300), "a", S)}
    assert [each.steps[0].to_devices for each in hints(inventory, moves, 0)] == [("n/3",), ("n/2",)]


class Counted(Inventory):
    """Counts how often its holders are looked at and what is fragmented is asked for."""

    def __init__(self) -> None:
        super().__init__("main")
        self.looks = self.sums = 0

    def holders(self, name: str) -> dict[str, Part]:
        self.looks += 1
        return super().holders(name)

    @property
    def fragmented(self) -> int:
        self.sums += 1
        return super().fragmented


def looked_at(empty: int, half_empty: int, *, tries: int = TRIED_MAX) -> tuple[int, int]:
    inventory = Counted()
    inventory.asked(Footprint(1, 1000))
    inventory.asked(part(500))
    moves: dict[str, Move] = {}
    for at in range(half_empty):
        inventory.see(node(f"half{at:03}", 2))
        inventory.adopt(f"h{at}", "a", [f"half{at:03}/0"], 500)
        moves[f"h{at}"] = Move(part(500), "a", S)
    for at in range(empty):
        inventory.see(node(f"n{at:03}", 2))
    assert len(hints(inventory, moves, 0, tries)) == min(tries, HINTS_MAX)
    return inventory.looks, inventory.sums


def test_what_is_looked_at_grows_with_what_is_tried_and_not_with_the_cluster() -> None:
    assert looked_at(0, 60) == looked_at(200, 60) == looked_at(0, 150)
    looks, sums = looked_at(0, 60)
    assert looks <= TRIED_MAX * 20, "the source and the target, before and after, and no others"
    assert sums <= TRIED_MAX + 1
    assert looked_at(0, 60, tries=2)[0] <= 2 * 20


def test_trying_is_not_loading() -> None:
    inventory = shed(node("n", 2))
    inventory.asked(Footprint(1, 1000))
    inventory.adopt("first", "a", ["n/0"], 500, weights="first")
    for at in range(63):
        inventory.adopt("other", "a", ["n/1"], 500, weights=f"other{at}")
        inventory.give("other")
    inventory.adopt("last", "a", ["n/1"], 500)
    moves = {holder: Move(part(500), "a", S, weights=holder) for holder in ("first", "last")}
    assert hints(inventory, moves, 0)
    held = inventory.held("first")
    assert held is not None
    assert held.weights == "first"
    inventory.give("last")
    inventory.adopt("last", "a", ["n/1"], 500, weights="last")
    assert not inventory.candidates(part(100), "a", 0, weights="first")[0].loaded, "it was the one loaded longest ago"
