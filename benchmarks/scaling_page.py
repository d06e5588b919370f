"""The page of the scaling of replicas. Every figure on it is worked out here from what was simulated."""

import textwrap
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.policy_setups import BATCH, INTERACTIVE, REQUESTS
from benchmarks.scaling_runs import (
    BURST_PRESET,
    FIXED,
    LEAST,
    MOST,
    NAIVE,
    OURS,
    PARTS,
    PRESET,
    TIERS,
    Burst,
    ByQueueLength,
    Day,
)

from commonpool.core.model import NS_PER_S
from commonpool.simulator.figures import Figures, ppm
from commonpool.simulator.report import duration, gpu_hours, percent

WIDTH: Final = 120
COLUMNS: Final = (OURS, NAIVE, FIXED)


def page(days: dict[str, Day], bursts: dict[str, Burst]) -> str:
    """The whole page."""
    target = duration(TIERS[INTERACTIVE].first_token_target_ns or 0)
    return "\n".join([*_head(days, bursts[OURS], target), *_of_the_day(days), *_of_the_burst(bursts, target)])


def _head(days: dict[str, Day], burst: Burst, target: str) -> list[str]:
    ours, naive, fixed = (days[name] for name in COLUMNS)
    saved = ppm(fixed.held_milli_gpu_ns - ours.held_milli_gpu_ns, fixed.held_milli_gpu_ns)
    return [
        "# Replicas that follow demand",
        "",
        *_items(
            f"""**A day**: {gpu_hours(ours.held_milli_gpu_ns)} GPU hours where a fixed fleet of the peak size holds
            {gpu_hours(fixed.held_milli_gpu_ns)} ({percent(saved)} less). Of the requests within their tenant's
            guarantee {_violations(ours)} are not served in time; with the fixed fleet {_violations(fixed)}.""",
            f"""**Oscillations**: {ours.short_lives} of {ours.starts:,} replicas were stopped before they had been up
            for as long as they took to start; with a scaler by queue length {naive.short_lives:,} of
            {naive.starts:,}.""",
            f"""**A tenfold burst**: of {burst.within.requests:,} requests of a tenant within its guarantee
            {burst.within.late} got their first token after its target of {target}; the latest took
            {duration(burst.within.first_token.max_ns)}.""",
        ),
        "",
        _wrapped(
            f"""`make bench-scaling` writes this page. The production `Machine` decides in every simulation;
            [simulator.md](../simulator.md) says what is modelled, [scaling.md](../scaling.md) how the number of
            replicas is found. The scaler by queue length is an example of how not to do it: every
            {duration(ByQueueLength.EVERY_NS)} as many replicas more as the queue would fill, whatever starts already,
            and one less when nothing waits and a replica's worth of slots is free. The fixed fleet is as large as the
            largest that commonpool had."""
        ),
        "",
    ]


def _of_the_day(days: dict[str, Day]) -> list[str]:
    ours = days[OURS]
    tenants = ours.outcomes.tenants
    return [
        "## A day of requests",
        "",
        _wrapped(
            f"""`{REQUESTS}`, {ours.outcomes.total.all.arrivals:,} requests of {len(tenants)} tenants at their own pace.
            Replicas are of preset 72b-a100 with {PRESET.slots} slots, {PRESET.milli_gpu // 1000} GPUs each; they take
            {duration(PRESET.speed.load_ns)} to start. There are {LEAST} to {MOST} of them. Tenants are guaranteed the
            pool in proportion to the 60th percentile of their demand; analytics, crawler and research are of the tier
            batch (target {duration(TIERS[BATCH].queue_target_ns or 0)}), the others interactive (target
            {duration(TIERS[INTERACTIVE].queue_target_ns or 0)})."""
        ),
        "",
        *_table(
            ["", *COLUMNS],
            [
                _row("GPU hours held", days, lambda day: gpu_hours(day.held_milli_gpu_ns)),
                _row("replicas at most", days, lambda day: str(day.most)),
                _row("started", days, lambda day: f"{day.starts:,}"),
                _row("stopped", days, lambda day: f"{day.stops:,}"),
                _row("stopped within their start-up time", days, lambda day: f"{day.short_lives:,}"),
                _row("violations within", days, _violations),
                _row("violations beyond", days, lambda day: f"{day.outcomes.total.beyond.violations:,}"),
                _row("refused", days, lambda day: f"{day.outcomes.total.all.refused:,}"),
            ],
        ),
        "",
        "Waits of each tenant, p50, p99 and the longest:",
        "",
        *_table(
            ["tenant", "requests", *COLUMNS],
            [
                [each.tenant, f"{each.all.arrivals:,}", *(_waits(days[name].outcomes.tenants[at]) for name in COLUMNS)]
                for at, each in enumerate(tenants)
            ],
        ),
        "",
        f"Replicas over the day, the mean of each {duration(ours.length_ns // PARTS)}:",
        "",
        *_table(
            ["from", *COLUMNS],
            [
                [_hour(ours, part), *(f"{days[name].replicas[part] / 1000:.1f}" for name in COLUMNS)]
                for part in range(PARTS)
            ],
        ),
        "",
    ]


def _of_the_burst(bursts: dict[str, Burst], target: str) -> list[str]:
    return [
        "## A tenfold burst",
        "",
        _wrapped(
            f"""Two tenants send two requests a second each for an hour, and are guaranteed two replicas each; one of
            them sends 20 a second for ten minutes. Replicas are of preset 7b-h100 with {BURST_PRESET.slots} slots and
            take {duration(BURST_PRESET.speed.load_ns)} to start. First tokens are due after {target}; those of the
            burst and of five minutes after it:"""
        ),
        "",
        *_table(
            ["", *COLUMNS],
            [
                _cells("within its guarantee: requests", bursts, lambda one: f"{one.within.requests:,}"),
                _cells("late first tokens", bursts, lambda one: f"{one.within.late:,}"),
                _cells("first token, p99", bursts, lambda one: duration(one.within.first_token.p99_ns)),
                _cells("first token, longest", bursts, lambda one: duration(one.within.first_token.max_ns)),
                _cells("ten times as many: requests", bursts, lambda one: f"{one.bursting.requests:,}"),
                _cells("late first tokens", bursts, lambda one: f"{one.bursting.late:,}"),
                _cells("first token, p50", bursts, lambda one: duration(one.bursting.first_token.p50_ns)),
                _cells("first token, p99", bursts, lambda one: duration(one.bursting.first_token.p99_ns)),
                _cells("replicas at most", bursts, lambda one: str(one.most)),
                _cells("started", bursts, lambda one: str(one.starts)),
                _cells("stopped within their start-up time", bursts, lambda one: str(one.short_lives)),
                _cells("GPU hours held", bursts, lambda one: gpu_hours(one.held_milli_gpu_ns)),
            ],
        ),
        "",
    ]


def _violations(day: Day) -> str:
    within = day.outcomes.total.within
    return f"{within.violations:,} ({percent(ppm(within.violations, within.arrivals))})"


def _waits(figures: Figures) -> str:
    wait = figures.all.wait
    return ", ".join(map(duration, (wait.p50_ns, wait.p99_ns, wait.max_ns)))


def _hour(day: Day, part: int) -> str:
    minutes = (day.length_ns * part // PARTS + 30 * NS_PER_S) // (60 * NS_PER_S)  # the nearest
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _row(name: str, days: dict[str, Day], figure: Callable[[Day], str]) -> list[str]:
    return [name, *(figure(days[each]) for each in COLUMNS)]


def _cells(name: str, bursts: dict[str, Burst], figure: Callable[[Burst], str]) -> list[str]:
    return [name, *(figure(bursts[each]) for each in COLUMNS)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _items(*texts: str) -> list[str]:
    return [textwrap.fill(" ".join(text.split()), WIDTH, initial_indent="- ", subsequent_indent="  ") for text in texts]


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH)
