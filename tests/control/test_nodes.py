"""The nodes of the configuration, told as what is there, what has changed, and how busy it is."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import msgspec

from commonpool.config.nodes import declared
from commonpool.config.structs import AttachedEngine, Config, NodeConfig
from commonpool.control.nodes import EVERY_NS, HERE, Nodes
from commonpool.core.events import HostLoad
from commonpool.core.model import NS_PER_S, Device, Node
from tests.control.fakes import config, embedded, until
from tests.engines.running import run

LIMIT_S = 120  # a look that waits longer fails its test
LOAD = HostLoad(HERE, 500, 600, 7)


class Diary:
    """What was told of nodes, in order. `found` is what is discovered on each; `fault` the next look's.

    A look waits for `enough`.
    """

    def __init__(self) -> None:
        self.seen: list[Node] = []
        self.lost: list[str] = []
        self.loads: list[HostLoad] = []
        self.found: dict[str, Node] = {}
        self.fault: Exception | None = None
        self.slept: list[float] = []
        self.looks = 0
        self.order: list[str] = []
        self.enough = threading.Event()
        self.enough.set()

    def node_seen(self, node: Node) -> None:
        self.seen.append(node)
        self.order.append(f"seen {node.name}")

    def node_lost(self, name: str) -> None:
        self.lost.append(name)
        self.order.append(f"lost {name}")

    def host_load(self, load: HostLoad) -> None:
        self.loads.append(load)

    def discover(self, node: NodeConfig) -> Node:
        self.looks += 1
        assert self.enough.wait(LIMIT_S)
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        return self.found[node.name]

    def load(self, node: str) -> HostLoad:
        return HostLoad(node, LOAD.cpu, LOAD.memory, LOAD.network)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0.001)

    def nodes(self, wanted: Config) -> Nodes:
        return Nodes(self, wanted, discover=self.discover, load=self.load, sleep=self.sleep)


def with_nodes(*nodes: NodeConfig) -> Config:
    return Config(policy=config().policy, models={}, apps={}, currency="EUR", nodes={node.name: node for node in nodes})


def machine(name: str, gpus: int = 2, *, discover: bool = False) -> NodeConfig:
    return NodeConfig(name, "gpus", gpus=gpus, discover=discover)


def test_what_is_declared_is_told_as_it_is_declared_and_once() -> None:
    async def main() -> None:
        diary = Diary()
        nodes = diary.nodes(with_nodes(machine("n1"), machine("n2", 1)))
        await nodes.look()
        await nodes.look()
        assert diary.seen == [declared(machine("n1")), declared(machine("n2", 1))]
        assert [device.id for device in diary.seen[0].devices] == ["n1/0", "n1/1"]
        assert (diary.lost, diary.looks) == ([], 0)

    run(main)


def test_what_is_discovered_is_told_again_when_it_has_changed() -> None:
    async def main() -> None:
        diary = Diary()
        diary.found["n1"] = whole = Node("n1", "gpus", (Device("n1/0"),))
        nodes = diary.nodes(with_nodes(machine("n1", discover=True)))
        await nodes.look()
        await nodes.look()
        assert diary.seen == [whole]
        diary.found["n1"] = sick = Node("n1", "gpus", (Device("n1/0", healthy=False),))
        await nodes.look()
        assert diary.seen == [whole, sick]

    run(main)


def test_a_change_of_the_configuration_tells_what_came_what_went_and_what_is_another_one() -> None:
    async def main() -> None:
        diary = Diary()
        nodes = diary.nodes(with_nodes(machine("n1"), machine("n2")))
        await nodes.look()
        diary.seen.clear()
        await nodes.configure(with_nodes(machine("n2", 4), machine("n3")))
        assert diary.lost == ["n1"]
        assert diary.seen == [declared(machine("n2", 4)), declared(machine("n3"))]
        await nodes.configure(with_nodes(machine("n1")))
        assert diary.lost == ["n1", "n2", "n3"]
        assert diary.seen[-1] == declared(machine("n1"))  # it is told again

    run(main)


def test_how_busy_this_machine_is_is_told_for_every_node_and_for_replicas_without_one() -> None:
    async def main() -> None:
        diary = Diary()
        nodes = diary.nodes(with_nodes(machine("n1"), machine("n2")))
        await nodes.look()
        async with watched(nodes):
            await until(lambda: len(diary.loads) >= 3)
        assert [load.node for load in diary.loads[:3]] == ["", "n1", "n2"]
        assert {(load.cpu, load.memory, load.network) for load in diary.loads} == {(500, 600, 7)}
        assert set(diary.slept) == {EVERY_NS / NS_PER_S}

    run(main)


def test_how_busy_a_node_is_that_only_has_attached_engines_is_not_known() -> None:
    async def main() -> None:
        diary = Diary()
        attached = AttachedEngine(("http://x", "http://y"), devices=(("n1/0", "n1/1"), ("n2/0",)))
        model = msgspec.structs.replace(embedded("m"), engine=attached)
        wanted = with_nodes(machine("n1"), machine("n2"), machine("n3"))
        nodes = diary.nodes(msgspec.structs.replace(wanted, models={model.name: model}))
        await nodes.look()
        async with watched(nodes):
            await until(lambda: len(diary.loads) >= 6)
        assert [load.node for load in diary.loads[:6]] == ["", "n2", "n3"] * 2

    run(main)


def test_a_look_that_fails_does_not_end_the_watch_and_loses_no_node() -> None:
    async def main() -> None:
        diary = Diary()
        diary.found["n1"] = Node("n1", "gpus", (Device("n1/0"),))
        nodes = diary.nodes(with_nodes(machine("n1", discover=True)))
        await nodes.look()
        diary.fault = RuntimeError("a fault")
        async with watched(nodes):
            await until(lambda: diary.fault is None and diary.loads)
        assert (diary.lost, len(diary.seen)) == ([], 1)

    run(main)


def test_a_look_that_takes_long_does_not_bring_back_what_a_later_one_lost() -> None:
    async def main() -> None:
        diary = Diary()
        diary.found = {name: Node(name, "gpus", (Device(f"{name}/0"),)) for name in ("n1", "n2")}
        nodes = diary.nodes(with_nodes(machine("n1", discover=True), machine("n2", discover=True)))
        await nodes.look()
        diary.found["n2"] = sick = Node("n2", "gpus", (Device("n2/0", healthy=False),))
        diary.enough.clear()
        earlier = asyncio.create_task(nodes.look())
        await until(lambda: diary.looks == 3)  # it is with the first node
        later = asyncio.create_task(nodes.configure(with_nodes(machine("n1"))))
        await asyncio.sleep(0)
        diary.enough.set()
        await asyncio.gather(earlier, later)
        assert diary.order[2:] == [f"seen {sick.name}", "lost n2", "seen n1"]

    run(main)


@contextlib.asynccontextmanager
async def watched(nodes: Nodes) -> AsyncIterator[None]:
    task = asyncio.ensure_future(nodes.watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
