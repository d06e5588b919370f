"""Pictures of nodes and devices for people: who has them, what is free where, what jobs take. They change nothing."""

import msgspec

from commonpool.core.events import DeviceLoad, HostLoad
from commonpool.core.hosts import Part
from commonpool.core.inventory import Inventory
from commonpool.core.model import Device, Isolation, Node, Window
from commonpool.core.state import State
from commonpool.core.tree import Counted


class HolderView(msgspec.Struct, frozen=True):
    """Who has what of a device: a replica of `model`, or a job (`model` "").

    `tenant` is whose it is, "" for a replica that several tenants may use.
    """

    id: str
    model: str
    tenant: str
    milli_gpu: int
    memory_mib: int


class DeviceView(msgspec.Struct, frozen=True):
    """A device now. `free_memory_mib` is None where its memory is not known.

    What is free falls below zero where more is held than is there, as after a device was cut into smaller ones. `busy`
    (thousandths of the time) and `used_memory_mib` are what its hardware says, None where it does not.
    """

    id: str
    model: str
    profile: str
    island: str
    healthy: bool
    milli_gpu: int
    free_milli_gpu: int
    memory_mib: int
    free_memory_mib: int | None
    holders: tuple[HolderView, ...]
    busy: int | None = None
    used_memory_mib: int | None = None


class NodeView(msgspec.Struct, frozen=True):
    """A node now. `window` is the maintenance that is on, or the next one; `load` how busy the node itself is."""

    name: str
    pool: str
    isolation: Isolation
    runtimes: tuple[str, ...]
    driver: str
    cpu_milli: int
    memory_mib: int
    load: HostLoad | None
    window: Window | None
    devices: tuple[DeviceView, ...]


class PoolDevices(msgspec.Struct, frozen=True):
    """The devices of a pool now. Without `known` nodes its GPUs are only counted.

    `fragmented_milli_gpu` is the part of what is free that is expected to be of no use to what is asked for.
    """

    pool: str
    known: bool
    capacity_milli_gpu: int
    free_milli_gpu: int
    fragmented_milli_gpu: int


class TenantJobs(msgspec.Struct, frozen=True):
    """How many jobs of a tenant wait, and the milli_gpu that those hold which run."""

    tenant: str
    waiting: int
    running_milli_gpu: int


class ResourceUse(msgspec.Struct, frozen=True):
    """The use of another resource than GPUs, in its own unit, by a tenant, or by a whole pool (`tenant` "").

    `guaranteed` is the tenant's, of a pool what is guaranteed to all its tenants together; `most` is what it may use.
    """

    pool: str
    resource: Counted
    tenant: str
    guaranteed: int
    used: int
    most: int


def nodes(state: State, now: int) -> tuple[NodeView, ...]:
    """The nodes that are there, by pool, in the order in which they came."""
    models = _models(state)
    return tuple(
        _node(state, inventory, node, models, now)
        for inventory in state.inventories.values()
        for node in inventory.nodes()
    )


def devices(state: State) -> tuple[PoolDevices, ...]:
    """What is there and what is free, of every pool of the policy."""
    return tuple(_pool(state, pool) for pool in state.policy.pools)


def jobs(state: State) -> tuple[TenantJobs, ...]:
    """The tenants with jobs, in the order of the policy."""
    found = []
    for name, tenant in state.policy.tenants.items():
        flow = state.devices[tenant.pool].line.flows.get(name)
        waiting = flow.length if flow is not None else 0
        running = state.accounts[name].by_jobs
        if waiting or running:
            found.append(TenantJobs(name, waiting, running))
    return tuple(found)


def resources(state: State) -> tuple[ResourceUse, ...]:
    """The use of the other resources that pools count: each pool's, then those of its tenants that use some."""
    found = []
    for pool in state.policy.pools:
        for resource, quota in state.others[pool].items():
            promised = quota.capacity - quota.unowned
            found.append(ResourceUse(pool, resource, "", promised, quota.use, quota.capacity))
            found += [
                ResourceUse(pool, resource, name, node.guaranteed, node.use, node.cap)
                for name, node in quota.tenants.items()
                if node.use
            ]
    return tuple(found)


def _models(state: State) -> dict[str, str]:
    """The model of each replica."""
    found = {}
    for name, site in state.sites.items():
        for replica_id in (*site.replicas, *site.crew.starting):
            found[replica_id] = name
    return found


def _pool(state: State, pool: str) -> PoolDevices:
    inventory = state.inventories.get(pool)
    if inventory is None:
        counted = state.devices[pool]
        return PoolDevices(pool, False, counted.quota.capacity, counted.free, 0)
    return PoolDevices(pool, True, inventory.capacity, inventory.free, inventory.fragmented)


def _node(state: State, inventory: Inventory, node: Node, models: dict[str, str], now: int) -> NodeView:
    load = state.hosts.get(node.name)
    loads = {} if load is None else {f"{node.name}/{each.device}": each for each in load.devices}
    return NodeView(
        name=node.name,
        pool=inventory.pool,
        isolation=node.isolation,
        runtimes=node.runtimes,
        driver=node.driver,
        cpu_milli=node.cpu_milli,
        memory_mib=node.memory_mib,
        load=load,
        window=min((each for each in node.windows if now < each.end_ns), key=_start, default=None),
        devices=tuple(_device(each, inventory.holders(each.id), models, loads.get(each.id)) for each in node.devices),
    )


def _start(window: Window) -> int:
    return window.start_ns


def _device(device: Device, parts: dict[str, Part], models: dict[str, str], load: DeviceLoad | None) -> DeviceView:
    free_mib = device.memory_mib - device.taken_mib - sum(part.memory_mib for part in parts.values())
    return DeviceView(
        id=device.id,
        model=device.model,
        profile=device.profile,
        island=device.island,
        healthy=device.healthy,
        milli_gpu=device.milli_gpu,
        free_milli_gpu=device.milli_gpu - sum(part.milli_gpu for part in parts.values()),
        memory_mib=device.memory_mib,
        free_memory_mib=free_mib if device.memory_mib else None,
        holders=tuple(
            HolderView(holder, models.get(holder, ""), part.owner, part.milli_gpu, part.memory_mib)
            for holder, part in parts.items()
        ),
        busy=None if load is None else load.busy,
        used_memory_mib=None if load is None else load.used_mib,
    )
