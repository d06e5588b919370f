"""A client's connection: HTTP/1.1 and 1.0 as strict as a web server's, one request at a time, in order.

A connection is in one of five states. What arrives while an answer is under way is kept, bounded, and read when its
turn comes; reading goes on meanwhile, so that a client that goes away is seen at once.
"""

import asyncio
import enum
import socket
from functools import partial
from typing import Final, Protocol, cast

from commonpool.config.structs import Timeouts
from commonpool.gateway.chunked import ChunkedBody
from commonpool.gateway.errors import PHRASES, ApiError
from commonpool.gateway.head import Head, HeadReader, Template
from commonpool.gateway.identity import Principal
from commonpool.gateway.pulse import Pulse
from commonpool.gateway.repeats import HeldBack, Repeats

AHEAD_BYTES_MAX: Final = 64 * 1024
LINGER_NS: Final = 5_000_000_000
LINGER_BYTES_MAX: Final = 64 * 1024 * 1024
DISCARD_BYTES_MAX: Final = 64 * 1024
TCP_ESTABLISHED: Final = 1  # as in the kernel's tcp_states.h
NO_HEAD: Final = Head("GET", b"", False, False, None, None, False, False, None)
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class State(enum.Enum):
    """What the connection is doing."""

    HEAD = "head"  # waiting for a request's head, or within one
    BODY = "body"
    BUSY = "busy"  # a request is being answered
    LINGER = "linger"  # the last answer is written; what still comes is thrown away, so that the client can read it
    CLOSED = "closed"


# An attribute of an Enum costs more than all else that is done with it here (100 ns on Python 3.11), so bind them once.
HEAD, BODY, BUSY, LINGER, CLOSED = State


class Exchange(Protocol):
    """The answer under way, as its connection sees it."""

    def gone(self) -> None:
        """The client went away."""

    def pause(self) -> None:
        """The client reads more slowly than the answer comes."""

    def resume(self) -> None:
        """It has caught up."""

    def overdue(self, now_ns: int) -> None:
        """Once a beat: act on an answer that takes longer than it may."""


class Outlet(Protocol):
    """A client's connection, as the exchange sees it that answers on it."""

    @property
    def http10(self) -> bool:
        """Whether the client knows no chunks."""

    @property
    def stalled(self) -> bool:
        """Whether the client reads more slowly than it is written to."""

    def persistence(self) -> bytes:
        """The header line that says whether the connection goes on, where it has to be said."""

    def close_after(self) -> None:
        """The end of the present answer is the end of the connection."""

    def hold(self, size: int) -> bool:
        """Account for bytes kept for this connection's request; false when there are too many in all."""

    def write(self, data: bytes) -> None:
        """Some of an answer."""

    def finish(self, data: bytes) -> None:
        """The last bytes of an answer; then the next request's turn comes."""

    def fail(self, error: ApiError, request_id: str = "", headers: bytes = b"") -> None:
        """Answer with an error."""

    def left(self) -> None:
        """The client is gone, and the answer under way ends here."""

    def cut(self) -> None:
        """Close at once."""


class Purse:
    """What the gateway keeps for the requests of one tenant, in bytes."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0


class Service(Protocol):
    """What a connection needs of the gateway. `held` counts the bytes of bodies kept for all clients together."""

    pulse: Pulse
    draining: bool
    held: int
    held_max: int
    body_bytes_max: int
    repeats: Repeats

    def purse(self, principal: Principal | None) -> Purse:
        """Where what is kept for a request of theirs is counted."""

    def admit(self, head: Head, length: int, peer: str | None) -> Principal | None:
        """Judge a request by its head alone, and by who is connected; None where the path needs no identity.

        Raises ApiError.
        """

    def begin(self, connection: "ServerConnection", head: Head, principal: Principal | None, body: bytes) -> None:
        """Answer a whole request, now or later. Raises ApiError."""

    def next_id(self) -> str:
        """A fresh request id."""

    def refused(self, error: ApiError) -> None:
        """An error was answered; only counted."""

    def opened(self, connection: "ServerConnection") -> bool:
        """A client connected; false when there are too many."""

    def closed(self, connection: "ServerConnection") -> None:
        """A client's connection is gone."""


class ServerConnection(asyncio.Protocol):
    """One client's connection."""

    __slots__ = ("_ahead", "_body", "_chunked", "_closing", "_full", "_head", "_held", "_lingered", "_missing",
                 "_peer", "_principal", "_pumping", "_purse", "_reader", "_refusal", "_requests", "_service",
                 "_stalled_ns", "_template", "_touched_ns", "_transport", "_whole", "exchange", "state")  # fmt: skip

    _transport: asyncio.Transport
    _peer: str | None  # the address that is connected; None for a socket that has none
    _body: bytearray

    def __init__(self, service: Service) -> None:
        self.state = HEAD
        self.exchange: Exchange | None = None
        self._service = service
        self._head = NO_HEAD
        self._template: Template | None = None
        self._reader: HeadReader | None = None
        self._principal: Principal | None = None
        self._purse = service.purse(None)
        self._refusal: ApiError | None = None
        self._chunked: ChunkedBody | None = None
        self._missing = 0  # bytes of the body still to come
        self._ahead = b""  # bytes behind the request that is being answered
        self._full = False  # so many that reading is paused
        self._held = 0
        self._closing = False  # no request is read after this one
        self._whole = True  # the request that is being answered was read to its end
        self._pumping = False
        self._requests = 0
        self._lingered = 0
        self._stalled_ns: int | None = None  # since when the client has not read
        self._touched_ns = service.pulse.now_ns

    # -- the transport's callbacks ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self._peer = address[0] if isinstance(address, tuple) else None
        if not self._service.opened(self):
            self._closing = True
            self.fail(ApiError(503, "too_many_connections", "Too many clients are connected; try again soon."))

    def data_received(self, data: bytes) -> None:
        self._pump(data)

    def eof_received(self) -> None:
        if self.state is BUSY:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was lost
        self.state = CLOSED
        self._release()
        self._service.closed(self)
        exchange = self.exchange
        self.exchange = None
        if exchange is not None:
            exchange.gone()

    def pause_writing(self) -> None:
        self._stalled_ns = self._service.pulse.now_ns
        if self.exchange is not None:
            self.exchange.pause()

    def resume_writing(self) -> None:
        self._stalled_ns = None
        if self.exchange is not None:
            self.exchange.resume()
        elif self.state is BUSY:
            self._next()

    # -- reading ---------------------------------------------------------------------------------------------------

    def _pump(self, data: bytes) -> None:
        """Read what came, request by request, as far as it may be read now."""
        self._pumping = True
        try:
            while data:
                state = self.state
                if state is HEAD:
                    data = self._read_head(data)
                elif state is BODY:
                    data = self._read_body(data)
                else:
                    self._set_aside(data)
                    return
        except ApiError as error:
            self.fail(error)
        finally:
            self._pumping = False

    def _read_head(self, data: bytes) -> bytes:
        reader = self._reader
        if reader is None:
            template = self._template
            if template is not None and (found := template.match(data)) is not None:
                at, length = found
                return self._headed(template.head, length, data[at:])
            reader = self._reader = HeadReader()
        fresh = not reader.begun
        rest = reader.feed(data)
        head = reader.head
        if fresh and reader.begun:  # blank lines before it are no sign of life
            self._touched_ns = self._service.pulse.now_ns
        if head is None:
            return b""
        self._reader = None
        if fresh:
            self._template = Template.learn(data[: len(data) - len(rest)], head)
        return self._headed(head, head.length or 0, rest)

    def _headed(self, head: Head, length: int, rest: bytes) -> bytes:
        """A head is read and `rest` follows it. Its body is read only when the head alone is acceptable."""
        self._head = head
        self._closing = not head.keep_alive or self._service.draining
        self._requests += 1
        try:
            self._principal = principal = self._service.admit(head, length, self._peer)
            self._purse = self._service.purse(principal)
        except ApiError as error:
            if error.close or head.expects or head.chunked or length > DISCARD_BYTES_MAX:
                error.close = True
                raise
            self._refusal = error  # the body is small: read it, then answer, and the connection can go on
        if head.chunked:
            self._chunked = ChunkedBody(self._service.body_bytes_max)
        elif len(rest) >= length:
            self._start(rest[:length])
            return rest[length:]
        else:
            self._body = bytearray()
            self._missing = length
        self.state = BODY
        self._touched_ns = self._service.pulse.now_ns
        if head.expects and not rest:
            self._transport.write(CONTINUE)
        return rest

    def _read_body(self, data: bytes) -> bytes:
        self._touched_ns = self._service.pulse.now_ns
        chunked = self._chunked
        if chunked is not None:
            rest = chunked.feed(data)
            self._hold(len(chunked.data) - self._held)
            if chunked.done:
                self._chunked = None
                self._start(bytes(chunked.data))
            return rest
        piece = data[: self._missing]
        self._body += piece
        self._hold(len(piece))
        self._missing -= len(piece)
        if not self._missing:
            body = bytes(self._body)
            self._body = bytearray()
            self._start(body)
        return data[len(piece) :]

    def _start(self, body: bytes) -> None:
        """A request is whole: have it answered."""
        self.state = BUSY
        try:
            if self._refusal is not None:
                raise self._refusal
            if len(body) != self._held and not self.hold(len(body) - self._held):
                raise crowded()
            self._service.begin(self, self._head, self._principal, body)
        except ApiError as error:
            self.fail(error)

    def _set_aside(self, data: bytes) -> None:
        """Bytes that are not to be read now: those of later requests are kept, others thrown away."""
        if self.state is BUSY:
            self._ahead += data
            if len(self._ahead) > AHEAD_BYTES_MAX and not self._full:
                self._full = True
                self._transport.pause_reading()
        elif self.state is LINGER:
            self._lingered += len(data)
            if self._lingered > LINGER_BYTES_MAX:
                self._transport.abort()

    # -- bytes held ------------------------------------------------------------------------------------------------

    def hold(self, size: int) -> bool:
        """Account for bytes kept for this connection's request; false when there are too many.

        A tenant may hold as much as is left besides: one alone half of all, so that another one always finds room.
        """
        service, purse = self._service, self._purse
        self._held += size
        service.held += size
        purse.held += size
        return service.held + purse.held <= service.held_max

    def _hold(self, size: int) -> None:
        if not self.hold(size):
            raise crowded()

    def _release(self) -> None:
        self._service.held -= self._held
        self._purse.held -= self._held
        self._held = 0

    # -- writing ---------------------------------------------------------------------------------------------------

    @property
    def http10(self) -> bool:
        """Whether the client knows no chunks."""
        return self._head.http10

    @property
    def stalled(self) -> bool:
        """Whether the client reads more slowly than it is written to."""
        return self._stalled_ns is not None

    def persistence(self) -> bytes:
        """The header line that says whether the connection goes on, where it has to be said."""
        if self._closing:
            return b"connection: close\r\n"
        return b"connection: keep-alive\r\n" if self._head.http10 else b""

    def close_after(self) -> None:
        """The end of the present answer is the end of the connection."""
        self._closing = True

    def write(self, data: bytes) -> None:
        """Some of an answer."""
        self._transport.write(data)

    def left(self) -> None:
        """The client is gone; there is nothing to do about it."""

    def finish(self, data: bytes) -> None:
        """The last bytes of an answer; then the next request's turn comes."""
        self.exchange = None
        if self.state is CLOSED:
            return
        self._transport.write(data)
        if self._stalled_ns is None:
            self._next()

    def _next(self) -> None:
        """An answer is written, down to what the transport buffers."""
        self._release()
        if self._closing:
            self._end()
            return
        self.state = HEAD
        self._head = NO_HEAD
        self._touched_ns = self._service.pulse.now_ns
        if self._pumping:
            return
        if self._ahead:
            data = self._ahead
            self._ahead = b""
            self._pump(data)
        if self._full and len(self._ahead) <= AHEAD_BYTES_MAX:
            self._full = False
            self._transport.resume_reading()

    def answer(self, status: int, headers: bytes, body: bytes, request_id: str = "") -> None:
        """A whole answer of our own; `headers` are further lines, each with its end."""
        phrase = PHRASES.get(status, "Error").encode()
        name = (request_id or self._service.next_id()).encode()
        lines = b"x-request-id: %b\r\n%b%b%b" % (name, self._service.pulse.date, headers, self.persistence())
        head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
        self.finish(head % (status, phrase, lines, len(body)) + (b"" if self._head.method == "HEAD" else body))

    def fail(self, error: ApiError, request_id: str = "", headers: bytes = b"") -> None:
        """Answer with an error, now or, where that is to be slowed, in a while."""
        if self.state is CLOSED:
            return
        if error.slowed is None:
            self._fail(error, request_id, headers)
            return
        self._release()
        told = partial(self._fail, error, request_id, headers)
        self.exchange = HeldBack(self._service.repeats, error.slowed, told)

    def _fail(self, error: ApiError, request_id: str, headers: bytes) -> None:
        self._service.refused(error)
        # Only a request that was read whole leaves the connection where the next one begins.
        self._whole = self.state is BUSY
        self._closing = self._closing or error.close or not self._whole
        self.state = BUSY
        self._refusal = None
        self._reader = None
        self._chunked = None
        self.answer(error.status, error.headers() + headers, error.body(), request_id)

    def _end(self) -> None:
        """Close behind the last answer, so that a client that still sends can read it first."""
        self.state = LINGER
        self._touched_ns = self._service.pulse.now_ns
        self._ahead = b""
        if self._full:
            self._full = False
            self._transport.resume_reading()
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        elif self._whole:  # TLS ends both directions at once, and nothing more is to come
            self._transport.close()

    # -- time ------------------------------------------------------------------------------------------------------

    def retire(self) -> None:
        """The gateway stops: close now where nothing is under way, else behind the present answer."""
        self._closing = True
        if self.state is HEAD and (self._reader is None or not self._reader.begun):
            self._transport.close()

    def cut(self) -> None:
        """Close at once."""
        self._transport.abort()

    def overdue(self, now_ns: int, timeouts: Timeouts) -> None:
        """Once a beat: act on a client that is too slow, or that left unseen, and on an answer that takes too long."""
        if self.exchange is not None:
            self.exchange.overdue(now_ns)
        silent_ns = now_ns - self._touched_ns
        if self._full and self._left():
            self._transport.abort()
        elif self.state is HEAD:
            self._overdue_head(silent_ns, timeouts)
        elif self.state is BODY:
            if silent_ns > timeouts.body_ns:
                self.fail(_too_slow("body", timeouts.body_ns))
        elif self._stalled_ns is not None:
            if now_ns - self._stalled_ns > timeouts.stall_ns:
                self._transport.abort()
        elif self.state is LINGER and silent_ns > self._patience_ns(timeouts):
            self._transport.abort()

    def _overdue_head(self, silent_ns: int, timeouts: Timeouts) -> None:
        if self._reader is not None and self._reader.begun:
            if silent_ns > timeouts.header_ns:
                self.fail(_too_slow("request head", timeouts.header_ns))
        elif silent_ns > (timeouts.idle_ns if self._requests else timeouts.header_ns):
            self._transport.abort()  # nothing is owed to it; what it has not read by now it does not want

    def _patience_ns(self, timeouts: Timeouts) -> int:
        """How long to wait for a client to hang up; one that still reads its last answer is only slow."""
        return timeouts.stall_ns if self._transport.get_write_buffer_size() else LINGER_NS

    def _left(self) -> bool:
        """Whether the client is gone; asked of the kernel, which tells it only to those who read."""
        sock = self._transport.get_extra_info("socket")
        state: int = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        return state != TCP_ESTABLISHED


def crowded() -> ApiError:
    """503: the bodies of a tenant's requests, or of all together, would take too much memory."""
    return ApiError(
        503,
        "memory",
        "The gateway holds as much for this tenant's requests as it may; try again soon.",
        retry_after_ns=1_000_000_000,
        close=True,
    )


def _too_slow(what: str, limit_ns: int) -> ApiError:
    return ApiError(
        408, "timeout", f"The {what} did not come within {limit_ns / 1_000_000_000:g} s; send it faster.", close=True
    )
