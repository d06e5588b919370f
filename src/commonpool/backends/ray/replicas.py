"""Replicas as actors: each hosts, on the node and the devices of the core's choice, the engine that a child process
hosts on one machine. They outlive the core actor, and are found again by their names.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import ray
import structlog
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from commonpool.backends.base import Adopted, BackendError
from commonpool.backends.local import EMBEDDED_PROGRAM, START_NS, LocalBackend, LocalHandle
from commonpool.backends.ray.nodes import Nodes
from commonpool.config.structs import Model
from commonpool.core.model import NS_PER_S, Replica
from commonpool.engines.base import Target

PREFIX: Final = "replica-"
ADOPT_S: Final = 5.0
ACTOR_S: Final = 60.0  # a worker process that starts on a busy machine, beside the engine's own time

log = structlog.get_logger()


class Described(msgspec.Struct, frozen=True):
    """What an actor says of its replica. `engine` is the fingerprint it was started with."""

    index: int
    replica: Replica
    engine: str
    target: Target | None
    pid: int | None


class ReplicaActor:
    """The process of one replica: it starts the engine below it, and both end together."""

    def __init__(
        self, model: Model, index: int, replica: Replica, engine: str, folder: str, program: Sequence[str], host: str
    ) -> None:
        self._model = model
        self._index = index
        self._replica = replica
        self._engine = engine
        self._backend = LocalBackend(Path(folder), program=program, host=host)
        self._handle: LocalHandle | None = None

    async def start(self) -> Described:
        """Start the engine. Raises BackendError."""
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray's word on it is that of an actor without GPUs
        self._handle = await self._backend.start(self._model, self._index, self._replica)
        return await self.describe()

    async def describe(self) -> Described:
        handle = self._handle
        target, pid = (handle.target, handle.pid) if handle is not None else (None, None)
        return Described(self._index, self._replica, self._engine, target, pid)

    async def wait(self) -> str:
        """Return when the engine has ended, with a sentence that says how."""
        assert self._handle is not None  # noqa: S101 - it was started
        return await self._handle.wait()

    async def stop(self, grace_ns: int) -> None:
        if self._handle is not None:
            await self._handle.stop(grace_ns)


class RayBackend:
    """Starts an actor for each replica on its node. `engine_of(model)` is the fingerprint of what is started."""

    def __init__(
        self,
        nodes: Nodes,
        folder: Path,
        engine_of: Callable[[str], str],
        *,
        program: Sequence[str] = EMBEDDED_PROGRAM,
    ) -> None:
        self._nodes = nodes
        self._folder = folder
        self._engine_of = engine_of
        self._program = tuple(program)
        self._local = LocalBackend(folder, program=program)

    def check(self, model: Model) -> None:
        self._local.check(model)

    async def start(self, model: Model, index: int, replica: Replica) -> "RayHandle":
        found = self._nodes.find(replica.node)
        if found is None:
            raise BackendError(f"Replica {replica.id} cannot be started: node {replica.node!r} is not in the cluster.")
        node, group = found
        # The GPUs are the group's already; which of them is the core's choice, so none is asked for here.
        actor: Any = (
            ray.remote(ReplicaActor)
            .options(
                name=PREFIX + replica.id,
                lifetime="detached",
                num_cpus=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0),
            )
            .remote(
                model,
                index,
                replica,
                self._engine_of(model.name),
                str(self._folder),
                self._program,
                node.address,
            )
        )
        handle = RayHandle(replica, actor, self._nodes)
        try:
            async with asyncio.timeout(START_NS / NS_PER_S + ACTOR_S):
                handle.describes(await actor.start.remote())
        except (RayError, TimeoutError) as error:
            handle.kill()
            if isinstance(error, RayTaskError) and isinstance(error.cause, BackendError):
                raise error.cause from None
            await self._nodes.look_again(node)  # where that is why, the core is to hear of it first
            raise BackendError(
                f"Replica {replica.id} cannot be started on node {node.name}: {first_line(error)}"
            ) from error
        except BaseException:
            handle.kill()
            raise
        return handle

    async def adopt(self) -> tuple[Adopted, ...]:
        """The replicas whose actors live; what is left of others is ended."""
        names = [name for name in await asyncio.to_thread(ray.util.list_named_actors) if name.startswith(PREFIX)]
        found = await asyncio.gather(*(_find(name, self._nodes) for name in sorted(names)))
        return tuple(each for each in found if each is not None)


async def _find(name: str, nodes: Nodes) -> Adopted | None:
    try:
        actor: Any = await asyncio.to_thread(ray.get_actor, name)
    except ValueError:  # it ended in this moment
        return None
    try:
        async with asyncio.timeout(ADOPT_S):
            described: Described = await actor.describe.remote()
    except (RayError, TimeoutError) as error:
        log.warning("a replica of before does not answer", replica=name.removeprefix(PREFIX), reason=first_line(error))
        _kill(actor)
        return None
    if described.target is None:  # it was being started for a core that is gone
        _kill(actor)
        return None
    handle = RayHandle(described.replica, actor, nodes)
    handle.describes(described)
    return Adopted(described.replica, described.index, described.engine, handle)


class RayHandle:
    """A replica's actor, on one of `nodes`."""

    target: Target

    def __init__(self, replica: Replica, actor: Any, nodes: Nodes) -> None:
        self.pid: int | None = None
        self._replica = replica
        self._actor = actor
        self._nodes = nodes

    def describes(self, described: Described) -> None:
        assert described.target is not None  # noqa: S101 - it was started
        self.target = described.target
        self.pid = described.pid

    async def wait(self) -> str:
        try:
            sentence: str = await self._actor.wait.remote()
        except RayActorError as error:
            sentence = f"The actor of replica {self._replica.id} is gone: {first_line(error)}"
        if found := self._nodes.find(self._replica.node):
            await self._nodes.look_again(found[0])  # as in `start`
        return sentence

    async def stop(self, grace_ns: int) -> None:
        with contextlib.suppress(RayError, TimeoutError):
            async with asyncio.timeout(grace_ns / NS_PER_S + 1):
                await self._actor.stop.remote(grace_ns)
        self.kill()

    def kill(self) -> None:
        """End the actor's process, and with it the engine."""
        _kill(self._actor)


def _kill(actor: Any) -> None:
    with contextlib.suppress(RayError):
        ray.kill(actor)


def first_line(error: BaseException) -> str:
    """The first line of what Ray says, which is often a page."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
