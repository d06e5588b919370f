"""What differs between the product in one process and the product on a Ray cluster (`app.House`)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from commonpool.backends.attached import AttachedBackend
from commonpool.backends.jobs import JobBackend
from commonpool.backends.ray.jobs import RayJobs
from commonpool.backends.ray.nodes import Nodes, RayNode, living, to_core
from commonpool.backends.ray.replicas import RayBackend
from commonpool.cluster.fleet import Fleet, SharedIdentity
from commonpool.config.structs import AttachedEngine, Config, EmbeddedEngine
from commonpool.control.replicas import Backends
from commonpool.core.model import Node
from commonpool.gateway.desk import CoreDesk
from commonpool.gateway.identity import Identity
from commonpool.store.contract import Key

LOOK_S: Final = 0.5
LOADS_EVERY: Final = 10  # looks

log = structlog.get_logger()


class RayHouse:
    """`here` is Ray's id of this process's node; `program` is the engine's. `reconfigured` hears of each new policy."""

    def __init__(self, here: str, program: Sequence[str], reconfigured: Callable[[], None]) -> None:
        self._here = here
        self._program = program
        self._reconfigured = reconfigured
        self._config: Config | None = None
        self.nodes_held = Nodes()
        self.adopted = asyncio.Event()  # the core knows the replicas of before
        self.fleet: Fleet | None = None

    def backends(self, config: Config) -> Backends:
        self._config = config
        ray = RayBackend(self.nodes_held, config.state / "engines", self._engine_of, program=self._program)
        return {EmbeddedEngine: ray, AttachedEngine: AttachedBackend()}

    def jobs(self, config: Config) -> JobBackend:
        return RayJobs(self.nodes_held, config.state / "jobs")

    def identity(self, keys: Sequence[Key], clock: Callable[[], int]) -> Identity:
        return SharedIdentity(keys, clock)

    def data_plane(self, config: Config, desk: CoreDesk, identity: Identity, **options: Any) -> Fleet:
        assert isinstance(identity, SharedIdentity)  # noqa: S101 - it is ours
        self.fleet = Fleet(
            config,
            desk,
            identity,
            self._here,
            clock=options["clock"],
            ready=options["ready"],
            limits=options["limits"],
            failed=options["failed"],
            reconfigured=self._reconfigured,
        )
        return self.fleet

    def nodes(self, config: Config, desk: CoreDesk) -> "RayWatch":
        assert self.fleet is not None  # noqa: S101 - the data plane is made before
        return RayWatch(self.nodes_held, self.fleet, desk, config, self.adopted)

    def _engine_of(self, model: str) -> str:
        assert self._config is not None  # noqa: S101 - it came with the backends
        deployment = self._config.policy.deployments.get(model)
        return "" if deployment is None else deployment.engine

    def configure(self, config: Config) -> None:
        """What is started from now on is of this configuration."""
        self._config = config


class RayWatch:
    """Tells the desk of Ray's nodes, and sees that each has a gateway."""

    def __init__(self, held: Nodes, fleet: Fleet, desk: CoreDesk, config: Config, adopted: asyncio.Event) -> None:
        self._held = held
        self._fleet = fleet
        self._desk = desk
        self._config = config
        self._adopted = adopted
        self._here: dict[str, RayNode] = {}
        self._seen: dict[str, Node] = {}
        self._strangers: set[str] = set()

    async def configure(self, config: Config) -> None:
        self._config = config
        await self.look()

    async def look(self) -> None:
        found = {node.name: node for node in await asyncio.to_thread(living)}
        for name, node in tuple(self._here.items()):
            if name not in found or found[name].id != node.id:
                self._lost(node)
        await asyncio.gather(*(self._look_at(node) for node in found.values()))

    async def watch(self) -> None:
        """The product watches as soon as the replicas of before are known to the core."""
        self._adopted.set()
        looks = 0
        while True:
            await asyncio.sleep(LOOK_S)
            looks += 1
            self._fleet.tick()
            try:
                await self.look()
                if looks % LOADS_EVERY == 0:
                    await self._tell_loads()
            except Exception:
                log.exception("looking at the nodes failed")  # Ray's head may be away for a while

    async def _look_at(self, node: RayNode) -> None:
        if node.name not in self._here:
            self._here[node.name] = node
        self._fleet.seen(node)
        known = to_core(node, self._config)
        if known is None:
            if node.name not in self._strangers:
                self._strangers.add(node.name)
                log.warning("a node is of no pool; label it commonpool-pool=NAME", node=node.name)
            return
        if self._held.find(node.name) is None and not await self._held.hold(node):
            return
        if self._seen.get(node.name) != known and self._here.get(node.name) is node:
            self._seen[node.name] = known
            self._desk.node_seen(known)

    def _lost(self, node: RayNode) -> None:
        del self._here[node.name]
        self._strangers.discard(node.name)
        self._held.lost(node.name)
        self._fleet.lost(node)
        if self._seen.pop(node.name, None) is not None:
            log.warning("a node is gone", node=node.name)
            self._desk.node_lost(node.name)

    async def _tell_loads(self) -> None:
        for load in await self._fleet.loads(tuple(self._here.values())):
            if load.node in self._seen:
                self._desk.host_load(load)
