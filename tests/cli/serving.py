"""A control plane over a fake product on a real loopback socket, in a thread, for commands to talk to."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

from commonpool.api import routes
from commonpool.api.server import Server
from commonpool.config.structs import Tls
from tests.api.fakes import FakeOperations

WITHIN_S = 120


@contextlib.contextmanager
def serving(
    product: FakeOperations,
    files: Tls | None = None,
    served_by: Callable[[asyncio.AbstractEventLoop], None] = lambda _: None,
) -> Iterator[str]:
    """Its URL, while it serves; `served_by` is told the loop, for what is to be done there."""
    url: list[str] = []
    started, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    served_by(loop)

    async def serve() -> None:
        server = Server(routes.application(product), files)
        await server.start("127.0.0.1", 0)
        url.append(f"{'http' if files is None else 'https'}://127.0.0.1:{server.port}")
        started.set()
        await stop.wait()
        await server.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(WITHIN_S)
        yield url[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(WITHIN_S)
        loop.close()
