"""What could be gained by moving work together: half-empty cards and nodes whose holders would fit elsewhere.

Hints only: nothing is moved. A hint says what to drain, where it would fit, what that costs and what it gives. Each is
tried out on the inventory's own books, which are then as they were; one that is followed changes what others are worth.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from commonpool.core.footprint import Footprint
from commonpool.core.inventory import Inventory
from commonpool.core.model import MILLI_PER_GPU
from commonpool.core.placement import Placement

HINTS_MAX: Final = 20
# So many cards and nodes are tried, those with the least to move first: the machine decides nothing else meanwhile.
_TRIED_MAX: Final = 50
_FENCE: Final = "\0fence"  # no holder is called like this

Kind = Literal["gpu", "node"]
_Source = tuple[int, Kind, str, tuple[str, ...], tuple[str, ...]]  # taken, kind, name, devices, holders


class Move(msgspec.Struct, frozen=True):
    """What moving a holder would take: its footprint and owner, and until when it runs (None: not known).

    `cost_ns` is how long it is away, or is started beside the old one: its start-up, or saving and restoring it.
    What is not named cannot be moved. `weights` is the model that it loads.
    """

    footprint: Footprint
    owner: str
    cost_ns: int
    until: int | None = None
    weights: str = ""


class Step(msgspec.Struct, frozen=True):
    """One holder to drain, and the devices that it would fit on."""

    holder: str
    devices: tuple[str, ...]
    to_node: str
    to_devices: tuple[str, ...]
    cost_ns: int


class Hint(msgspec.Struct, frozen=True):
    """What emptying a device (kind "gpu") or a node would take and give.

    `whole_gpus` and `free_nodes` are how many more there would be with nothing on them; `defragmented_milli_gpu` is by
    how much less of what is free would be expected to be unusable. `cost_ns` is the sum of the steps'.
    """

    kind: Kind
    name: str
    whole_gpus: int
    free_nodes: int
    defragmented_milli_gpu: int
    cost_ns: int
    steps: tuple[Step, ...]


def hints(inventory: Inventory, movable: Mapping[str, Move], now: int, most: int = HINTS_MAX) -> list[Hint]:
    """At most so many hints, best first: most GPUs made whole, most nodes made free, least cost.

    `movable` is by holder. What ends by itself before it would have been moved is left alone.
    """
    found: list[Hint] = []
    for _, kind, name, devices, holders in _half_empty(inventory, movable, now)[:_TRIED_MAX]:
        hint = _tried(inventory, movable, now, kind, name, devices, holders)
        if hint is not None:
            found.append(hint)
    found.sort(key=_worth)
    return found[:most]


def _worth(hint: Hint) -> tuple[int, int, int, str]:
    return -hint.whole_gpus, -hint.free_nodes, hint.cost_ns, hint.name


def _half_empty(inventory: Inventory, movable: Mapping[str, Move], now: int) -> list[_Source]:
    """Cards of which a part is held, and nodes at least half free, that could be emptied; least to move first."""
    found: list[_Source] = []
    for node in inventory.nodes():
        taken = capacity = 0
        holders: dict[str, None] = dict.fromkeys(inventory.holders(node.name))
        for device in node.devices:
            on = inventory.holders(device.id)
            held = sum(part.milli_gpu for part in on.values())
            taken += held
            capacity += device.milli_gpu
            holders.update(dict.fromkeys(on))
            if 0 < held < device.milli_gpu and _can_go(inventory, movable, now, on, {device.id}):
                found.append((held, "gpu", device.id, (device.id,), tuple(on)))
        devices = tuple(device.id for device in node.devices)
        if 0 < 2 * taken <= capacity and _can_go(inventory, movable, now, holders, set(devices)):
            found.append((taken, "node", node.name, devices, tuple(holders)))
    found.sort()
    return found


def _can_go(
    inventory: Inventory, movable: Mapping[str, Move], now: int, holders: Iterable[str], devices: set[str]
) -> bool:
    """Whether all these holders can be moved, have nothing elsewhere, and do not end sooner by themselves."""
    for holder in holders:
        move, placement = movable.get(holder), inventory.held(holder)
        if move is None or placement is None or not devices.issuperset(placement.devices):
            return False
        if move.until is not None and move.until <= now + move.cost_ns:
            return False
    return True


def _tried(
    inventory: Inventory,
    movable: Mapping[str, Move],
    now: int,
    kind: Kind,
    name: str,
    devices: tuple[str, ...],
    holders: tuple[str, ...],
) -> Hint | None:
    """Empty it on the books, largest holder first, look what that gives, and put everything back."""
    before = _figures(inventory)
    placed = [(holder, placement) for holder in holders if (placement := inventory.held(holder)) is not None]
    placed.sort(key=_largest)
    for holder, _ in placed:
        inventory.give(holder)
    # What is emptied is fenced, so that nothing is found there.
    inventory.adopt(_FENCE, _FENCE, devices, MILLI_PER_GPU)
    steps: list[Step] = []
    for holder, old in placed:
        move = movable[holder]
        new = inventory.find(move.footprint, move.owner, now, move.until, move.weights)
        if new is None:
            break
        new.weights = ""  # nothing is loaded by trying
        inventory.take(holder, move.owner, new)
        steps.append(Step(holder, old.devices, new.node, new.devices, move.cost_ns))
    inventory.give(_FENCE)
    after = _figures(inventory)
    for holder, old in placed:
        inventory.give(holder)
        inventory.take(holder, movable[holder].owner, old)
    whole, nodes = after[0] - before[0], after[1] - before[1]
    if len(steps) < len(placed) or whole < (kind == "gpu") or nodes < (kind == "node"):
        return None
    cost_ns = sum(step.cost_ns for step in steps)
    return Hint(kind, name, whole, nodes, before[2] - after[2], cost_ns, tuple(steps))


def _largest(item: tuple[str, Placement]) -> tuple[int, str]:
    return -sum(item[1].milli_gpu), item[0]


def _figures(inventory: Inventory) -> tuple[int, int, int]:
    """How many GPUs and nodes have nothing on them, and the milli_gpu that are fragmented."""
    gpus = nodes = 0
    for node in inventory.nodes():
        empty = not inventory.holders(node.name)
        for device in node.devices:
            free = not inventory.holders(device.id)
            gpus += free and device.healthy and not device.profile
            empty = empty and free
        nodes += empty
    return gpus, nodes, inventory.fragmented
