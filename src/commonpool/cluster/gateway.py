"""The gateway of one node, as an actor there: the product's data plane with a desk that is elsewhere."""

import asyncio
import secrets
import time
from pathlib import Path
from typing import Any, Final

import psutil
import ray
import structlog
from ray.exceptions import ActorDiedError

from commonpool.app import Clock
from commonpool.backends.discovery import Discovery
from commonpool.backends.ray import strays
from commonpool.cluster.branch import RemoteDesk
from commonpool.cluster.overhearing import Overhearing
from commonpool.cluster.tallies import Tallies
from commonpool.cluster.tracing import Tracing
from commonpool.config.structs import Address, Config, NodeConfig
from commonpool.core.events import HostLoad
from commonpool.core.model import Node
from commonpool.engines import confinement
from commonpool.gateway.identity import Identity, Principal
from commonpool.gateway.server import Gateway
from commonpool.observe import logs
from commonpool.store.contract import Key

CORE: Final = "core"

log = structlog.get_logger()


class CoreActorCalls:
    """The core actor's methods. One that is dead for good, since the next run ended it, is followed by that one's."""

    def __init__(self) -> None:
        self._actor: Any = None

    async def hello(self, hello: bytes) -> bytes:
        return await self._call("hello", hello)

    async def tell(self, batch: bytes) -> bytes:
        return await self._call("tell", batch)

    async def listen(self, gateway: str, session: str, seen: int, within_s: float) -> bytes:
        return await self._call("listen", gateway, session, seen, within_s)

    async def overheard(self, overheard: bytes) -> bytes:
        return await self._call("overheard", overheard)

    async def _call(self, name: str, *args: Any) -> bytes:
        if self._actor is None:
            self._actor = await asyncio.to_thread(ray.get_actor, CORE)
        try:
            answer: bytes = await getattr(self._actor, name).remote(*args)
        except ActorDiedError:
            self._actor = None
            raise
        return answer


class GatewayActor:
    """Serves on `address` from its making on. `name` is the actor's; each process of it is a session of its own."""

    def __init__(self, name: str, address: Address, config: Config) -> None:
        logs.configure("json")
        confinement.keep_to_itself()
        clock = Clock()
        self._clock = clock
        self._session = secrets.token_hex(8)
        self._identity = Identity((), clock)
        core = CoreActorCalls()
        tallies = Tallies(lambda: self._tracing.became)
        self._desk = RemoteDesk(name, self._session, core, self, clock, counted=tallies.take)
        self._tracing = Tracing(config, self._desk.now)
        self._overhearing = Overhearing(core.overheard)
        self._gateway = Gateway(
            config,
            self._desk,
            self._identify,
            clock=self._desk.now,
            monotonic=time.monotonic_ns,
            ready=self._desk.ready,
            limits=self._desk.limits,
            failed=tallies.answered,
            slowed=tallies.slowed,
            listener=self._overhearing,
            traces=self._tracing.begin(),
        )
        self._discovery = Discovery(ours=psutil.pids)  # the node's GPUs are held for the product alone
        self._address = address
        self._listening = asyncio.ensure_future(self._gateway.start(address))
        self._talking = asyncio.ensure_future(self._desk.run())
        self._telling = asyncio.ensure_future(self._overhearing.run())

    # -- what the core actor calls ---------------------------------------------------------------------------------

    async def port(self) -> int:
        """Where it listens; where it could not, it tries again. Raises OSError or TlsError."""
        if self._listening.done() and self._listening.exception() is not None:
            self._listening = asyncio.ensure_future(self._gateway.start(self._address))
        return await self._listening

    async def session(self) -> str:
        return self._session

    async def life(self) -> None:
        """Never returns: the call fails when this process is gone, which is how the core hears of it.

        One that talks with the core no more ends itself, since it would serve nobody; the next look at its node makes
        another.
        """
        await asyncio.wait({self._talking})
        error = None if self._talking.cancelled() else self._talking.exception()
        log.error("a gateway's talk with the core ended; its process ends", exc_info=error)
        ray.actor.exit_actor()  # type: ignore[no-untyped-call]

    async def load(self, node: str) -> HostLoad:
        """How busy this node is since the last time."""
        return await asyncio.to_thread(self._discovery.load, node)

    async def first_token_at(self, request_id: str) -> int:
        """When the first token of the answer to a request that runs here came, by the core's clock; 0: not yet."""
        return self._desk.first_token_at(request_id)

    async def discover(self, node: NodeConfig) -> Node:
        """What this node has, where the configuration does not say it."""
        return await asyncio.to_thread(self._discovery.discover, node)

    async def attempts(self, folder: Path) -> list[strays.Attempt]:
        """The attempts at jobs that run on this node, whoever has started them."""
        return await asyncio.to_thread(strays.running, folder)

    async def end_attempts(self, folder: Path, attempts: list[strays.Attempt]) -> None:
        """End those, and return when they are gone."""
        await asyncio.to_thread(strays.end, folder, attempts)

    async def drain(self, within_ns: int) -> int:
        return await self._gateway.drain(within_ns)

    async def close(self) -> None:
        await self._gateway.close()
        await self._overhearing.tell()

    # -- Branch ----------------------------------------------------------------------------------------------------

    def welcomed(self, config: Config, keys: list[Key]) -> None:
        self._identity = Identity(keys, self._clock)
        self._gateway.reconfigure(config)
        if self._tracing.follow(config):
            self._gateway.trace(self._tracing.begin())

    def reconfigured(self, config: Config) -> None:
        self._gateway.reconfigure(config)

    def key_changed(self, key: Key) -> None:
        self._identity.add(key)

    def log_prompts(self, tenants: frozenset[str]) -> None:
        self._gateway.log_prompts(tenants)

    def _identify(self, authorization: bytes, peer: str | None) -> Principal | None:
        return self._identity.identify(authorization, peer)
