"""Errors: one shape, one table, headers that clients' retries go by."""

import json

import pytest

from commonpool.core.effects import Refuse
from commonpool.core.model import Reason
from commonpool.core.records import STATUS_OF
from commonpool.gateway.errors import PHRASES, ApiError, model_not_found, of_refusal, shown


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_status_and_its_sentence(reason: Reason) -> None:
    error = of_refusal(Refuse("r", reason, "A sentence.", None))
    assert error.status in PHRASES
    assert 400 <= error.status < 600
    body = json.loads(error.body())["error"]
    assert body["message"] == "A sentence."
    assert isinstance(body["code"], str)
    assert set(body) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("reason", list(STATUS_OF))
def test_the_record_and_the_client_see_the_same_status(reason: Reason) -> None:
    assert of_refusal(Refuse("r", reason, "", None)).status == STATUS_OF[reason]


@pytest.mark.parametrize(
    ("retry_after_ns", "lines"),
    [
        (None, b""),
        (0, b"retry-after: 1\r\nretry-after-ms: 1\r\n"),
        (1_500_000, b"retry-after: 1\r\nretry-after-ms: 2\r\n"),
        (12_300_000_000, b"retry-after: 13\r\nretry-after-ms: 12300\r\n"),
    ],
)
def test_retry_after_is_rounded_up(retry_after_ns: int | None, lines: bytes) -> None:
    assert of_refusal(Refuse("r", Reason.QUEUE_FULL, "", retry_after_ns)).headers() == lines


def test_a_spent_budget_tells_clients_not_to_try_again() -> None:
    error = of_refusal(Refuse("r", Reason.BUDGET, "", None))
    assert error.headers() == b"x-should-retry: false\r\n"
    assert json.loads(error.body())["error"]["type"] == "insufficient_quota"
    assert json.loads(of_refusal(Refuse("r", Reason.PROMISE, "", 1)).body())["error"]["type"] == "rate_limit_error"


def test_an_unknown_model_names_those_that_are_open() -> None:
    error = model_not_found("smol", ["b", "a"])
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert error.message.endswith("it may use: a, b.")
    assert "none" in model_not_found("x", []).message
    assert "and 9 more" in model_not_found("x", [f"m{n:02}" for n in range(59)]).message


def test_a_clients_value_cannot_flood_or_break_a_line() -> None:
    assert shown("a\nb") == '"a\\nb"'
    assert len(shown("x" * 10_000)) == 80


def test_further_headers() -> None:
    assert b"www-authenticate: Bearer\r\n" in ApiError(401, "c", "m").headers()
    assert ApiError(405, "c", "m", allow="POST").headers() == b"allow: POST\r\n"
