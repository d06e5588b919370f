"""The life of one replica: started, proved, watched, replaced when it is lost, drained when it is not wanted.

A seat is the place of one replica of a model. Whoever sits there has an id of its own, `<model>-<seat>.<incarnation>`,
so that a late word about one that is gone is never taken for its successor's.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog

from commonpool.backends import probe
from commonpool.backends.base import Backend, BackendError, Handle
from commonpool.backends.probe import Health
from commonpool.config.structs import Model
from commonpool.core.model import NS_PER_S, Replica
from commonpool.engines.base import Target

NS_PER_MS = 1_000_000

log = structlog.get_logger()


class State(enum.StrEnum):
    """What a replica is doing."""

    STARTING = "starting"
    READY = "ready"
    UNKNOWN = "unknown"  # it says that it is too busy to say; it keeps its work and gets more for a while
    DRAINING = "draining"
    BACKING_OFF = "backing_off"  # lost, and waiting for its next start
    FAILED = "failed"  # never came up; tried again now and then
    GONE = "gone"  # closed; nothing is left of it


class Timing(msgspec.Struct, frozen=True):
    """When replicas are checked, given up and started again. Lengths in nanoseconds."""

    health_every_ns: int = 2 * NS_PER_S
    health_timeout_ns: int = 5 * NS_PER_S  # an engine on busy cores answers late without being ill
    bad_max: int = 3  # bad health checks in a row until a replica is lost
    busy_max: int = 15  # answers of "too busy" in a row until a replica is lost: half a minute
    proof_timeout_ns: int = 60 * NS_PER_S  # the first request also warms the engine up
    backoff_min_ns: int = NS_PER_S // 2
    backoff_max_ns: int = 30 * NS_PER_S
    healthy_ns: int = 60 * NS_PER_S  # after this long the next failure is a first one again
    failures_max: int = 3  # failed starts in a row until one that never came up is called failed
    grace_ns: int = 2 * NS_PER_S  # between asking an engine to end and ending it by force
    drain_poll_ns: int = 20 * NS_PER_MS


class Pool(msgspec.Struct, frozen=True):
    """What is told to whoever works with the replicas. Called on the event loop.

    ready: send it requests from now on. draining: send it nothing new. lost: it is gone; said once of each replica
    that was ready. in_flight: how many requests run on it.
    """

    ready: Callable[[Replica, Target], None]
    draining: Callable[[str], None]
    lost: Callable[[str], None]
    in_flight: Callable[[str], int]


class Status(msgspec.Struct, frozen=True):
    """A replica as people see it. `since_ns` is when its state began; `restarts` counts the starts after the first."""

    id: str
    model: str
    state: State
    since_ns: int
    restarts: int
    pid: int | None
    address: str | None
    last_error: str | None


class World(msgspec.Struct, frozen=True):
    """What all seats share. `gate` bounds how many start at once; `next_id` makes an id from a seat's name."""

    pool: Pool
    clock: Callable[[], int]
    sleep: Callable[[float], Awaitable[None]]
    gate: asyncio.Semaphore
    next_id: Callable[[str], str]
    changed: Callable[[], None]
    timing: Timing = Timing()


class Seat:
    """The place of one replica of `model`, its number `index`."""

    def __init__(self, model: Model, index: int, backend: Backend, world: World) -> None:
        self.model = model
        self.index = index
        self._backend = backend
        self._world = world
        self._timing = world.timing
        self._name = f"{model.name}-{index}"
        self._id = self._name
        self._state = State.STARTING
        self._since_ns = world.clock()
        self._starts = 0
        self._failures = 0
        self._was_ready = False
        self._announced = False
        self._handle: Handle | None = None
        self._last_error: str | None = None
        self._life: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._drain_until: int | None = None

    # -- what others see -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._state

    @property
    def closing(self) -> bool:
        return self._closing is not None

    @property
    def last_error(self) -> str | None:
        return self._last_error

    def status(self) -> Status:
        handle = self._handle
        return Status(
            id=self._id,
            model=self.model.name,
            state=self._state,
            since_ns=self._since_ns,
            restarts=max(0, self._starts - 1),
            pid=handle.pid if handle else None,
            address=handle.target.url if handle else None,
            last_error=self._last_error,
        )

    def begin(self) -> None:
        """Bring the replica up and keep it up, until `close`."""
        self._life = asyncio.create_task(self._live(), name=f"seat {self._name}")

    async def close(self, drain_ns: int | None) -> None:
        """Give it nothing new, let what runs on it end (for `drain_ns` at most; None waits as long as it takes), stop.

        A second call may only shorten the time.
        """
        until = None if drain_ns is None else self._world.clock() + drain_ns
        if until is not None:
            self._drain_until = until if self._drain_until is None else min(self._drain_until, until)
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"close {self._name}")
        await asyncio.shield(self._closing)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        delay_ns = self._timing.backoff_min_ns
        while True:
            begun_ns = None
            try:
                handle = await self._bring_up()
                begun_ns = self._world.clock()
                reason = await self._watch(handle)
            except BackendError as error:
                reason = str(error)
                self._failures += 1
            except Exception:
                log.exception("supervision failed", replica=self._id)  # a fault of ours must not end the supervision
                reason = f"The supervision of replica {self._id} failed; the log says how."
                self._failures += 1
            await self._end(reason)
            if begun_ns is not None and self._world.clock() - begun_ns >= self._timing.healthy_ns:
                delay_ns = self._timing.backoff_min_ns
            failed = not self._was_ready and self._failures >= self._timing.failures_max
            self._enter(State.FAILED if failed else State.BACKING_OFF)
            await self._world.sleep((self._timing.backoff_max_ns if failed else delay_ns) / NS_PER_S)
            delay_ns = min(2 * delay_ns, self._timing.backoff_max_ns)

    async def _bring_up(self) -> Handle:
        """Start it and announce it once it has answered a request. Raises BackendError."""
        timing = self._timing
        self._id = self._world.next_id(self._name)
        self._starts += 1
        if self._state is not State.FAILED:  # that it is tried again does not make it better
            self._enter(State.STARTING)
        async with self._world.gate:
            self._handle = handle = await self._backend.start(self.model, self.index, self._id)
            health, reason = await probe.health(handle.target, timing.health_timeout_ns)
            if health is not Health.GOOD:
                raise BackendError(reason)
            await probe.prove(handle.target, timing.proof_timeout_ns)
        self._failures = 0
        self._was_ready = self._announced = True
        self._world.pool.ready(_replica(self._id, self.model), handle.target)
        self._enter(State.READY)
        return handle

    async def _watch(self, handle: Handle) -> str:
        """Return, with the reason, when it is lost."""
        timing = self._timing
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
                if bad >= timing.bad_max or busy >= timing.busy_max:
                    return reason
                if health is Health.GOOD and self._state is State.UNKNOWN:
                    self._enter(State.READY)
                elif busy >= timing.bad_max and self._state is State.READY:
                    self._enter(State.UNKNOWN)
        finally:
            gone.cancel()

    async def _end(self, reason: str) -> None:
        """It is lost, for `reason`: tell the pool, and leave nothing of it."""
        self._last_error = reason
        log.warning("replica lost" if self._announced else "replica did not start", replica=self._id, reason=reason)
        self._withdraw()
        await self._drop()

    async def _close(self) -> None:
        world = self._world
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait({self._life})
        if self._announced:
            self._enter(State.DRAINING)
            world.pool.draining(self._id)
            await self._drained()
        self._withdraw()
        await self._drop()
        self._enter(State.GONE)

    async def _drained(self) -> None:
        """Wait until nothing runs on it, or it is gone, or the time is over."""
        world = self._world
        gone = asyncio.ensure_future(self._handle.wait()) if self._handle else None
        try:
            while world.pool.in_flight(self._id) and not (gone and gone.done()):
                if self._drain_until is not None and world.clock() >= self._drain_until:
                    return
                await world.sleep(self._timing.drain_poll_ns / NS_PER_S)
        finally:
            if gone:
                gone.cancel()

    def _withdraw(self) -> None:
        if self._announced:
            self._announced = False
            self._world.pool.lost(self._id)

    async def _drop(self) -> None:
        """End the engine; the handle is kept until it is, so that a cancelled end is ended again."""
        if self._handle is not None:
            await self._handle.stop(self._timing.grace_ns)
            self._handle = None

    def _enter(self, state: State) -> None:
        if state is self._state:
            return
        self._state = state
        self._since_ns = self._world.clock()
        log.info("replica state", replica=self._id, state=str(state))
        self._world.changed()


def _replica(replica_id: str, model: Model) -> Replica:
    return Replica(replica_id, model.name, model.milli_gpu, model.slots, model.kv_tokens)


async def _first(gone: "asyncio.Future[Any]", work: "asyncio.Future[Any]") -> None:
    """Wait for either; `work` is cancelled when it is not the one, or when we are."""
    try:
        await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        work.cancel()
