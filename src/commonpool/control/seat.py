"""The life of one replica, as the core wants it: started, proved, watched, ended.

What becomes of it is told, and decided elsewhere: a replica that is lost stays lost, and the core starts another one
under another id, so that a late word about one that is gone is never taken for its successor's.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

import msgspec
import structlog

from commonpool.backends import probe
from commonpool.backends.base import Backend, BackendError, Handle
from commonpool.backends.probe import Health
from commonpool.config.structs import Model
from commonpool.control.gauging import Gauged, Gauging
from commonpool.control.held import Held
from commonpool.core.model import NS_PER_S, Replica
from commonpool.engines.base import Target

log = structlog.get_logger()


class State(enum.StrEnum):
    """What a replica is doing."""

    STARTING = "starting"
    READY = "ready"
    UNKNOWN = "unknown"  # it says that it is too busy to say; it keeps its work and gets more for a while
    DRAINING = "draining"  # it gets nothing new; what runs there goes on
    STOPPING = "stopping"


class Timing(msgspec.Struct, frozen=True):
    """When replicas are checked and given up. Lengths in nanoseconds."""

    health_every_ns: int = 2 * NS_PER_S
    health_timeout_ns: int = 5 * NS_PER_S  # an engine on busy cores answers late without being ill
    bad_max: int = 3  # bad health checks in a row until a replica is lost
    busy_max: int = 15  # answers of "too busy" in a row until a replica is lost: half a minute
    gauges_every: int = 5  # good checks from one look at what an engine says of itself to the next: its page is large
    proof_timeout_ns: int = 60 * NS_PER_S  # the first request also warms the engine up
    grace_ns: int = 2 * NS_PER_S  # between asking an engine to end and ending it by force

    @property
    def gauges_fresh_ns(self) -> int:
        """How long what an engine said of itself holds: three looks, and what a slow one takes."""
        return 3 * self.gauges_every * self.health_every_ns + self.health_timeout_ns


class Told(msgspec.Struct, frozen=True):
    """What is told to whoever decides. Called on the event loop.

    ready: it has answered a request; for one that an earlier run started, with what it was started with. lost: nothing
    is left of it, said once; the reason is a sentence, "" when its end was asked for.
    """

    ready: Callable[[Replica, Target, str | None], None]
    lost: Callable[[str, str], None]


class Status(msgspec.Struct, frozen=True):
    """A replica as people see it. `since_ns` is when its state began, `heard_ns` when it last said that it is well.

    `engine` is what it says of itself, None where it never did.
    """

    replica: Replica
    state: State
    since_ns: int
    pid: int | None
    address: str | None
    heard_ns: int = 0
    engine: Gauged | None = None


class Gates:
    """Bounds how many start at once on a node, each node by itself; "" is the node of those that have none.

    The start-up time that the core learns has the wait here in it: that is short, as nodes do not wait for each other.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # A gate is held by those that wait at it or have passed it, and is gone with the last of them.
        self._gates: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._gates)

    def on(self, node: str) -> asyncio.Semaphore:
        """The gate of a node."""
        gate = self._gates.get(node)
        if gate is None:
            gate = self._gates[node] = asyncio.Semaphore(self._most)
        return gate


class World(msgspec.Struct, frozen=True):
    """What all seats share. `sent` is how many sequences run at a target by our own count.

    `outside` says why an engine may not be used where it is, a sentence, or "".
    """

    told: Told
    held: Held
    clock: Callable[[], int]
    sleep: Callable[[float], Awaitable[None]]
    gates: Gates
    sent: Callable[[Target], int]
    timing: Timing = Timing()
    outside: Callable[[Model, Replica, Target], str] = lambda _model, _replica, _target: ""


class Seat:
    """One replica of `model`, its number `index`."""

    def __init__(self, model: Model, index: int, replica: Replica, backend: Backend, world: World) -> None:
        self.replica = replica
        self._model = model
        self._index = index
        self._backend = backend
        self._world = world
        self._state = State.STARTING
        self._since_ns = self._heard_ns = world.clock()
        self._handle: Handle | None = None
        self._life: asyncio.Task[None] | None = None
        self._asked = False
        self._gone = False  # and told
        self._gauging = Gauging(
            clock=world.clock,
            sent=world.sent,
            every=world.timing.gauges_every,
            fresh_ns=world.timing.gauges_fresh_ns,
            timeout_ns=world.timing.health_timeout_ns,
        )

    @property
    def target(self) -> Target | None:
        """How to reach it, as long as there is something of it."""
        return self._handle.target if self._handle else None

    def status(self) -> Status:
        handle = self._handle
        return Status(
            replica=self.replica,
            state=self._state,
            since_ns=self._since_ns,
            pid=handle.pid if handle else None,
            address=handle.target.url if handle else None,
            heard_ns=self._heard_ns,
            engine=self._gauging.last(),
        )

    def begin(self) -> None:
        """Bring the replica up and watch it, until it is lost or `end` is called."""
        self._life = asyncio.create_task(self._live(), name=f"replica {self.replica.id}")

    def resume(self, handle: Handle, engine: str) -> None:
        """Watch a replica that is up already."""
        self._handle = handle
        self._state = State.READY
        self._is_there()
        self._world.told.ready(self.replica, handle.target, engine)
        self._life = asyncio.create_task(self._live(handle), name=f"replica {self.replica.id}")

    async def end(self) -> None:
        """End it; nothing is left of it when this returns."""
        self._asked = True
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait({self._life})
            self._tell_lost("")  # a task that is cancelled before its first step takes none

    # -- life ----------------------------------------------------------------------------------------------------------

    async def _live(self, handle: Handle | None = None) -> None:
        reason = ""
        try:
            reason = await self._watch(await self._bring_up() if handle is None else handle)
        except BackendError as error:
            reason = str(error)
        except asyncio.CancelledError:
            if not self._asked:
                raise
        except Exception:
            log.exception("supervision failed", replica=self.replica.id)  # a fault of ours
            reason = f"The supervision of replica {self.replica.id} failed; the log says how."
        if not self._asked:
            log.warning("replica lost", replica=self.replica.id, state=str(self._state), reason=reason)
        await self._drop()
        self._tell_lost("" if self._asked else reason)

    def _tell_lost(self, reason: str) -> None:
        if not self._gone:
            self._gone = True
            self._world.told.lost(self.replica.id, reason)

    async def _bring_up(self) -> Handle:
        """Start it and announce it once it has answered a request. Raises BackendError."""
        timing = self._world.timing
        gate = self._world.gates.on(self.replica.node)
        async with gate:
            self._is_there()
            self._handle = handle = await self._backend.start(self._model, self._index, self.replica)
            if why := self._world.outside(self._model, self.replica, handle.target):
                raise BackendError(why)
            health, reason = await probe.health(handle.target, timing.health_timeout_ns)
            if health is not Health.GOOD:
                raise BackendError(reason)
            await probe.prove(handle.target, timing.proof_timeout_ns)
            self._heard_ns = self._world.clock()
        self._enter(State.READY)
        self._world.told.ready(self.replica, handle.target, None)
        return handle

    async def _watch(self, handle: Handle) -> str:
        """Return, with the reason, when it is lost."""
        timing = self._world.timing
        gone = asyncio.ensure_future(handle.wait())
        bad = busy = 0
        try:
            while True:
                pause = asyncio.ensure_future(self._world.sleep(timing.health_every_ns / NS_PER_S))
                await _first(gone, pause)
                if gone.done():
                    return gone.result()
                check = asyncio.ensure_future(probe.health(handle.target, timing.health_timeout_ns))
                await _first(gone, check)
                if gone.done():
                    return gone.result()
                health, reason = check.result()
                bad = bad + 1 if health is Health.BAD else 0
                busy = busy + 1 if health is Health.UNKNOWN else 0
                if health is Health.GOOD:
                    self._heard_ns = self._world.clock()
                    self._gauging.checked(handle.target)
                if bad >= timing.bad_max or busy >= timing.busy_max:
                    return reason
                if health is Health.GOOD and self._state is State.UNKNOWN:
                    self._enter(State.READY)
                elif busy >= timing.bad_max and self._state is State.READY:
                    self._enter(State.UNKNOWN)
        finally:
            gone.cancel()
            self._gauging.end()

    async def _drop(self) -> None:
        """End the engine, whatever comes between."""
        self._enter(State.STOPPING)
        if self._handle is not None:
            await self._stop(self._handle)
        self._world.held.ended(self.replica.id, self._world.clock())

    async def _stop(self, handle: Handle) -> None:
        stopping = asyncio.ensure_future(handle.stop(self._world.timing.grace_ns))
        while not stopping.done():
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError:
                self._asked = True
        self._handle = None

    def _is_there(self) -> None:
        """Something of it is on its devices from now on."""
        replica = self.replica
        self._world.held.began(replica.id, self._model.pool, replica.model, replica.milli_gpu, self._world.clock())

    def _enter(self, state: State) -> None:
        if state is self._state:
            return
        self._state = state
        self._since_ns = self._world.clock()
        log.info("replica state", replica=self.replica.id, state=str(state))


async def _first(gone: "asyncio.Future[Any]", work: "asyncio.Future[Any]") -> None:
    """Wait for either; `work` is cancelled when it is not the one, or when we are."""
    try:
        await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        work.cancel()
