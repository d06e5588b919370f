"""What could be gained by moving work together: half-empty cards and nodes whose holders would fit elsewhere.

Hints only: nothing is moved. A hint says what to drain, where it would fit, what that costs and what it gives. Each is
tried out on the inventory's own books, which are then as they were; one that is followed changes what others are worth.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Literal

import msgspec

from commonpool.core.footprint import Footprint
from commonpool.core.inventory import Inventory
from commonpool.core.model import MILLI_PER_GPU
from commonpool.core.placement import Placement

HINTS_MAX: Final = 20
# So many cards and nodes are tried, those with the least to move first: the machine decides nothing else meanwhile.
TRIED_MAX: Final = 50
_FENCE: Final = "\0fence"  # no holder is called like this

Kind = Literal["gpu", "node"]


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


def hints(inventory: Inventory, movable: Mapping[str, Move], now: int, tries: int = TRIED_MAX) -> list[Hint]:
    """At most `HINTS_MAX` hints, best first: most GPUs made whole, most nodes made free, least cost.

    `movable` is by holder. What ends by itself before it would have been moved is left alone. `tries` is how many
    cards and nodes are tried.
    """
    search = _Search(inventory, movable, now)
    found: list[Hint] = []
    for source in islice(search.sources(), tries):
        hint = search.tried(source)
        if hint is not None:
            found.append(hint)
    found.sort(key=_worth)
    return found[:HINTS_MAX]


def _worth(hint: Hint) -> tuple[int, int, int, str]:
    return -hint.whole_gpus, -hint.free_nodes, hint.cost_ns, hint.name


class _Source:
    """A card or a node that could be emptied: its devices, and who holds something there."""

    __slots__ = ("devices", "holders", "kind", "name")

    def __init__(self, kind: Kind, name: str, devices: tuple[str, ...], holders: tuple[str, ...]) -> None:
        self.kind = kind
        self.name = name
        self.devices = devices
        self.holders = holders


class _Search:
    """The books of a pool, and what of its work can be moved now. Whatever is tried touches the books of few nodes."""

    __slots__ = ("_fragmented", "_inventory", "_movable", "_nodes", "_now")

    def __init__(self, inventory: Inventory, movable: Mapping[str, Move], now: int) -> None:
        self._inventory = inventory
        self._movable = movable
        self._now = now
        self._nodes = {node.name: node for node in inventory.nodes()}
        self._fragmented = inventory.fragmented

    # -- what could be emptied -----------------------------------------------------------------------------------------

    def sources(self) -> Iterator[_Source]:
        """Cards of which a part is held, and nodes at least half free, that can be emptied; least to move first."""
        for _, kind, name in self._half_empty():
            if kind == "gpu":
                devices: tuple[str, ...] = (name,)
                holders = self._inventory.holders(name)
            else:
                devices = tuple(device.id for device in self._nodes[name].devices)
                holders = self._inventory.holders(name)
                for device in devices:
                    holders |= self._inventory.holders(device)
            if self._can_go(holders, devices):
                yield _Source(kind, name, devices, tuple(holders))

    def _half_empty(self) -> list[tuple[int, Kind, str]]:
        """What is taken of each, its kind and name. Only what can be moved is counted: anything else keeps it full."""
        taken: dict[str, int] = {}
        for holder in self._movable:
            placement = self._inventory.held(holder)
            if placement is not None:
                for device, milli in zip(placement.devices, placement.milli_gpu, strict=True):
                    taken[device] = taken.get(device, 0) + milli
        found: list[tuple[int, Kind, str]] = []
        for node in self._nodes.values():
            total = capacity = 0
            for each in node.devices:
                capacity += each.milli_gpu
                held = taken.get(each.id, 0)
                total += held
                if 0 < held < each.milli_gpu:
                    found.append((held, "gpu", each.id))
            if 0 < 2 * total <= capacity:
                found.append((total, "node", node.name))
        found.sort()
        return found

    def _can_go(self, holders: Iterable[str], devices: tuple[str, ...]) -> bool:
        """Whether all these holders can be moved, have nothing elsewhere, and do not end sooner by themselves."""
        for holder in holders:
            move, placement = self._movable.get(holder), self._inventory.held(holder)
            if move is None or placement is None or any(device not in devices for device in placement.devices):
                return False
            if move.until is not None and move.until <= self._now + move.cost_ns:
                return False
        return True

    # -- what that would give ------------------------------------------------------------------------------------------

    def tried(self, source: _Source) -> Hint | None:
        """Empty it on the books, largest holder first, look what that gives, and put everything back."""
        inventory = self._inventory
        placed = [(holder, old) for holder in source.holders if (old := inventory.held(holder)) is not None]
        placed.sort(key=_largest)
        for holder, _ in placed:
            inventory.give(holder)
        # What is emptied is fenced, so that nothing is found there.
        inventory.adopt(_FENCE, _FENCE, source.devices, MILLI_PER_GPU)
        steps: list[Step] = []
        touched = {name: None for _, old in placed for name, _, _ in old.hosts}
        touched.update(dict.fromkeys(filter(None, map(inventory.node_of, source.devices))))
        for holder, old in placed:
            move = self._movable[holder]
            new = inventory.find(move.footprint, move.owner, self._now, move.until, move.weights)
            if new is None:
                break
            self._take(holder, new)
            touched.update(dict.fromkeys(name for name, _, _ in new.hosts))
            steps.append(Step(holder, old.devices, new.node, new.devices, move.cost_ns))
        inventory.give(_FENCE)
        fits = len(steps) == len(placed)
        gpus, nodes = self._empty(touched)
        fragmented = inventory.fragmented if fits else 0
        for holder, old in placed:
            inventory.give(holder)
            self._take(holder, old)
        gpus_before, nodes_before = self._empty(touched)
        gpus, nodes = gpus - gpus_before, nodes - nodes_before
        if not fits or (gpus if source.kind == "gpu" else nodes) < 1:
            return None
        cost_ns = sum(step.cost_ns for step in steps)
        return Hint(source.kind, source.name, gpus, nodes, self._fragmented - fragmented, cost_ns, tuple(steps))

    def _take(self, holder: str, placement: Placement) -> None:
        """Note it without its weights: nothing is loaded by trying, and nothing is forgotten for it."""
        weights, placement.weights = placement.weights, ""
        self._inventory.take(holder, self._movable[holder].owner, placement)
        placement.weights = weights

    def _empty(self, names: Iterable[str]) -> tuple[int, int]:
        """How many GPUs and nodes of these nodes have nothing on them."""
        gpus = nodes = 0
        for name in names:
            node = self._nodes.get(name)
            if node is None:
                continue
            empty = not self._inventory.holders(name)
            for device in node.devices:
                free = not self._inventory.holders(device.id)
                gpus += free and device.healthy and not device.profile
                empty = empty and free
            nodes += empty
        return gpus, nodes


def _largest(item: tuple[str, Placement]) -> tuple[int, str]:
    return -sum(item[1].milli_gpu), item[0]
