"""Limits under the keys that people write: those of a tenant, of an app, and of a key; and what the jobs of an app may
hold, which of a tenant is said by its quota.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from commonpool.config.kinds import BANDWIDTH, CORES, DURATION, GPU, MEMORY, RATE, TOKENS, Leaf, positive, whole
from commonpool.config.problems import hint
from commonpool.config.quantities import (
    format_bandwidth,
    format_cores,
    format_duration,
    format_gpu,
    format_memory,
    format_rate,
    format_tokens,
)
from commonpool.config.shape import Field, Record, Values
from commonpool.core.model import Limits

AMOUNT_MAX = 1_000_000


class Limit(msgspec.Struct, frozen=True):
    """One limit: its name in the core, how it is read and shown, and what it does."""

    field: str
    kind: Leaf
    shown: Callable[[int], str]
    what: str


LIMITS: dict[str, Limit] = {
    "concurrent_requests": Limit(
        "concurrent_requests", whole(1, AMOUNT_MAX), str, "Requests that run at once; more wait."
    ),
    "queue_length": Limit("queue_length", whole(1, AMOUNT_MAX), str, "Requests that wait; more are refused."),
    "requests": Limit("requests_per_minute", positive(RATE), format_rate, "Requests a minute; more are refused."),
    "tokens": Limit("tokens_per_minute", positive(RATE), format_rate, "Tokens a minute, in and out; more are refused."),
    "bandwidth": Limit(
        "bytes_per_second",
        positive(BANDWIDTH),
        format_bandwidth,
        "Bytes a second, bodies of requests and answers together; more are refused.",
    ),
    "input": Limit("tokens_in_max", positive(TOKENS), format_tokens, "Tokens of a prompt; a longer one is refused."),
    "output": Limit(
        "tokens_out_max",
        positive(TOKENS),
        format_tokens,
        "Tokens of an answer, all choices together; one that asks for more is refused, others end there.",
    ),
    "run_time": Limit("run_ns_max", positive(DURATION), format_duration, "How long a request runs; then it is ended."),
}


OF_JOBS: dict[str, Limit] = {
    "gpus": Limit("milli_gpu", positive(GPU), format_gpu, "GPUs that its jobs hold at once; more wait."),
    "cpu_cores": Limit("cpu_milli", positive(CORES), format_cores, "CPU cores that its jobs hold at once; more wait."),
    "memory": Limit("memory_mib", positive(MEMORY), format_memory, "Memory that its jobs hold at once; more wait."),
}
OF_APPS = LIMITS | OF_JOBS


def limits_record(limits: dict[str, Limit], defaults: Limits) -> Record:
    """A section of these limits, with these defaults."""
    return Record(
        tuple(
            Field(key, limit.kind, limit.what, derived="no limit")
            if (default := getattr(defaults, limit.field)) is None
            else Field(key, limit.kind, limit.what, default=limit.shown(default))
            for key, limit in limits.items()
        )
    )


def build_limits(values: Values) -> Limits:
    """What such a section says."""
    return Limits(**{limit.field: values.get(key) for key, limit in OF_APPS.items()})


def describe_limits(limits: Limits) -> dict[str, str | None]:
    """Each limit by its key, as people write it; None where there is none."""
    amounts = ((key, limit, getattr(limits, limit.field)) for key, limit in OF_APPS.items())
    return {key: None if amount is None else limit.shown(amount) for key, limit, amount in amounts}


def parse_limits(written: list[str]) -> Limits:
    """Limits as a command line has them, each `requests=60/min`. Raises ValueError with a sentence."""
    found: dict[str, Any] = {}
    for text in written:
        key, equals, amount = text.partition("=")
        if not equals or key not in LIMITS:
            raise ValueError(f"{text!r} is no limit; {hint(key, LIMITS, 'written LIMIT=AMOUNT')}")
        found[LIMITS[key].field] = LIMITS[key].kind.parse(amount)
    return Limits(**found)
