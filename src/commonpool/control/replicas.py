"""The replicas that the configuration asks for, kept running: the supervisor compares what is with what should be.

Replicas of a changed model are replaced: new ones come up first where the pool has room for both, and nothing that runs
on an old one is cut.
"""

import asyncio
import functools
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from commonpool.backends.attached import AttachedBackend
from commonpool.backends.base import Backend, BackendError
from commonpool.backends.local import LocalBackend
from commonpool.config.structs import AttachedEngine, Config, EmbeddedEngine, Model
from commonpool.control.seat import Pool, Seat, State, Status, Timing, World
from commonpool.core.model import Replica
from commonpool.engines.base import Target

STARTS_AT_ONCE = 2  # loading a model takes a whole core and the disk

Backends = Mapping[type, Backend]


class StartError(Exception):
    """A model cannot be served: which, why, and what to do, in one sentence."""


def default_backends(config: Config) -> Backends:
    """Child processes for the embedded engine, with their logs below the state folder; nothing for attached ones."""
    return {EmbeddedEngine: LocalBackend(config.state / "engines"), AttachedEngine: AttachedBackend()}


class Supervisor:
    """Keeps the replicas of `config` running and tells about them (`seat.Pool`). Belongs to one event loop."""

    def __init__(
        self,
        config: Config,
        clock: Callable[[], int],
        *,
        ready: Callable[[Replica, Target], None],
        draining: Callable[[str], None],
        lost: Callable[[str], None],
        in_flight: Callable[[str], int],
        backends: Backends | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        timing: Timing | None = None,
    ) -> None:
        self._config = config
        self._backends = default_backends(config) if backends is None else backends
        self._incarnations: dict[str, itertools.count[int]] = defaultdict(lambda: itertools.count(1))
        self._world = World(
            pool=Pool(ready, draining, lost, in_flight),
            clock=clock,
            sleep=sleep,
            gate=asyncio.Semaphore(STARTS_AT_ONCE),
            next_id=lambda name: f"{name}.{next(self._incarnations[name])}",
            changed=self._changed,
            timing=Timing() if timing is None else timing,
        )
        self._seats: list[Seat] = []
        self._moves: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._stopped = False
        self._applying = asyncio.Lock()

    def check(self, config: Config) -> None:
        """Raise StartError for what would keep a model from being served, as far as it can be known beforehand."""
        for model in config.models.values():
            try:
                self._backend(model).check(model)
            except BackendError as error:
                raise StartError(str(error)) from None

    async def first_start(self) -> None:
        """Bring everything up; return when every model has a ready replica.

        Raises StartError when a model has none that could start; everything is stopped then.
        """
        self.check(self._config)
        self._reconcile()
        try:
            await self._until(lambda: all(self._served(model) for model in self._config.models))
        except StartError:
            await self.stop()
            raise

    async def apply(self, config: Config) -> None:
        """Make the replicas those of `config`; return when they are, or when a later change takes over.

        What cannot start is tried again and again, and what it is to replace goes on serving. Raises StartError
        where `check` would, and changes nothing then.
        """
        self.check(config)
        async with self._applying:  # two at once would each bring up what is missing
            for move in self._moves:
                move.cancel()
            await asyncio.gather(*self._moves, return_exceptions=True)
            if self._stopped:
                return
            self._config = config
            moves = self._reconcile()
        if moves:
            await asyncio.wait(moves)

    async def stop(self, drain_ns: int = 0) -> None:
        """End all replicas, at the latest after `drain_ns`. A second call may shorten the time of the first."""
        self._stopped = True
        for move in self._moves:
            move.cancel()
        await asyncio.gather(*self._moves, return_exceptions=True)
        await asyncio.gather(*(seat.close(drain_ns) for seat in self._seats))

    def status(self) -> list[Status]:
        """All replicas, in the order of models and seats."""
        order = {name: at for at, name in enumerate(self._config.models)}
        seats = sorted(self._seats, key=lambda seat: (order.get(seat.model.name, len(order)), seat.index))
        return [seat.status() for seat in seats]

    # -- what is, and what should be -----------------------------------------------------------------------------------

    def _reconcile(self) -> set[asyncio.Task[None]]:
        """Begin to move from the seats that are to those that should be; one task for each model that changes."""
        models = self._config.models
        wanted = {_key(model, index): (model, index) for model in models.values() for index in _indexes(model)}
        leaving: dict[str, list[Seat]] = defaultdict(list)
        for seat in self._seats:
            if seat.closing or wanted.pop(_key(seat.model, seat.index), None) is None:
                leaving[seat.model.name].append(seat)
        coming: dict[str, list[Seat]] = defaultdict(list)
        for model, index in wanted.values():
            coming[model.name].append(Seat(model, index, self._backend(model), self._world))
        self._moves = {
            asyncio.create_task(self._move(leaving[name], coming[name]), name=f"replicas of {name}")
            for name in [*leaving, *(name for name in coming if name not in leaving)]
        }
        return self._moves

    async def _move(self, leaving: list[Seat], coming: list[Seat]) -> None:
        """Replace a model's `leaving` seats by its `coming` ones."""
        # 1. As many new ones as the pool has room for beside the old.
        begun = [seat for seat in coming if self._begin(seat)]
        await self._until(lambda: _ready(begun))
        # 2. The old ones go, each when nothing runs on it any more.
        await asyncio.gather(*(seat.close(None) for seat in leaving))
        # 3. The rest, as room comes free.
        for seat in coming:
            if seat not in begun:
                await self._until(functools.partial(self._begin, seat))
        await self._until(lambda: _ready(coming))

    def _begin(self, seat: Seat) -> bool:
        """Begin it if its pool has room for it."""
        pool = self._config.policy.pools[seat.model.pool]
        held = sum(other.model.milli_gpu for other in self._seats if other.model.pool == pool.name)
        if held + seat.model.milli_gpu > pool.milli_gpu:
            return False
        self._seats.append(seat)
        seat.begin()
        return True

    def _served(self, name: str) -> bool:
        """Whether the model has a ready replica. Raises StartError when none of its replicas can start."""
        seats = [seat for seat in self._seats if seat.model.name == name]
        if any(seat.state is State.READY for seat in seats):
            return True
        if seats and all(seat.state is State.FAILED for seat in seats):
            raise StartError(f"Model {name} cannot be served. {seats[0].last_error}")
        return False

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Wait for the seats to be as `reached` wants them; what it raises ends the waiting."""
        while not reached():
            self._news.clear()
            await self._news.wait()

    def _changed(self) -> None:
        self._seats = [seat for seat in self._seats if seat.state is not State.GONE]
        self._news.set()

    def _backend(self, model: Model) -> Backend:
        return self._backends[type(model.engine)]


def _ready(seats: list[Seat]) -> bool:
    return all(seat.state is State.READY for seat in seats)


def _indexes(model: Model) -> range:
    engine = model.engine
    return range(len(engine.urls) if isinstance(engine, AttachedEngine) else model.replicas)


def _key(model: Model, index: int) -> tuple[Model, int]:
    """What makes a replica another one: all that is said of its model, but not how many others there are."""
    engine = model.engine
    if isinstance(engine, AttachedEngine):
        engine = msgspec.structs.replace(engine, urls=(engine.urls[index],))
        index = 0
    return msgspec.structs.replace(model, replicas=0, engine=engine), index
