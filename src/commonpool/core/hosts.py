"""The nodes of a pool, and what is free on each of their devices. `core.inventory` keeps who holds what.

A *card* is a device with its holders, a *host* a node with its cards. What is free falls below zero where more is held
than is there: work that ran before is never denied.
"""

from typing import Final

import msgspec

from commonpool.core.footprint import Footprint, holds
from commonpool.core.model import Device, Node

# Of a resource whose amount is not known there is always enough.
UNKNOWN: Final = 1 << 40
# What is held by tenants that must not meet.
MIXED: Final = "\0"
FREE: Final = "\1"


class Part(msgspec.Struct, frozen=True):
    """What one holder has of one device, or of one node. Replicas that serve a whole pool have the owner ""."""

    owner: str
    milli_gpu: int = 0
    memory_mib: int = 0
    cpu_milli: int = 0
    until: int | None = None


class Card:
    """A device and who holds what of it."""

    __slots__ = ("cell", "device", "free_mib", "free_milli", "holders", "kind", "owner", "usable_mib")

    def __init__(self, device: Device, kind: int, holders: dict[str, Part]) -> None:
        self.device = device
        self.kind = kind  # the same number for the same model, profile, size and island, and the same memory taken
        self.holders = holders
        self.usable_mib = device.memory_mib - device.taken_mib if device.memory_mib else UNKNOWN
        self.free_milli = device.milli_gpu
        self.free_mib = self.usable_mib
        self.owner = FREE
        self.cell: Cell | None = None
        self.count()

    def count(self) -> None:
        """Work out what is free, and whose it is."""
        self.cell = None
        milli = mib = 0
        owner = FREE
        for part in self.holders.values():
            milli += part.milli_gpu
            mib += part.memory_mib
            owner = part.owner if owner in (FREE, part.owner) else MIXED
        self.free_milli = self.device.milli_gpu - milli
        self.free_mib = self.usable_mib - mib
        self.owner = owner

    def milli(self, footprint: Footprint) -> int:
        """What one of the devices of a footprint takes of this one."""
        return self.device.milli_gpu if footprint.profile else footprint.milli_gpu

    def mib(self, footprint: Footprint) -> int:
        """And of its memory: what was asked for, else the same part as of the GPU."""
        if footprint.stated:
            return footprint.memory_mib
        if self.usable_mib == UNKNOWN:
            return 0
        return self.usable_mib * self.milli(footprint) // self.device.milli_gpu

    def fits(self, footprint: Footprint) -> bool:
        """Whether it is of the right kind and healthy, and enough of it is free.

        Work that says nothing of memory counts on a card that is as good as empty of what is not ours: nine tenths.
        """
        device = self.device
        milli = device.milli_gpu if footprint.profile else footprint.milli_gpu
        if self.free_milli < milli or not device.healthy or not holds(device, footprint):
            return False
        if not footprint.stated and device.memory_mib and 10 * self.usable_mib < 9 * device.memory_mib:
            return False
        return self.free_mib >= self.mib(footprint)


class Cell:
    """A device as it looks now: its kind, what is free, whose it is. Devices that look alike share one.

    `card` is one that looks like that and stays so. `able` has a bit for each part that `core.fragmentation` measures
    and that it can hold; `value` is its usable milli_gpu × weight, for the shapes of one device.
    """

    __slots__ = ("able", "card", "free", "island", "number", "owner", "value")

    def __init__(self, number: int, card: Card, owner: str) -> None:
        self.number = number
        self.card = Card(card.device, card.kind, card.holders.copy())
        self.free = max(0, card.free_milli) if card.device.healthy else 0
        self.owner = owner
        self.island = card.device.island
        self.able = 0
        self.value = 0


class Host:
    """A node, its cards, and what is free of its own CPU and memory."""

    __slots__ = ("cards", "free_cpu", "free_mib", "free_milli", "holders", "models", "name", "node", "owner")

    def __init__(self, node: Node, cards: tuple[Card, ...], holders: dict[str, Part]) -> None:
        self.name = node.name
        self.node = node
        self.cards = cards
        self.holders = holders
        self.models: dict[str, None] = {}  # whose weights were loaded here
        self.free_cpu = 0
        self.free_mib = 0
        self.free_milli = 0
        self.owner = FREE
        self.count()

    def count(self) -> None:
        """Work out what is free, from its cards and holders."""
        node = self.node
        cpu = mib = 0
        owner = FREE
        for part in self.holders.values():
            cpu += part.cpu_milli
            mib += part.memory_mib
            owner = part.owner if owner in (FREE, part.owner) else MIXED
        self.free_cpu = node.cpu_milli - cpu if node.cpu_milli else UNKNOWN
        self.free_mib = node.memory_mib - mib if node.memory_mib else UNKNOWN
        self.owner = owner
        self.free_milli = sum(card.free_milli for card in self.cards if card.device.healthy)

    def capacity(self) -> int:
        """The milli_gpu of its healthy devices."""
        return sum(card.device.milli_gpu for card in self.cards if card.device.healthy)
