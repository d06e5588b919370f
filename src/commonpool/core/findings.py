"""Findings: what costs more than it need, beside quotas, each with what would be saved.

Replicas that are little used, models whose replicas are larger than what runs on them, tenants whose tasks are tried
again and again, and tenants whose tokens cost much more than those of others.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from commonpool.core.english import english
from commonpool.core.pricing import exact_cost, round_half_up
from commonpool.core.said import Said, Value, say

Kind = Literal["low_use", "over_sized", "retries", "expensive"]

# A fifth more than was ever used stays, since what comes next is not what was.
KEPT_PERCENT: Final = 120
# A replica that never uses half of itself would do with half of its slots, KV memory and GPUs.
HALF_PERCENT: Final = 50
# Networks and engines fail once in a while; one attempt in twenty is more than that.
RETRIES_PERCENT: Final = 5
# Twice the median: prompts and models differ, and not every difference is a fault.
EXPENSIVE_FACTOR: Final = 2


class ModelUse(msgspec.Struct, frozen=True):
    """The replicas that a model always has and what requests used of them: in all, and in the busiest interval."""

    model: str
    replicas: int
    replica_milli_gpu: int
    used_milli_gpu_ns: int
    peak_milli_gpu: int
    micro_per_gpu_hour: int


class TenantUse(msgspec.Struct, frozen=True):
    """A tenant's attempts, those that failed, and the GPU time of both; `tokens` of requests, in and out."""

    tenant: str
    attempts: int
    failed: int
    failed_milli_gpu_ns: int
    requests_milli_gpu_ns: int
    tokens: int
    micro_per_gpu_hour: int


class Finding(msgspec.Struct, frozen=True):
    """What could be saved in the time looked at: GPU time, and money in micro-units of the billing currency.

    `said` is the sentence by its name.
    """

    kind: Kind
    about: str
    saving_milli_gpu_ns: int
    saving_micro: int
    sentence: str
    said: Said | None = None


def findings(models: Sequence[ModelUse], tenants: Sequence[TenantUse], length_ns: int) -> list[Finding]:
    """All of them, the largest saving first; `length_ns` is how long was looked at."""
    found = [each for use in models if (each := _replicas(use, length_ns))]
    found += [each for tenant in tenants if (each := _retries(tenant))]
    found += _expensive(tenants)
    return sorted(found, key=lambda each: (-each.saving_milli_gpu_ns, each.kind, each.about))


def _replicas(use: ModelUse, length_ns: int) -> Finding | None:
    """Fewer replicas where the busiest interval fits on fewer, a smaller one where it fits on half of one."""
    size = use.replica_milli_gpu
    if not use.replicas or not size or length_ns <= 0:
        return None
    wanted = use.peak_milli_gpu * KEPT_PERCENT // 100
    needed = max(1, -(-wanted // size))
    mean = use.used_milli_gpu_ns * 100 // (use.replicas * size * length_ns)
    share: dict[str, Value] = {
        "model": use.model,
        "percent": mean,
        "replicas": use.replicas,
        "milli_gpu": use.peak_milli_gpu,
    }
    if needed < use.replicas:
        less = (use.replicas - needed) * size
        said = say("finding.low_use", **share, needed=needed)
        return _finding("low_use", use.model, less * length_ns, use.micro_per_gpu_hour, said)
    if use.replicas == 1 and wanted * 100 <= size * HALF_PERCENT:
        said = say("finding.over_sized", **share)
        return _finding("over_sized", use.model, size // 2 * length_ns, use.micro_per_gpu_hour, said)
    return None


def _retries(use: TenantUse) -> Finding | None:
    if not use.failed or use.failed * 100 < use.attempts * RETRIES_PERCENT:
        return None
    said = say("finding.retries", attempts=use.attempts, tenant=use.tenant, failed=use.failed)
    return _finding("retries", use.tenant, use.failed_milli_gpu_ns, use.micro_per_gpu_hour, said)


def _expensive(tenants: Sequence[TenantUse]) -> list[Finding]:
    """Whose tokens take more than twice the GPU time of the median tenant's; the saving is down to that."""
    asking = sorted(
        (each for each in tenants if each.tokens), key=lambda each: each.requests_milli_gpu_ns // each.tokens
    )
    if len(asking) < EXPENSIVE_FACTOR + 1:
        return []
    median = asking[(len(asking) - 1) // 2]
    usual = median.requests_milli_gpu_ns // median.tokens
    found = []
    for use in asking:
        own = use.requests_milli_gpu_ns // use.tokens
        if own > EXPENSIVE_FACTOR * usual:
            said = say("finding.expensive", tenant=use.tenant, times_tenths=own * 10 // max(1, usual))
            saving = use.requests_milli_gpu_ns - usual * use.tokens
            found.append(_finding("expensive", use.tenant, saving, use.micro_per_gpu_hour, said))
    return found


def _finding(kind: Kind, about: str, milli_gpu_ns: int, micro_per_gpu_hour: int, said: Said) -> Finding:
    saving_micro = round_half_up(exact_cost(milli_gpu_ns, micro_per_gpu_hour))
    return Finding(kind, about, milli_gpu_ns, saving_micro, english(said), said)
