"""The core actor: the whole product but for the gateways, in one named actor that Ray restarts when it dies."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import ray
from starlette.routing import BaseRoute

from commonpool.app import Product, Started
from commonpool.cluster import messages
from commonpool.cluster.house import RayHouse
from commonpool.cluster.messages import Reply
from commonpool.config import Sources, parse_sources
from commonpool.engines import confinement
from commonpool.observe import logs

UNKNOWN: Final = messages.encode(Reply(unknown=True))


class Applied(msgspec.Struct, frozen=True):
    """The configuration in force in one run of the product, kept so that a restarted core does not fall behind it."""

    run: str
    sources: Sources


class CoreActor:
    """`run` names the run of the product: another process of this actor with the same one takes up where it was.

    `address` is the node's own; `routes` makes the pages of the control plane.
    """

    def __init__(
        self,
        sources: Sources,
        run: str,
        address: str,
        program: Sequence[str],
        routes: Callable[[], Sequence[BaseRoute]],
    ) -> None:
        logs.configure("json")
        confinement.keep_to_itself()
        self._run = run
        self._state = parse_sources(sources).state
        self._house = RayHouse(ray.get_runtime_context().get_node_id(), address, program, self._keep)
        self._product: Product | None = None
        self._at_once = asyncio.Event()
        self._starting = asyncio.ensure_future(self._start(sources, routes))

    async def _start(self, sources: Sources, routes: Callable[[], Sequence[BaseRoute]]) -> Product:
        sources = self._applied() or sources
        product = self._product = Product(sources, parse_sources(sources), routes(), self._house)
        self._keep()
        await product.start()
        return product

    # -- what `launch` calls ---------------------------------------------------------------------------------------

    async def started(self) -> Started:
        """What runs, as soon as every model has a ready replica. Raises StartError and what else ends a start."""
        return (await self._starting).started()

    async def recovered(self) -> None:
        """Return when gateways are served, whatever becomes of the models. Raises what keeps it from that."""
        adopted = asyncio.ensure_future(self._house.adopted.wait())
        either: set[asyncio.Future[Any]] = {adopted, self._starting}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._house.adopted.is_set():
            adopted.cancel()
            await self._starting

    async def stop(self) -> None:
        """Drain and stop everything."""
        if not self._starting.done():
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._starting.cancelled() or self._starting.exception():
            self._at_once.set()  # nothing was served yet that would be worth waiting for
        if self._product is not None:
            await self._product.stop(self._at_once)
        self._house.nodes_held.release()

    async def hurry(self) -> None:
        """Stop without waiting for anyone."""
        self._at_once.set()

    async def life(self) -> None:
        """Never returns: the call fails when this process is gone."""
        await asyncio.Event().wait()

    # -- what gateways call ----------------------------------------------------------------------------------------

    async def hello(self, hello: bytes) -> bytes:
        await self._house.adopted.wait()
        assert self._house.fleet is not None  # noqa: S101 - the product has made it
        return messages.encode(self._house.fleet.greet(messages.decode_hello(hello)))

    async def tell(self, batch: bytes) -> bytes:
        fleet = self._house.fleet
        return UNKNOWN if fleet is None else messages.encode(fleet.hall.take(messages.decode_batch(batch)))

    async def listen(self, gateway: str, session: str, seen: int, within_s: float) -> bytes:
        fleet = self._house.fleet
        if fleet is None:
            return UNKNOWN
        return messages.encode(await fleet.hall.listen(gateway, session, seen, within_s))

    async def overheard(self, overheard: bytes) -> bytes:
        fleet = self._house.fleet
        if fleet is not None:
            fleet.overheard(messages.decode_overheard(overheard))
        return b""

    # -- inside ----------------------------------------------------------------------------------------------------

    @property
    def _file(self) -> Path:
        return self._state / "ray.json"

    def _keep(self) -> None:
        """Keep what is in force now."""
        if self._product is None:
            return
        self._house.configure(self._product.config())
        new = self._file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(Applied(self._run, self._product.sources())))
        new.replace(self._file)

    def _applied(self) -> Sources | None:
        """What was in force last in this run; None at its beginning."""
        try:
            applied = msgspec.json.decode(self._file.read_bytes(), type=Applied)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return applied.sources if applied.run == self._run else None
