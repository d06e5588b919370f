"""The nodes that the configuration names, told to the core: what they are, and how busy they are.

Without another backend every node is this machine, whatever it declares: so its load is the load of all of them, but
for those all of whose devices attached engines have. Those are elsewhere, and nobody knows how busy they are.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
import structlog

from commonpool.config import Config
from commonpool.config.nodes import declared
from commonpool.config.structs import AttachedEngine, NodeConfig
from commonpool.core.events import HostLoad
from commonpool.core.model import NS_PER_S, Node

EVERY_NS = 5 * NS_PER_S
HERE = ""  # the node of replicas that have none

log = structlog.get_logger()


class Told(Protocol):
    """Whoever is told."""

    def node_seen(self, node: Node) -> None:
        """It is there, and is this from now on."""

    def node_lost(self, name: str) -> None:
        """It is gone."""

    def host_load(self, load: HostLoad) -> None:
        """So busy it is."""


class Listening(msgspec.Struct, frozen=True):
    """Where the gateway of a node listens, or `problem`: why it does not, without a full stop."""

    node: str
    where: str
    problem: str = ""


class Nodes:
    """Tells `told` of the nodes of `config`.

    `discover` fills in what the configuration leaves to the machine, `load` says how busy this machine is; both may
    block for a moment, and are called in a thread.
    """

    def __init__(
        self,
        told: Told,
        config: Config,
        *,
        discover: Callable[[NodeConfig], Node],
        load: Callable[[str], HostLoad],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._told = told
        self._nodes = config.nodes
        self._attached = attached(config)
        self._discover = discover
        self._load = load
        self._sleep = sleep
        self._seen: dict[str, Node] = {}
        self._looking = asyncio.Lock()  # what an earlier look found is told before a later one begins

    async def configure(self, config: Config) -> None:
        """These are the nodes from now on."""
        self._nodes = config.nodes
        self._attached = attached(config)
        await self.look()

    async def look(self) -> None:
        """Tell what has changed of the nodes since the last time."""
        async with self._looking:
            found = {name: await self._look_at(node) for name, node in self._nodes.items()}
            for name in [name for name in self._seen if name not in found]:
                del self._seen[name]
                self._told.node_lost(name)
            for name, node in found.items():
                if self._seen.get(name) != node:
                    self._seen[name] = node
                    self._told.node_seen(node)

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._sleep(EVERY_NS / NS_PER_S)
            try:
                await self.look()
                load = await asyncio.to_thread(self._load, HERE)
            except Exception:
                log.exception("looking at the nodes failed")  # a fault of ours must not end the watch
                continue
            for name in (HERE, *(name for name, node in self._seen.items() if not self._elsewhere(node))):
                self._told.host_load(msgspec.structs.replace(load, node=name))

    def _elsewhere(self, node: Node) -> bool:
        """Whether attached engines have all that is there."""
        return bool(node.devices) and all(device.id in self._attached for device in node.devices)

    async def _look_at(self, node: NodeConfig) -> Node:
        return await asyncio.to_thread(self._discover, node) if node.discover else declared(node)


def attached(config: Config) -> frozenset[str]:
    """The devices that attached engines have."""
    engines = (model.engine for model in config.models.values())
    return frozenset(
        device
        for engine in engines
        if isinstance(engine, AttachedEngine)
        for devices in engine.devices
        for device in devices
    )
