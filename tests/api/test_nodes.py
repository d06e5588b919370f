"""Given a cluster, when the API is asked for it, then nodes, devices and their holders are told."""

import msgspec
from starlette.testclient import TestClient

from commonpool.api.wire import nodes as wire
from commonpool.core.events import NodeSeen
from commonpool.core.model import Device, Node
from tests.api.fakes import NOW, FakeOperations


def test_a_pool_without_nodes_is_counted(local: TestClient) -> None:
    now = msgspec.json.decode(local.get("/admin/v1/nodes").content, type=wire.Nodes)
    assert now.nodes == ()
    assert [(pool.pool, pool.known, pool.capacity_milli_gpu) for pool in now.pools] == [("main", False, 4000)]


def test_nodes_with_their_devices(local: TestClient, product: FakeOperations) -> None:
    product.machine.handle(NodeSeen(Node("n1", "main", (Device("n1/0", "A100", 81920),))), NOW)
    now = msgspec.json.decode(local.get("/admin/v1/nodes").content, type=wire.Nodes)
    (node,) = now.nodes
    assert [(device.id, device.model, device.free_milli_gpu) for device in node.devices] == [("n1/0", "A100", 1000)]
    assert (now.pools[0].known, now.pools[0].free_milli_gpu) == (True, 1000)
