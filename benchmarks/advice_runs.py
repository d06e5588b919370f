"""Quotas advised from one week and tested on the next, on public traces: the simulations, and what they found.

ServeGen's two weeks are rates, of which every third request drawn is kept, at 23 times the pace: nearly eight times the
load. At their own pace the eight tenants keep a fraction of one replica busy; and so two thirds of the static sum are
a whole number of replicas, three, and nine tenths four. Philly's 109 days are cut into weeks; every two consecutive
weeks that both have at least 500 jobs are a test.
"""

from fractions import Fraction
from operator import attrgetter
from pathlib import Path
from typing import Final

import msgspec
from benchmarks.policy_setups import CONTEXT_TOKENS, JOBS, PRESET

from commonpool.core.advice import Advice, Verdict, advise, high, percentile
from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Deployment, Policy, Pool, Tenant, Tier
from commonpool.simulator.backtest import P95, Trial, backtest, held, setups, trial, worse
from commonpool.simulator.demand import WINDOW_NS
from commonpool.simulator.scenario import cluster, service
from commonpool.simulator.traces import Target, read
from commonpool.simulator.workload import Workload, workload

DEMAND: Final = "servegen_tenants_2weeks_demand.csv.gz"
WEEK_NS: Final = 7 * 24 * NS_PER_HOUR
SPEED: Final = 23
EVERY: Final = 3
JOBS_MIN: Final = 500
# The pool, in percent of the sum of the static 95th percentiles: the goal's two thirds, and larger ones.
SIZES: Final = (Fraction(2, 3), Fraction(9, 10), Fraction(1))
_MODEL: Final = "qwen2.5-72b"


class Row(msgspec.Struct, frozen=True):
    """One tenant: what it asked for in the week tested, and its waits with static quotas and as advised. milli_gpu."""

    tenant: str
    tasks: int
    static: int
    guaranteed: int
    elastic_cap: int
    before: Verdict
    after: Verdict


class Week(msgspec.Struct, frozen=True):
    """One pair of weeks. GPU in milli_gpu.

    `static` is the plain sum of the 95th percentiles of the first week, `enough` the pool that the advice would choose,
    `pool` the one that was advised for, `others` and `sizes` what each set-up made of the second week, and its GPUs.
    `worse` has by size of the pool (in ppm of `static`) the tenants whose p99 wait is longer than with their static
    quota. `crowded_ppm` is the part of the second week in which the static quotas would run more than the pool has,
    demand as a fluid.
    """

    name: str
    tasks: int
    static: int
    enough: int
    pool: int
    rows: tuple[Row, ...]
    others: dict[str, tuple[Verdict, ...]]
    sizes: dict[str, int]
    worse: dict[int, tuple[str, ...]]
    crowded_ppm: int


def requests(traces: Path, *, most: int | None = None) -> list[Week]:
    """ServeGen's two weeks, with whole replicas."""
    target = Target(model=_MODEL, pool="main", tier="any")
    drawn = read(traces / DEMAND, target, speed=Fraction(SPEED), limit=most)
    thinned = msgspec.structs.replace(drawn, arrivals=drawn.arrivals[::EVERY])
    shape = Deployment(_MODEL, PRESET.name, "main", PRESET.milli_gpu, PRESET.slots, PRESET.kv_tokens, CONTEXT_TOKENS)
    policy = _policy(thinned, {_MODEL: shape}, PRESET.milli_gpu)
    work = held(thinned, service(policy, cluster(policy, PRESET)))
    start = work.arrivals[0].at_ns
    half = WEEK_NS // SPEED if most is None else (work.arrivals[-1].at_ns - start) // 2
    past = trial(work, policy, start, start + half, start + 2 * half, WINDOW_NS // SPEED)
    return [_week("ServeGen, two weeks", past, PRESET.milli_gpu, SIZES[:2])]


def jobs(traces: Path, *, most: int | None = None) -> list[Week]:
    """Philly's pairs of weeks, with whole GPUs."""
    work = read(traces / JOBS, Target(model="", pool="main", tier="any"), limit=most)
    policy = _policy(work, {}, 0)
    start, end = work.arrivals[0].at_ns, work.arrivals[-1].at_ns
    edges = list(range(start, end, WEEK_NS))
    counts = [sum(edge <= arrival.at_ns < edge + WEEK_NS for arrival in work.arrivals) for edge in edges]
    known = held(work, attrgetter("duration_ns"))
    return [
        _week(
            f"Philly, weeks {at + 1} and {at + 2}",
            trial(_until(known, edge + 2 * WEEK_NS), policy, edge, edge + WEEK_NS, edge + 2 * WEEK_NS),
            1000,
            SIZES,
        )
        for at, edge in enumerate(edges[:-1])
        if min(counts[at : at + 2]) >= (JOBS_MIN if most is None else 1)
    ]


def _until(work: Workload, end_ns: int) -> Workload:
    return workload(work.name, [arrival for arrival in work.arrivals if arrival.at_ns < end_ns])


def _policy(work: Workload, deployments: dict[str, Deployment], milli_gpu: int) -> Policy:
    tenants = {name: Tenant(name, "main", 0, milli_gpu, milli_gpu, {"any": 5}, NS_PER_S) for name in work.tenants}
    return Policy({"main": Pool("main", milli_gpu)}, {"any": Tier("any")}, {}, tenants, deployments, {})


def _week(name: str, past: Trial, unit: int, sizes: tuple[Fraction, ...]) -> Week:
    """`unit` is what a pool has a whole number of, in milli_gpu."""
    static = sum(percentile(each.wanted, 95) for each in past.series)
    pool = _whole(static * sizes[0], unit)
    advice, compared = setups(past, pool)
    results = {setup.name: backtest(past, setup) for setup in compared}
    before = results[P95]
    lasts = {sizes[0]: results[compared[-1].name]}
    for size in sizes[1:]:
        lasts[size] = backtest(past, setups(past, _whole(static * size, unit))[1][-1])
    return Week(
        name=name,
        tasks=sum(each.tasks for each in before),
        static=static,
        enough=advise(past.series).capacity,
        pool=pool,
        rows=_rows(past, advice, before, lasts[sizes[0]]),
        others=results,
        sizes={setup.name: setup.capacity for setup in compared},
        worse={
            int(size * 1_000_000): tuple(who for who, _, _ in worse(tested, before)) for size, tested in lasts.items()
        },
        crowded_ppm=_crowded(past, pool),
    )


def _rows(past: Trial, advice: Advice, before: tuple[Verdict, ...], after: tuple[Verdict, ...]) -> tuple[Row, ...]:
    quotas = {each.tenant: each for each in advice.proposals}
    return tuple(
        Row(
            each.tenant,
            one.tasks,
            high(each),
            quotas[each.tenant].guaranteed,
            quotas[each.tenant].elastic_cap,
            one,
            two,
        )
        for each, one, two in zip(past.series, before, after, strict=True)
    )


def _whole(milli_gpu: Fraction, unit: int) -> int:
    return max(unit, int(milli_gpu) // unit * unit)


def _crowded(past: Trial, pool: int) -> int:
    """In parts per million of the windows of the second week."""
    busy = [0] * len(past.after[0])
    for each, wanted in zip(past.series, past.after, strict=True):
        backlog, quota = 0, high(each)
        for at, milli_gpu in enumerate(wanted):
            backlog += milli_gpu
            served = min(backlog, quota)
            backlog -= served
            busy[at] += served
    return sum(each > pool for each in busy) * 1_000_000 // max(1, len(busy))
