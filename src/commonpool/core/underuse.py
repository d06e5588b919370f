"""Under-use: guarantees of which less than half has been wanted for days, the evidence, and what could be released.

A release (`events.Released`) makes a part of a guarantee the pool's: it can be taken back at any time, and neither what
is in use nor what is reserved is ever released. What is offered here is offered, never done.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from commonpool.core.forecast import HOURS_A_DAY, HOURS_A_WEEK
from commonpool.core.model import MILLI_PER_GPU
from commonpool.core.said import Said, say
from commonpool.core.state import State

# Three days: from Friday evening to Monday morning is less, so no weekend looks like this.
HOURS_MIN: Final = 72
# Half: what a tenant wants goes up and down, and one that sometimes wants most of its guarantee has it for that.
LOW_PERCENT: Final = 50
# A fifth more than was ever wanted meanwhile stays, since what comes next is not what was.
KEPT_PERCENT: Final = 120
# A tenth of a GPU: finer figures would pretend to be exact.
STEP_MILLI_GPU: Final = MILLI_PER_GPU // 10


class Underuse(msgspec.Struct, frozen=True):
    """A guarantee of which less than half has been wanted in each of the last `hours` complete hours; in milli_gpu.

    `peak_milli_gpu` and `mean_milli_gpu` are the largest of the hourly peaks of demand in that time and their mean,
    `lent_milli_gpu` what is lent of it now. `offered_milli_gpu` is how much could be released, whole tenths of a GPU.
    """

    tenant: str
    pool: str
    guaranteed_milli_gpu: int
    hours: int
    peak_milli_gpu: int
    mean_milli_gpu: int
    lent_milli_gpu: int
    offered_milli_gpu: int

    @property
    def said(self) -> Said:
        """What it is, for an operator."""
        return say(
            "alert.underuse",
            tenant=self.tenant,
            peak_milli_gpu=self.peak_milli_gpu,
            days=self.hours // HOURS_A_DAY,
            milli_gpu=self.guaranteed_milli_gpu,
            offered_milli_gpu=self.offered_milli_gpu,
        )


class Demand(msgspec.Struct, frozen=True, gc=False):
    """What is known of a tenant's demand: the peaks of complete hours, in milli_gpu, from `first_hour` (Unix) on."""

    tenant: str
    first_hour: int
    peaks: tuple[int, ...]


def underuse(state: State, now: int) -> list[Underuse]:
    """The tenants whose guarantees are under-used, in the order of the policy; those with nothing to offer left out."""
    found = []
    for name, tenant in state.policy.tenants.items():
        node = state.quotas[tenant.pool].tenants[name]
        low = node.guaranteed * LOW_PERCENT // 100
        # 1. For how long that has been so. The hour that runs can only end it.
        _, peaks = state.forecasts[name].peaks(now)
        running = peaks.pop() if peaks else 0
        if not node.guaranteed or running >= low or len(peaks) < HOURS_MIN or max(peaks[-HOURS_MIN:]) >= low:
            continue
        hours = _hours_below(peaks, low)
        # 2. What would be enough.
        seen = peaks[-hours:]
        peak = max(seen)
        enough = max(node.reserved, -(-max(running, peak) * KEPT_PERCENT // 100))
        offered = (node.guaranteed - enough) // STEP_MILLI_GPU * STEP_MILLI_GPU
        if offered > 0:
            found.append(
                Underuse(
                    tenant=name,
                    pool=tenant.pool,
                    guaranteed_milli_gpu=node.guaranteed,
                    hours=hours,
                    peak_milli_gpu=peak,
                    mean_milli_gpu=sum(seen) // hours,
                    lent_milli_gpu=state.loans[tenant.pool].lent(name),
                    offered_milli_gpu=offered,
                )
            )
    return found


def releasable(state: State, tenant: str) -> int:
    """How much more of its guarantee a tenant of the policy can release now: what is neither reserved nor in use."""
    node = state.quotas[state.policy.tenants[tenant].pool].tenants[tenant]
    return max(0, node.guaranteed - max(node.use, node.reserved))


def demands(state: State, now: int) -> list[Demand]:
    """What is known of the demand of every tenant, to be kept; nothing is changed by asking."""
    found = []
    for name in state.policy.tenants:
        first_hour, peaks = state.forecasts[name].peaks(now)
        if len(peaks) > 1:
            found.append(Demand(name, first_hour, tuple(peaks[:-1])))
    return found


def recall(state: State, kept: Iterable[Demand], now: int) -> None:
    """What was kept of the demand; those of whom nothing was kept want nothing so far.

    This is the only writer of the state beside the machine: call it once, before anything happens, for the same events
    give the same effects only after the same beginning.
    """
    for demand in kept:
        forecast = state.forecasts.get(demand.tenant)
        if forecast is not None:
            forecast.restore(demand.first_hour, demand.peaks, now)
    for name in state.policy.tenants:
        forecast = state.forecasts[name]
        if not forecast.peaks(now)[1]:
            forecast.observe(0, now)


def _hours_below(peaks: list[int], low: int) -> int:
    """How many of the last hours were below it without a break: counted by weeks, then by days, then by hours."""
    left = len(peaks)
    for step in (HOURS_A_WEEK, HOURS_A_DAY, 1):
        while left and max(peaks[max(0, left - step) : left]) < low:
            left = max(0, left - step)
    return len(peaks) - left
