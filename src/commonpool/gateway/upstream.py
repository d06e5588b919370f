"""Connections to engines: kept alive, taken last-in first-out, one request on each at a time.

A connection is used again only after a whole answer and within what the engine promises in its `Keep-Alive` header;
after anything else, a cancelled request above all, it is closed, so that no answer can reach a later request.
"""

import asyncio
import enum
import re
from collections.abc import Callable
from typing import Final, Protocol, cast

import httptools

from commonpool.config.structs import Timeouts
from commonpool.engines import reach
from commonpool.engines.base import Target
from commonpool.gateway.pulse import Pulse

NS_PER_S: Final = 1_000_000_000
IDLE_PER_REPLICA_MAX: Final = 512
IDLE_NS_UNTOLD: Final = 4 * NS_PER_S  # engines that tell no time close after 5 s (uvicorn's default)
IDLE_NS_MARGIN: Final = NS_PER_S
IDLE_NS_MAX: Final = 60 * NS_PER_S
LEFT_NS: Final = 10 * NS_PER_S
REQUESTS_UNTOLD: Final = 1_000_000
HEAD_BYTES_MAX: Final = 64 * 1024
JOINED_BYTES_MAX: Final = 64 * 1024

_LENGTH, _CONNECTION, _TYPE, _KEEP_ALIVE, _ENCODING = range(1, 6)
_NAMES: Final = {
    b"content-length": _LENGTH,
    b"transfer-encoding": _LENGTH,
    b"connection": _CONNECTION,
    b"content-type": _TYPE,
    b"keep-alive": _KEEP_ALIVE,
    b"content-encoding": _ENCODING,
}
_NAMES_AS_SENT: Final = _NAMES | {name.title(): kind for name, kind in _NAMES.items()}
_HINT: Final = re.compile(rb"(timeout|max)\s*=\s*\"?(\d{1,9})")


class Loss(enum.Enum):
    """Why an answer did not come, or not whole."""

    UNREACHED = "unreached"  # no connection; the engine never saw the request
    STALE = "stale"  # a kept connection turned out to be closed
    BROKEN = "broken"  # the connection broke before the first byte of the answer
    CUT = "cut"  # it broke within the answer
    SILENT = "silent"  # the engine was silent for too long


class CodedError(Exception):
    """An engine's answer is compressed, which nobody asked for. It is never unpacked: a few bytes may become any number
    of them.
    """


class Reader(Protocol):
    """Who reads an answer. After `done` or `lost`, or once it aborted the connection, it is called no more."""

    def head(self, status: int, *, event_stream: bool) -> None:
        """The answer's head came."""

    def data(self, piece: bytes) -> None:
        """Some of its body came."""

    def done(self) -> None:
        """It is whole."""

    def lost(self, loss: Loss) -> None:
        """It will not come, or not come whole."""


class UpstreamConnection(asyncio.Protocol):
    """One connection to one replica, and the parser's callbacks for its answers."""

    __slots__ = ("_begun", "_closing", "_delimited", "_event_stream", "_head_bytes", "_headed", "_heads",
                 "_idle_ns", "_left", "_overrun", "_parser", "_paused", "_pending", "_pieces", "_pool", "_requests_max",
                 "_served", "_status", "_task", "_told", "_transport", "_whole", "idle_until_ns", "reader", "target",
                 "touched_ns")  # fmt: skip

    def __init__(self, pool: "Pool", target: Target) -> None:
        self.target = target
        self.reader: Reader | None = None
        self.touched_ns = pool.pulse.now_ns
        self.idle_until_ns = 0
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._pending: tuple[bytes, ...] = ()
        self._heads: dict[str, bytes] = {}
        self._pieces: list[bytes] = []
        self._idle_ns = IDLE_NS_UNTOLD
        self._status = 0
        self._head_bytes = 0  # of the answer so far, those of 1xx answers included
        self._requests_max = REQUESTS_UNTOLD
        self._served = 0
        self._paused = False
        self._begun = False  # some byte of the answer came
        self._headed = False  # its head is whole
        self._told = False  # the reader knows the head
        self._whole = False
        self._overrun = False  # bytes came that no request asked for
        self._closing = False  # the engine closes behind this answer
        self._delimited = False  # the answer says where it ends
        self._event_stream = False
        self._left: Callable[[bool], None] | None = None  # who hears whether the engine closes a request that was left

    # -- the reader's side

    def send(self, reader: Reader, path: str, body: bytes, extra: bytes = b"") -> None:
        """Send one request; `extra` are further header lines. The answer goes to `reader`."""
        self.reader = reader
        self.touched_ns = self._pool.pulse.now_ns
        self._head_bytes = 0
        self._begun = self._headed = self._told = self._whole = False
        self._overrun = self._closing = self._delimited = self._event_stream = False
        head = self._heads.get(path)
        if head is None:
            head = self._heads[path] = _request_head(self.target, path)
        start = b"%b%bcontent-length: %d\r\n\r\n" % (head, extra, len(body))
        transport = self._transport
        if transport is None:
            self._pending = (start, body)
        elif len(body) <= JOINED_BYTES_MAX:
            transport.write(start + body)
        else:
            transport.writelines((start, body))

    def pause(self) -> None:
        """Read no more for now: the client is slower than the engine."""
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self.touched_ns = self._pool.pulse.now_ns
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once, whatever is under way; the reader hears nothing more."""
        self.reader = None
        left, self._left = self._left, None
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()
        if left is not None:
            left(False)

    def leave(self, heard: Callable[[bool], None]) -> None:
        """Give the answer up; the reader hears nothing more.

        Our half of the connection is closed; an engine that sees it closes the other half when it is through with the
        request, so that nothing of it is to come: then `heard` is called with True. It is called with False when that
        takes longer than `LEFT_NS`, more than once, and when the engine is cut off, as one is that never closes, or
        that cannot be told so (TLS).
        """
        transport = self._transport
        if transport is None:  # nothing was sent, or the engine has closed it already
            self.abort()
            heard(True)
        elif not transport.can_write_eof():
            self.abort()
            heard(False)
        else:
            self.resume()
            self.reader = None
            self.touched_ns = self._pool.pulse.now_ns
            self._left = heard
            if not transport.is_closing():
                transport.write_eof()

    # -- connecting

    def connect(self, connect_ns: int) -> None:
        self._task = asyncio.get_running_loop().create_task(self._connect(connect_ns))
        self._task.add_done_callback(self._connected)

    def _connected(self, task: asyncio.Task[None]) -> None:
        """Called even where the task was cancelled before it began; uvloop then loses a connection without a word."""
        if task.cancelled() or self._transport is None:
            self._pool.forget(self)

    async def _connect(self, connect_ns: int) -> None:
        try:
            async with asyncio.timeout(connect_ns / NS_PER_S):
                await reach.connect(lambda: self, self.target)
        except (OSError, ValueError):  # a TimeoutError is an OSError, a host that is no name a ValueError
            if self._transport is None:
                self._lose(Loss.UNREACHED)

    # -- the transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.reader is None:
            self._transport.abort()
            return
        self.touched_ns = self._pool.pulse.now_ns
        self._transport.writelines(self._pending)
        self._pending = ()

    def data_received(self, data: bytes) -> None:
        reader = self.reader
        if reader is None:
            self._discard()
            return
        self._begun = True
        self.touched_ns = self._pool.pulse.now_ns
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._whole:
                self._lose(Loss.CUT)
                self.abort()
                return
            self._overrun = True  # the answer itself was whole
        if not self._headed:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._lose(Loss.CUT)
                self.abort()
            return
        if not self._told:
            self._told = True
            reader.head(self._status, event_stream=self._event_stream)
        if self._pieces and self.reader is reader:
            pieces = self._pieces
            self._pieces = []
            reader.data(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._whole and self.reader is reader:
            self._recycle()
            reader.done()

    def _discard(self) -> None:
        """Nobody reads this: it is of a request that was left, or of none."""
        if self._left is None:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._pool.forget(self)
        reader = self.reader
        if reader is not None and exc is None and self._told and not self._delimited:
            self.reader = None
            reader.done()  # an answer that ends with its connection
        elif self._begun:
            self._lose(Loss.CUT)
        else:
            self._lose(Loss.STALE if self._served else Loss.BROKEN)
        del self._parser  # parser and connection refer to each other
        left, self._left = self._left, None
        if left is not None:
            left(True)

    def _lose(self, loss: Loss) -> None:
        reader = self.reader
        self.reader = None
        if reader is not None:
            reader.lost(loss)

    def _recycle(self) -> None:
        self.reader = None
        self._served += 1
        if self._closing or self._overrun or not self._delimited or self._served >= self._requests_max:
            self.abort()
            return
        self.resume()
        self.idle_until_ns = self._pool.pulse.now_ns + self._idle_ns
        self._pool.give(self)

    # -- llhttp's callbacks

    def on_message_begin(self) -> None:
        if self._whole:
            self._overrun = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._headed:  # a trailer, or the head of an answer that nobody asked for
            return
        kind = _NAMES_AS_SENT.get(name) or _NAMES.get(name.lower())
        if kind is None:
            return
        if kind == _LENGTH:
            self._delimited = True
        elif kind == _TYPE:
            self._event_stream = value[:17].lower() == b"text/event-stream"
        elif kind == _CONNECTION:
            self._closing = b"close" in value.lower()
        elif kind == _KEEP_ALIVE:
            self._promise(value)
        elif value.strip().lower() not in (b"", b"identity"):
            raise CodedError  # the parser passes it on as an error of its own

    def on_headers_complete(self) -> None:
        if not self._whole:
            self._status = self._parser.get_status_code()
            self._headed = self._status >= 200  # noqa: PLR2004 - 1xx are not the answer yet

    def on_body(self, piece: bytes) -> None:
        if not self._whole:
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self._whole = self._headed

    def _promise(self, value: bytes) -> None:
        """Obey `Keep-Alive: timeout=5, max=100`; the count is that of the connection, and we count ourselves."""
        for name, number in _HINT.findall(value.lower()):
            if name == b"timeout":
                self._idle_ns = min(int(number) * NS_PER_S - IDLE_NS_MARGIN, IDLE_NS_MAX)
            else:
                self._requests_max = int(number)

    # -- time

    def overdue(self, now_ns: int, timeouts: Timeouts) -> None:
        """Close what is idle past its time, and give up on an engine that is silent for too long."""
        if self._transport is None:
            return
        if self._left is not None:
            if now_ns - self.touched_ns > timeouts.first_byte_ns:
                self.abort()
            elif now_ns - self.touched_ns > LEFT_NS:
                self._left(False)
        elif self.reader is None:
            if now_ns >= self.idle_until_ns:
                self.abort()
        elif not self._paused:
            limit = timeouts.stall_ns if self._begun else timeouts.first_byte_ns
            if now_ns - self.touched_ns > limit:
                self._lose(Loss.SILENT)
                if self._left is None:  # nobody wants to hear when the engine is through with it
                    self.abort()


class Pool:
    """The connections to all replicas."""

    def __init__(self, pulse: Pulse, timeouts: Timeouts) -> None:
        self.pulse = pulse
        self.timeouts = timeouts
        self._idle: dict[str, list[UpstreamConnection]] = {}
        self._all: set[UpstreamConnection] = set()

    def send(
        self, target: Target, path: str, body: bytes, reader: Reader, *, extra: bytes = b"", fresh: bool = False
    ) -> UpstreamConnection:
        """Send a request on a kept connection, or on a new one where there is none or `fresh` asks for it."""
        connection = None if fresh else self._take(target)
        if connection is None:
            connection = UpstreamConnection(self, target)
            self._all.add(connection)
            connection.connect(self.timeouts.connect_ns)
        connection.send(reader, path, body, extra)
        return connection

    def _take(self, target: Target) -> UpstreamConnection | None:
        idle = self._idle.get(target.replica_id)
        while idle:
            connection = idle.pop()
            if self.pulse.now_ns < connection.idle_until_ns and (
                connection.target is target or connection.target == target
            ):
                return connection
            connection.abort()
        return None

    def give(self, connection: UpstreamConnection) -> None:
        """A connection is free for another request."""
        idle = self._idle.setdefault(connection.target.replica_id, [])
        if len(idle) < IDLE_PER_REPLICA_MAX:
            idle.append(connection)
        else:
            connection.abort()

    def forget(self, connection: UpstreamConnection) -> None:
        """A connection is gone."""
        self._all.discard(connection)
        idle = self._idle.get(connection.target.replica_id)
        if idle is not None and connection in idle:
            idle.remove(connection)
            if not idle:
                del self._idle[connection.target.replica_id]

    def sweep(self) -> None:
        """Once a beat: act on what is overdue."""
        for connection in tuple(self._all):
            connection.overdue(self.pulse.now_ns, self.timeouts)

    async def close(self) -> None:
        """Close every connection; when this returns they are gone."""
        for connection in tuple(self._all):
            connection.abort()
        while self._all:  # noqa: ASYNC110 - at the very end nothing else has to be told
            await asyncio.sleep(0)


def _request_head(target: Target, path: str) -> bytes:
    """The head of every request to one path of one replica, but for its length: nothing of it is the client's."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    lines = [
        f"POST {target.base_path}{path} HTTP/1.1\r\nhost: {host}:{target.port}\r\n".encode(),
        b"user-agent: commonpool\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n",
    ]
    if target.authorization is not None:
        lines.append(b"authorization: %b\r\n" % target.authorization)
    return b"".join(lines)
