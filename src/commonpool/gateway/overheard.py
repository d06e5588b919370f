"""A client's connection of which somebody hears what is answered on it. The answer itself is not held up.

The copy is of the bytes as they are sent, head and chunks included; `engines.heard` takes it apart, later.
"""

from collections.abc import Callable

import msgspec

from commonpool.gateway.errors import ApiError
from commonpool.gateway.http import Outlet


class Heard(msgspec.Struct, frozen=True):
    """What was sent. `cut`: there was more than is kept. `gone`: the client left before the end."""

    raw: bytes
    cut: bool = False
    gone: bool = False


class Overheard:
    """`connection`, of whose one answer `heard` gets a copy at its end, of `bytes_max` at most."""

    __slots__ = ("_bytes_left", "_connection", "_cut", "_heard", "_pieces")

    def __init__(self, connection: Outlet, heard: Callable[[Heard], None], bytes_max: int) -> None:
        self._connection = connection
        self._heard = heard
        self._bytes_left = bytes_max
        self._cut = False
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._keep(data)
        self._connection.write(data)

    def finish(self, data: bytes) -> None:
        self._keep(data)
        self._over(gone=False)
        self._connection.finish(data)

    def fail(self, error: ApiError, request_id: str = "", headers: bytes = b"") -> None:
        body = error.body()
        self._keep(b"HTTP/1.1 %d Error\r\ncontent-length: %d\r\n\r\n%b" % (error.status, len(body), body))
        self._over(gone=False)
        self._connection.fail(error, request_id, headers)

    def left(self) -> None:
        self._over(gone=True)
        self._connection.left()

    def _keep(self, data: bytes) -> None:
        """The gateway's bound on what is held for all clients counts copies, too."""
        if self._cut:
            return
        if len(data) > self._bytes_left or not self._connection.hold(len(data)):
            self._cut = True
            return
        self._bytes_left -= len(data)
        self._pieces.append(data)

    def _over(self, *, gone: bool) -> None:
        self._heard(Heard(b"".join(self._pieces), self._cut, gone))

    # -- as the connection itself ----------------------------------------------------------------------------------

    @property
    def http10(self) -> bool:
        return self._connection.http10

    @property
    def stalled(self) -> bool:
        return self._connection.stalled

    def persistence(self) -> bytes:
        return self._connection.persistence()

    def close_after(self) -> None:
        self._connection.close_after()

    def hold(self, size: int) -> bool:
        return self._connection.hold(size)

    def cut(self) -> None:
        self._connection.cut()
