"""Given what Ray says of a node, then what the core is told of it."""

import asyncio
import socket
from typing import Any

import msgspec
import pytest

pytest.importorskip("ray")

from commonpool.backends.ray.nodes import Nodes, RayNode, asked, of_ray, to_core
from commonpool.config import Config, parse
from commonpool.core.model import Device, Node

CONFIG = """
pools: {{{pools}}}
nodes: {{{nodes}}}
models:
  m: {{version: "1", pool: main, gpu: 1_gpu, slots: 1, context: 1Ki, engine: {{kind: embedded, file: m.gguf}}}}
prices: {{currency: EUR, gpu_hour: {{{prices}}}}}
tenants: {{support: {{tenant: {{pool: main, guaranteed: 3_gpu}}}}}}
"""


def one(nodes: str = "", gpus: int = 4) -> Config:
    return parse(CONFIG.format(pools=f"main: {{gpus: {gpus}_gpu}}", prices="main: 2", nodes=nodes))


def two() -> Config:
    pools = "main: {gpus: 4_gpu}, other: {gpus: 1_gpu}"
    return parse(CONFIG.format(pools=pools, prices="main: 2, other: 1", nodes=""))


def said(**changes: Any) -> dict[str, Any]:
    return {
        "NodeID": "f00d",
        "Alive": True,
        "NodeManagerAddress": "10.0.0.7",
        "NodeManagerPort": 41559,
        "NodeName": "10.0.0.7",
        "Resources": {
            "GPU": 2.0,
            "CPU": 8.0,
            "memory": 16.0 * 2**30,
            "accelerator_type:H100": 1.0,
            "node:10.0.0.7": 1.0,
        },
        "Labels": {"ray.io/node-id": "f00d"},
    } | changes


def test_what_ray_counts_is_read() -> None:
    assert of_ray(said()) == RayNode("f00d", "10.0.0.7", "10.0.0.7", 2, 8000, 16384, "H100", "", 41559)


def test_labels_name_the_node_and_its_pool() -> None:
    node = of_ray(said(Labels={"commonpool-node": "rack-1", "commonpool-pool": "other"}))
    assert (node.name, node.pool) == ("rack-1", "other")


def test_a_node_without_gpus_has_none() -> None:
    node = of_ray(said(Resources={"CPU": 4.0}, Labels=None))
    assert (node.gpus, node.memory_mib, node.gpu_model) == (0, 0, "")


def core_sees(node: RayNode, config: Config, found: Node | None = None) -> Node | None:
    said = asked(node, config)
    return None if said is None else to_core(node, said, found)


def test_a_node_belongs_to_the_only_pool() -> None:
    devices = (Device("10.0.0.7/0", "H100"), Device("10.0.0.7/1", "H100"))
    assert core_sees(of_ray(said()), one()) == Node("10.0.0.7", "main", devices, 8000, 16384)


@pytest.mark.parametrize(("label", "pool"), [("other", "other"), ("main", "main"), ("", None), ("none", None)])
def test_of_several_pools_the_label_names_one(label: str, pool: str | None) -> None:
    found = core_sees(of_ray(said(Labels={"commonpool-pool": label})), two())
    assert (found and found.pool) == pool


def test_what_the_configuration_declares_goes_first() -> None:
    declared = "rack-1: {pool: main, gpus: 4, gpu_memory: 80GiB, unhealthy: [3]}"
    found = core_sees(of_ray(said(Labels={"commonpool-node": "rack-1"})), one(declared))
    assert found is not None
    assert [(each.id, each.memory_mib, each.healthy) for each in found.devices] == [
        (f"rack-1/{at}", 81920, at != 3) for at in range(4)
    ]


def test_devices_that_were_discovered_count_where_ray_counts_as_many() -> None:
    slices = tuple(Device(f"10.0.0.7/{at}", "H100", 9856, 142, "1g.10gb") for at in ("0.0", "0.1", "1.0"))
    found = Node("10.0.0.7", "main", slices, 64_000, 999_999, driver="550.54")
    seen = core_sees(of_ray(said()), one(), found)
    assert seen == Node("10.0.0.7", "main", slices, 8000, 16384, driver="550.54")
    fewer = core_sees(of_ray(said(Resources={"GPU": 1.0})), one(), found)
    assert fewer is not None
    assert (fewer.devices, fewer.driver) == ((Device("10.0.0.7/0"),), "550.54")


def test_of_a_node_that_is_to_be_discovered_what_is_declared_goes_first() -> None:
    declared = "rack-1: {pool: main, discover: true, gpu_model: H200, gpu_memory: 141GiB, unhealthy: [1], memory: 1GiB}"
    found = core_sees(of_ray(said(Labels={"commonpool-node": "rack-1"})), one(declared))
    assert found is not None
    assert found.memory_mib == 1024
    assert [(each.model, each.memory_mib, each.healthy) for each in found.devices] == [
        ("H200", 144_384, True),
        ("H200", 144_384, False),
    ]


def test_a_node_whose_raylet_is_gone_is_gone_whatever_rays_head_says() -> None:
    async def main() -> None:
        nodes = Nodes()
        with socket.create_server(("127.0.0.1", 0)) as raylet:
            node = RayNode("id-a", "a", "127.0.0.1", 1, 1, 1, port=raylet.getsockname()[1])
            assert not await nodes.doubt(node)
            assert nodes.believed([node]) == [node]
        assert nodes.believed([node]) == [node]  # nobody has looked
        assert await nodes.doubt(node)
        again = msgspec.structs.replace(node, id="id-a2")
        assert nodes.believed([node, again]) == [again]
        assert nodes.believed([again]) == [again]

    asyncio.run(main())


def test_of_a_node_that_is_silent_nothing_is_known() -> None:
    async def main() -> None:
        nodes = Nodes()
        node = RayNode("id-a", "a", "255.255.255.255", 1, 1, 1, port=1)
        assert not await nodes.doubt(node)
        assert nodes.believed([node]) == [node]

    asyncio.run(main())
