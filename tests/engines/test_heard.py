"""An answer taken apart again: heads, chunks and events, whole and broken off."""

import msgspec
import pytest

from commonpool.engines.heard import answer_of, in_one_piece

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
EVENTS = (
    b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    b": a comment\n\n"
    b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"b"}}]}\n\n'
)


def test_a_body_comes_without_its_chunks() -> None:
    assert answer_of(CHUNKED) == (200, b"abcde")
    assert answer_of(b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\nno") == (404, b"no")


@pytest.mark.parametrize("length", range(len(CHUNKED)))
def test_wherever_it_was_broken_off_what_there_is_of_it_is_found(length: int) -> None:
    status, body = answer_of(CHUNKED[:length])
    assert status == (200 if length >= CHUNKED.index(b"\r\n\r\n") + 4 else None)
    assert b"abcde".startswith(body)


def test_a_stream_becomes_one_answer_and_anything_else_stays() -> None:
    for stream in (EVENTS + b"data: [DONE]\n\n", EVENTS + b'data: {"obj'):
        whole = msgspec.json.decode(in_one_piece(stream))
        assert (whole["object"], whole["choices"][0]["message"]["content"]) == ("chat.completion", "ab")
    for other in (b"", b'{"choices":[]}', b"data: no JSON\n\n" + EVENTS):
        assert in_one_piece(other) == other
