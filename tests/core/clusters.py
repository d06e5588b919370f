"""Worlds whose replicas are the core's to start and to end, and whose nodes are known."""

from typing import Any

import msgspec

from commonpool.core.devices import Devices
from commonpool.core.effects import Effect, StartReplica, StopReplica
from commonpool.core.events import Event, NodeLost, NodeSeen, ReplicaLost, ReplicaReady
from commonpool.core.machine import Machine
from commonpool.core.model import Deployment, Device, Node, Policy, Replica, Scaling, Tenant
from commonpool.core.sites import Serving
from tests.core.worlds import CONTEXT, SLOTS, S, World, policy

__all__ = [
    "Cluster",
    "S",
    "deployment",
    "devices",
    "held",
    "node",
    "over_committed",
    "placed",
    "rules",
    "starts",
    "stops",
]


def deployment(name: str = "m", replicas: int = 1, most: int = 0, **more: Any) -> Deployment:
    """A model with so many replicas, or up to `most`; each has 4 slots on 2 GPUs unless it is said."""
    fields: dict[str, Any] = {"version": "1", "pool": "main", "milli_gpu": 2000, "slots": SLOTS}
    names = ("residency", "idle_ns", "start_deadline_ns")
    scaling = {key: more.pop(key) for key in names if key in more}
    fields |= {"kv_tokens": SLOTS * CONTEXT, "context_tokens": CONTEXT, "engine": "one"}
    fields["scaling"] = Scaling(replicas, max(most, replicas), **scaling)
    return Deployment(model=name, **(fields | more))


def rules(*tenants: Tenant, models: tuple[Deployment, ...] = (), **more: Any) -> Policy:
    """As `policy`, with these models."""
    return policy(*tenants, deployments={model.model: model for model in models}, **more)


def placed(*tenants: Tenant, **more: Any) -> Policy:
    """As `rules`, in a pool whose GPUs lie on nodes that are known."""
    isolation = more.pop("isolation", "shared")
    made = rules(*tenants, **more)
    pool = msgspec.structs.replace(made.pools["main"], placed=True, isolation=isolation)
    return msgspec.structs.replace(made, pools={"main": pool})


def devices(of: str, count: int, **more: Any) -> tuple[Device, ...]:
    return tuple(Device(f"{of}/{at}", **more) for at in range(count))


def node(name: str, gpus: int | tuple[Device, ...] = 2, **more: Any) -> Node:
    return Node(name, more.pop("pool", "main"), gpus if isinstance(gpus, tuple) else devices(name, gpus), **more)


class Cluster(World):
    """`starting` are the replicas that were to be started and neither came up nor were lost, `up` those that are.

    Where nodes are given they were seen, and a first tick has passed.
    """

    def __init__(self, wanted: Policy, *nodes: Node) -> None:
        self.starting: dict[str, Replica] = {}
        self.up: dict[str, Replica] = {}
        super().__init__(wanted, replicas=0)
        for each in nodes:
            self.see(each)
        if nodes:
            self.tick()

    def send(self, event: Event) -> list[Effect]:
        if isinstance(event, ReplicaLost):
            self.starting.pop(event.replica_id, None)
            self.up.pop(event.replica_id, None)
        elif isinstance(event, ReplicaReady):
            self.starting.pop(event.replica.id, None)
            self.up[event.replica.id] = event.replica
        effects = super().send(event)
        for effect in effects:
            if isinstance(effect, StartReplica):
                self.starting[effect.replica.id] = effect.replica
        return effects

    def see(self, it: Node) -> list[Effect]:
        return self.send(NodeSeen(it))

    def lose(self, name: str) -> list[Effect]:
        return self.send(NodeLost(name))

    def comes(self, replica_id: str) -> list[Effect]:
        """What was to be started is ready."""
        return self.send(ReplicaReady(self.starting[replica_id]))

    def goes(self, replica_id: str, reason: str = "") -> list[Effect]:
        """It is lost; without a reason because it was asked to end."""
        return self.send(ReplicaLost(replica_id, reason))

    def later(self, seconds: float) -> "Cluster":
        super().later(seconds)
        return self

    def begin(self) -> "Cluster":
        """Everything that is wanted is up."""
        self.tick()
        while self.starting:
            self.comes(next(iter(self.starting)))
        return self

    def site(self, model: str = "m") -> Serving:
        return self.machine.state.sites[model]

    @property
    def bare(self) -> Devices:
        """The devices of the pool as jobs see them."""
        return self.machine.state.devices["main"]


def starts(effects: list[Effect]) -> list[str]:
    return [effect.replica.id for effect in effects if isinstance(effect, StartReplica)]


def stops(effects: list[Effect]) -> list[str]:
    return [effect.replica_id for effect in effects if isinstance(effect, StopReplica)]


def held(machine: Machine, holder: str, pool: str = "main") -> tuple[str, ...]:
    """The devices that a job or replica has."""
    found = machine.state.inventories[pool].held(holder)
    return () if found is None else found.devices


def over_committed(machine: Machine) -> list[str]:
    """The devices of which more is held than they have, in milli_gpu or memory."""
    found = []
    for inventory in machine.state.inventories.values():
        for device in inventory.devices():
            parts = inventory.holders(device.id).values()
            milli = sum(part.milli_gpu for part in parts)
            mib = sum(part.memory_mib for part in parts)
            if milli > device.milli_gpu or (device.memory_mib and mib > device.memory_mib - device.taken_mib):
                found.append(device.id)
    return found
