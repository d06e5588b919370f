"""The rate-limit headers."""

import pytest

from commonpool.core.views import RateView
from commonpool.gateway.rates import duration, rate_headers


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0ms"), (1, "1ms"), (12_000_000, "12ms"), (999_000_001, "1s"), (1_250_000_000, "1.25s"), (60 * 10**9, "60s")],
)
def test_durations(ns: int, text: str) -> None:
    assert duration(ns) == text


def test_headers_name_limit_remaining_and_reset() -> None:
    lines = rate_headers(b"tokens", RateView(limit=100, remaining=-3, reset_ns=61_000_000_000)).split(b"\r\n")
    assert lines == [
        b"x-ratelimit-limit-tokens: 100",
        b"x-ratelimit-remaining-tokens: 0",
        b"x-ratelimit-reset-tokens: 61s",
        b"",
    ]
