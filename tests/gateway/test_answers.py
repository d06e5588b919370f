"""Engines' answers: usage where zero is a value, estimates where there is none, errors in one shape."""

import json
from typing import Any

import pytest

from commonpool.core.model import TokenSource, Usage
from commonpool.gateway.answers import (
    chunk_of,
    engine_error,
    estimate,
    event_error,
    texts_of,
    usage_chunk,
    usage_of,
    without_usage,
)
from tests.gateway.fakes import chat_answer, usage_json


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (usage_json(7, 3), Usage(7, 0, 3)),
        (usage_json(7, 3, cached=5), Usage(7, 5, 3)),
        (usage_json(0, 0), Usage(0, 0, 0)),
        (usage_json(7, 3, cached=9), Usage(7, 7, 3)),
        ({"prompt_tokens": 4, "total_tokens": 4}, Usage(4, 0, 0)),
        ({"prompt_tokens": 4, "total_tokens": 9}, Usage(4, 0, 5)),
        ({"prompt_tokens": 4, "completion_tokens": 1, "prompt_tokens_details": None}, Usage(4, 0, 1)),
        ({"completion_tokens": 1}, None),
        ({"prompt_tokens": -4, "completion_tokens": 1}, None),
        ({"prompt_tokens": 4, "completion_tokens": -1}, None),
        ({"prompt_tokens": "4"}, None),
        (None, None),
    ],
)
def test_usage(reported: Any, usage: Usage | None) -> None:
    assert usage_of(json.dumps({"choices": [], "usage": reported}).encode()) == usage


def test_an_answer_that_is_no_json_has_no_usage() -> None:
    assert usage_of(b"<html>") is None
    assert usage_of(b"") is None
    assert chunk_of(b"[1]") is None


def test_texts_and_their_estimate() -> None:
    texts = texts_of(chat_answer("abcde", ""))
    assert texts == ["abcde", ""]
    assert texts_of(b'{"choices":[{"text":"xyz"}]}') == ["xyz"]
    assert texts_of(b"nonsense") == []
    assert estimate(11, texts) == Usage(11, 0, 2, TokenSource.ESTIMATED)


def test_usage_is_put_alone_or_left_out_and_nothing_else_changes() -> None:
    body = chat_answer("a", "b", usage={**usage_json(7, 3, cached=2), "extra": 1}, timings={"x": 1.50})
    whole = json.loads(body)
    alone = json.loads(usage_chunk(body, Usage(7, 2, 10)))
    assert alone == {**whole, "choices": [], "usage": {**usage_json(7, 10, cached=2), "extra": 1}}
    assert {**json.loads(without_usage(body)), "usage": whole["usage"]} == whole


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (b'{"error":{"message":"too long","type":"x","code":400,"param":"prompt"}}', "too long", "400"),
        (b'{"error":{"message":"too long","code":"ctx"}}', "too long", "ctx"),
        (b'{"object":"error","message":"too long","code":400}', "too long", "400"),
        (b'{"error":"too long"}', "too long", "engine_error"),
        (b'{"detail":"too long"}', "too long", "engine_error"),
        (b'{"error":{"code":null}}', "The engine refused the request (HTTP 400).", "engine_error"),
        (b"<html>", "The engine refused the request (HTTP 400).", "engine_error"),
    ],
)
def test_the_shapes_of_engine_errors(body: bytes, message: str, code: str) -> None:
    error = engine_error(400, body)
    assert (error.status, error.message, error.code) == (400, message, code)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_our_own_access_problems_are_not_the_clients(status: int) -> None:
    error = engine_error(status, b'{"error":{"message":"Invalid API key sk-1234"}}')
    assert error.status == 502
    assert "sk-1234" not in error.message


def test_what_a_failing_engine_says_is_not_passed_on() -> None:
    error = engine_error(500, b'{"error":{"message":"/srv/models/x.gguf: CUDA error"}}')
    assert error.status == 500
    assert "/srv" not in error.message


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        ({"code": 400, "message": "too long"}, 400, "too long"),
        ({"code": "422", "message": "no such grammar"}, 422, "no such grammar"),
        ({"code": 401, "message": "Invalid API key sk-1234"}, 502, "The engine refused the gateway's request"),
        ({"code": 500, "message": "/srv: CUDA error"}, 502, "The engine failed within its answer"),
        ({"code": "out_of_memory", "message": "/srv"}, 502, "The engine failed within its answer"),
        ({"message": "/srv"}, 502, "The engine failed within its answer"),
        ("/srv", 502, "The engine failed within its answer"),
    ],
)
def test_the_error_that_ends_a_stream(error: Any, status: int, message: str) -> None:
    answer = event_error(json.dumps({"error": error}).encode())
    assert answer.status == status
    assert answer.message.startswith(message)
