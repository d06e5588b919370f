"""The way into a listener with TLS: handshakes in a bounded time and a bounded number, before anything else is made.

Until its handshake is over a client is no connection of the server behind: that sees whole clients only, and costs a
plain listener nothing.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final, cast

from commonpool.access.tls import Certificate

HANDSHAKES_MAX: Final = 1000  # each takes some 50 KB
SHUTDOWN_S: Final = 5.0  # for a client to say that it has seen the end


class Door:
    """The handshakes of one listener.

    More than `most` at once: the oldest goes, since an honest handshake is over in the time of a few packets.
    """

    def __init__(self, certificate: Certificate, *, within_ns: int, most: int = HANDSHAKES_MAX) -> None:
        self.certificate = certificate
        self._within_s = within_ns / 1e9
        self._most = most
        self._pending: dict[asyncio.Task[None], None] = {}

    def __len__(self) -> int:
        """How many handshakes are under way."""
        return len(self._pending)

    def greet(self, make: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        """The protocol for a client that connects; `make()` is the server's own, which follows its handshake."""
        return _Arrival(self, make)

    def begin(self, arrived: socket.socket, make: Callable[[], asyncio.Protocol]) -> None:
        """Shake hands on a socket of ours."""
        if len(self._pending) >= self._most:
            oldest = next(iter(self._pending))
            self._over(oldest)
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._shake(arrived, make))
        self._pending[task] = None
        task.add_done_callback(self._over)

    def close(self) -> None:
        """End the handshakes that are under way."""
        for task in tuple(self._pending):
            task.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._pending.pop(task, None)

    async def _shake(self, arrived: socket.socket, make: Callable[[], asyncio.Protocol]) -> None:
        with contextlib.suppress(OSError):  # no TLS, an old one, no certificate, too slow, or gone
            await asyncio.get_running_loop().connect_accepted_socket(
                make,
                arrived,
                ssl=self.certificate.context,
                ssl_handshake_timeout=self._within_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )


class _Arrival(asyncio.Protocol):
    """A client that has connected. Its socket is taken off the loop unread: TLS has to see the first byte.

    `loop.start_tls` is for this, but uvloop reads from a connection as soon as it is made, whatever is said.
    """

    def __init__(self, door: Door, make: Callable[[], asyncio.Protocol]) -> None:
        self._door = door
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        sock = transport.get_extra_info("socket")
        arrived = socket.fromfd(sock.fileno(), sock.family, sock.type, sock.proto)
        arrived.setblocking(False)
        cast("asyncio.Transport", transport).abort()  # closes its descriptor, and not the connection
        self._door.begin(arrived, self._make)
