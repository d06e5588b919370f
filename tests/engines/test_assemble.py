"""A stream's events in, a whole answer out."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commonpool.engines.assemble import Assembly

JSON = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
NAMES = st.sampled_from(["index", "id", "name", "function", "tool_calls"])
HEAD = {"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}


def together(*chunks: dict[str, Any]) -> Any:
    assembly = Assembly()
    for chunk in chunks:
        assembly.feed(msgspec.json.encode(chunk))
    return msgspec.json.decode(assembly.body())


def said(index: int = 0, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def used(prompt: int, completion: int) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {**HEAD, "choices": [], "usage": usage}


def test_texts_are_joined() -> None:
    answer = together(
        said(role="assistant", content=None), said(content="Hel"), said(content="lo"), said(finish="stop"), used(3, 2)
    )
    assert answer == {
        "id": "c-1",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


def test_reasoning_is_kept_beside_the_content() -> None:
    answer = together(said(reasoning_content="h"), said(reasoning_content="m"), said(content="yes", finish="stop"))
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "yes")


def test_tool_calls_come_in_pieces_by_index() -> None:
    def call(index: int, **function: str) -> dict[str, Any]:
        return {"index": index, "function": function}

    answer = together(
        said(tool_calls=[{**call(0, name="add", arguments=""), "id": "t0", "type": "function"}]),
        said(tool_calls=[call(0, arguments='{"a"')]),
        said(tool_calls=[{**call(1, name="sub", arguments="{}"), "id": "t1", "type": "function"}]),
        said(tool_calls=[call(0, arguments=":1}")], finish="tool_calls"),
    )
    choice = answer["choices"][0]
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "t0", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
            {"id": "t1", "type": "function", "function": {"name": "sub", "arguments": "{}"}},
        ],
    }
    assert choice["finish_reason"] == "tool_calls"


def test_choices_are_ordered_however_they_come() -> None:
    answer = together(said(1, content="b"), said(0, content="a"), said(1, content="b", finish="length"), said(0))
    assert [c["message"]["content"] for c in answer["choices"]] == ["a", "bb"]
    assert [c["finish_reason"] for c in answer["choices"]] == [None, "length"]


def test_of_what_is_told_again_the_last_counts() -> None:
    answer = together({**used(10, 3), "timings": {"x": 1}}, said(finish="stop"), said(finish="stop"), used(10, 4))
    assert (answer["usage"], answer["timings"]) == (used(10, 4)["usage"], {"x": 1})
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_log_probabilities_are_joined() -> None:
    def piece(token: str) -> dict[str, Any]:
        choice = {"index": 0, "delta": {"content": token}, "logprobs": {"content": [{"token": token}]}}
        return {**HEAD, "choices": [choice]}

    answer = together(piece("a"), piece("b"), said(finish="stop"))
    assert answer["choices"][0]["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}]}


def test_what_is_null_in_every_event_is_null() -> None:
    choice = {"index": 0, "text": "a", "logprobs": None, "finish_reason": None}
    assert together({"choices": [choice]})["choices"] == [choice]


def test_completions_have_text() -> None:
    def piece(text: str, finish: str | None = None) -> dict[str, Any]:
        return {"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": finish}]}

    answer = together(piece("a"), piece("b", "length"))
    assert answer == {
        "object": "text_completion",
        "choices": [{"index": 0, "finish_reason": "length", "text": "ab"}],
    }


@pytest.mark.parametrize(
    "payload",
    [
        b"[1]",
        b"ping",
        b'{"choices":1}',
        b'{"choices":[1]}',
        b'{"choices":[{"index":"0"}]}',
        b'{"choices":[{"delta":1}]}',
    ],
)
def test_what_is_no_chunk_is_an_error(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        Assembly().feed(payload)


@example([[1], [{"index": 0}], [{"index": 0, "id": "a"}]])
@given(st.lists(st.recursive(JSON, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=6)))
def test_whatever_a_delta_holds_can_be_put_together(deltas: list[Any]) -> None:
    answer = together(*[said(index % 2, tool_calls=delta, x=delta) for index, delta in enumerate(deltas)])
    assert len(answer["choices"]) == min(2, len(deltas))
