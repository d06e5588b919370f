"""The data plane of a cluster, as the product sees it: a gateway on every node, all of them at one desk."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import ray
import structlog
from ray.exceptions import ActorDiedError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from commonpool.access.tls import TlsError
from commonpool.backends.ray.nodes import RayNode, living
from commonpool.backends.ray.strays import END_S, Attempt
from commonpool.cluster import messages
from commonpool.cluster.counter import Counter, Hall
from commonpool.cluster.gateway import GatewayActor
from commonpool.cluster.messages import (
    Counted,
    Hello,
    KeyChanged,
    Logging,
    Overheard,
    Readiness,
    Reconfigured,
    Welcome,
)
from commonpool.config.structs import Address, Config, NodeConfig
from commonpool.control.nodes import Listening
from commonpool.core.events import HostLoad
from commonpool.core.model import NS_PER_S, Node
from commonpool.gateway.desk import CoreDesk
from commonpool.gateway.identity import Identity
from commonpool.observe import exporting
from commonpool.observe.exporting import Became
from commonpool.observe.exposition import Family
from commonpool.store.contract import Key
from commonpool.store.prompts import Listener

PREFIX: Final = "gateway-"
BACK_S: Final = 5.0  # for gateways of before to say what runs there; they find a new core within a fraction of it
AGAIN_S: Final = 0.2
LISTEN_AGAIN_S: Final = 2.0
ANSWER_S: Final = 10.0
TOKEN_S: Final = 1.0  # for what somebody who looks at a request waits
NOT_YET: Final = "it has not said yet that it listens"

log = structlog.get_logger()


class SharedIdentity(Identity):
    """The keys, which the gateways are told of. The product changes them here alone."""

    def __init__(self, keys: Iterable[Key], clock: Callable[[], int]) -> None:
        self.keys: dict[str, Key] = {}
        self.changed: Callable[[Key], None] = lambda _key: None
        super().__init__(keys, clock)

    def add(self, key: Key) -> None:
        super().add(key)
        if key.revoked_ns is None:
            self.keys[key.key_id] = key
        self.changed(key)

    def revoke(self, key_id: str) -> None:
        super().revoke(key_id)
        key = self.keys.pop(key_id, None)
        if key is not None:
            self.changed(messages.revoked(key))


class Fleet:
    """The gateways of all nodes. `here` is the id of the node that this process is on.

    `doubt` is asked to look at a node whose gateway's process is gone.
    """

    def __init__(
        self,
        config: Config,
        desk: CoreDesk,
        identity: SharedIdentity,
        here: str,
        *,
        clock: Callable[[], int],
        ready: Callable[[], tuple[bool, str]],
        limits: Callable[[str, str, str], bytes],
        failed: Callable[[int, str, int], None],
        slowed: Callable[[str, str, int], None],
        listener: Listener,
        reconfigured: Callable[[], None],
        doubt: Callable[[RayNode], Awaitable[bool]],
    ) -> None:
        self._config = config
        self._identity = identity
        self._here = here
        self._clock = clock
        self._ready = ready
        self._limits = limits
        self._failed = failed
        self._slowed = slowed
        self._traces = Became()
        self._listener = listener
        self._logging: list[str] = []
        self._reconfigured = reconfigured
        self._doubt = doubt
        self._desk = desk
        self._address = config.listen.gateway
        self._readiness = Readiness(*ready())
        self._gateways: dict[str, Any] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._listening: dict[str, Listening] = {}
        self.hall = Hall(self._counter, clock)
        identity.changed = lambda key: self.hall.tell_all(KeyChanged(key))

    # -- what the product asks -------------------------------------------------------------------------------------

    async def start(self, address: Address) -> int:
        """Have a gateway on every node; the port of the one here. Raises OSError or TlsError where it cannot listen."""
        self._address = address
        nodes = await asyncio.to_thread(living)
        before = {name for name in await asyncio.to_thread(ray.util.list_named_actors) if name.startswith(PREFIX)}
        self.hall.expect(before & {_name(node.id) for node in nodes}, BACK_S)
        for node in nodes:
            self.seen(node)
        port: int = await self._gateways[_name(self._here)].port.remote()
        return port

    def reconfigure(self, config: Config) -> None:
        self._config = config
        self.hall.tell_all(Reconfigured(messages.pack_config(config)))
        self._reconfigured()

    def log_prompts(self, tenants: frozenset[str]) -> None:
        self._logging = sorted(tenants)
        self.hall.tell_all(Logging(self._logging))

    async def drain(self, within_ns: int) -> int:
        """Let what waits and runs finish at every gateway; how many were cut."""
        calls = [actor.drain.remote(within_ns) for actor in self._gateways.values()]
        cut = await asyncio.gather(*(_within(call, within_ns / NS_PER_S + ANSWER_S) for call in calls))
        return sum(each or 0 for each in cut)

    async def close(self) -> None:
        """End every gateway."""
        await asyncio.gather(*(_within(actor.close.remote(), ANSWER_S) for actor in self._gateways.values()))
        for name in tuple(self._gateways):
            self._end(name)

    async def loads(self, nodes: Sequence[RayNode]) -> list[HostLoad]:
        """How busy these nodes are, as far as their gateways answer."""
        there = [(node, actor) for node in nodes if (actor := self._gateways.get(_name(node.id))) is not None]
        found = await asyncio.gather(*(_within(actor.load.remote(node.name), ANSWER_S) for node, actor in there))
        return [load for load in found if load is not None]

    def listening(self) -> tuple[Listening, ...]:
        """Where each gateway listens, or why it does not."""
        return tuple(self._listening.values())

    def families(self) -> Iterator[Family]:
        """What is measured of the gateways."""
        if self._config.observe.traces.endpoint is not None:
            yield from exporting.families(self._traces)

    async def first_token_at(self, request_id: str) -> int:
        """When the first token of a request that runs came, by the core's clock; 0: not yet, or it does not answer."""
        actor = self._gateways.get(self.hall.whose(request_id) or "")
        at: int | None = None if actor is None else await _within(actor.first_token_at.remote(request_id), TOKEN_S)
        return at or 0

    async def discover(self, node: RayNode, asked: NodeConfig) -> Node | None:
        """What a node has, where its gateway answers."""
        actor = self._gateways.get(_name(node.id))
        found: Node | None = None if actor is None else await _within(actor.discover.remote(asked), ANSWER_S)
        return found

    async def clear(self, node: RayNode, folder: Path, kept: Callable[[], Collection[Attempt]]) -> bool:
        """End the attempts at jobs that run on a node and are not among those that are kept; False where it is silent.

        `kept` is asked after the node: what has begun by then is known to it.
        """
        actor = self._gateways.get(_name(node.id))
        if actor is None or (there := await _within(actor.attempts.remote(folder), ANSWER_S)) is None:
            return False
        ours = kept()
        strays = [attempt for attempt in there if attempt not in ours]
        if not strays:
            return True
        log.warning("jobs run on a node that were lost with it; they are ended", node=node.name, attempts=strays)
        return await _within(_done(actor.end_attempts.remote(folder, strays)), END_S + ANSWER_S) is not None

    # -- what the cluster says -------------------------------------------------------------------------------------

    def seen(self, node: RayNode) -> None:
        """The node is there: it has a gateway from now on, if it has none."""
        name = _name(node.id)
        if name in self._gateways:
            return
        actor: Any = (
            ray.remote(GatewayActor)
            .options(
                name=name,
                get_if_exists=True,
                lifetime="detached",
                max_restarts=-1,
                num_cpus=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote(name, Address(node.address, self._address.port), self._config)
        )
        self._gateways[name] = actor
        self._listens(name, node, NOT_YET)
        self._watches[name] = asyncio.create_task(self._watch(name, node, actor), name=name)

    def lost(self, node: RayNode) -> None:
        """The node is gone, and its gateway with it."""
        self._end(_name(node.id))

    def tick(self) -> None:
        """Tell the gateways when the product becomes ready, or stops to be."""
        readiness = Readiness(*self._ready())
        if readiness != self._readiness:
            self._readiness = readiness
            self.hall.tell_all(readiness)

    def greet(self, hello: Hello) -> Welcome:
        """A gateway says what it has."""
        self.hall.greet(hello)
        return Welcome(
            self._clock(),
            messages.pack_config(self._config),
            list(self._identity.keys.values()),
            self._readiness,
            self._logging,
        )

    def overheard(self, overheard: Overheard) -> None:
        """What was asked and answered at a gateway, of tenants that keep it."""
        for spoken in overheard.spoken:
            self._listener.hear(spoken)
        for tenant, count in overheard.lost.items():
            self._listener.lose(tenant, count)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _counter(self, hello: Hello) -> Counter:
        return Counter(hello, self._desk, limits=self._limits, counted=self._counted)

    def _counted(self, counted: Counted) -> None:
        """What a gateway has counted is added to what all have."""
        for code, count in counted.answered.items():
            self._failed(0, code, count)
        for tenant, why, count in counted.slowed:
            self._slowed(tenant, why, count)
        self._traces = self._traces.plus(counted.traces)

    def _listens(self, name: str, node: RayNode, problem: str = "") -> None:
        """That the gateway listens, or why it does not."""
        self._listening[name] = Listening(node.name, f"{node.address}:{self._address.port}", problem)

    async def _watch(self, name: str, node: RayNode, actor: Any) -> None:
        """End what a gateway's process had when that is gone; Ray starts the next one."""
        while True:
            session = None
            try:
                session = await actor.session.remote()
                await self._listened(name, node, actor)
                await actor.life.remote()
            except ActorDiedError:  # for good; where the node lives, the next look at it makes another
                self.hall.lost(name)
                del self._gateways[name], self._watches[name], self._listening[name]
                return
            except RayError:
                pass  # its process is gone
            self._listens(name, node, "its process ended, and is started again")
            if session is not None:
                log.warning("a gateway's process ended; its requests are over", node=node.name)
                self.hall.lost(name, session)
            await self._doubt(node)
            await asyncio.sleep(AGAIN_S)

    async def _listened(self, name: str, node: RayNode, actor: Any) -> None:
        """Return when the gateway listens; where it cannot, it is asked again and again to try."""
        said = False
        while True:
            try:
                await actor.port.remote()
            except (OSError, TlsError) as error:
                self._listens(name, node, f"it cannot listen: {_reason(error)}")
                if not said:
                    where = self._listening[name].where
                    log.warning("a gateway cannot listen", node=node.name, where=where, reason=_reason(error))
                said = True
                await asyncio.sleep(LISTEN_AGAIN_S)
            else:
                self._listens(name, node)
                return

    def _end(self, name: str) -> None:
        actor = self._gateways.pop(name, None)
        if actor is None:
            return
        self._watches.pop(name).cancel()
        self._listening.pop(name, None)
        with contextlib.suppress(RayError):
            ray.kill(actor)
        self.hall.lost(name)


def _name(node_id: str) -> str:
    return PREFIX + node_id


def _reason(error: Exception) -> str:
    cause = getattr(error, "cause", error)
    return getattr(cause, "strerror", None) or str(cause)


async def _done(call: Any) -> bool:
    await call
    return True


async def _within(call: Any, seconds: float) -> Any:
    """The call's result, or None where its actor is gone or silent, or has failed."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except RayTaskError as error:
        log.error("a gateway could not do what it was asked", exc_info=error)  # noqa: TRY400 - its own trace
        return None
    except (RayError, TimeoutError):
        return None
