"""The control plane's listener: uvicorn within a loop that somebody else runs."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from commonpool.access import tls
from commonpool.access.handshake import Door
from commonpool.api.streaming import CUT
from commonpool.config.structs import Timeouts, Tls


class _Embedded(uvicorn.Server):
    """uvicorn that leaves signals alone: what Ctrl-C means is decided for the product as a whole."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Protocol(HttpToolsProtocol):
    """uvicorn's, of which an application can end the connection: a reader that takes nothing keeps it otherwise."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CUT: {"now": self.transport.abort}}


class Server:
    """Serves an application on one address. `port` is the bound one, once started. Without `files` it has no TLS."""

    def __init__(self, application: ASGIApp, files: Tls | None = None, within_ns: int = Timeouts().header_ns) -> None:
        self._files = files
        self._within_ns = within_ns
        self._door: Door | None = None
        self._watching: asyncio.Task[None] | None = None
        config = uvicorn.Config(
            application,
            http=_Protocol if files is None else self._greet,  # type: ignore[arg-type] # it makes one, later
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # a forwarded address must never pass for a loopback peer
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,  # nothing here takes longer; a page left open must not hold the exit
            limit_concurrency=256,
        )
        self._server = _Embedded(config)
        self._socket: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError where the address is taken or not ours, TlsError for a certificate of no use."""
        if self._files is not None:
            certificate = tls.Certificate("listen.control_tls", self._files)
            self._door = Door(certificate, within_ns=self._within_ns)
            self._watching = asyncio.create_task(certificate.watch(), name="certificate of the control plane")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family, backlog=128)
        self._socket = bound
        self.port = bound.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[bound]), name="control plane")
        while not self._server.started:
            if self._serving.done():
                await self._serving  # raises what went wrong
                msg = f"the control plane ended at once on {host}:{port}"
                raise OSError(msg)
            await asyncio.sleep(0.001)

    def _greet(self, **options: Any) -> asyncio.Protocol:
        """Called by uvicorn for each client, as its own protocol would be."""
        assert self._door is not None  # noqa: S101 - there are clients only once it listens
        return self._door.greet(lambda: _Protocol(**options))

    async def stop(self) -> None:
        """Finish what is being answered, for two seconds at most, and close. Does nothing when not started."""
        if self._watching is not None:
            self._watching.cancel()
        if self._door is not None:
            self._door.close()
        if self._serving is not None:
            self._server.should_exit = True
            await self._serving
            self._serving = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
