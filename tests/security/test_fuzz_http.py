"""The data plane's HTTP parser on whatever may be sent: read as another parser reads it, or refused, however it is cut.

Others show what becomes of requests that somebody thought of, at every place where they may be cut
(tests/gateway/test_abuse_*, test_head, test_chunked). Here requests are made of pieces that parsers are known to differ
in, then mutilated, and judged by h11, which reads bytes by other code than llhttp, on which ours stands.
"""

import asyncio
from typing import Any, cast

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commonpool.gateway.chunked import ChunkedBody
from commonpool.gateway.errors import ApiError
from commonpool.gateway.head import HEAD_BYTES_MAX, Head, HeadReader, Template
from commonpool.gateway.http import AHEAD_BYTES_MAX, CONTINUE, Exchange, Purse, ServerConnection
from commonpool.gateway.identity import Principal
from commonpool.gateway.pulse import Pulse
from commonpool.gateway.repeats import Repeats
from tests.gateway.fakes import principal
from tests.security.cuts import CUTS, cut, mutated
from tests.security.searching import search

BODY_BYTES_MAX = 4096
ENDS = [b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b"\r\n\n", b"\r\r\n"]
ODD = [b" ", b"\t", b"\x00", b"\x0b", b"\x80", b"\xff", b":", b",", b";", b"0", b"GET ", b"HTTP/1.1", b"chunked"]
PIECES = [*ENDS, *ODD, b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: b\r\n"]
METHODS = [b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT", b"get", b"PRI", b"M-SEARCH"]
TARGETS = [b"/", b"/v1/models?a=b", b"*", b"http://a/b", b"a:1", b"//a", b"/%00", b"/#x", b"?"]
GOOD = [
    b"Authorization: Bearer k",
    b"Connection: keep-alive, upgrade",
    b"Connection: Content-Length",
    b"Upgrade: h2c",
    b"Expect: 100-continue",
    b"Content-Encoding: identity",
    b"X: " + b"y" * 200,
    b"X:",
    b"traceparent: 00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
]
LINES = [
    *GOOD,
    b"Host: a",
    b"host:a:80",
    b"Content-Length: 3",
    b"content-length:0",
    b"Content-Length: 003",
    b"Content-Length: 3, 3",
    b"Content-Length: +3",
    b"Content-Length: 18446744073709551615",
    b"Transfer-Encoding: chunked",
    b"transfer-encoding:\tCHUNKED ",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: ",
    b"Connection: close",
    b"X-\x80: y",
    b": y",
    b"X Y: z",
    b" folded",
]
CODINGS = [b"gzip, chunked", b"chunked, gzip", b"identity, chunked", b"chunked\r\nTransfer-Encoding: chunked"]
BODIES = [
    b"",
    b"abc",
    b"3\r\nabc\r\n0\r\n\r\n",
    b"3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n",
    b"0\r\n\r\n",
    b"003\r\nabc\r\n00\r\n\r\n",
]


@st.composite
def plain(draw: st.DrawFn) -> bytes:
    """A request that is one, with a body that is what its head says; it may still be one to refuse."""
    method = draw(st.sampled_from([b"POST", b"GET", b"PUT"]))
    lines = draw(st.lists(st.sampled_from(GOOD), max_size=2, unique=True))
    length, body = draw(
        st.sampled_from(
            [(b"Content-Length: 3\r\n", b"abc"), (b"content-length:\t0\r\n", b""), (b"", b"")]
            + [(b"Transfer-Encoding: chunked\r\n", each) for each in BODIES[2:]]
            + [(b"Transfer-Encoding: %b\r\n" % each, BODIES[2]) for each in CODINGS]
        )
    )
    head = b"".join(b"%b\r\n" % line for line in lines)
    return b"%b /v1/x HTTP/1.1\r\nHost: a\r\n%b%b\r\n%b" % (method, length, head, body)


@st.composite
def odd(draw: st.DrawFn) -> bytes:
    """Something that looks like a request."""
    first = b"%b %b HTTP/%b" % (
        draw(st.sampled_from(METHODS)),
        draw(st.sampled_from(TARGETS)),
        draw(st.sampled_from([b"1.1", b"1.0", b"1.1", b"2.0", b"1.01"])),
    )
    lines = draw(st.lists(st.sampled_from(LINES), max_size=4))
    if draw(st.booleans()):
        lines.insert(0, b"Host: a")
    whole = b"".join(b"%b\r\n" % line for line in [first, *lines, b""])
    return whole + draw(st.sampled_from(BODIES))


REQUESTS = (plain() | odd()).flatmap(lambda whole: st.just(whole) | mutated(whole, PIECES))
STREAMS = st.lists(REQUESTS, min_size=1, max_size=3).map(b"".join)


# -- what is read ------------------------------------------------------------------------------------------------------


def read(data: bytes, at: list[int] | None) -> tuple[Head, bytes] | ApiError | None:
    """The head of `data` in pieces, and what follows it; None where it is not whole."""
    reader = HeadReader()
    rest = b""
    try:
        for piece in cut(data, at):
            rest = rest + piece if reader.head else reader.feed(piece)
    except ApiError as error:
        return error
    return None if reader.head is None else (reader.head, rest)


def told(found: tuple[Head, bytes] | ApiError | None) -> object:
    """The same, so that it can be compared."""
    return (found.status, found.code, found.close) if isinstance(found, ApiError) else found


def whole(data: bytes) -> tuple[Head, bytes, bytes] | None:
    """The first request of `data` as we read it: its head, its body, and what follows."""
    found = read(data, [])
    if found is None or isinstance(found, ApiError):
        return None
    head, rest = found
    if not head.chunked:
        length = head.length or 0
        return None if len(rest) < length else (head, rest[:length], rest[length:])
    body = ChunkedBody(BODY_BYTES_MAX)
    try:
        rest = body.feed(rest)
    except ApiError:
        return None
    return (head, bytes(body.data), rest) if body.done else None


@search(200)
@given(STREAMS, CUTS)
def test_a_head_is_the_same_or_refused_the_same_however_it_is_cut(data: bytes, at: list[int] | None) -> None:
    assert told(read(data, at)) == told(read(data, []))


def test_a_head_without_an_end_is_refused_before_it_is_large() -> None:
    reader = HeadReader()
    reader.feed(b"GET / HTTP/1.1\r\nX: ")
    piece = b"y" * 1000
    for _ in range(HEAD_BYTES_MAX // len(piece)):
        reader.feed(piece)
    with pytest.raises(ApiError, match="larger than"):
        reader.feed(piece)


@search(250)
@given(STREAMS)
def test_what_is_read_is_what_h11_reads_and_ends_where_it_ends_there(data: bytes) -> None:
    """Two servers that disagree where a request ends are what smuggling lives on."""
    ours = whole(data)
    if ours is None:
        return
    head, body, rest = ours
    theirs = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
    theirs.receive_data(data.lstrip(b"\r\n"))
    request = theirs.next_event()
    assert isinstance(request, h11.Request), request
    assert request.method.decode() == head.method
    values = dict(request.headers)
    assert values.get(b"authorization", b"").strip() == (head.authorization or b"").strip()
    content = b""
    while not isinstance(event := theirs.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data), event
        content += event.data
    assert content == body
    assert theirs.trailing_data[0] == rest


@search(200)
@given(plain(), REQUESTS)
def test_a_template_reads_a_request_as_the_reader_does_or_not_at_all(known: bytes, other: bytes) -> None:
    first = read(known, [])
    if not isinstance(first, tuple):
        return
    head, rest = first
    template = Template.learn(known[: len(known) - len(rest)], head)
    for data in (known, other, known.replace(b": 3", b": 0", 1), known.replace(b": 3", b": 2 1", 1)):
        if template is None or (found := template.match(data)) is None:
            continue
        size, length = found
        again = read(data, [])
        assert isinstance(again, tuple)
        assert len(data) - len(again[1]) == size
        assert again[0].length == length
        assert (again[0].path, again[0].authorization, again[0].chunked) == (
            head.path,
            head.authorization,
            head.chunked,
        )


@search(200)
@given(
    st.lists(st.sampled_from([*BODIES, *ENDS, b"3", b";x", b"abc", b"ffffffffffff", b"T: v"]), max_size=6).map(
        b"".join
    ),
    CUTS,
)
def test_a_chunked_body_is_the_same_or_refused_the_same_however_it_is_cut(data: bytes, at: list[int] | None) -> None:
    def outcome(pieces: Any) -> object:
        body = ChunkedBody(BODY_BYTES_MAX)
        rest = b""
        try:
            for piece in pieces:
                rest = rest + piece if body.done else body.feed(piece)
        except ApiError as error:
            return error.status, error.code
        return bytes(body.data), body.done, rest

    assert outcome(cut(data, at)) == outcome([data] if data else [])


# -- a whole connection ------------------------------------------------------------------------------------------------


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""
        self.ended = self.paused = False

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.7", 1) if name == "peername" else None

    def write(self, data: bytes) -> None:
        assert not self.ended
        self.data += data

    def write_eof(self) -> None:
        self.ended = True

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        self.ended = True

    close = abort

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Echo:
    """A service that keeps what it is asked and answers with the body: at once, or when it is told to."""

    draining = False
    held_max = 64 * 1024
    body_bytes_max = BODY_BYTES_MAX

    def __init__(self, *, later: bool) -> None:
        self.pulse = Pulse(1, 1)
        self.repeats = Repeats()
        self.held = 0
        self.asked: list[tuple[Head, bytes]] = []
        self.refusals: list[tuple[int, str]] = []
        self.open: list[tuple[ServerConnection, bytes]] = []
        self._later = later
        self._purse = Purse()

    def purse(self, principal: Principal | None) -> Purse:
        del principal
        return self._purse

    def admit(self, head: Head, length: int, peer: str | None) -> Principal | None:
        del peer
        if length > self.body_bytes_max:
            raise ApiError(413, "body_too_large", "It is too large.")
        return principal() if head.authorization else None

    def begin(self, connection: ServerConnection, head: Head, principal: Principal | None, body: bytes) -> None:
        del principal
        self.asked.append((head, body))
        if head.method == "PUT":
            raise ApiError(422, "no_put", "It is refused once it is whole.")
        if self._later:
            connection.exchange = cast("Exchange", self)
            self.open.append((connection, body))
        else:
            connection.answer(200, b"", body, "id")

    def answer(self) -> None:
        """Whatever waits to be answered."""
        while self.open:
            connection, body = self.open.pop(0)
            connection.answer(200, b"", body, "id")

    def gone(self) -> None:
        self.open.clear()

    def next_id(self) -> str:
        return "id"

    def refused(self, error: ApiError) -> None:
        self.refusals.append((error.status, error.code))

    def opened(self, connection: ServerConnection) -> bool:
        del connection
        return True

    def closed(self, connection: ServerConnection) -> None:
        del connection


def served(data: bytes, at: list[int] | None, *, later: bool) -> tuple[list[tuple[Head, bytes]], Any, bytes]:
    """What a connection was asked, refused and answered, whatever of `data` it read."""
    service, wire = Echo(later=later), Wire()
    connection = ServerConnection(service)
    connection.connection_made(cast("asyncio.Transport", wire))
    for piece in cut(data, at):
        connection.data_received(piece)
        if not at:
            service.answer()
        assert len(connection._ahead) <= AHEAD_BYTES_MAX + len(data)
        assert service.held <= BODY_BYTES_MAX + len(data)
    service.answer()
    connection.connection_lost(None)
    assert service.held == 0
    assert service._purse.held == 0
    return service.asked, service.refusals, wire.data.replace(CONTINUE, b"")


@search(200)
@given(STREAMS, CUTS, st.booleans())
def test_a_connection_asks_and_answers_the_same_however_it_is_cut(
    data: bytes, at: list[int] | None, later: bool
) -> None:
    assert served(data, at, later=later) == served(data, [], later=False)


@search(100)
@given(st.binary(max_size=200), CUTS)
@example(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", None)
@example(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [500])
def test_any_bytes_are_no_more_than_refused(data: bytes, at: list[int] | None) -> None:
    asked, refusals, _ = served(data, at, later=False)
    assert not asked
    assert len(refusals) <= 1
