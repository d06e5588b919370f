"""The replicas that the core wants, brought up and ended: it decides, this performs and tells what became of them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from commonpool.backends.attached import AttachedBackend
from commonpool.backends.base import Backend, BackendError
from commonpool.backends.local import LocalBackend
from commonpool.config.isolation import outside
from commonpool.config.structs import AttachedEngine, Config, EmbeddedEngine, Model
from commonpool.control.held import Held
from commonpool.control.seat import Gates, Seat, Status, Timing, Told, World
from commonpool.core.effects import StartReplica
from commonpool.core.model import Replica
from commonpool.engines.base import Target

STARTS_AT_ONCE = 2  # on a node: loading a model takes a whole core and the disk

Backends = Mapping[type, Backend]


class StartError(Exception):
    """A model cannot be served: which, why, and what to do, in one sentence."""


def default_backends(config: Config) -> Backends:
    """Child processes for the embedded engine, with their logs below the state folder; nothing for attached ones."""
    return {
        EmbeddedEngine: LocalBackend(config.state / "engines"),
        AttachedEngine: AttachedBackend(destinations=config.outgoing),
    }


class Supervisor:
    """Starts and ends replicas of the models of `config`. Belongs to one event loop.

    `in_flight` is how many sequences run on a replica by the core's count.
    """

    def __init__(
        self,
        config: Config,
        clock: Callable[[], int],
        told: Told,
        held: Held,
        *,
        in_flight: Callable[[str], int],
        backends: Backends | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        timing: Timing | None = None,
    ) -> None:
        self._models = config.models
        self._config = config
        self._backends = default_backends(config) if backends is None else backends
        self._told = told
        self._in_flight = in_flight
        self._world = World(
            told=Told(told.ready, self._lost),
            held=held,
            clock=clock,
            sleep=sleep,
            gates=Gates(STARTS_AT_ONCE),
            sent=self._sent,
            timing=Timing() if timing is None else timing,
            outside=self._outside,
        )
        self._seats: dict[str, Seat] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    def check(self, config: Config) -> None:
        """Raise StartError for what would keep a model from being served, as far as it can be known beforehand."""
        for model in config.models.values():
            try:
                self._backend(model).check(model)
            except BackendError as error:
                raise StartError(str(error)) from None

    def configure(self, config: Config) -> None:
        """What is started from now on is as this says."""
        self._models = config.models
        self._config = config

    async def adopt(self) -> None:
        """Take over the replicas of an earlier run that still live; those that are not to be here are ended."""
        for backend in dict.fromkeys(self._backends.values()):
            for found in await backend.adopt():
                model = self._models.get(found.replica.model)
                if model is None or self._outside(model, found.replica, found.handle.target):
                    await found.handle.stop(self._world.timing.grace_ns)
                    continue
                seat = Seat(model, found.index, found.replica, backend, self._world)
                self._seats[found.replica.id] = seat
                seat.resume(found.handle, found.engine)

    def start(self, effect: StartReplica) -> None:
        """Bring a replica up; whether it came up is told."""
        replica = effect.replica
        if self._closed:
            self._told.lost(replica.id, "The product stops.")
            return
        model = self._models.get(replica.model)
        if model is None:
            self._told.lost(replica.id, f"Model {replica.model} is not configured any more.")
            return
        seat = Seat(model, effect.index, replica, self._backend(model), self._world)
        self._seats[replica.id] = seat
        seat.begin()

    def stop(self, replica_id: str) -> None:
        """End a replica, at once; that it is gone is told."""
        seat = self._seats.get(replica_id)
        if seat is not None:
            task = asyncio.create_task(seat.end(), name=f"end {replica_id}")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all replicas; from now on none is started, though the core would make up for what it loses."""
        self._closed = True
        await asyncio.gather(*(seat.end() for seat in self._seats.values()))

    def status(self) -> list[Status]:
        """All replicas, in the order of models and ids."""
        order = {name: at for at, name in enumerate(self._models)}
        found = [seat.status() for seat in self._seats.values()]
        return sorted(found, key=lambda each: (order.get(each.replica.model, len(order)), each.replica.id))

    def _sent(self, target: Target) -> int:
        """What runs in the engine at this address, which may be that of several replicas."""
        there = (seat.replica.id for seat in self._seats.values() if seat.target and seat.target.url == target.url)
        return sum(map(self._in_flight, there))

    def _lost(self, replica_id: str, reason: str) -> None:
        self._seats.pop(replica_id, None)
        self._told.lost(replica_id, reason)

    def _outside(self, model: Model, replica: Replica, target: Target) -> str:
        """Why an engine is not kept apart from others as its pool demands, a sentence; "" where it is."""
        pool, node = self._config.policy.pools.get(model.pool), self._config.nodes.get(replica.node)
        if pool is None or pool.isolation != "network":
            return ""
        why = outside(target.url, None if node is None else node.network)
        return why and (
            f"The engine of replica {replica.id} at {target.url} {why}, and pool {pool.name} demands isolation network;"
            f" correct nodes.{replica.node}.network, or the node's address."
        )

    def _backend(self, model: Model) -> Backend:
        return self._backends[type(model.engine)]
