"""`commonpool up --backend ray`: what an operator's terminal does. The product itself is in the cluster."""

import asyncio
import contextlib
import logging
import secrets
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import ray
import structlog
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from starlette.routing import BaseRoute

from commonpool.app import Started, StartError
from commonpool.backends.local import EMBEDDED_PROGRAM
from commonpool.backends.ray import jobs, nodes, replicas
from commonpool.cluster import fleet
from commonpool.cluster.core import CoreActor
from commonpool.cluster.gateway import CORE
from commonpool.config import Sources, parse_sources, read_sources

NAMESPACE: Final = "commonpool"
AGAIN_S: Final = 0.2
EARLIER_S: Final = 30.0

log = structlog.get_logger()


def run(
    path: Path,
    announce: Callable[[Started], None],
    routes: Callable[[], Sequence[BaseRoute]] = list,
    address: str | None = None,
    program: Sequence[str] = EMBEDDED_PROGRAM,
) -> None:
    """Serve the configuration at `path` on the Ray cluster at `address` until SIGINT or SIGTERM; as `app.run`.

    This machine is one of the cluster's nodes: the core runs here, where the state folder is. Without an address a
    cluster of this machine alone is started. A product of an earlier run is taken over, with what runs there.
    """
    sources = read_sources(path)
    config = parse_sources(sources)
    connect(address, planned_gpus=sum(pool.milli_gpu for pool in config.policy.pools.values()) // 1000)
    try:
        asyncio.run(_serve(sources, announce, routes, program))
    finally:
        ray.shutdown()


def connect(address: str | None, planned_gpus: int = 0) -> None:
    """Join the cluster. Raises StartError where there is none."""
    try:
        ray.init(
            address=address or "local",
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.WARNING,
            include_dashboard=None if address else False,
            num_gpus=None if address or nodes.gpus_here() else planned_gpus,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise StartError(
            f"There is no Ray cluster to be joined at {address or 'this machine'}: {replicas.first_line(error)} "
            "Start one with `ray start --head`, or correct --address."
        ) from error


async def _serve(
    sources: Sources,
    announce: Callable[[Started], None],
    routes: Callable[[], Sequence[BaseRoute]],
    program: Sequence[str],
) -> None:
    asked = asyncio.Queue[int]()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, asked.put_nowait, signum)
    core = await start_core(sources, routes, program)
    try:
        stopping = asyncio.ensure_future(asked.get())
        serving = asyncio.ensure_future(_serving(core, announce))
        await asyncio.wait({stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        serving.cancel()
    finally:
        await stop_core(core, asked)


async def start_core(
    sources: Sources,
    routes: Callable[[], Sequence[BaseRoute]] = list,
    program: Sequence[str] = EMBEDDED_PROGRAM,
) -> Any:
    """The core actor, on this node; one of an earlier run ends first."""
    await asyncio.to_thread(_end_earlier)
    here = ray.get_runtime_context().get_node_id()
    address = next(node.address for node in await asyncio.to_thread(nodes.living) if node.id == here)
    return (
        ray.remote(CoreActor)
        .options(
            name=CORE,
            lifetime="detached",
            max_restarts=-1,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
        )
        .remote(sources, secrets.token_hex(8), address, tuple(program), routes)
    )


async def _serving(core: Any, announce: Callable[[Started], None]) -> None:
    """Announce what runs, and return never; raises what keeps the core from starting, at first or again."""
    announce(await answer(core.started))
    while True:
        with contextlib.suppress(RayError):
            await core.life.remote()
        log.warning("the core's process ended; Ray starts it again")
        await answer(core.recovered)


async def answer(method: Any) -> Any:
    """The answer of the core actor to this call, also where it is restarted meanwhile."""
    while True:
        try:
            return await method.remote()
        except RayTaskError as error:
            raise error.cause from None
        except ActorUnavailableError:
            await asyncio.sleep(AGAIN_S)
        except ActorDiedError as error:
            raise StartError(f"The core cannot run in the cluster: {replicas.first_line(error)}") from error


async def stop_core(core: Any, asked: "asyncio.Queue[int] | None" = None) -> None:
    """Drain and end everything in the cluster; another signal ends it at once."""
    stopping = asyncio.ensure_future(_stopped(core))
    hurry = asyncio.ensure_future((asked or asyncio.Queue[int]()).get())
    await asyncio.wait({stopping, hurry}, return_when=asyncio.FIRST_COMPLETED)
    if hurry.done():
        with contextlib.suppress(RayError):
            await core.hurry.remote()
    hurry.cancel()
    await stopping
    ray.kill(core)
    await asyncio.to_thread(sweep)


async def _stopped(core: Any) -> None:
    with contextlib.suppress(RayError):
        await core.stop.remote()


def sweep() -> None:
    """End what a core that died has left: gateways, replicas, and the hold on the nodes' GPUs."""
    for name in ray.util.list_named_actors():
        if name == CORE or name.startswith((fleet.PREFIX, replicas.PREFIX, jobs.PREFIX)):
            with contextlib.suppress(ValueError, RayError):
                ray.kill(ray.get_actor(name))
    nodes.release_all()


def _end_earlier() -> None:
    """End the core of an earlier run, whose terminal is gone. Its gateways and replicas go on."""
    try:
        earlier: Any = ray.get_actor(CORE)
    except ValueError:
        return
    ended = earlier.life.remote()
    ray.kill(earlier)
    with contextlib.suppress(RayError):  # when it fails the process is gone
        ray.get(ended, timeout=EARLIER_S)
