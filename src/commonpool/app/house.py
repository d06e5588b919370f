"""What differs between the product in one process on one machine and the product over several nodes."""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from commonpool.app.traces import exporter, traces
from commonpool.backends.base import BackendError
from commonpool.backends.discovery import Discovery
from commonpool.backends.jobs import JobBackend, LocalJobs, Users
from commonpool.config import Config
from commonpool.config.structs import Address, EmbeddedEngine
from commonpool.control.nodes import Listening, Nodes
from commonpool.control.replicas import Backends, StartError, default_backends
from commonpool.core.said import Said
from commonpool.gateway.desk import CoreDesk, Soon
from commonpool.gateway.identity import Identity
from commonpool.gateway.server import Gateway
from commonpool.observe import exporting
from commonpool.observe.exporting import Exporter
from commonpool.observe.exposition import Family
from commonpool.store.contract import Key


class DataPlane(Protocol):
    """Where applications connect: the gateway of this process, or one on each node."""

    async def start(self, address: Address) -> int:
        """Listen; return the port."""

    def reconfigure(self, config: Config) -> None:
        """Serve by this from now on."""

    def log_prompts(self, tenants: frozenset[str]) -> None:
        """What these ask, and are answered, is heard from now on."""

    async def drain(self, within_ns: int) -> int:
        """Take nothing new; return when everything has ended, or the time is over, with how many were cut."""

    async def close(self) -> None:
        """End all connections."""


class Watch(Protocol):
    """Whoever tells the core of the nodes."""

    async def look(self) -> None:
        """Tell what has changed of the nodes since the last time."""

    async def watch(self) -> None:
        """Look again and again, until cancelled."""

    async def configure(self, config: Config) -> None:
        """These are the nodes from now on."""


class House(Protocol):
    """What differs between the product in one process and the product over several nodes."""

    def check(self, config: Config) -> None:
        """Raise StartError where this configuration cannot be kept here; called before anything is done with it."""

    def backends(self, config: Config) -> Backends:
        """Where replicas run."""

    def jobs(self, config: Config) -> JobBackend:
        """Where jobs run."""

    def identity(self, keys: Sequence[Key], clock: Callable[[], int]) -> Identity:
        """Who may come in."""

    def data_plane(self, config: Config, desk: CoreDesk, identity: Identity, **options: Any) -> DataPlane:
        """Where applications connect; the options are those of `gateway.server.Gateway`."""

    def nodes(self, config: Config, desk: CoreDesk) -> Watch:
        """Who tells the core of the nodes."""

    def soon(self) -> Soon | None:
        """How the desk puts off what it does to the end of the loop's turn; None where nothing may wait for that."""

    def gateway(self, address: Address) -> Address:
        """Where clients on this machine reach the data plane, which was told to listen here."""

    def notes(self, config: Config) -> Sequence[Said]:
        """What of this configuration has no effect here."""

    def listening(self) -> Sequence[Listening]:
        """Where the gateways of other processes than this one listen, or why they do not."""

    def families(self) -> Iterable[Family]:
        """What is measured of the data plane, beside what the desk has seen."""

    async def first_token_at(self, desk: CoreDesk, request_id: str) -> int:
        """When the first token of the answer to a request that runs came, absolute; 0: not yet, or not known."""

    async def recovered(self) -> None:
        """Return when all that ran before, elsewhere too, has been told to the desk, or will not be."""


def jobs_folder(config: Config) -> Path:
    """Where jobs that run as users of their own have a folder: beside the state folder, which is closed to them."""
    return config.state.with_name(f"{config.state.name}-jobs")


def _together(config: Config) -> dict[str, str]:
    """The pools that demand machines of their own where one process cannot give them, with a sentence each.

    Whatever node it is meant for, what is started here runs on this machine; a single node is taken to be this one.
    """
    return {
        pool.name: f"Pool {pool.name} demands isolation {pool.isolation}, and without Ray all that the product starts "
        f"runs on this machine, for whichever of the {len(config.nodes)} nodes; start it with --backend ray."
        for pool in config.policy.pools.values()
        if pool.isolation in ("node", "network") and len(config.nodes) > 1
    }


class LocalHouse:
    """One process on one machine."""

    def __init__(self) -> None:
        self._jobs: LocalJobs | None = None
        self._together: dict[str, str] = {}
        self._exporter: Exporter | None = None

    def check(self, config: Config) -> None:
        together = _together(config)
        for model in config.models.values():
            if isinstance(model.engine, EmbeddedEngine) and model.pool in together:
                raise StartError(f"Model {model.name} cannot be served. {together[model.pool]}")
        for tenant in config.job_users:
            try:
                Users(names=config.job_users).of(tenant)
            except BackendError as error:
                raise StartError(str(error)) from None
        self._together = together

    def backends(self, config: Config) -> Backends:
        return default_backends(config)

    def processes(self) -> tuple[int, ...]:
        """What belongs to the product, with all below it. Jobs outlive this process, and are none of its children."""
        return (os.getpid(), *(self._jobs.runners() if self._jobs is not None else ()))

    def jobs(self, config: Config) -> LocalJobs:
        self._jobs = LocalJobs(
            config.state / "jobs",
            users=Users(jobs_folder(config), config.job_users),
            refusal=lambda pool: self._together.get(pool, ""),
        )
        return self._jobs

    def identity(self, keys: Sequence[Key], clock: Callable[[], int]) -> Identity:
        return Identity(keys, clock)

    def data_plane(self, config: Config, desk: CoreDesk, identity: Identity, **options: Any) -> DataPlane:
        self._exporter = exporter(config)
        begun = traces(config, self._exporter, options["clock"])
        return Gateway(config, desk, identity.identify, traces=begun, **options)

    def families(self) -> Iterable[Family]:
        return () if self._exporter is None else exporting.families(self._exporter.became)

    def gateway(self, address: Address) -> Address:
        return address

    def notes(self, config: Config) -> Sequence[Said]:  # noqa: ARG002 - whatever it says
        return ()

    def listening(self) -> Sequence[Listening]:
        """The only one is of this process."""
        return ()

    async def first_token_at(self, desk: CoreDesk, request_id: str) -> int:
        return desk.first_token_at(request_id)

    def nodes(self, config: Config, desk: CoreDesk) -> Watch:
        here = Discovery(ours=self.processes)
        return Nodes(desk, config, discover=here.discover, load=here.load)

    def soon(self) -> Soon | None:
        return asyncio.get_running_loop().call_soon

    async def recovered(self) -> None:
        """Requests end with the process, and jobs were taken up."""
