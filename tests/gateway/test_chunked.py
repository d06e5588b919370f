"""Chunked request bodies: decoded exactly, refused when odd, never read past their end."""

import itertools

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.gateway.chunked import FRAMING_BYTES_FREE, ChunkedBody
from commonpool.gateway.errors import ApiError

LIMIT = 1_000_000


def decode(data: bytes, limit: int = LIMIT) -> tuple[bytes, bytes]:
    body = ChunkedBody(limit)
    rest = body.feed(data)
    assert body.done
    return bytes(body.data), rest


def chunked(*pieces: bytes, extension: bytes = b"", trailers: bytes = b"") -> bytes:
    framed = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    return framed + b"0\r\n" + trailers + b"\r\n"


def test_a_body_ends_exactly_where_it_ends() -> None:
    assert decode(chunked(b"hello ", b"world") + b"GET /") == (b"hello world", b"GET /")
    assert decode(chunked() + b"x") == (b"", b"x")


def test_extensions_and_trailers_are_ignored() -> None:
    data = chunked(b"abc", extension=b' ; name="va;lue"', trailers=b"X-Sum: 1\r\nContent-Length: 9\r\n")
    assert decode(data + b"next") == (b"abc", b"next")


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=6), st.lists(st.integers(0, 2000), max_size=8))
def test_it_is_the_same_body_in_whatever_pieces_it_comes(pieces: list[bytes], cuts: list[int]) -> None:
    data = chunked(*pieces, extension=b";a=b", trailers=b"T: v\r\n") + b"rest"
    body = ChunkedBody(LIMIT)
    rest = b""
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        rest = rest + data[start:end] if body.done else body.feed(data[start:end])
    assert body.done
    assert bytes(body.data) == b"".join(pieces)
    assert rest == b"rest"


@pytest.mark.parametrize(
    "data",
    [
        b"zz\r\nabc\r\n0\r\n\r\n",
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b"-3\r\nabc\r\n0\r\n\r\n",
        b"+3\r\nabc\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n0\r\n\r\n",
        b" 3\r\nabc\r\n0\r\n\r\n",
        b"3\nabc\r\n0\r\n\r\n",
        b"3\r\nabc\n0\r\n\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3\r\nabcX",
        b"3;a\x00b\r\nabc\r\n0\r\n\r\n",
        b"3;a\rb\r\nabc\r\n0\r\n\r\n",
        b"\r\nabc\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabc\r\n0\r\nno colon\r\n\r\n",
        b"3\r\nabc\r\n0\r\n: empty name\r\n\r\n",
        b"3\r\nabc\r\n0\r\nX: a\x00b\r\n\r\n",
        b"3\r\nabc\r\n0\r\n\n",
        b"3;" + b"x" * 5000,
    ],
)
def test_what_is_odd_is_refused(data: bytes) -> None:
    with pytest.raises(ApiError) as error:
        ChunkedBody(LIMIT).feed(data)
    assert (error.value.status, error.value.close) == (400, True)


def test_the_limit_is_judged_by_the_size_told_before_the_data_comes() -> None:
    body = ChunkedBody(10)
    body.feed(b"8\r\n12345678\r\n")
    with pytest.raises(ApiError) as error:
        body.feed(b"3\r\n")
    assert error.value.status == 413


def test_framing_that_outweighs_its_data_is_refused() -> None:
    with pytest.raises(ApiError, match="outweighs"):
        ChunkedBody(LIMIT).feed(b"1\r\na\r\n" * FRAMING_BYTES_FREE)


class Oracle:
    """llhttp's view of the same body."""

    def __init__(self) -> None:
        self.body = b""
        self.whole = False

    def on_body(self, piece: bytes) -> None:
        self.body += piece

    def on_message_complete(self) -> None:
        self.whole = True


FRAGMENTS = st.sampled_from(
    [b"0\r\n", b"\r\n", b"3\r\nabc\r\n", b"3", b"a", b";x=y", b"\n", b"\r", b" ", b"T: v\r\n", b"ff", b"1\r\nz\r\n"]
)


@given(st.lists(FRAGMENTS, max_size=10).map(b"".join))
def test_whatever_is_accepted_llhttp_accepts_as_the_same_body(data: bytes) -> None:
    body = ChunkedBody(LIMIT)
    try:
        rest = body.feed(data)
    except ApiError:
        return
    if not body.done:
        return
    oracle = Oracle()
    parser = httptools.HttpRequestParser(oracle)
    parser.feed_data(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    parser.feed_data(data[: len(data) - len(rest)])
    assert oracle.whole
    assert oracle.body == bytes(body.data)
