"""What work takes: the one place where a request or job becomes milli_gpu, KV tokens and expected service.

A request uses the larger of two shares of a replica, slots and KV tokens (DESIGN section 2, "one unit of use").
"""

from typing import Final

from commonpool.core.model import NS_PER_HOUR, Deployment, Job

# What is expected of a request whose client set no bound, before its flow has shown better.
OUTPUT_TOKENS_GUESS: Final = 256
# What is expected of a job that does not say how long it takes, before its flow has shown better.
JOB_NS_GUESS: Final = NS_PER_HOUR


class Shape:
    """The shape of a deployment's replicas, as numbers that are read for every request."""

    __slots__ = ("context_tokens", "kv_tokens", "milli_gpu", "slots")

    def __init__(self, deployment: Deployment) -> None:
        self.milli_gpu = deployment.milli_gpu
        self.slots = deployment.slots
        self.kv_tokens = deployment.kv_tokens
        self.context_tokens = deployment.context_tokens


def output_tokens(tokens_in: int, tokens_out_max: int | None, shape: Shape, learned: int) -> int:
    """Expected output of one sequence: what the flow has shown, within the client's bound and the context."""
    expected = min(learned or OUTPUT_TOKENS_GUESS, max(1, shape.context_tokens - tokens_in))
    return min(expected, tokens_out_max) if tokens_out_max else expected


def shares(tokens_in: int, tokens_out_max: int | None, sequences: int, shape: Shape) -> tuple[int, int]:
    """The KV tokens and the milli_gpu that a request uses while it runs.

    KV tokens are what it may come to hold: prompt and the most it may produce, per sequence. milli_gpu is its dominant
    share of a replica, rounded down, at least 1.
    """
    kv = sequences * min(shape.context_tokens, tokens_in + (tokens_out_max or shape.context_tokens))
    by_slots = sequences * shape.milli_gpu // shape.slots
    by_kv = kv * shape.milli_gpu // shape.kv_tokens
    return kv, max(by_slots, by_kv) or 1


def job_ns(job: Job, learned: int) -> int:
    """How long a job is expected to hold what it asks for, at least 1 ns."""
    return max(1, job.expected_ns or learned or JOB_NS_GUESS)
