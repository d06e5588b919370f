"""Serving a configuration until a signal ends it."""

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import uvloop
from starlette.routing import BaseRoute

from commonpool.app.product import Product, Started
from commonpool.config import Config, Sources, parse_sources, read_sources
from commonpool.engines import confinement
from commonpool.observe import logs

SWITCH_S: Final = 0.001  # how long the loop waits for a thread that computes, as pages are drawn; Python's own is 5 ms


def run(path: Path, announce: Callable[[Started], None], extra_routes: Sequence[BaseRoute] = ()) -> None:
    """Serve the configuration at `path` until SIGINT or SIGTERM; a second one stops at once.

    `announce` is called when every model has a ready replica. Raises ConfigError, StartError, StoreError or
    JournalError, each with a sentence for people.
    """
    sources = read_sources(path)
    config = parse_sources(sources)
    confinement.keep_to_itself()
    logs.configure("console" if sys.stderr.isatty() else "json")
    sys.setswitchinterval(SWITCH_S)
    uvloop.run(_serve(sources, config, announce, extra_routes))


async def _serve(
    sources: Sources, config: Config, announce: Callable[[Started], None], extra_routes: Sequence[BaseRoute]
) -> None:
    stop, at_once = asyncio.Event(), asyncio.Event()

    def asked() -> None:
        if stop.is_set():
            at_once.set()
        stop.set()

    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, asked)
    product = Product(sources, config, extra_routes)
    try:
        starting = asyncio.ensure_future(product.start())
        try:
            await _first(starting, stop)
        except BaseException:
            at_once.set()  # nothing was served yet that would be worth waiting for
            raise
        if not stop.is_set():
            announce(product.started())
            await stop.wait()
    finally:
        await product.stop(at_once)


async def _first(work: asyncio.Future[None], stop: asyncio.Event) -> None:
    """Wait for the work, or abandon it when a stop is asked for."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        either: set[asyncio.Future[Any]] = {work, stopping}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        else:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    finally:
        stopping.cancel()
