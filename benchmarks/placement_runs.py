"""openb: its nodes and pods, and what happens when pods arrive until they ask for more than there is.

The protocol is that of FGD's evaluation (Weng et al., ATC'23): the pods of the trace, and pods drawn from it again till
they ask for 130 % of the GPUs, in random order; each is placed where the policy says, or nowhere; none ends.
"""

import csv
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from commonpool.core.footprint import Footprint
from commonpool.core.inventory import Inventory
from commonpool.core.model import Device, Node
from commonpool.core.placement import Placement

NODES: Final = "openb_node_list_gpu_node.csv"
PODS: Final = {"default": "openb_pod_list_default.csv", "gpushare40": "openb_pod_list_gpushare40.csv"}
ARRIVALS_PERCENT: Final = 130


class Run(msgspec.Struct, frozen=True):
    """What one policy did with one order of the pods. `seconds` of CPU, for finding and taking alone."""

    capacity_milli_gpu: int
    allocated_milli_gpu: int
    placed: int
    arrived: int
    seconds: float

    @property
    def allocated(self) -> float:
        """In percent."""
        return 100 * self.allocated_milli_gpu / self.capacity_milli_gpu


class Policy(Protocol):
    """Where the next pod goes; None: nowhere. What it says is taken."""

    def place(self, inventory: Inventory, pod: Footprint) -> Placement | None: ...


def nodes(traces: Path) -> list[Node]:
    with (traces / NODES).open(encoding="utf-8", newline="") as file:
        return [
            Node(
                row["sn"],
                "openb",
                tuple(Device(f"{row['sn']}/{at}", row["model"]) for at in range(int(row["gpu"]))),
                int(row["cpu_milli"]),
                int(row["memory_mib"]),
            )
            for row in csv.DictReader(file)
        ]


def pods(traces: Path, name: str) -> list[Footprint]:
    """Those of a trace, each with its GPUs, the GPU models that will do, and its CPU and memory."""
    with (traces / PODS[name]).open(encoding="utf-8", newline="") as file:
        return [
            Footprint(
                int(row["num_gpu"]),
                int(row["gpu_milli"]) if int(row["num_gpu"]) else 0,
                models=tuple(filter(None, row["gpu_spec"].split("|"))),
                cpu_milli=int(row["cpu_milli"]),
                memory_mib_host=int(row["memory_mib"]),
            )
            for row in csv.DictReader(file)
        ]


def arrivals(trace: Sequence[Footprint], capacity_milli_gpu: int, seed: int) -> list[Footprint]:
    """All pods of the trace, and as many of them again as it takes, in an order of the seed's."""
    chance = random.Random(seed)
    found = list(trace)
    asked = sum(pod.total_milli_gpu for pod in found)
    while 100 * asked < ARRIVALS_PERCENT * capacity_milli_gpu:
        pod = chance.choice(trace)
        found.append(pod)
        asked += pod.total_milli_gpu
    chance.shuffle(found)
    return found


def run(cluster: Iterable[Node], coming: Sequence[Footprint], policy: Policy, inventory: Inventory) -> Run:
    """Place what comes, in an inventory that may know what is asked for."""
    for node in cluster:
        inventory.see(node)
    placed = 0
    begun = time.process_time()
    for at, pod in enumerate(coming):
        placement = policy.place(inventory, pod)
        if placement is not None:
            inventory.take(str(at), "", placement)
            placed += 1
    took = time.process_time() - begun
    return Run(inventory.capacity, inventory.capacity - inventory.free, placed, len(coming), took)


# -- policies ----------------------------------------------------------------------------------------------------------


class Ours:
    """What the product does: it counts what is asked for, and asks the inventory."""

    def place(self, inventory: Inventory, pod: Footprint) -> Placement | None:
        inventory.asked(pod)
        return inventory.find(pod, "", 0)


class BestFit:
    """The node with the least GPU free, of those on which it fits, and there the fullest card.

    That is what the inventory does while it knows nothing of demand.
    """

    def place(self, inventory: Inventory, pod: Footprint) -> Placement | None:
        return inventory.find(pod, "", 0)


class RandomFit:
    """Any node on which it fits, and there any cards. It keeps count by itself."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._free: list[Free] = []

    def place(self, inventory: Inventory, pod: Footprint) -> Placement | None:
        if not self._free:
            self._free = [Free(node) for node in inventory.nodes()]
        fitting = [free for free in self._free if free.fits(pod)]
        return self._chance.choice(fitting).take(pod, self._chance) if fitting else None


class Free:
    """What is free on a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.cpu_milli = node.cpu_milli
        self.memory_mib = node.memory_mib
        self.milli_gpu = [device.milli_gpu for device in node.devices]
        self.most = 1000

    def fits(self, pod: Footprint) -> bool:
        return (
            self.most >= pod.milli_gpu
            and self.cpu_milli >= pod.cpu_milli
            and self.memory_mib >= pod.memory_mib_host
            and (not pod.models or self.node.devices[0].model in pod.models)
            and sum(milli >= pod.milli_gpu for milli in self.milli_gpu) >= pod.devices
        )

    def take(self, pod: Footprint, chance: random.Random) -> Placement:
        able = [at for at, milli in enumerate(self.milli_gpu) if milli >= pod.milli_gpu]
        cards = chance.sample(able, pod.devices)
        for at in cards:
            self.milli_gpu[at] -= pod.milli_gpu
        self.most = max(self.milli_gpu)
        self.cpu_milli -= pod.cpu_milli
        self.memory_mib -= pod.memory_mib_host
        host = (self.node.name, pod.cpu_milli, pod.memory_mib_host)
        devices = tuple(self.node.devices[at].id for at in cards)
        return Placement((host,), devices, (pod.milli_gpu,) * pod.devices, (0,) * pod.devices)


def random_fit(cluster: Iterable[Node], trace: Sequence[Footprint], seed: int) -> Run:
    return _run(cluster, trace, seed, RandomFit(seed))


def best_fit(cluster: Iterable[Node], trace: Sequence[Footprint], seed: int) -> Run:
    return _run(cluster, trace, seed, BestFit())


def ours(cluster: Iterable[Node], trace: Sequence[Footprint], seed: int) -> Run:
    """Demand is learned from what arrives."""
    return _run(cluster, trace, seed, Ours())


def ours_known(cluster: Iterable[Node], trace: Sequence[Footprint], seed: int) -> Run:
    """Demand is known from the start, as it is to FGD: how often the trace asks for each shape."""
    return _run(cluster, trace, seed, BestFit(), trace)


POLICIES: Final[dict[str, Callable[[Iterable[Node], Sequence[Footprint], int], Run]]] = {
    "random fit": random_fit,
    "best fit": best_fit,
    "commonpool": ours,
    "commonpool, demand known": ours_known,
}


def _run(
    cluster: Iterable[Node],
    trace: Sequence[Footprint],
    seed: int,
    policy: Policy,
    known: Sequence[Footprint] = (),
) -> Run:
    capacity = sum(device.milli_gpu for node in cluster for device in node.devices)
    inventory = Inventory("openb")
    for pod, times in Counter(known).items():
        inventory.asked(pod, times)
    return run(cluster, arrivals(trace, capacity, seed), policy, inventory)
