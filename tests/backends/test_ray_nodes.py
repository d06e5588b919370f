"""Given what Ray says of a node, then what the core is told of it."""

from typing import Any

import pytest

pytest.importorskip("ray")

from commonpool.backends.ray.nodes import RayNode, of_ray, to_core
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
    assert of_ray(said()) == RayNode("f00d", "10.0.0.7", "10.0.0.7", 2, 8000, 16384, "H100", "")


def test_labels_name_the_node_and_its_pool() -> None:
    node = of_ray(said(Labels={"commonpool-node": "rack-1", "commonpool-pool": "other"}))
    assert (node.name, node.pool) == ("rack-1", "other")


def test_a_node_without_gpus_has_none() -> None:
    node = of_ray(said(Resources={"CPU": 4.0}, Labels=None))
    assert (node.gpus, node.memory_mib, node.gpu_model) == (0, 0, "")


def test_a_node_belongs_to_the_only_pool() -> None:
    devices = (Device("10.0.0.7/0", "H100"), Device("10.0.0.7/1", "H100"))
    assert to_core(of_ray(said()), one()) == Node("10.0.0.7", "main", devices, 8000, 16384)


@pytest.mark.parametrize(("label", "pool"), [("other", "other"), ("main", "main"), ("", None), ("none", None)])
def test_of_several_pools_the_label_names_one(label: str, pool: str | None) -> None:
    found = to_core(of_ray(said(Labels={"commonpool-pool": label})), two())
    assert (found and found.pool) == pool


def test_what_the_configuration_declares_goes_first() -> None:
    declared = "rack-1: {pool: main, gpus: 4, gpu_memory: 80GiB, unhealthy: [3]}"
    found = to_core(of_ray(said(Labels={"commonpool-node": "rack-1"})), one(declared))
    assert found is not None
    assert [(each.id, each.memory_mib, each.healthy) for each in found.devices] == [
        (f"rack-1/{at}", 81920, at != 3) for at in range(4)
    ]
