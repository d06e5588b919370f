"""Given what Ray and the gateways say of the nodes, then what the core is told."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("ray")

import msgspec
import structlog.testing

from commonpool.backends.ray.nodes import Nodes, RayNode
from commonpool.cluster.house import RayHouse, RayWatch
from commonpool.config import Config, parse
from commonpool.config.structs import NodeConfig
from commonpool.core.english import english
from commonpool.core.events import HostLoad
from commonpool.core.model import Device, Node

CONFIG = """
pools: {main: {gpus: 8_gpu}, other: {gpus: 1_gpu}}
models:
  m: {version: "1", pool: main, gpu: 1_gpu, slots: 1, context: 1Ki, engine: {kind: embedded, file: m.gguf}}
prices: {currency: EUR, gpu_hour: {main: 2, other: 1}}
tenants: {support: {tenant: {pool: main, guaranteed: 3_gpu}}}
"""
A = RayNode("id-a", "a", "10.0.0.1", 2, 8000, 1024, pool="main")
B = RayNode("id-b", "b", "10.0.0.2", 1, 8000, 1024, pool="main")


class Held(Nodes):
    """The groups of nodes, of which Ray knows nothing here."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def find(self, name: str) -> Any:
        return name if name in self.names else None

    async def hold(self, node: RayNode) -> bool:
        await asyncio.sleep(0)
        assert node.name not in self.names, "it is held already"
        self.names.append(node.name)
        return True

    def lost(self, name: str) -> None:
        if name in self.names:
            self.names.remove(name)


class Town:
    """Ray, the gateways and the desk."""

    def __init__(self) -> None:
        self.living: list[RayNode] = [A, B]
        self.held = Held()
        self.told: list[str] = []
        self.nodes: dict[str, Node] = {}
        self.gateways: set[str] = set()
        self.discovered: dict[str, Node] = {}
        self.cleared: list[str] = []
        self.silent: set[str] = set()
        self.adopted = asyncio.Event()
        self.config: Config = parse(CONFIG)
        self.watch = RayWatch(
            self.held,
            self,
            self,
            self.config,
            adopted=self.adopted,
            clear=self._clear,
            living=lambda: tuple(self.living),
        )

    async def _clear(self, node: RayNode) -> bool:
        self.cleared.append(node.id)
        return node.id not in self.silent

    # Gateways

    def seen(self, node: RayNode) -> None:
        self.gateways.add(node.id)

    def lost(self, node: RayNode) -> None:
        self.gateways.discard(node.id)

    def tick(self) -> None:
        pass

    async def discover(self, node: RayNode, asked: NodeConfig) -> Node | None:
        found = self.discovered.get(node.name)
        return found and msgspec.structs.replace(found, pool=asked.pool)

    async def loads(self, nodes: Sequence[RayNode]) -> list[HostLoad]:
        return [HostLoad(node.name, 1, 1) for node in nodes]

    # Told

    def node_seen(self, node: Node) -> None:
        self.told.append(f"seen {node.name}")
        self.nodes[node.name] = node

    def node_lost(self, name: str) -> None:
        self.told.append(f"lost {name}")
        del self.nodes[name]

    def host_load(self, load: HostLoad) -> None:
        self.told.append(f"load {load.node}")


def run(work: Callable[[Town], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await work(Town())

    asyncio.run(bounded())


def test_nodes_come_and_go() -> None:
    async def main(town: Town) -> None:
        await town.watch.look()
        await town.watch.look()
        assert town.told == ["seen a", "seen b"]
        town.living = [A]
        await town.watch.look()
        assert town.told[2:] == ["lost b"]
        assert (town.held.names, town.gateways) == (["a"], {"id-a"})

    run(main)


def test_a_node_whose_raylet_is_gone_is_lost_and_stays_so_whatever_rays_head_says() -> None:
    async def main(town: Town) -> None:
        with socket.create_server(("127.0.0.1", 0)) as raylet:
            here = msgspec.structs.replace(B, address="127.0.0.1", port=raylet.getsockname()[1])
        town.living = [A, here]
        await town.watch.look()
        assert await town.held.doubt(here)
        await town.watch.look()
        await town.watch.look()
        assert town.told == ["seen a", "seen b", "lost b"]
        assert (town.held.names, town.gateways) == (["a"], {"id-a"})
        town.living = [A, here, msgspec.structs.replace(here, id="id-b2")]
        await town.watch.look()
        assert town.told[3:] == ["seen b"]

    run(main)


def test_a_node_that_came_back_between_two_looks_was_gone() -> None:
    async def main(town: Town) -> None:
        await town.watch.look()
        town.living = [msgspec.structs.replace(A, id="id-a2"), B]
        await town.watch.look()
        assert town.told[2:] == ["lost a", "seen a"]
        assert town.gateways == {"id-a2", "id-b"}

    run(main)


def test_a_node_that_is_of_no_pool_any_more_is_given_back_and_its_jobs_are_ended() -> None:
    async def main(town: Town) -> None:
        town.adopted.set()
        await town.watch.look()
        town.cleared.clear()
        town.living = [msgspec.structs.replace(A, pool=""), B]
        with structlog.testing.capture_logs() as said:
            await town.watch.look()
            await town.watch.look()
        assert town.told[2:] == ["lost a"]
        assert town.held.names == ["b"]
        assert town.cleared == ["id-a"]
        assert [each["event"] for each in said] == ["a node is of no pool; label it commonpool-pool=NAME"]
        town.living = [A, B]
        await town.watch.look()
        assert town.told[3:] == ["seen a"]
        assert sorted(town.held.names) == ["a", "b"]

    run(main)


def test_of_two_nodes_of_one_name_the_first_is_used_and_the_other_one_named() -> None:
    async def main(town: Town) -> None:
        town.living = [A]
        await town.watch.look()
        twin = msgspec.structs.replace(A, id="id-0", gpus=1)
        town.living = [twin, A]
        with structlog.testing.capture_logs() as said:
            await town.watch.look()
            await town.watch.look()
        assert town.told == ["seen a"]
        (warning,) = said
        assert (warning["event"].partition(";")[0], warning["ray_node"]) == ("another node has the same name", "id-0")
        town.living = [twin]
        await town.watch.look()
        assert town.told[1:] == ["lost a", "seen a"]
        assert len(town.nodes["a"].devices) == 1

    run(main)


def test_looks_at_the_same_time_find_things_once() -> None:
    async def main(town: Town) -> None:
        await asyncio.gather(town.watch.look(), town.watch.configure(town.config), town.watch.look())
        assert town.told == ["seen a", "seen b"]

    run(main)


def test_what_a_node_says_of_itself_goes_before_what_ray_counts() -> None:
    async def main(town: Town) -> None:
        devices = (Device("a/0", "H100", 81_559), Device("a/1", "H100", 81_559))
        town.discovered["a"] = Node("a", "", devices)
        town.discovered["b"] = Node("b", "", devices)  # Ray was given one of them
        await town.watch.look()
        assert town.nodes["a"] == Node("a", "main", devices, 8000, 1024)
        assert town.nodes["b"].devices == (Device("b/0"),)
        ill = (devices[0], msgspec.structs.replace(devices[1], healthy=False))
        town.discovered["a"] = Node("a", "", ill)
        await town.watch.configure(town.config)
        assert town.nodes["a"].devices == ill

    run(main)


def test_a_node_that_joins_is_used_when_the_jobs_that_were_lost_with_it_are_ended() -> None:
    async def main(town: Town) -> None:
        town.living = [A]
        await town.watch.look()
        assert town.cleared == []  # what runs there is not known to the core yet
        town.adopted.set()
        await town.watch.look()
        assert town.cleared == ["id-a"]
        town.living = [A, B]
        town.silent = {"id-b"}
        with structlog.testing.capture_logs() as said:
            await town.watch.look()
            await town.watch.look()
        assert town.told == ["seen a"]
        assert [each["node"] for each in said] == ["b"]
        town.silent = set()
        await town.watch.look()
        await town.watch.look()
        assert town.told == ["seen a", "seen b"]
        assert town.cleared == ["id-a", "id-b", "id-b", "id-b"]

    run(main)


def test_what_a_cluster_does_not_offer_is_said() -> None:
    house, config = RayHouse("id-a", "10.0.0.1", (), lambda: None), parse(CONFIG)
    assert house.notes(config) == ()
    (note,) = house.notes(msgspec.structs.replace(config, later=("research", "support")))
    assert "`queue.later` of research, support has no effect" in english(note)
