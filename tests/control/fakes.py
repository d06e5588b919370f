"""Fakes for the supervision of replicas: time that flies, a backend that starts what it is told to, and a diary."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec

from commonpool.backends.base import BackendError
from commonpool.config.structs import AttachedEngine, Config, EmbeddedEngine, Model
from commonpool.control.replicas import Supervisor
from commonpool.control.seat import Pool as Told
from commonpool.control.seat import Seat, Timing, World
from commonpool.core.model import NS_PER_S, Policy, Pool, Replica
from commonpool.engines.base import Target
from tests.backends.scripted import ScriptedEngine, scripted

# A pause between health checks that is none between starts, so that they can be told apart.
TIMING = Timing(health_every_ns=2 * NS_PER_S + 1000, health_timeout_ns=NS_PER_S // 4)
POLLS = 5000


class Time:
    """A clock that a sleep moves on at once. `slept` holds the lengths that were slept, in seconds."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * NS_PER_S
        self.slept: list[float] = []

    def __call__(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ns += int(seconds * NS_PER_S)
        await asyncio.sleep(0.001)

    def pauses(self) -> list[float]:
        """The pauses between starts: what was slept for neither health checks nor drains."""
        other = {TIMING.health_every_ns / NS_PER_S, TIMING.drain_poll_ns / NS_PER_S}
        return [seconds for seconds in self.slept if seconds not in other]


class Diary:
    """What was told of replicas, in order, and how many requests run on each."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []
        self.running: dict[str, int] = {}
        self.replicas: list[Replica] = []
        self.fault: Exception | None = None

    def told(self) -> Told:
        return Told(self.ready, self.draining, self.lost, self.in_flight)

    def ready(self, replica: Replica, target: Target) -> None:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        self.entries.append(("ready", replica.id))
        self.replicas.append(replica)
        assert target.replica_id == replica.id

    def draining(self, replica_id: str) -> None:
        self.entries.append(("draining", replica_id))

    def lost(self, replica_id: str) -> None:
        self.entries.append(("lost", replica_id))

    def in_flight(self, replica_id: str) -> int:
        return self.running.get(replica_id, 0)

    def wrote(self, what: str) -> list[str]:
        return [replica_id for entry, replica_id in self.entries if entry == what]


class FakeHandle:
    """A replica that the test can end."""

    def __init__(self, target: Target, diary: Diary) -> None:
        self.target = target
        self.pid = 4242
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.stops = 0
        self._diary = diary

    async def wait(self) -> str:
        return await asyncio.shield(self.end)

    async def stop(self, grace_ns: int) -> None:
        assert grace_ns > 0
        self.stops += 1
        self._diary.entries.append(("stopped", self.target.replica_id))


class FakeBackend:
    """Starts handles on one scripted engine. `faults` are the sentences of the next starts that fail.

    While `gate` is closed, starts hang. Faults of a model by name are in `broken`.
    """

    def __init__(self, engine: ScriptedEngine, diary: Diary) -> None:
        self.engine = engine
        self.faults: list[str] = []
        self.broken: dict[str, str] = {}
        self.unfit: dict[str, str] = {}
        self.handles: dict[str, FakeHandle] = {}
        self.started: list[str] = []
        self.starting = 0
        self.starting_max = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._diary = diary

    def check(self, model: Model) -> None:
        if model.name in self.unfit:
            raise BackendError(self.unfit[model.name])

    async def start(self, model: Model, index: int, replica_id: str) -> FakeHandle:
        assert index >= 0
        self.started.append(replica_id)
        self.starting += 1
        self.starting_max = max(self.starting_max, self.starting)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.starting -= 1
        if self.faults:
            raise BackendError(self.faults.pop(0))
        if model.name in self.broken:
            raise BackendError(self.broken[model.name])
        self.handles[replica_id] = handle = FakeHandle(self.engine.target(replica_id), self._diary)
        return handle


class Stage(msgspec.Struct):
    """Everything that a test of the supervision touches."""

    time: Time
    diary: Diary
    engine: ScriptedEngine
    backend: FakeBackend

    def seat(self, model: Model | None = None) -> Seat:
        count = iter(range(1, 1000))
        world = World(
            pool=self.diary.told(),
            clock=self.time,
            sleep=self.time.sleep,
            gate=asyncio.Semaphore(2),
            next_id=lambda name: f"{name}.{next(count)}",
            changed=lambda: None,
            timing=TIMING,
        )
        return Seat(model or embedded("m"), 0, self.backend, world)

    def supervisor(self, config: Config) -> Supervisor:
        return Supervisor(
            config,
            self.time,
            ready=self.diary.ready,
            draining=self.diary.draining,
            lost=self.diary.lost,
            in_flight=self.diary.in_flight,
            backends={EmbeddedEngine: self.backend, AttachedEngine: self.backend},
            sleep=self.time.sleep,
            timing=TIMING,
        )


@contextlib.asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with scripted() as engine:
        diary = Diary()
        yield Stage(Time(), diary, engine, FakeBackend(engine, diary))


async def until(reached: Callable[[], object]) -> None:
    """Wait until it holds; that it never does is a failure."""
    for _ in range(POLLS):
        if reached():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came to that")


async def checked(engine: ScriptedEngine, times: int) -> None:
    """Wait until the engine was asked so many times more."""
    seen = len(engine.asked)
    await until(lambda: len(engine.asked) >= seen + times)


async def settled() -> None:
    """Give everything that could happen time to happen, several checks of health among it."""
    await asyncio.sleep(0.1)


def embedded(name: str, *, replicas: int = 1, version: str = "1", milli_gpu: int = 1000) -> Model:
    return Model(name, version, "gpus", milli_gpu, replicas, 2, 512, 1024, EmbeddedEngine(f"/{name}.gguf"))


def attached(name: str, *urls: str) -> Model:
    return Model(name, "1", "gpus", 1000, len(urls), 2, 512, 1024, AttachedEngine(urls))


def config(*models: Model, gpus: int = 8) -> Config:
    pools = {"gpus": Pool("gpus", 1000 * gpus)}
    policy = Policy(pools=pools, tiers={}, groups={}, tenants={}, deployments={}, prices={})
    return Config(policy=policy, models={model.name: model for model in models}, apps={}, currency="EUR")
