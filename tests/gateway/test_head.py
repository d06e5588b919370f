"""The head of a request: what is read, what is refused, and where it ends."""

import collections
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.gateway.errors import ApiError
from commonpool.gateway.head import HEADERS_MAX, Head, HeadReader, Template

POST = (
    b"POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: a\r\nAUTHORIZATION: bearer k\r\nContent-Length: 5\r\n"
    b"traceparent: 00-0123456789abcdef0123456789abcdef-0123456789abcdef-01\r\n\r\n"
)


def read(data: bytes) -> tuple[Head, bytes]:
    reader = HeadReader()
    rest = reader.feed(data)
    assert reader.head is not None
    return reader.head, rest


def request(*lines: str, first: str = "POST / HTTP/1.1") -> bytes:
    return "\r\n".join([first, "Host: a", *lines, "", ""]).encode("latin-1")


def test_a_head_is_read_and_the_rest_comes_back() -> None:
    head, rest = read(POST + b"hello" + POST)
    assert head.method == "POST"
    assert head.path == b"/v1/chat/completions"
    assert head.authorization == b"bearer k"
    assert head.length == 5
    assert head.keep_alive
    assert not head.chunked
    assert not head.expects
    assert head.traceparent == b"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
    assert rest == b"hello" + POST


@given(st.lists(st.integers(0, len(POST) + 5), max_size=8))
def test_it_is_the_same_head_in_whatever_pieces_it_comes(cuts: list[int]) -> None:
    data = b"\r\n" + POST + b"rest"
    reader = HeadReader()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    rest = b""
    for start, end in itertools.pairwise(edges):
        rest = rest + data[start:end] if reader.head is not None else reader.feed(data[start:end])
    assert reader.head == read(POST)[0]
    assert rest == b"rest"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request("Content-Length: 3", "Transfer-Encoding: chunked"), 400),
        (request("Transfer-Encoding: chunked", "Content-Length: 3"), 400),
        (request("Content-Length: 3", "Content-Length: 3"), 400),
        (request("Content-Length: 3, 3"), 400),
        (request("Content-Length: +3"), 400),
        (request("Content-Length: -3"), 400),
        (request("Content-Length: 3 4"), 400),
        (request("Content-Length: 0x3"), 400),
        (request("Content-Length:"), 400),
        (request("Content-Length: 99999999999999999999999"), 400),
        (request("Transfer-Encoding: gzip"), 400),
        (request("Transfer-Encoding: gzip, chunked"), 501),
        (request("Transfer-Encoding: chunked, gzip"), 400),
        (request("Transfer-Encoding: identity"), 400),
        (request("Transfer-Encoding: xchunked"), 400),
        (request("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400),
        (request("Transfer-Encoding: chunked", first="POST / HTTP/1.0"), 501),
        (request("Transfer-Encoding:\x0bchunked"), 400),
        (request("X: a", " folded: b"), 400),
        (request("X: a", "\tfolded: b"), 400),
        (request("X : a"), 400),
        (request("X: a\x00b"), 400),
        (request("X: a\rb"), 400),
        (request("X: a\nY: b"), 400),
        (request(": a"), 400),
        (request("no colon"), 400),
        (request("X\x00: a"), 400),
        (request("Host: b"), 400),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        (request("Authorization: a", "Authorization: b"), 400),
        (request("Expect: 200-ok"), 417),
        (request("Expect: 100-continue", "Expect: 100-continue"), 417),
        (request("Content-Encoding: gzip"), 415),
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
        (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
        (b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /a\x01b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"FOO / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"get / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"\x00\x00\x00\x00", 400),
        (b"GET /\r\n\r\n", 505),
        (b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
        (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
        (b"GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET /" + b"a" * 9000, 414),
        (request("X: " + "a" * 70_000), 431),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000, 431),
        (request(*["X: a"] * HEADERS_MAX), 431),
    ],
)
def test_what_a_strict_server_refuses(data: bytes, status: int) -> None:
    with pytest.raises(ApiError) as whole:
        read(data)
    assert whole.value.status == status
    assert whole.value.close
    # ... and the same byte by byte, at the latest with the last byte
    reader = HeadReader()
    with pytest.raises(ApiError) as split:
        collections.deque(map(reader.feed, (data[at : at + 1] for at in range(len(data)))))
    assert split.value.status == status


@pytest.mark.parametrize(
    ("lines", "first", "keeps"),
    [
        ([], "GET / HTTP/1.1", True),
        (["Connection: close"], "GET / HTTP/1.1", False),
        (["Connection: Keep-Alive, Close"], "GET / HTTP/1.1", False),
        (["Connection: x", "Connection: close"], "GET / HTTP/1.1", False),
        ([], "GET / HTTP/1.0", False),
        (["Connection: keep-alive"], "GET / HTTP/1.0", True),
    ],
)
def test_when_the_connection_is_kept(lines: list[str], first: str, keeps: bool) -> None:
    assert read(request(*lines, first=first))[0].keep_alive is keeps


def test_an_upgrade_is_not_taken_up_and_does_not_change_where_the_body_is() -> None:
    upgrade = request("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "Content-Length: 3")
    head, rest = read(upgrade + b"abc")
    assert head.length == 3
    assert head.keep_alive
    assert rest == b"abc"


def test_connect_is_read_as_any_method() -> None:
    head, rest = read(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\nrest")
    assert (head.method, rest) == ("CONNECT", b"rest")


def test_the_absolute_form_and_the_asterisk() -> None:
    assert read(request(first="GET http://h:1/v1/models?x HTTP/1.1"))[0].path == b"/v1/models"
    assert read(request(first="GET http://h HTTP/1.1"))[0].path == b"/"
    assert read(request(first="OPTIONS * HTTP/1.1"))[0].path == b"*"


def test_a_blank_behind_a_traceparent_is_no_part_of_it() -> None:
    good = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
    assert read(request(f"traceparent: {good} "))[0].traceparent == good.encode()


def test_a_bad_traceparent_is_dropped() -> None:
    for bad in ("x", "00-" + "0" * 32 + "-0123456789abcdef-01", "00-0123-4567-01\r\nX: y"):
        assert read(request(f"traceparent: {bad}"))[0].traceparent is None


def learned(raw: bytes) -> Template:
    template = Template.learn(raw, read(raw)[0])
    assert template is not None
    return template


@given(st.integers(0, 10**12))
def test_a_template_reads_a_repeated_head_as_the_reader_does(length: int) -> None:
    template = learned(POST)
    again = POST.replace(b"Content-Length: 5", b"Content-Length: %d" % length)
    found = template.match(again + b"body")
    assert found == (len(again), length)
    assert read(again)[0].length == length


@pytest.mark.parametrize(
    "other",
    [
        POST.replace(b": 5", b": "),
        POST.replace(b": 5", b": +5"),
        POST.replace(b": 5", b": 5 5"),
        POST.replace(b": 5", b": \xb2"),
        POST.replace(b": 5", b": 5\r\nContent-Length: 6"),
        POST.replace(b": 5", b": " + b"5" * 40),
        POST.replace(b"bearer k", b"bearer j"),
        POST[:-1],
        POST[:40],
        b"",
    ],
)
def test_a_template_matches_nothing_else(other: bytes) -> None:
    assert learned(POST).match(other) is None


@pytest.mark.parametrize(
    "raw",
    [
        request(),
        request("Transfer-Encoding: chunked"),
        request("Content-Length: 3", "Expect: 100-continue"),
        request("Content-Length: 3", "Connection: close"),
        request("Content-Length: 3", first="POST / HTTP/1.0"),
        request("Content-Length: 3", "X: " + "a" * 5000),
    ],
)
def test_no_template_is_learned_from_what_is_not_plain(raw: bytes) -> None:
    assert Template.learn(raw, read(raw)[0]) is None
