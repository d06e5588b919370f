"""Fakes for the supervision of replicas: time that flies, a backend that starts what it is told to, and a diary."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from commonpool.backends.base import Adopted, BackendError
from commonpool.config.structs import AttachedEngine, Config, EmbeddedEngine, Model
from commonpool.control.held import Held
from commonpool.control.replicas import Supervisor
from commonpool.control.seat import Gates, Seat, State, Timing, Told, World
from commonpool.core.effects import StartReplica
from commonpool.core.metering import Note
from commonpool.core.model import NS_PER_S, Policy, Pool, Replica
from commonpool.engines.base import Target
from tests.backends.scripted import ScriptedEngine, scripted

TIMING = Timing(health_timeout_ns=NS_PER_S // 4)
WITHIN_S = 120


class Time:
    """A clock that a sleep moves on at once."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * NS_PER_S

    def __call__(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * NS_PER_S)
        await asyncio.sleep(0.001)


class Diary:
    """What was told of replicas, in order; `reasons` are those of the losses, `engines` those of the ready ones."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []
        self.reasons: dict[str, str] = {}
        self.replicas: list[Replica] = []
        self.engines: list[str | None] = []
        self.fault: Exception | None = None

    def told(self) -> Told:
        return Told(self.ready, self.lost)

    def ready(self, replica: Replica, target: Target, engine: str | None) -> None:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        self.entries.append(("ready", replica.id))
        self.replicas.append(replica)
        self.engines.append(engine)
        assert target.replica_id == replica.id

    def lost(self, replica_id: str, reason: str) -> None:
        self.entries.append(("lost", replica_id))
        self.reasons[replica_id] = reason

    def wrote(self, what: str) -> list[str]:
        return [replica_id for entry, replica_id in self.entries if entry == what]


class FakeHandle:
    """A replica that the test can end."""

    def __init__(self, target: Target, diary: Diary) -> None:
        self.target = target
        self.pid = 4242
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._diary = diary

    async def wait(self) -> str:
        return await asyncio.shield(self.end)

    async def stop(self, grace_ns: int) -> None:
        assert grace_ns > 0
        self._diary.entries.append(("stopped", self.target.replica_id))


class FakeBackend:
    """Starts handles on one scripted engine. Models in `broken` cannot be started, for the reason that is given there.

    While `gate` is closed, starts hang. `left` are the replicas that an earlier run has left behind.
    """

    def __init__(self, engine: ScriptedEngine, diary: Diary) -> None:
        self.engine = engine
        self.broken: dict[str, str] = {}
        self.unfit: dict[str, str] = {}
        self.left: list[tuple[Replica, int, str]] = []
        self.handles: dict[str, FakeHandle] = {}
        self.started: list[tuple[str, int, Replica]] = []
        self.starting = 0
        self.starting_max = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.host = ""  # where engines say that they listen, "" for where they do
        self._diary = diary

    def check(self, model: Model) -> None:
        if model.name in self.unfit:
            raise BackendError(self.unfit[model.name])

    async def start(self, model: Model, index: int, replica: Replica) -> FakeHandle:
        self.started.append((model.version, index, replica))
        self.starting += 1
        self.starting_max = max(self.starting_max, self.starting)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.starting -= 1
        if model.name in self.broken:
            raise BackendError(self.broken[model.name])
        return self._handle(replica.id)

    async def adopt(self) -> Sequence[Adopted]:
        left, self.left = self.left, []
        return [Adopted(replica, index, engine, self._handle(replica.id)) for replica, index, engine in left]

    def _handle(self, replica_id: str) -> FakeHandle:
        target = self.engine.target(replica_id)
        if self.host:
            target = msgspec.structs.replace(target, host=self.host)
        self.handles[replica_id] = handle = FakeHandle(target, self._diary)
        return handle


class Stage(msgspec.Struct):
    """Everything that a test of the supervision touches."""

    time: Time
    diary: Diary
    engine: ScriptedEngine
    backend: FakeBackend
    held: Held
    notes: list[Note]
    sent: dict[str, int] = {}  # sequences by replica

    def seat(self, replica_id: str = "m-0.1") -> Seat:
        world = World(
            told=self.diary.told(),
            held=self.held,
            clock=self.time,
            sleep=self.time.sleep,
            gates=Gates(2),
            sent=lambda target: self.sent.get(target.replica_id, 0),
            timing=TIMING,
        )
        return Seat(embedded("m"), 0, replica(replica_id), self.backend, world)

    def supervisor(self, config: Config) -> Supervisor:
        return Supervisor(
            config,
            self.time,
            self.diary.told(),
            self.held,
            in_flight=lambda replica_id: self.sent.get(replica_id, 0),
            backends={EmbeddedEngine: self.backend, AttachedEngine: self.backend},
            sleep=self.time.sleep,
            timing=TIMING,
        )


@contextlib.asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with scripted() as engine:
        diary = Diary()
        clock = Time()
        notes: list[Note] = []
        held = Held(notes.extend, clock, lambda: 0)
        yield Stage(clock, diary, engine, FakeBackend(engine, diary), held, notes)


@contextlib.asynccontextmanager
async def ready(at: Stage, replica_id: str = "m-0.1") -> AsyncIterator[Seat]:
    """A seat whose replica is ready; it is ended at the end."""
    seat = at.seat(replica_id)
    seat.begin()
    await until(lambda: state(seat) is State.READY)
    yield seat
    await seat.end()


def state(seat: Seat) -> State:
    return seat.status().state


async def until(reached: Callable[[], object]) -> None:
    """Wait until it holds; that it never does is a failure."""
    deadline = time.monotonic() + WITHIN_S
    while not reached():
        assert time.monotonic() < deadline, "it never came to that"
        await asyncio.sleep(0.002)


async def checked(engine: ScriptedEngine, times: int) -> None:
    """Wait until the engine was asked so many times more."""
    seen = len(engine.asked)
    await until(lambda: len(engine.asked) >= seen + times)


async def settled() -> None:
    """Give everything that could happen time to happen, several checks of health among it."""
    await asyncio.sleep(0.1)


def replica(replica_id: str, devices: tuple[str, ...] = ()) -> Replica:
    return Replica(replica_id, replica_id.partition("-")[0], 1000, 2, 1024, "n1" if devices else "", devices)


def start(replica_id: str) -> StartReplica:
    """What the core says: the index is the one in the id."""
    return StartReplica(replica(replica_id), int(replica_id.partition("-")[2].partition(".")[0]))


def embedded(name: str, *, version: str = "1") -> Model:
    return Model(name, version, "gpus", 1000, 1, 2, 512, 1024, EmbeddedEngine(f"/{name}.gguf"))


def config(*models: Model, gpus: int = 8) -> Config:
    pools = {"gpus": Pool("gpus", 1000 * gpus)}
    policy = Policy(pools=pools, tiers={}, groups={}, tenants={}, deployments={}, prices={})
    return Config(policy=policy, models={model.name: model for model in models}, apps={}, currency="EUR")
