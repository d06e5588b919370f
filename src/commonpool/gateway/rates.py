"""The `x-ratelimit-*` headers by which OpenAI's clients pace themselves."""

from commonpool.core.views import RateView

NS_PER_MS = 1_000_000
MS_PER_S = 1000


def rate_headers(kind: bytes, rate: RateView) -> bytes:
    """Header lines for one limit; `kind` is `requests` or `tokens`. Each line has its end."""
    return b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\nx-ratelimit-reset-%b: %b\r\n" % (
        kind,
        rate.limit,
        kind,
        max(0, rate.remaining),
        kind,
        duration(rate.reset_ns).encode(),
    )


def duration(ns: int) -> str:
    """A duration as those headers write it, `12ms` or `1.25s`, rounded up so that nobody is early."""
    milliseconds = -(-ns // NS_PER_MS)
    if milliseconds < MS_PER_S:
        return f"{milliseconds}ms"
    return f"{milliseconds / MS_PER_S:g}s"
