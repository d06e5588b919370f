"""What a request takes, what never fits, and what can be promised."""

from typing import Any

import pytest

from commonpool.core import admission, sizing
from commonpool.core.model import Deployment, Reason, Request
from commonpool.core.sizing import Shape
from tests.core.worlds import S

SHAPE = Shape(Deployment("m", "1", "main", milli_gpu=2000, slots=4, kv_tokens=4000, context_tokens=1000))


def request(**more: Any) -> Request:
    fields: dict[str, Any] = {"tokens_in": 10, "tokens_out_max": 10}
    return Request("r", "a", "app", "m", "interactive", "chat", **(fields | more))


def ask(asked: Request, shape: Shape) -> int:
    return sizing.shares(asked.tokens_in, asked.tokens_out_max, asked.sequences, shape)[1]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 500),
        ({"sequences": 3}, 1500),
        ({"tokens_in": 900, "tokens_out_max": 5000}, 500),  # the context bounds what it can hold
    ],
)
def test_a_request_uses_its_dominant_share(more: dict[str, Any], expected: int) -> None:
    assert ask(request(**more), SHAPE) == expected


def test_few_kv_tokens_make_memory_dominant() -> None:
    small = Shape(Deployment("m", "1", "main", milli_gpu=2000, slots=4, kv_tokens=1000, context_tokens=1000))
    assert ask(request(tokens_in=500, tokens_out_max=500), small) == 2000


@pytest.mark.parametrize(
    ("learned", "bound", "tokens_in", "expected"),
    [
        (0, None, 10, 256),
        (40, None, 10, 40),
        (40, 7, 10, 7),
        (5000, None, 900, 100),
        (0, None, 999, 1),
        (0, None, 2000, 1),
    ],
)
def test_the_expected_output_stays_within_every_bound(
    learned: int, bound: int | None, tokens_in: int, expected: int
) -> None:
    assert sizing.output_tokens(tokens_in, bound, SHAPE, learned) == expected


def test_refusals_name_value_and_limit() -> None:
    many = admission.never_fits(request(sequences=5), SHAPE, 100, 100, 4000)
    assert many is not None
    assert (many.reason, many.retry_after_ns) == (Reason.NEVER_FITS, None)
    assert "5 sequences" in many.message
    assert "at most 4" in many.message
    assert admission.never_fits(request(), SHAPE, 4001, 100, 4000) is not None
    assert admission.never_fits(request(), SHAPE, 4000, 4000, 4000) is None


def test_a_promise_that_cannot_be_kept_says_when_it_could_be() -> None:
    late = admission.promise("a", 10 * S, 13 * S)
    assert (late.reason, late.retry_after_ns) == (Reason.PROMISE, 3 * S)
    assert "13.0 s of work" in late.message
