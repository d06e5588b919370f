"""Streams of events: relayed whole, split anywhere, the usage chunk sifted, what was produced counted."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.model import TokenSource, Usage
from commonpool.engines.heard import payloads
from commonpool.gateway.sse import EVENT_BYTES_MAX, EventStream, EventTooLargeError, ProgressStream
from tests.gateway.fakes import done_event, event, progress_event, text_event, usage_event, usage_json

ENDINGS = [b"\n\n", b"\r\n\r\n"]


def texts(*words: str, ending: bytes = b"\n\n") -> bytes:
    return b"".join(text_event(word, ending=ending) for word in words)


def stream(*, include_usage: bool = False, choices: int | None = None) -> EventStream:
    return EventStream(include_usage=include_usage, choices=choices)


def completion_event(text: str, index: int = 0, **more: Any) -> bytes:
    return event({"choices": [{"index": index, "text": text}], **more})


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
    assert (events.usage, events.done, events.error) == (None, False, None)
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
    events = stream(include_usage=include_usage, choices=2)
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


def test_usage_beside_the_end_of_each_choice_is_taken_out_and_summed() -> None:
    ends = [completion_event("", index, usage=usage_json(7, 3 + index, cached=2)) for index in range(2)]
    events = stream(include_usage=True, choices=2)
    assert events.feed(ends[0] + ends[1] + done_event()) == completion_event("", 0) + completion_event("", 1)
    assert events.usage == Usage(7, 2, 7)
    chunk = json.loads(next(payloads(events.ending())))
    assert (chunk["choices"], chunk["usage"]) == ([], usage_json(7, 7, cached=2))


def test_each_prompt_is_counted_once_however_many_choices_it_has() -> None:
    events = stream(choices=2)
    for tokens_in in (1, 6, 6, 1):
        events.feed(completion_event("", usage=usage_json(tokens_in, 2)))
    assert events.usage == Usage(7, 0, 8)


def test_a_cut_stream_with_usage_of_some_choices_is_counted() -> None:
    events = stream(choices=3)
    events.feed(texts("a", "b", "c") + usage_event(7, 2))
    assert events.counted(9) == Usage(9, 0, 3, TokenSource.COUNTED)


def test_an_error_event_fails_the_stream_and_is_not_passed_on() -> None:
    events = stream()
    assert events.feed(texts("a") + event({"error": {"message": "/srv/x: CUDA error", "code": 500}})) == texts("a")
    assert events.error is not None
    assert "/srv" not in events.error.message
    null = event({"choices": [{"delta": {"content": "x"}}], "error": None})
    events = stream()
    assert events.feed(null) == null
    assert events.error is None


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


@pytest.mark.parametrize("ending", ENDINGS)
def test_progress_is_not_for_clients_wherever_it_is_split(ending: bytes) -> None:
    kept = texts("prompt_progress", '{"prompt_progress":{', ending=ending)
    whole = progress_event(ending) * 2 + kept[:-10] + kept[-10:] + progress_event(ending) + done_event(ending)
    for at in range(len(whole) + 1):
        events = ProgressStream(include_usage=False)
        assert events.feed(whole[:at]) + events.feed(whole[at:]) == kept
        assert (events.done, events.tokens_out) == (True, 2)


def test_text_beside_progress_is_not_counted() -> None:
    events = ProgressStream(include_usage=False)
    assert events.feed(completion_event("a", prompt_progress={"processed": 16})) == b""
    assert events.counted(9) == Usage(9, 0, 0, TokenSource.COUNTED)


def test_payloads_are_what_events_carry() -> None:
    data = b": ping\n\n" + event(b"1") + b"event: m\r\ndata: 2\r\ndata: 3\r\n\r\n" + done_event()
    assert list(payloads(data)) == [b"1", b"2\n3"]
