"""Request bodies: what they ask for, what is refused by name, and what an engine gets instead."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.model import Endpoint
from commonpool.gateway import wire
from commonpool.gateway.errors import ApiError
from tests.gateway.fakes import chat
from tests.leaks import MARK, none_in


def read(body: Any, endpoint: Endpoint = "chat") -> wire.Ask:
    return wire.read(endpoint, body if isinstance(body, bytes) else json.dumps(body).encode())


def rebuilt(body: Any, endpoint: Endpoint = "chat") -> Any:
    return json.loads(read(body, endpoint).body("served"))


def refused(body: Any, endpoint: Endpoint = "chat") -> ApiError:
    with pytest.raises(ApiError) as error:
        read(body, endpoint)
    assert error.value.status == 400
    return error.value


def test_a_chat_request() -> None:
    ask = read(chat(n=3, max_tokens=50, service_tier="batch"))
    assert (ask.model, ask.stream, ask.sequences, ask.tokens_out_max, ask.service_tier) == (
        "tiny",
        False,
        3,
        50,
        "batch",
    )
    assert ask.tokens_in == -(-len(json.dumps(chat()["messages"])) // 4)


def test_the_larger_of_two_bounds_counts() -> None:
    assert read(chat(max_tokens=5, max_completion_tokens=9)).tokens_out_max == 9
    assert read(chat(max_completion_tokens=None, max_tokens=None)).tokens_out_max is None


@pytest.mark.parametrize(
    ("endpoint", "field", "value", "sequences", "tokens_in"),
    [
        ("completions", "prompt", "abcdefg", 1, 3),
        ("completions", "prompt", ["ab", "cd", "ef"], 3, 5),
        ("completions", "prompt", [1, 2, 3], 1, 3),
        ("completions", "prompt", [[1, 2], [3]], 2, 3),
        ("embeddings", "input", "abc", 1, 2),
        ("embeddings", "input", [[1, 2, 3], [4, 5, 6]], 2, 6),
        ("embeddings", "input", [[]], 1, 0),
    ],
)
def test_prompts(endpoint: Endpoint, field: str, value: Any, sequences: int, tokens_in: int) -> None:
    ask = read({"model": "tiny", field: value}, endpoint)
    assert (ask.sequences, ask.tokens_in) == (sequences, tokens_in)


def test_choices_times_prompts() -> None:
    ask = read({"model": "tiny", "prompt": ["a", "b"], "n": 2, "best_of": 4}, "completions")
    assert (ask.choices, ask.sequences) == (2, 8)
    assert (read(chat()).choices, read(chat(n=3)).choices, read(chat(n=None)).choices) == (1, 3, 1)


@pytest.mark.parametrize(
    ("endpoint", "body", "param"),
    [
        ("chat", {"messages": []}, "model"),
        ("chat", chat(model=7), "model"),
        ("chat", chat(model=None), "model"),
        ("chat", {"model": "tiny"}, "messages"),
        ("chat", chat(messages="hello"), "messages"),
        ("chat", chat(n=0), "n"),
        ("chat", chat(n=129), "n"),
        ("chat", chat(n="2"), "n"),
        ("chat", chat(n=2.0), "n"),
        ("chat", chat(n=True), "n"),
        ("chat", chat(max_tokens=0), "max_tokens"),
        ("chat", chat(max_tokens=-1), "max_tokens"),
        ("chat", chat(max_tokens=10**30), "max_tokens"),
        ("chat", chat(max_completion_tokens=1.5), "max_completion_tokens"),
        ("chat", chat(stream="yes"), "stream"),
        ("chat", chat(stream=1), "stream"),
        ("chat", chat(stream=True, stream_options=[]), "stream_options"),
        ("chat", chat(stream=True, stream_options={"include_usage": 1}), "include_usage"),
        ("chat", chat(service_tier=3), "service_tier"),
        ("completions", {"model": "tiny"}, "prompt"),
        ("completions", {"model": "tiny", "prompt": []}, "prompt"),
        ("completions", {"model": "tiny", "prompt": {}}, "prompt"),
        ("completions", {"model": "tiny", "prompt": ["a", 1]}, "prompt"),
        ("completions", {"model": "tiny", "prompt": [1, "a"]}, "prompt"),
        ("completions", {"model": "tiny", "prompt": [[1], 2]}, "prompt"),
        ("completions", {"model": "tiny", "prompt": [1.5]}, "prompt"),
        ("embeddings", {"model": "tiny", "input": None}, "input"),
    ],
)
def test_a_wrong_type_names_the_parameter(endpoint: Endpoint, body: Any, param: str) -> None:
    error = refused(body, endpoint)
    assert error.param == param
    assert f"`{param}`" in error.message


@pytest.mark.parametrize(
    ("endpoint", "prompt", "kind"),
    [
        ("chat", MARK, "a string"),
        ("chat", {"content": MARK}, "an object"),
        ("chat", 1234567, "a number"),
        ("completions", {MARK: MARK}, "an object"),
        ("completions", [MARK, 1234567], "a list of something else"),
        ("completions", [1234567, MARK], "a list of something else"),
        ("completions", [[1234567], MARK], "a list of something else"),
        ("embeddings", -1.5, "a number"),
        ("embeddings", True, "true"),
        ("embeddings", False, "false"),
        ("embeddings", None, "null"),
    ],
)
def test_what_is_wrong_with_a_prompt_is_told_without_it(endpoint: Endpoint, prompt: Any, kind: str) -> None:
    error = refused({"model": "tiny", wire.PROMPT_FIELD[endpoint]: prompt}, endpoint)
    assert error.message.endswith(f", not {kind}.")
    assert "1234567" not in error.message
    none_in(error.message, "an error")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"model": "tiny",}', "line 1, column 18 (byte 17)"),
        (b'{"model": "tiny",\n  "n": 01}', "line 2, column 9 (byte 26)"),
        (b'{"model": "tiny"', "line 1, column 17 (byte 16)"),
        (b'{"model": "tiny"} x', "(byte 18)"),
        (b'{"model": "\xff"}', "column 12 (byte 11)"),
        (b'{"a":NaN}', "(byte 5)"),
    ],
)
def test_malformed_json_is_told_with_its_position(body: bytes, where: str) -> None:
    error = refused(body)
    assert error.code == "malformed_json"
    assert where in error.message


@pytest.mark.parametrize(("body", "code"), [(b"", "empty_body"), (b" \n", "empty_body"), (b"[]", "not_an_object")])
def test_bodies_that_are_no_object(body: bytes, code: str) -> None:
    assert refused(body).code == code


def test_nesting_is_bounded_and_a_hundred_levels_pass() -> None:
    def nested(depth: int) -> bytes:
        return b'{"model":"tiny","messages":[],"x":' + b"[" * depth + b"]" * depth + b"}"

    assert read(nested(100)).model == "tiny"
    assert refused(nested(100_000)).code == "too_deep"
    assert refused(b'{"a":' * 100_000).code == "too_deep"


def test_the_body_is_rebuilt_without_what_is_not_the_clients_to_say() -> None:
    body = chat(priority=0, cache_salt="x", user="u", metadata={"a": 1}, service_tier="batch", api_base="http://evil",
                temperature=0.5, tools=[{"type": "function"}])  # fmt: skip
    assert rebuilt(body) == {**chat(), "model": "served", "temperature": 0.5, "tools": [{"type": "function"}]}


def test_a_repeated_key_is_there_once_and_escapes_do_not_hide_one() -> None:
    body = rb'{"model":"other","model":"tiny","messages":[],"pri\u006frity":1,"n":1,"n":2}'
    ask = read(body)
    assert (ask.model, ask.sequences) == ("tiny", 2)
    assert ask.body("served").count(b'"n"') == 1
    assert rebuilt(body) == {"model": "served", "messages": [], "n": 2}


def test_a_stream_always_reports_usage_and_the_clients_wish_is_kept() -> None:
    assert rebuilt(chat(stream=True))["stream_options"] == {"include_usage": True}
    assert not read(chat(stream=True)).include_usage
    evading = chat(stream=True, stream_options={"include_usage": False, "chunk": 1})
    assert rebuilt(evading)["stream_options"] == {"include_usage": True, "chunk": 1}
    assert not read(evading).include_usage
    assert read(chat(stream=True, stream_options={"include_usage": True})).include_usage
    assert not read(chat(stream=True, stream_options=None)).include_usage


@pytest.mark.parametrize("stream", [True, False])
def test_a_body_can_be_made_to_ask_for_a_stream_without_changing_what_it_asks_of_another_engine(stream: bool) -> None:
    body = chat(stream=stream, stream_options={"include_usage": False}, return_progress=False, cache_prompt=True)
    ask = read(body)
    plain = json.loads(ask.body("other"))
    forced = {**chat(), "model": "served", "stream": True, "stream_options": {"include_usage": True}}
    assert json.loads(ask.streamed_body("served", None)) == forced
    assert json.loads(ask.streamed_body("served", "return_progress")) == {**forced, "return_progress": True}
    assert json.loads(ask.body("other")) == plain
    assert "return_progress" not in plain


def test_without_a_stream_nothing_is_added() -> None:
    assert "stream_options" not in rebuilt(chat(stream=False))
    assert rebuilt({"model": "tiny", "input": "a", "stream": True}, "embeddings")["stream"] is True
    assert not read({"model": "tiny", "input": "a", "stream": True}, "embeddings").stream


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
READ = {"model", "messages", "n", "best_of", "max_tokens", "max_completion_tokens", "stream", "stream_options"}


@given(
    st.dictionaries(st.text(max_size=10) | st.sampled_from(sorted(wire.STRIPPED - {"service_tier"})), JSON, max_size=8),
    st.booleans(),
    st.sampled_from(["tiny", "served", 'we"ird\n', "ünicode"]),
)
def test_the_rebuilt_body_is_the_original_minus_stripped_plus_injected(
    extra: dict[str, Any], stream: bool, served: str
) -> None:
    extra = {name: value for name, value in extra.items() if name not in READ and name != "service_tier"}
    body = {**extra, **chat(stream=stream)}
    expected = {name: value for name, value in body.items() if not wire.is_stripped(name)} | {"model": served}
    if stream:
        expected["stream_options"] = {"include_usage": True}
    # Pieces are copied as they came, so numbers and escapes survive whatever the spelling.
    for spelling in (json.dumps(body), json.dumps(body, ensure_ascii=False, indent=2)):
        sent = read(spelling.encode()).body(served)
        assert json.loads(sent) == expected
        assert msgspec.json.decode(sent) == msgspec.json.decode(json.dumps(expected))


def test_numbers_are_not_rounded_on_the_way() -> None:
    body = (
        b'{"model":"tiny","messages":[],"seed":123456789012345678901234567890,"t":0.1000000000000000055511151231257827}'
    )
    assert b"123456789012345678901234567890" in read(body).body("tiny")
    assert b"0.1000000000000000055511151231257827" in read(body).body("tiny")


def test_a_flood_of_keys_is_refused_before_any_is_made() -> None:
    fields = b",".join(b'"%x":1' % n for n in range(210_000))
    assert refused(b'{"model":"m","messages":[],' + fields + b"}").code == "too_many_strings"
    escaped = b'{"model":"m","messages":[{"role":"user","content":"' + b'\\"' * 500_000 + b'"}]}'
    assert wire.read("chat", escaped).model == "m"


@pytest.mark.parametrize("endpoint", ["embeddings", "completions"])
def test_messages_are_looked_at_wherever_an_engine_may_read_them(endpoint: Endpoint) -> None:
    part = {"type": "image_url", "image_url": {"url": "http://10.0.0.1/"}}
    body = {"model": "m", "input": "x", "prompt": "x", "messages": [{"role": "user", "content": [part]}]}
    with pytest.raises(ApiError, match="send it as a `data:` URL"):
        read(body, endpoint)
