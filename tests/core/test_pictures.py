"""Given nodes with replicas and jobs, when they are looked at, then it is seen who has what, and what is free."""

from typing import Any

from commonpool.core import pictures
from commonpool.core.events import DeviceLoad, HostLoad, NodeLost, NodeSeen
from commonpool.core.model import Deployment, Device, Hardware, Node, Scaling, Share, Window
from commonpool.core.pictures import HolderView, PoolDevices, ResourceUse, TenantJobs
from tests.core.worlds import S, World, policy, tenant

GIB = 1024


def node(name: str, **more: Any) -> Node:
    devices = (
        Device(f"{name}/0", "A100", 80 * GIB, taken_mib=GIB),
        Device(f"{name}/1", "A100", 80 * GIB, healthy=False),
        Device(f"{name}/2"),
    )
    return Node(name, "main", devices, **more)


def world(**more: Any) -> World:
    scaling = Scaling(replicas_min=1, replicas_max=1)
    hardware = Hardware(milli_gpu=500, memory_mib=40 * GIB)
    deployment = Deployment("m", "1", "main", 500, 4, 4000, 1000, hardware=hardware, scaling=scaling)
    return World(policy(tenant("a", 2000), deployments={"m": deployment}, **more), replicas=0)


def test_devices_and_who_has_them() -> None:
    here = world()
    here.send(NodeSeen(node("n1")))
    here.tick()
    here.submit("j1", "a", 250, hardware=Hardware(milli_gpu=250, memory_mib=10 * GIB))
    (seen,) = pictures.nodes(here.machine.state, here.now)
    first, second, third = seen.devices
    shared = next(device for device in (first, third) if device.holders)
    assert shared is first
    assert first.holders[0] == HolderView("m-0.1", "m", "a", 500, 40 * GIB)  # only a may use it
    assert first.holders[1] == HolderView("j1", "", "a", 250, 10 * GIB)
    assert (first.free_milli_gpu, first.free_memory_mib) == (250, 29 * GIB)
    assert (second.healthy, second.free_milli_gpu, second.free_memory_mib) == (False, 1000, 80 * GIB)
    assert (third.free_milli_gpu, third.free_memory_mib) == (1000, None)
    (pool,) = pictures.devices(here.machine.state)
    assert pool == PoolDevices("main", True, 2000, 1250, here.machine.state.inventories["main"].fragmented)


def test_what_the_hardware_of_a_device_says_and_what_it_does_not() -> None:
    here = world()
    here.send(NodeSeen(Node("n1", "main", (Device("n1/0"), Device("n1/1.0"), Device("n1/2")))))
    here.send(HostLoad("n1", 0, 0, devices=(DeviceLoad("0", 830, 2), DeviceLoad("1.0", None, 1))))
    here.send(HostLoad("n2", 0, 0, devices=(DeviceLoad("2", 990, 9),)))
    (seen,) = pictures.nodes(here.machine.state, 0)
    assert [(each.busy, each.used_memory_mib) for each in seen.devices] == [(830, 2), (None, 1), (None, None)]


def test_what_a_node_says_of_itself() -> None:
    here = world()
    past, near, far = Window(0, 5), Window(20, 30), Window(40, 50)
    here.now = 10
    here.send(NodeSeen(node("n1", windows=(past, far, near), driver="570", runtimes=("cuda-12",), cpu_milli=8000)))
    here.send(HostLoad("n1", 910, 200, 30))
    (seen,) = pictures.nodes(here.machine.state, 10)
    assert (seen.window, seen.driver, seen.runtimes, seen.cpu_milli) == (near, "570", ("cuda-12",), 8000)
    assert seen.load == HostLoad("n1", 910, 200, 30)
    assert pictures.nodes(here.machine.state, 25)[0].window == near
    assert pictures.nodes(here.machine.state, 30)[0].window == far


def test_a_node_that_is_gone_is_not_shown_and_a_pool_without_nodes_is_counted() -> None:
    here = world()
    assert pictures.nodes(here.machine.state, 0) == ()
    assert pictures.devices(here.machine.state) == (PoolDevices("main", False, 4000, 4000, 0),)
    here.send(NodeSeen(node("n1")))
    here.send(NodeLost("n1"))
    assert pictures.nodes(here.machine.state, 0) == ()
    assert pictures.devices(here.machine.state)[0].capacity_milli_gpu == 0


def test_jobs_by_tenant() -> None:
    here = World(policy(tenant("a", 2000, elastic_cap=2000), tenant("b", 2000)), replicas=0)
    for number in range(3):
        here.submit(f"j{number}", "a", 1000)
    assert pictures.jobs(here.machine.state) == (TenantJobs("a", 1, 2000),)
    here.finish("j0")
    assert pictures.jobs(here.machine.state) == (TenantJobs("a", 0, 2000),)


def test_other_resources_by_pool_and_tenant() -> None:
    shares = {"cpu_milli": Share(6000, 7000)}
    here = World(
        policy(tenant("a", 2000, resources=shares), tenant("b", 1000), resources={"cpu_milli": 8000}), replicas=0
    )
    here.submit("j", "a", 1000, resources={"cpu_milli": 5000}, expected_ns=S)
    assert pictures.resources(here.machine.state) == (
        ResourceUse("main", "cpu_milli", "", 8000, 5000, 8000),
        ResourceUse("main", "cpu_milli", "a", 6000, 5000, 7000),
    )
