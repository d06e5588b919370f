"""How much of what is free could be used: the measure of FGD (Weng et al., "Beware of Fragmentation", ATC'23).

For one shape of work, what is free on a node is usable where the node can host that shape: the free part of each device
that can hold one of its devices. The rest is fragmented. The measure is the mean over the shapes that are really asked
for, by how often they are. Placement puts work where the usable part shrinks least, so that fragmentation grows least.

FGD asks whether a host has CPU and memory for one more of a shape. Here they bound how much of the GPUs that shape can
use: of four free GPUs beside CPU for one, three are stranded. It is what keeps work that needs little CPU for the hosts
that have little of it.

A device's part of the sum depends on little, so devices that look alike are one `Cell`, which knows its own.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

import msgspec

from commonpool.core.footprint import Footprint, piece_of
from commonpool.core.hosts import Cell
from commonpool.core.model import MILLI_PER_GPU

# The shapes that count: those asked for most often. On a public trace they are 98 % of what was asked for.
SHAPES_MAX: Final = 64
# What their weights add up to, about.
WEIGHT_TOTAL: Final = 4096
# After so many the old count half.
_ASKED_MAX: Final = 8192
_KNOWN_MAX: Final = 1024  # shapes that are counted at all
_SCALE_BITS: Final = 16


class Shapes:
    """What is asked for, and how often. The weights in force change when twice as much has been asked for."""

    __slots__ = ("_asked", "_counts", "_next")

    def __init__(self) -> None:
        self._counts: dict[Footprint, int] = {}
        self._asked = 0
        self._next = 1

    def asked(self, footprint: Footprint, times: int) -> bool:
        """Count it. Returns whether the weights are due to change."""
        if not footprint.devices or times < 1:
            return False
        self._counts[footprint] = self._counts.get(footprint, 0) + times
        self._asked += times
        if self._asked < self._next and len(self._counts) <= _KNOWN_MAX:
            return False
        if self._asked >= _ASKED_MAX or len(self._counts) > _KNOWN_MAX:
            self._counts = {each: count // 2 for each, count in self._counts.items() if count > 1}
            self._asked = sum(self._counts.values())
        self._next = min(2 * self._asked, _ASKED_MAX)
        return True

    def weights(self) -> list[tuple[Footprint, int]]:
        """The shapes that count and their weights, the most frequent first."""
        counts: dict[Footprint, int] = {}
        for footprint, count in self._counts.items():
            shape = _shape(footprint)
            counts[shape] = counts.get(shape, 0) + count
        most = sorted(counts.items(), key=_frequency)[:SHAPES_MAX]
        total = sum(count for _, count in most)
        return [(shape, max(1, count * WEIGHT_TOTAL // total)) for shape, count in most]


def _frequency(item: tuple[Footprint, int]) -> tuple[int, int, int, str]:
    shape, count = item
    return -count, -shape.devices, -shape.milli_gpu, repr(shape)


def _shape(footprint: Footprint) -> Footprint:
    """What of a footprint the measure looks at. Devices that may lie anywhere are asked for one by one."""
    devices = 1 if footprint.together == "any" else footprint.devices
    return msgspec.structs.replace(
        footprint,
        devices=devices,
        memory_mib=footprint.memory_mib if footprint.stated else 0,
        together="node",
        runtime="",
        cpu_milli=footprint.cpu_milli * devices // footprint.devices,
        memory_mib_host=footprint.memory_mib_host * devices // footprint.devices,
    )


class Demand:
    """How much of a host's CPU, or of its memory, the shapes ask for beside each whole GPU."""

    __slots__ = ("_each", "_most", "_rates", "_weights")

    def __init__(self, asked: list[tuple[int, int]]) -> None:
        """`asked` has, for each shape, what it asks for beside a GPU, and its weight."""
        self._each: list[int] = []  # the least first
        self._weights = [0]  # of the shape that asks for most, of the two that do, and so on
        self._rates = [0]  # the same of weight × GPUs that a unit serves
        for each, weight in sorted(asked, reverse=True):
            self._each.append(each)
            self._weights.append(self._weights[-1] + weight)
            self._rates.append(self._rates[-1] + (weight * MILLI_PER_GPU << _SCALE_BITS) // max(1, each))
        self._each.reverse()
        self._most = self._each[-1] if self._each else 0

    def stranded(self, free_milli: int, free: int) -> int:
        """The milli_gpu × weight that the GPUs have free, some, and that this does not suffice for."""
        left = max(0, free)
        beside = left * MILLI_PER_GPU // free_milli
        if beside >= self._most:
            return 0
        short = len(self._each) - bisect_right(self._each, beside)
        return free_milli * self._weights[short] - (left * self._rates[short] >> _SCALE_BITS)


class Measure:
    """What is usable under given weights. A *part* is what shapes take of GPUs that differ in CPU and memory only."""

    __slots__ = ("_cpu", "_memory", "_parts", "_weights", "several", "total")

    def __init__(self, shapes: list[tuple[Footprint, int]]) -> None:
        """`shapes` with their weights."""
        weights: dict[Footprint, int] = {}
        for shape, weight in shapes:
            part = msgspec.structs.replace(piece_of(shape), devices=shape.devices)
            weights[part] = weights.get(part, 0) + weight
        self.total = sum(weights.values())  # usable milli_gpu × weight over this are milli_gpu
        self._parts = list(weights)
        self._weights = list(weights.values())
        # The bits of the parts of which several are wanted, how many, and their weights.
        self.several = [
            (bit, part.devices, weight) for bit, (part, weight) in enumerate(weights.items()) if part.devices > 1
        ]
        self._cpu = Demand([(s.cpu_milli * MILLI_PER_GPU // s.total_milli_gpu, w) for s, w in shapes])
        self._memory = Demand([(s.memory_mib_host * MILLI_PER_GPU // s.total_milli_gpu, w) for s, w in shapes])

    def weigh(self, cell: Cell) -> None:
        """What a cell is able to hold, and of what value that is."""
        able = weight = 0
        for bit, part in enumerate(self._parts):
            if cell.card.fits(part):
                able |= 1 << bit
                if part.devices == 1:
                    weight += self._weights[bit]
        cell.able = able
        cell.value = weight * cell.free

    def usable(self, cells: Iterable[Cell]) -> int:
        """The milli_gpu × weight that shapes could use of these devices of one host."""
        its = list(cells)
        total = sum(cell.value for cell in its)
        for bit, devices, weight in self.several:
            able = [cell.free for cell in its if cell.able >> bit & 1]
            if len(able) >= devices:
                total += weight * sum(able)
        return total

    def stranded(self, free_milli: int, free_cpu: int, free_mib: int) -> int:
        """The milli_gpu × weight that a host has free and its CPU, or its memory, does not suffice for."""
        if free_milli <= 0:
            return 0
        return max(self._cpu.stranded(free_milli, free_cpu), self._memory.stranded(free_milli, free_mib))
