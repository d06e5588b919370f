"""Streams of events: relayed whole, split anywhere, the usage chunk sifted, what was produced counted."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.model import TokenSource, Usage
from commonpool.gateway.sse import EVENT_BYTES_MAX, EventStream, EventTooLargeError
from tests.gateway.fakes import done_event, event, text_event, usage_event

ENDINGS = [b"\n\n", b"\r\n\r\n"]


def texts(*words: str, ending: bytes = b"\n\n") -> bytes:
    return b"".join(text_event(word, ending=ending) for word in words)


def stream(*, include_usage: bool = False, per_choice: bool = False) -> EventStream:
    return EventStream(include_usage=include_usage, per_choice=per_choice)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("include_usage", [True, False])
def test_split_at_every_byte(ending: bytes, include_usage: bool) -> None:
    kept = b": comment" + ending + texts("hé", "llo", ending=ending)
    usage = usage_event(ending=ending)
    whole = kept + usage + done_event(ending)
    for at in range(len(whole) + 1):
        events = stream(include_usage=include_usage)
        out = events.feed(whole[:at]) + events.feed(whole[at:])
        assert out == (kept + usage if include_usage else kept)
        assert events.usage == Usage(7, 0, 3)
        assert events.done
        assert events.tokens_out == 2
        assert events.ending() == done_event()


@given(st.data())
def test_any_pieces_give_the_same(data: st.DataObject) -> None:
    whole = texts("a", "b\n\nc", 'say "hi"') + usage_event() + done_event()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=20)))
    events = stream()
    edges = [0, *cuts, len(whole)]
    out = b"".join(events.feed(whole[start:end]) for start, end in itertools.pairwise(edges))
    assert out == texts("a", "b\n\nc", 'say "hi"')
    assert (events.usage, events.done, events.tokens_out) == (Usage(7, 0, 3), True, 3)


def test_a_partial_event_is_held_until_it_is_whole() -> None:
    events = stream()
    one = text_event("word")
    assert events.feed(one + one[:30]) == one
    assert events.feed(one[30:]) == one


def test_text_that_looks_like_framing_or_json_is_text() -> None:
    tricky = texts('{"usage": {"prompt_tokens": 1}}', "data: [DONE]", '"error": {}', '"content":"x"')
    events = stream()
    assert events.feed(tricky) == tricky
    assert (events.usage, events.done, events.failed) == (None, False, False)
    assert events.tokens_out == 4


def test_null_usage_in_every_chunk_is_no_usage() -> None:
    chunk = event({"choices": [{"index": 0, "delta": {"content": "x"}}], "usage": None})
    events = stream()
    assert events.feed(chunk) == chunk
    assert events.usage is None


def test_running_usage_beside_choices_is_passed_on_and_the_last_one_counts() -> None:
    chunks = [
        event({"choices": [{"delta": {"content": "x"}}], "usage": {"prompt_tokens": 5, "completion_tokens": n}})
        for n in (1, 2)
    ]
    events = stream()
    assert [events.feed(chunk) for chunk in chunks] == chunks
    assert events.usage == Usage(5, 0, 2)
    assert events.counted(99) == Usage(5, 0, 2)


def test_only_what_carries_text_is_counted() -> None:
    events = stream()
    events.feed(event({"choices": [{"delta": {"role": "assistant", "content": ""}}]}))
    events.feed(event({"choices": [{"delta": {"role": "assistant", "content": None}}]}))
    events.feed(event({"choices": [{"delta": {}, "finish_reason": "stop"}]}))
    assert events.tokens_out == 0
    events.feed(event({"choices": [{"delta": {"content": '"'}}]}))
    events.feed(event({"choices": [{"text": "a"}]}))
    events.feed(event({"choices": [{"delta": {"reasoning_content": "a"}}]}))
    events.feed(event({"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{"}}]}}]}))
    events.feed(event(json.dumps({"choices": [{"delta": {"content": "spaced"}}]}).encode()))
    assert events.counted(40) == Usage(40, 0, 5, TokenSource.COUNTED)


@pytest.mark.parametrize("include_usage", [True, False])
def test_usage_of_each_choice_becomes_one_chunk(include_usage: bool) -> None:
    events = stream(include_usage=include_usage, per_choice=True)
    assert events.feed(texts("a", "b") + usage_event(7, 3)) == texts("a", "b")
    assert events.feed(usage_event(7, 4) + done_event()) == b""
    assert events.usage == Usage(7, 0, 7)
    ending = events.ending()
    assert ending.endswith(done_event())
    assert ending.count(b"prompt_tokens") == int(include_usage)
    if include_usage:
        chunk = json.loads(ending.split(b"\n\n")[0].removeprefix(b"data: "))
        assert chunk["usage"] == {"prompt_tokens": 7, "completion_tokens": 7, "total_tokens": 14}
        assert chunk["choices"] == []


def test_a_cut_stream_with_usage_of_some_choices_is_counted() -> None:
    events = stream(per_choice=True)
    events.feed(texts("a", "b", "c") + usage_event(7, 2))
    assert events.counted(9) == Usage(9, 0, 3, TokenSource.COUNTED)


def test_an_error_event_fails_the_stream_and_is_not_passed_on() -> None:
    events = stream()
    assert events.feed(texts("a") + event({"error": {"message": "/srv/x: CUDA error", "code": 500}})) == texts("a")
    assert events.failed
    null = event({"choices": [{"delta": {"content": "x"}}], "error": None})
    events = stream()
    assert events.feed(null) == null
    assert not events.failed


def test_nothing_after_done_is_relayed() -> None:
    events = stream()
    assert events.feed(texts("a") + done_event() + texts("b")) == texts("a")
    assert events.feed(texts("c")) == b""


def test_an_event_is_bounded() -> None:
    events = stream()
    for _ in range(EVENT_BYTES_MAX // 1024):
        assert events.feed(b"x" * 1024) == b""
    with pytest.raises(EventTooLargeError):
        events.feed(b"x")
    assert stream().feed(texts("x" * 1000) * 2000) == texts("x" * 1000) * 2000


def test_an_event_of_several_lines() -> None:
    events = stream()
    chunk = b'event: m\ndata: {"choices":[],\ndata: "usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    assert events.feed(chunk) == b""
    assert events.usage == Usage(1, 0, 2)
