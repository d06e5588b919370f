"""The control plane's listener: uvicorn within a loop that somebody else runs.

uvicorn bounds neither how long a client may be silent or its head nor who may be connected, and what it calls its limit
refuses everybody once enough are connected that ask for nothing. So all are here: `_Protocol` has the patience,
`api.lobby` the connections, `api.crowd` what is asked at once.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final, Literal, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from commonpool.access import tls
from commonpool.access.handshake import Door
from commonpool.api.bodies import WITHIN_S
from commonpool.api.crowd import Crowd, Limits
from commonpool.api.lobby import Lobby
from commonpool.api.streaming import CUT
from commonpool.config.structs import Timeouts, Tls
from commonpool.core.model import NS_PER_S
from commonpool.core.networks import party

HEAD_BYTES_MAX: Final = 64 * 1024  # as the gateway's: what is no body is held in memory until it is whole
TOO_LONG: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

Owed = Literal["", "head", "body"]


class _Embedded(uvicorn.Server):
    """uvicorn that leaves signals alone: what Ctrl-C means is decided for the product as a whole."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Protocol(HttpToolsProtocol):
    """uvicorn's, of which an application can end the connection: a reader that takes nothing keeps it otherwise.

    A client has `timeouts.header` for a head, from when it connects or begins one, `body_within_s` for the whole body,
    and may take nothing of an answer for `timeouts.stall`.
    """

    def __init__(self, *, lobby: Lobby, timeouts: Timeouts, body_within_s: float, **options: Any) -> None:
        super().__init__(**options)
        self.address = ""
        self._lobby = lobby
        self._timeouts = timeouts
        self._body_within_s = body_within_s
        self._sending = False  # a message of the client has begun, and is not whole
        self._parsed = False  # a head, a part of a body or the end of a message, of the bytes that came last
        self._held_bytes = 0  # that came since such a thing did
        self._owed: Owed = ""
        self._awaited: asyncio.TimerHandle | None = None
        self._untaken: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether all that was asked is answered."""
        return self.cycle is None or self.cycle.response_complete

    def leave(self) -> None:
        """See `lobby.Guest`."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self.address = party(self.client[0]) if self.client else ""
        self._owe("head")
        self._lobby.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lobby.left(self)
        self._owe("")
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._parsed = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        self._held_bytes = 0 if self._parsed else self._held_bytes + len(data)
        if self._held_bytes <= HEAD_BYTES_MAX:
            self._owe("head" if self.idle else "body" if self._sending else "")
        elif self.idle:
            self.transport.write(TOO_LONG)
            self.transport.close()
        else:
            self.leave()

    def on_message_begin(self) -> None:
        self._sending = True
        super().on_message_begin()
        self.scope["extensions"] = {CUT: {"now": self.transport.abort}}

    def on_headers_complete(self) -> None:
        self._parsed = True
        super().on_headers_complete()
        self._lobby.asks(self)

    def on_body(self, body: bytes) -> None:
        self._parsed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._parsed = True
        self._sending = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.idle:
            self._lobby.rests(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._untaken is None:
            self._untaken = self.loop.call_later(self._timeouts.stall_ns / NS_PER_S, self.leave)

    def resume_writing(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None
        super().resume_writing()

    def _owe(self, what: Owed) -> None:
        """What the client has to send. It has so long from when it began to owe that; more bytes are no more time."""
        if what == self._owed:
            return
        self._owed = what
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None
        if what:
            within_s = self._timeouts.header_ns / NS_PER_S if what == "head" else self._body_within_s
            self._awaited = self.loop.call_later(within_s, self.leave)


class Server:
    """Serves an application on one address. `port` is the bound one, once started. Without `files` it has no TLS.

    A client has `body_within_s` for the whole body of a request; `timeouts.body` is the gateway's, of a silence.
    """

    def __init__(
        self,
        application: ASGIApp,
        files: Tls | None = None,
        timeouts: Timeouts | None = None,
        lobby: Lobby | None = None,
        limits: Limits | None = None,
        body_within_s: float = WITHIN_S,
    ) -> None:
        self._files = files
        self._timeouts = timeouts or Timeouts()
        self._lobby = Lobby() if lobby is None else lobby
        self._body_within_s = body_within_s
        self._door: Door | None = None
        self._watching: asyncio.Task[None] | None = None
        config = uvicorn.Config(
            Crowd(application, limits),
            http=self._speak if files is None else self._greet,  # type: ignore[arg-type] # it makes one, later
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # a forwarded address must never pass for a loopback peer
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,  # nothing here takes longer; a page left open must not hold the exit
        )
        self._server = _Embedded(config)
        self._socket: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError where the address is taken or not ours, TlsError for a certificate of no use."""
        if self._files is not None:
            certificate = tls.Certificate("listen.control_tls", self._files)
            self._door = Door(certificate, within_ns=self._timeouts.header_ns)
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

    def _speak(self, **options: Any) -> asyncio.Protocol:
        """Called by uvicorn for each client, as its own protocol would be."""
        return _Protocol(lobby=self._lobby, timeouts=self._timeouts, body_within_s=self._body_within_s, **options)

    def _greet(self, **options: Any) -> asyncio.Protocol:
        """The same behind TLS: the handshake comes first."""
        assert self._door is not None  # noqa: S101 - there are clients only once it listens
        return self._door.greet(lambda: self._speak(**options))

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
