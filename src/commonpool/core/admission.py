"""What a request will take, whether it can ever fit, and whether its promise can be kept.

A request uses the larger of two shares of a replica, slots and KV tokens (DESIGN section 2, "one unit of use").
"""

import msgspec

from commonpool.core.model import NS_PER_S, Deployment, Reason, Request, Tenant

# What is expected of a request whose client set no bound, before its flow has shown better.
OUTPUT_TOKENS_GUESS = 256
RETRY_AFTER_MIN_NS = NS_PER_S


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is not taken, in one sentence, and when it is worth trying again (None: never)."""

    reason: Reason
    message: str
    retry_after_ns: int | None = None


def output_tokens(request: Request, deployment: Deployment, learned: int) -> int:
    """Expected output of one sequence: what the flow has shown, within the client's bound and the context."""
    room = max(1, deployment.context_tokens - request.tokens_in)
    expected = min(learned or OUTPUT_TOKENS_GUESS, room)
    return min(expected, request.tokens_out_max) if request.tokens_out_max else expected


def kv_tokens(request: Request, deployment: Deployment) -> int:
    """KV tokens that a request may come to hold: prompt and the most it may produce, per sequence."""
    most = request.tokens_out_max or deployment.context_tokens
    return request.sequences * min(deployment.context_tokens, request.tokens_in + most)


def ask(request: Request, deployment: Deployment, kv: int) -> int:
    """The milli_gpu that a request uses while it runs: its dominant share of a replica, rounded down, at least 1."""
    by_slots = request.sequences * deployment.milli_gpu // deployment.slots
    by_kv = kv * deployment.milli_gpu // deployment.kv_tokens
    return max(1, by_slots, by_kv)


def never_fits(request: Request, deployment: Deployment, kv: int, amount: int, cap: int) -> Refusal | None:
    """Refuse at once what no amount of waiting could ever serve."""
    message = None
    if request.sequences > deployment.slots:
        message = (
            f"The request asks for {request.sequences} sequences at once; a replica of {request.model} runs at most "
            f"{deployment.slots}. Ask for fewer."
        )
    elif kv > deployment.kv_tokens:
        message = (
            f"The request may need {kv} KV tokens; a replica of {request.model} holds {deployment.kv_tokens}. "
            "Shorten the prompt, or set a smaller max_tokens or n."
        )
    elif amount > cap:
        message = (
            f"The request needs {amount} milli_gpu; tenant {request.tenant} can never use more than {cap} at once. "
            "Ask for fewer sequences, or have its elastic_cap raised."
        )
    return Refusal(Reason.NEVER_FITS, message) if message else None


def promise(tenant: Tenant, work_ahead: int, rate: int) -> Refusal | None:
    """Refuse what the guaranteed rate could not start within max_wait.

    `work_ahead` is the tenant's waiting work in milli_gpu × ns, `rate` the milli_gpu it is sure to have.
    """
    wait_ns = work_ahead // rate
    if wait_ns <= tenant.max_wait_ns:
        return None
    retry_ns = max(RETRY_AFTER_MIN_NS, wait_ns - tenant.max_wait_ns)
    return Refusal(
        Reason.PROMISE,
        f"Tenant {tenant.name} has {wait_ns / NS_PER_S:.1f} s of work waiting at its guaranteed rate; its max_wait is "
        f"{tenant.max_wait_ns / NS_PER_S:g} s. Try again in {retry_ns / NS_PER_S:.0f} s.",
        retry_ns,
    )
