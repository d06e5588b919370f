"""What differs between the product in one process and the product on a Ray cluster (`app.House`)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import structlog

from commonpool.app import jobs_folder
from commonpool.backends.attached import AttachedBackend
from commonpool.backends.jobs import JobBackend, Users
from commonpool.backends.ray.jobs import RayJobs
from commonpool.backends.ray.nodes import Nodes, RayNode, asked, living, to_core
from commonpool.backends.ray.replicas import RayBackend
from commonpool.cluster.fleet import Fleet, SharedIdentity
from commonpool.config.structs import Address, AttachedEngine, Config, EmbeddedEngine, NodeConfig
from commonpool.control.nodes import Listening, Told
from commonpool.control.replicas import Backends
from commonpool.core.events import HostLoad
from commonpool.core.model import Node
from commonpool.core.said import Said, say
from commonpool.gateway.desk import CoreDesk, Soon
from commonpool.gateway.identity import Identity
from commonpool.observe.exposition import Family
from commonpool.store.contract import Key

LOOK_S: Final = 0.5
ASK_S: Final = 5.0

log = structlog.get_logger()


class Gateways(Protocol):
    """What a `RayWatch` needs of the gateways."""

    def seen(self, node: RayNode) -> None:
        """The node is there: it has a gateway from now on."""

    def lost(self, node: RayNode) -> None:
        """The node is gone, and its gateway with it."""

    def tick(self) -> None:
        """A moment has passed."""

    async def discover(self, node: RayNode, asked: NodeConfig) -> Node | None:
        """What a node has, where its gateway answers."""

    async def loads(self, nodes: Sequence[RayNode]) -> list[HostLoad]:
        """How busy these nodes are, as far as their gateways answer."""


class RayHouse:
    """`here` is Ray's id of this process's node, `address` where other nodes reach it; `program` is the engine's.

    `reconfigured` hears of each new policy.
    """

    def __init__(self, here: str, address: str, program: Sequence[str], reconfigured: Callable[[], None]) -> None:
        self._here = here
        self._address = address
        self._program = program
        self._reconfigured = reconfigured
        self._config: Config | None = None
        self._jobs: RayJobs | None = None
        self.nodes_held = Nodes()
        self.adopted = asyncio.Event()  # the core knows the replicas of before
        self.fleet: Fleet | None = None

    def check(self, config: Config) -> None:
        """What a node cannot keep is said when something is to be started there."""

    def backends(self, config: Config) -> Backends:
        self._config = config
        ray = RayBackend(self.nodes_held, config.state / "engines", self._engine_of, program=self._program)
        return {EmbeddedEngine: ray, AttachedEngine: AttachedBackend(destinations=config.outgoing)}

    def jobs(self, config: Config) -> JobBackend:
        self._jobs = RayJobs(self.nodes_held, config.state / "jobs", Users(jobs_folder(config), config.job_users))
        return self._jobs

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
            slowed=options["slowed"],
            listener=options["listener"],
            reconfigured=self._reconfigured,
            doubt=self.nodes_held.doubt,
        )
        return self.fleet

    def nodes(self, config: Config, desk: CoreDesk) -> "RayWatch":
        assert self.fleet is not None  # noqa: S101 - the data plane is made before
        return RayWatch(self.nodes_held, self.fleet, desk, config, adopted=self.adopted, clear=self._clear)

    def soon(self) -> Soon | None:
        """What a gateway's batch brings about is in the reply to it."""

    def gateway(self, address: Address) -> Address:
        """The gateway of this node, which listens on the node's own address."""
        return Address(self._address, address.port)

    def notes(self, config: Config) -> Sequence[Said]:
        """What is kept for later is on the core's node, which gateways elsewhere cannot reach."""
        return (say("note.no_later", tenants=", ".join(config.later)),) if config.later else ()

    def listening(self) -> Sequence[Listening]:
        """The gateways of all nodes."""
        return () if self.fleet is None else self.fleet.listening()

    def families(self) -> Iterable[Family]:
        """What the gateways have told, all together."""
        return () if self.fleet is None else self.fleet.families()

    async def first_token_at(self, desk: CoreDesk, request_id: str) -> int:  # noqa: ARG002 - its gateway knows it
        """Asked of the gateway that the request came to."""
        return 0 if self.fleet is None else await self.fleet.first_token_at(request_id)

    async def recovered(self) -> None:
        assert self.fleet is not None  # noqa: S101 - as above
        await self.fleet.hall.recovered.wait()

    async def _clear(self, node: RayNode) -> bool:
        assert self.fleet is not None  # noqa: S101 - as above
        assert self._jobs is not None  # noqa: S101 - whoever watches nodes has jobs
        return await self.fleet.clear(node, self._jobs.folder, self._jobs.kept)

    def _engine_of(self, model: str) -> str:
        assert self._config is not None  # noqa: S101 - it came with the backends
        deployment = self._config.policy.deployments.get(model)
        return "" if deployment is None else deployment.engine

    def configure(self, config: Config) -> None:
        """What is started from now on is of this configuration."""
        self._config = config


class RayWatch:
    """Tells the desk of Ray's nodes, and sees that each has a gateway.

    `clear(node)` ends the jobs that run on a node and are not the core's, and says whether it could. `living` gives the
    nodes that live now, and blocks.
    """

    def __init__(
        self,
        held: Nodes,
        fleet: Gateways,
        desk: Told,
        config: Config,
        *,
        adopted: asyncio.Event,
        clear: Callable[[RayNode], Awaitable[bool]],
        living: Callable[[], Sequence[RayNode]] = living,
    ) -> None:
        self._held = held
        self._fleet = fleet
        self._desk = desk
        self._config = config
        self._adopted = adopted
        self._clear = clear
        self._living = living
        self._looking = asyncio.Lock()  # what an earlier look found is told before a later one begins
        self._here: dict[str, RayNode] = {}
        self._seen: dict[str, Node] = {}
        self._found: dict[str, Node] = {}  # what was discovered, by Ray's id
        self._cleared: set[str] = set()  # Ray's ids of nodes
        self._said: set[tuple[str, str]] = set()  # of which nodes what was warned of

    async def configure(self, config: Config) -> None:
        self._config = config
        await self._discover_all()
        await self.look()

    async def look(self) -> None:
        """Tell what has changed of the nodes since the last time."""
        async with self._looking:
            found = self._by_name(self._held.believed(await asyncio.to_thread(self._living)))
            for name, node in tuple(self._here.items()):
                if name not in found or found[name].id != node.id:
                    self._gone(node)
            await asyncio.gather(*(self._look_at(node) for node in found.values()))

    async def watch(self) -> None:
        """The product watches as soon as the replicas and jobs of before are known to the core."""
        self._adopted.set()
        await asyncio.gather(
            _again_and_again(self._look_and_tick, LOOK_S),
            _again_and_again(self._ask, ASK_S),  # which may take longer, where a node is silent
        )

    async def _look_and_tick(self) -> None:
        self._fleet.tick()
        await self.look()

    async def _ask(self) -> None:
        """What the nodes have, and how busy they are."""
        await self._discover_all()
        for load in await self._fleet.loads(tuple(self._here.values())):
            if load.node in self._seen:
                self._desk.host_load(load)

    def _by_name(self, living: Sequence[RayNode]) -> dict[str, RayNode]:
        """One node of each name: that which has it already, until it is gone."""
        found: dict[str, RayNode] = {}
        for node in living:
            known = self._here.get(node.name)
            if node.name not in found or (known is not None and known.id == node.id):
                found[node.name] = node
        for node in living:
            if found[node.name] is not node:
                self._warn(node, "another node has the same name; label one of them commonpool-node=NAME")
        return found

    async def _look_at(self, node: RayNode) -> None:
        self._here.setdefault(node.name, node)
        self._fleet.seen(node)
        asked_of = asked(node, self._config)
        if asked_of is None:
            self._warn(node, "a node is of no pool; label it commonpool-pool=NAME")
            if self._seen.pop(node.name, None) is not None:
                self._held.lost(node.name)
                self._desk.node_lost(node.name)
                self._cleared.discard(node.id)  # its jobs are over for the core, though it lives
            await self._is_clear(node)
            return
        if self._held.find(node.name) is None and not await self._held.hold(node):
            return
        if node.id not in self._found:
            await self._discover(node)
        if not await self._is_clear(node):
            self._warn(node, "a node's gateway does not answer, so the node is not used yet")
            return
        known = to_core(node, asked_of, self._found.get(node.id))
        if self._seen.get(node.name) != known:
            self._seen[node.name] = known
            self._desk.node_seen(known)

    async def _discover_all(self) -> None:
        await asyncio.gather(*(self._discover(node) for node in tuple(self._here.values())))

    async def _discover(self, node: RayNode) -> None:
        asked_of = asked(node, self._config)
        if asked_of is not None and asked_of.discover:
            found = await self._fleet.discover(node, asked_of)
            if found is not None:
                self._found[node.id] = found

    async def _is_clear(self, node: RayNode) -> bool:
        """Whether no job runs there that the core does not keep: it may be of before the node was lost."""
        if self._adopted.is_set() and node.id not in self._cleared:
            if not await self._clear(node):
                return False
            self._cleared.add(node.id)
        return True

    def _gone(self, node: RayNode) -> None:
        del self._here[node.name]
        self._found.pop(node.id, None)
        self._cleared.discard(node.id)
        self._said = {said for said in self._said if said[0] != node.id}
        self._held.lost(node.name)
        self._fleet.lost(node)
        if self._seen.pop(node.name, None) is not None:
            log.warning("a node is gone", node=node.name)
            self._desk.node_lost(node.name)

    def _warn(self, node: RayNode, what: str) -> None:
        """Say it once of each node."""
        if (node.id, what) not in self._said:
            self._said.add((node.id, what))
            log.warning(what, node=node.name, ray_node=node.id)


async def _again_and_again(work: Callable[[], Awaitable[None]], every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await work()
        except Exception:
            log.exception("looking at the nodes failed")  # Ray's head may be away for a while
