"""What a request takes, what never fits, and what can be promised."""

from typing import Any

import pytest

from commonpool.core import admission
from commonpool.core.model import Deployment, Reason, Request
from tests.core.worlds import S, tenant

SHAPE = Deployment("m", "1", "main", milli_gpu=2000, slots=4, kv_tokens=4000, context_tokens=1000)


def request(**more: Any) -> Request:
    fields: dict[str, Any] = {"tokens_in": 10, "tokens_out_max": 10}
    return Request("r", "a", "app", "m", "interactive", "chat", **(fields | more))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 500),
        ({"sequences": 3}, 1500),
        ({"tokens_in": 900, "tokens_out_max": 5000}, 500),  # the context bounds what it can hold
    ],
)
def test_a_request_uses_its_dominant_share(more: dict[str, Any], expected: int) -> None:
    asked = request(**more)
    assert admission.ask(asked, SHAPE, admission.kv_tokens(asked, SHAPE)) == expected


def test_few_kv_tokens_make_memory_dominant() -> None:
    small = Deployment("m", "1", "main", milli_gpu=2000, slots=4, kv_tokens=1000, context_tokens=1000)
    asked = request(tokens_in=500, tokens_out_max=500)
    assert admission.ask(asked, small, admission.kv_tokens(asked, small)) == 2000


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
    asked = request(tokens_in=tokens_in, tokens_out_max=bound)
    assert admission.output_tokens(asked, SHAPE, learned) == expected


def test_refusals_name_value_and_limit() -> None:
    many = admission.never_fits(request(sequences=5), SHAPE, 100, 100, 4000)
    assert many is not None
    assert (many.reason, many.retry_after_ns) == (Reason.NEVER_FITS, None)
    assert "5 sequences" in many.message
    assert "at most 4" in many.message
    assert admission.never_fits(request(), SHAPE, 4001, 100, 4000) is not None
    assert admission.never_fits(request(), SHAPE, 4000, 4000, 4000) is None


def test_a_promise_is_kept_at_the_guaranteed_rate_or_not_given() -> None:
    a = tenant("a", 1000, max_wait_ns=10 * S)
    assert admission.promise(a, 10 * S * 1000, 1000) is None
    late = admission.promise(a, 13 * S * 1000, 1000)
    assert late is not None
    assert (late.reason, late.retry_after_ns) == (Reason.PROMISE, 3 * S)
    assert "13.0 s of work" in late.message
