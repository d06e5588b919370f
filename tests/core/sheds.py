"""Small clusters for the tests of placement."""

from typing import Any

from commonpool.core.footprint import Footprint
from commonpool.core.inventory import Inventory
from commonpool.core.model import Device, Node

GIB = 1024


def gpus(node: str, count: int, memory_mib: int = 80 * GIB, model: str = "A100", **more: Any) -> tuple[Device, ...]:
    return tuple(Device(f"{node}/{at}", model, memory_mib, **more) for at in range(count))


def slices(node: str, *profiles: str) -> tuple[Device, ...]:
    """MIG slices by profile, such as 1g.10gb: sevenths of one GPU."""
    found = []
    for at, profile in enumerate(profiles):
        compute, memory = profile.split(".")
        milli = 1000 * int(compute.removesuffix("g")) // 7
        found.append(Device(f"{node}/0.{at}", "A100", int(memory.removesuffix("gb")) * GIB, milli, profile))
    return tuple(found)


def node(name: str, count: int = 2, **more: Any) -> Node:
    devices = more.pop("devices", None)
    return Node(name, "main", gpus(name, count) if devices is None else devices, **more)


def shed(*nodes: Node, isolation: Any = "shared") -> Inventory:
    inventory = Inventory("main", isolation)
    for each in nodes:
        inventory.see(each)
    return inventory


def part(milli_gpu: int, **more: Any) -> Footprint:
    """A part of one device."""
    return Footprint(1, milli_gpu, **more)


def put(inventory: Inventory, holder: str, footprint: Footprint, owner: str = "a", **more: Any) -> tuple[str, ...]:
    """Find and take. Returns the devices; none where it does not fit."""
    weights, until = more.get("weights", ""), more.get("until")
    placement = inventory.find(footprint, owner, more.get("now", 0), until, weights)
    if placement is None:
        return ()
    inventory.take(holder, owner, placement)
    return placement.devices
