"""The reader of an engine's event streams on whatever an engine may send: the client reads what was said, and no more.

tests/gateway/test_sse.py cuts streams that somebody thought of. Here they are made of pieces that framing and JSON can
be told apart by, mutilated, cut anywhere, and judged by the decoder of the OpenAI client, which is what reads them.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder

from commonpool.gateway.sse import EVENT_BYTES_MAX, EventStream, EventTooLargeError, ProgressStream
from tests.gateway.fakes import done_event, event, progress_event, text_event, usage_event, usage_json
from tests.security.cuts import CUTS, cut, mutated
from tests.security.searching import search

LAST = b": last\n\n"  # so that nothing is held back for want of an end
WORDS = ["", "a", 'say "hi"', "data: [DONE]", "\n\ndata: x", '{"usage":{}}', '"content":"x"', "\u2028", "é", "\x00"]
VALUES = [
    b"null",
    b"0",
    b"-1",
    b"1e400",
    b"9" * 400,
    b'"4"',
    b'"\xff"',
    b'"\\ud800"',
    b"[]",
    b"{}",
    b"true",
    b"[" * 2000 + b"]" * 2000,
    b'{"prompt_tokens":-1}',
    b'{"prompt_tokens":7,"completion_tokens":3}',
    b'{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens":9}',
    b'{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":99}}',
    b'{"prompt_tokens":7,"total_tokens":3}',
    b'{"message":"m","code":400}',
    b'{"message":"m","code":"401","param":"\xff"}',
    b'{"message":"\xff","code":"4\xff"}',
    b'{"message":{"message":"m"}}',
]
ENDS = [b"\n\n", b"\r\n\r\n", b"\n\r\n", b"\n\n\n", b"\n"]
PIECES = [
    *ENDS,
    b"\r",
    b"\r\r",
    b"data:",
    b"data: ",
    b"event: error",
    b":",
    b'"usage":{',
    b'"error":',
    b"\xff",
    b"\x00",
]

values = st.sampled_from(VALUES)
choices = st.sampled_from([b"[]", b'[{"index":0,"delta":{"content":"x"}}]', b'[{"text":"y"}]', b"null", b"{}", b"[1]"])


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    """One event whose fields may be of any kind."""
    fields = [b'"choices":' + draw(choices)]
    fields += [draw(st.sampled_from([b'"usage":', b'"error":', b'"us\\u0061ge":', b'"x":'])) + draw(values)]
    lines = b",".join(draw(st.permutations(fields)))
    start = draw(st.sampled_from([b"data: {", b"data:{", b"event: m\ndata: {", b"data: {\ndata: ", b"{"]))
    return start + lines + b"}" + draw(st.sampled_from(ENDS[:3]))


SAID = st.sampled_from(WORDS).flatmap(
    lambda word: st.sampled_from([text_event(word), text_event(word, ending=b"\r\n\r\n"), b": %d\n\n" % len(word)])
)
EVENTS = SAID | chunks() | st.sampled_from([usage_event(), done_event(), progress_event(), b"\n\n", b"data:\n\n"])
STREAMS = (
    st.lists(EVENTS, max_size=6)
    .map(b"".join)
    .flatmap(lambda whole: st.just(whole) | mutated(whole, PIECES))
    .map(lambda whole: whole + LAST)
)
KINDS = st.sampled_from([EventStream, ProgressStream])


def outcome(stream: EventStream, pieces: Iterable[bytes]) -> tuple[Any, ...]:
    out = b"".join(stream.feed(piece) for piece in pieces)
    error = None if stream.error is None else (stream.error.status, stream.error.code, stream.error.message)
    return out, stream.usage, stream.done, error, stream.tokens_out, stream.ending()


def spoken(found: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same, but for how many empty lines there are between two events: that says nothing."""
    return re.sub(rb"(?:\r?\n){2,}", b"\n\n", found[0]).strip(b"\r\n"), *found[1:]


@search(250)
@example(b"\n" * 8 + LAST, [313], ProgressStream, False, None)
@given(STREAMS, CUTS, KINDS, st.booleans(), st.sampled_from([None, 1, 2]))
def test_a_stream_is_the_same_however_it_is_cut(
    data: bytes, at: list[int] | None, kind: type[EventStream], include_usage: bool, sequences: int | None
) -> None:
    def fresh() -> EventStream:
        return kind(include_usage=include_usage, choices=sequences)

    assert spoken(outcome(fresh(), cut(data, at))) == spoken(outcome(fresh(), [data]))


def decoded(data: bytes) -> list[str]:
    """What the OpenAI client hears."""
    return [each.data for each in SSEDecoder().iter_bytes(iter([data])) if each.data]


@search(150)
@given(st.lists(SAID, max_size=6).map(b"".join), CUTS, KINDS)
@example(text_event("\u2028"), None, EventStream)
def test_a_client_hears_what_the_engine_said(data: bytes, at: list[int] | None, kind: type[EventStream]) -> None:
    out, _, done, error, *_ = outcome(kind(include_usage=True), cut(data, at))
    assert decoded(out) == decoded(data)
    assert (done, error) == (False, None)


@search(150)
@given(st.lists(SAID, max_size=4).map(b"".join), chunks(), st.lists(SAID, max_size=4).map(b"".join), CUTS)
def test_what_is_taken_out_takes_nothing_with_it(before: bytes, odd: bytes, after: bytes, at: list[int] | None) -> None:
    """Whatever an event is, those beside it reach the client."""
    out, *_ = outcome(EventStream(include_usage=False), cut(before + odd + after, at))
    assert out.startswith(before)
    assert out.endswith(after)


@search(100)
@given(st.integers(1, 5), st.integers(0, 9), CUTS)
def test_usage_that_is_summed_is_what_the_client_is_told(sequences: int, each: int, at: list[int] | None) -> None:
    data = b"".join(event({"choices": [{"index": n}], "usage": usage_json(7, each)}) for n in range(sequences))
    stream = EventStream(include_usage=True, choices=sequences)
    *_, ending = outcome(stream, cut(data, at))
    told, last = decoded(ending)
    assert json.loads(told)["usage"]["completion_tokens"] == sequences * each
    assert last == "[DONE]"


@search(20)
@given(st.binary(min_size=1, max_size=40).filter(lambda piece: b"\n" not in piece), KINDS)
def test_a_stream_that_never_ends_an_event_is_given_up(piece: bytes, kind: type[EventStream]) -> None:
    stream = kind(include_usage=False)
    large = piece * (EVENT_BYTES_MAX // len(piece) // 3)
    for _ in range(3):
        assert stream.feed(large) == b""
    with pytest.raises(EventTooLargeError):
        stream.feed(large)
