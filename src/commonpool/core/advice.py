"""Advice: which `guaranteed` and `elastic_cap` each tenant of a pool should have, from what each has wanted.

The rules fit on a whiteboard. *Usual* is what a tenant wants in half of the intervals at most, *high* its 95th
percentile: the cards it would buy for itself.

1. A pool has room for what all want together in 95 of 100 intervals, each held to its high: since they do not peak
   together that is far less than the sum of the highs. Where there is a pool already, its size is what it is.
2. What is lent to a request is back in seconds, so a guarantee of requests costs nobody much: each has its high, and
   where the pool is too small for that the largest give way first (max-min fairness). Its cap is twice its own peak,
   since at single instants it wants more than in the mean of an interval.
3. What is lent to a job is back in hours, so neither may be large: a job's tenant is guaranteed what it usually wants,
   and may go to its high, which keeps the pool free enough for those who come later.
4. Who waits too long as it is gets a cap no lower than now, and no lower than its peak.
5. Who has wanted nothing may run one task as large as any, so that it can begin.
6. No cap is lower than what is left of the pool when all others are at theirs: a cap that protects nobody is none.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from commonpool.core.english import english
from commonpool.core.model import MILLI_PER_GPU
from commonpool.core.said import Said, say

USUAL_PERCENT: Final = 50
HIGH_PERCENT: Final = 95
CAP_FACTOR: Final = 2
# A tenth of a GPU is the finest difference worth a change of the configuration.
STEP_MILLI_GPU: Final = MILLI_PER_GPU // 10
# A wait longer than anything: of what was refused, since it can never fit.
NEVER_NS: Final = 1 << 62


class Series(msgspec.Struct, frozen=True):
    """What one tenant has wanted of its pool.

    `wanted` are means in milli_gpu, one for each interval, for all tenants of a pool the same intervals. `task` is the
    largest of its tasks, in milli_gpu. `lasting`: most of what it wants is held for longer than an interval, as jobs
    are. Today's quota and waits are None where they are not known; `patience_ns` is the longest good wait.
    """

    tenant: str
    wanted: tuple[int, ...]
    task: int
    lasting: bool = False
    guaranteed: int | None = None
    elastic_cap: int | None = None
    wait_ns_p99: int | None = None
    patience_ns: int | None = None

    @property
    def waits_long(self) -> bool:
        """Whether its 99th percentile of waits is longer than what it is promised."""
        wait, patience = self.wait_ns_p99, self.patience_ns
        return wait is not None and patience is not None and wait > patience


class Proposal(msgspec.Struct, frozen=True):
    """The quota that a tenant should have and the evidence, in milli_gpu; `sentence` says why, `said` by its name."""

    tenant: str
    guaranteed: int
    elastic_cap: int
    mean: int
    usual: int
    high: int
    peak: int
    sentence: str
    said: Said | None = None


class Advice(msgspec.Struct, frozen=True):
    """Quotas for the tenants of one pool, by name. In milli_gpu.

    `capacity` is what they share, `enough` what rule 1 asks for, and `static` the sum of what each would need for
    itself: its high, and no less than its largest task.
    """

    capacity: int
    enough: int
    static: int
    proposals: tuple[Proposal, ...]


class Verdict(msgspec.Struct, frozen=True):
    """What a set-up made of one tenant's tasks. A wait is NEVER_NS where that part of them never starts.

    Use is of tasks that came in the time tested; `borrowed` and `lent` are between tenants, what is nobody's left out.
    """

    tenant: str
    tasks: int
    refused: int
    wait_ns_p50: int
    wait_ns_p99: int
    used_milli_gpu_ns: int
    borrowed_milli_gpu_ns: int
    lent_milli_gpu_ns: int


def advise(series: Sequence[Series], capacity: int | None = None) -> Advice:
    """Quotas for a pool of this size, or of the size that is enough. Raises ValueError for series of different lengths.

    The guarantees sum to no more than the pool, and no cap is above it.
    """
    if len({len(each.wanted) for each in series}) > 1:
        raise ValueError("the tenants' series are of different lengths; give each the same intervals")
    ordered = sorted(series, key=lambda each: each.tenant)
    highs = {each.tenant: high(each) for each in ordered}
    needed = enough(ordered)
    room = needed if capacity is None else capacity
    wished = {
        each.tenant: min(highs[each.tenant], percentile(each.wanted, USUAL_PERCENT))
        if each.lasting
        else highs[each.tenant]
        for each in ordered
    }
    guaranteed = _max_min(wished, room)
    largest = max((each.task for each in ordered), default=0)
    caps = {each.tenant: min(room, max(guaranteed[each.tenant], _cap(each) or largest)) for each in ordered}
    spare = room - sum(caps.values())
    proposals = tuple(_proposal(each, guaranteed[each.tenant], caps[each.tenant] + max(0, spare)) for each in ordered)
    return Advice(room, needed, sum(highs.values()), proposals)


def high(series: Series) -> int:
    """What the tenant would need for itself: its 95th percentile, and no less than its largest task."""
    return max(percentile(series.wanted, HIGH_PERCENT), series.task)


def enough(series: Sequence[Series]) -> int:
    """The pool of rule 1, in milli_gpu; no smaller than the largest task."""
    highs = [high(each) for each in series]
    pooled = [
        sum(min(wanted, most) for wanted, most in zip(at, highs, strict=True))
        for at in zip(*(each.wanted for each in series), strict=True)
    ]
    return max(percentile(pooled, HIGH_PERCENT), max((each.task for each in series), default=0))


def percentile(values: Sequence[int], percent: int) -> int:
    """The least value that this part (1 to 100) of them does not exceed, by nearest rank; 0 of none."""
    ordered = sorted(values)
    return ordered[(len(ordered) * percent + 99) // 100 - 1] if ordered else 0


def _max_min(wished: dict[str, int], room: int) -> dict[str, int]:
    """To each what it wishes, or an equal part of what the smaller ones leave; ties by name."""
    given: dict[str, int] = {}
    for name in sorted(wished, key=lambda name: (wished[name], name)):
        given[name] = min(wished[name], room // (len(wished) - len(given)))
        room -= given[name]
    return given


def _cap(series: Series) -> int:
    peak = max(series.wanted, default=0)
    cap = high(series) if series.lasting else CAP_FACTOR * max(high(series), peak)
    return max(cap, peak, series.elastic_cap or 0) if series.waits_long else cap


def _proposal(series: Series, guaranteed: int, cap: int) -> Proposal:
    said = _why(series, guaranteed, cap)
    return Proposal(
        tenant=series.tenant,
        guaranteed=guaranteed,
        elastic_cap=cap,
        mean=sum(series.wanted) // max(1, len(series.wanted)),
        usual=percentile(series.wanted, USUAL_PERCENT),
        high=percentile(series.wanted, HIGH_PERCENT),
        peak=max(series.wanted, default=0),
        sentence=english(said),
        said=said,
    )


def _why(series: Series, guaranteed: int, cap: int) -> Said:
    """One sentence: first what is amiss today, then what it has wanted."""
    use = say(
        "advice.use",
        usual_milli_gpu=percentile(series.wanted, USUAL_PERCENT),
        high_milli_gpu=percentile(series.wanted, HIGH_PERCENT),
    )
    now, now_cap = series.guaranteed, series.elastic_cap
    if series.waits_long and now_cap is not None and cap > now_cap:
        return say("advice.waits", wait_ns=series.wait_ns_p99 or 0, use=use)
    if now is not None and guaranteed <= now - STEP_MILLI_GPU:
        return say("advice.less", milli_gpu=now, use=use)
    if now is not None and guaranteed >= now + STEP_MILLI_GPU:
        return say("advice.more", milli_gpu=now, use=use)
    if now_cap is not None and cap <= now_cap - STEP_MILLI_GPU:
        return say("advice.lower_cap", milli_gpu=now_cap, use=use)
    if now_cap is not None and cap >= now_cap + STEP_MILLI_GPU:
        return say("advice.higher_cap", milli_gpu=now_cap, use=use)
    return say("advice.so", use=use)
