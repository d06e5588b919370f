"""Ray's nodes: what they have, as the core sees it, and the placement group that takes each one's GPUs."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import ray
import structlog
from ray.exceptions import RayError
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from commonpool.backends.discovery import Discovery
from commonpool.config.nodes import declared
from commonpool.config.structs import Config, NodeConfig
from commonpool.core.model import Device, Node

POOL_LABEL: Final = "commonpool-pool"
NODE_LABEL: Final = "commonpool-node"  # the node's name in the configuration, where it is not Ray's own
MIB: Final = 1024 * 1024
GROUP_S: Final = 5.0  # GPUs that are free are taken at once; those that are not are asked for again
GONE_S: Final = 5.0  # for a look at the nodes to find that one is gone
CONNECT_S: Final = 1.0

log = structlog.get_logger()


class RayNode(msgspec.Struct, frozen=True):
    """A living node of the cluster. `id` is Ray's; `name` is the core's. `port` is where its raylet listens."""

    id: str
    name: str
    address: str
    gpus: int
    cpu_milli: int
    memory_mib: int
    gpu_model: str = ""
    pool: str = ""
    port: int = 0


def living() -> list[RayNode]:
    """The nodes that live now, by name. Asks Ray's head, so it blocks."""
    found = [of_ray(each) for each in ray.nodes() if each["Alive"]]  # type: ignore[no-untyped-call]
    return sorted(found, key=lambda node: (node.name, node.id))


def of_ray(found: dict[str, Any]) -> RayNode:
    """One of `ray.nodes()`."""
    resources: dict[str, float] = found["Resources"]
    labels: dict[str, str] = found.get("Labels") or {}
    model = next((name.partition(":")[2] for name in sorted(resources) if name.startswith("accelerator_type:")), "")
    return RayNode(
        id=found["NodeID"],
        name=labels.get(NODE_LABEL) or found["NodeName"],
        address=found["NodeManagerAddress"],
        gpus=int(resources.get("GPU", 0)),
        cpu_milli=int(1000 * resources.get("CPU", 0)),
        memory_mib=int(resources.get("memory", 0)) // MIB,
        gpu_model=model,
        pool=labels.get(POOL_LABEL, ""),
        port=found["NodeManagerPort"],
    )


def asked(node: RayNode, config: Config) -> NodeConfig | None:
    """What the configuration says of the node, or that it is to be discovered; None where it is of no pool."""
    if known := config.nodes.get(node.name):
        return known
    pools = config.policy.pools
    pool = node.pool or (next(iter(pools)) if len(pools) == 1 else "")
    return NodeConfig(node.name, pool, discover=True) if pool in pools else None


def to_core(node: RayNode, asked: NodeConfig, found: Node | None) -> Node:
    """The node as the core sees it. `found` is what was discovered there, None where nothing was yet.

    Its devices count where there are as many GPUs as Ray counts: those that Ray was not given are none of ours.
    """
    said = declared(asked) if found is None or not asked.discover else found
    if not asked.discover:
        return said
    if len({device.id.rpartition("/")[2].partition(".")[0] for device in said.devices}) != node.gpus:
        model = asked.gpu_model or node.gpu_model
        said = msgspec.structs.replace(
            said,
            devices=tuple(
                Device(f"{node.name}/{at}", model, asked.gpu_memory_mib or 0, healthy=at not in asked.unhealthy)
                for at in range(node.gpus)
            ),
        )
    return msgspec.structs.replace(
        said, cpu_milli=asked.cpu_milli or node.cpu_milli, memory_mib=asked.memory_mib or node.memory_mib
    )


class Nodes:
    """The nodes whose GPUs are the product's, by name; and which nodes are gone though Ray's head believes in them.

    The head gives up on a node after five checks in 15 s. That a node was killed can be known at once: its raylet, with
    which everything of Ray's there ends, refuses connections. So whoever loses something on a node looks at it.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[RayNode, PlacementGroup]] = {}
        self._gone: set[str] = set()  # Ray's ids

    def find(self, name: str) -> tuple[RayNode, PlacementGroup] | None:
        """A node that is held, and the group to put actors into."""
        return self._held.get(name)

    async def hold(self, node: RayNode) -> bool:
        """Take all of its GPUs; False while somebody else uses one of them."""
        group = _group(node)
        if not await asyncio.to_thread(group.wait, GROUP_S):
            log.warning("the GPUs of a node are in use by others, so it is not used yet", node=node.name)
            return False
        self._held[node.name] = (node, group)
        return True

    async def doubt(self, node: RayNode) -> bool:
        """Something on the node is gone: whether all of it is. Of one that is silent that is for Ray to say."""
        if node.id not in self._gone and await _refuses(node):
            self._gone.add(node.id)
        return node.id in self._gone

    def believed(self, living: Sequence[RayNode]) -> list[RayNode]:
        """Those that live, of all those that Ray's head says live."""
        self._gone &= {node.id for node in living}
        return [node for node in living if node.id not in self._gone]

    async def look_again(self, node: RayNode) -> None:
        """Return at once where the node lives, else when it is not held any more, or after a while.

        It is for the order of what is heard alone, so a head that does not answer is no error.
        """
        with contextlib.suppress(TimeoutError, RayError):
            async with asyncio.timeout(GONE_S):
                if not await self.doubt(node) and any(each.id == node.id for each in await asyncio.to_thread(living)):
                    return
                while self._held.get(node.name, (None,))[0] is node:  # noqa: ASYNC110 - whoever looks tells nobody
                    await asyncio.sleep(0.1)

    def lost(self, name: str) -> None:
        """The node is gone, or is not wanted any more."""
        if held := self._held.pop(name, None):
            remove_placement_group(held[1])

    def release(self) -> None:
        """Give every node back."""
        for name in tuple(self._held):
            self.lost(name)


async def _refuses(node: RayNode) -> bool:
    """Whether nobody listens any more where its raylet did."""
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(node.address, node.port)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    writer.close()
    return False


def _group(node: RayNode) -> PlacementGroup:
    """The node's placement group: that of an earlier run, or a new one."""
    name = f"commonpool-{node.id}"
    try:
        found: PlacementGroup = get_placement_group(name)
    except ValueError:
        pass  # there is none yet
    else:
        return found
    bundle = {f"node:{node.address}": 0.001}  # Ray's own resource of each node pins it there
    if node.gpus:
        bundle["GPU"] = node.gpus
    made: PlacementGroup = placement_group([bundle], strategy="STRICT_PACK", name=name, lifetime="detached")
    return made


def release_all() -> None:
    """Give back the GPUs that an earlier run holds."""
    for each in placement_group_table().values():
        if each["name"].startswith("commonpool-") and each["state"] != "REMOVED":
            remove_placement_group(get_placement_group(each["name"]))


def gpus_here() -> int:
    """How many GPUs this machine has."""
    return len(Discovery().discover(NodeConfig("here", "", discover=True)).devices)
