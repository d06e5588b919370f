"""The page of the advice. Every figure on it is worked out here from what was simulated."""

import textwrap
from collections.abc import Sequence
from statistics import median
from typing import Final

from benchmarks.advice_runs import EVERY, JOBS_MIN, SPEED, Row, Week

from commonpool.core.advice import NEVER_NS
from commonpool.simulator.figures import ppm
from commonpool.simulator.report import duration, gpu_hours, gpus, percent

WIDTH: Final = 120
THIRD_PPM: Final = 666_666


def page(requests: Sequence[Week], jobs: Sequence[Week]) -> str:
    """The whole page."""
    sections = [*_head(requests, jobs), *_requests(requests), *_jobs(jobs), *_misses(requests, jobs), *_method()]
    return "\n".join(sections)


def _head(requests: Sequence[Week], jobs: Sequence[Week]) -> list[str]:
    every = [*requests, *jobs]
    fewest = min(_saved(week) for week in every)
    met = sum(not week.worse[THIRD_PPM] for week in jobs)
    larger = sorted(jobs[0].worse)[1]
    fit = [week for week in jobs if week.enough <= week.pool]
    return [
        "# Advice: quotas from one week, tested on the next",
        "",
        *_items(
            f"""**GPUs**: the pools advised for have at least {percent(fewest)} fewer GPUs than the static 95th
            percentiles in sum; on each of them the waits of every tenant are compared with those on its own cards.""",
            *(_request_item(week) for week in requests),
            f"""**Jobs** (Philly): in {met} of {len(jobs)} tests nobody's 99th percentile of waits is longer; in the
            median test {median(len(week.worse[THIRD_PPM]) for week in jobs):g} of {len(jobs[0].rows)} tenants wait
            longer, in the worst {max(len(week.worse[THIRD_PPM]) for week in jobs)}. With a pool of
            {percent(larger)} of the static sum nobody does in {sum(not week.worse[larger] for week in jobs)} of
            {len(jobs)}. The size that the advice itself would choose is within the two thirds in {len(fit)} of
            {len(jobs)} tests, and nobody waits longer in {sum(not week.worse[THIRD_PPM] for week in fit)} of these.""",
        ),
        "",
        _wrapped(
            """`make bench-advice` writes this page; [advice.md](../advice.md) has the rules. *Static* is each tenant
            alone on cards of its own, as many as its 95th percentile of demand in the first week (means over ten
            minutes) and no fewer than its largest task; *advised* shares two thirds of the plain sum of these, rounded
            down to whole GPUs for jobs and to whole replicas for requests. The production `Machine`
            decides in both. Of a task that can never fit under its quota the wait is *never*."""
        ),
        "",
        _wrapped(
            """This is no blind test: the rules were tuned while looking at both weeks of these traces. Only the quotas
            come from the first week alone; on other traces the same rules may do worse."""
        ),
        "",
    ]


def _request_item(week: Week) -> str:
    worse = week.worse[THIRD_PPM]
    larger = sorted(week.worse)[1]
    missed = f"of {len(week.rows)} tenants {len(worse)} wait longer: {', '.join(_missed(week))}" if worse else "nobody"
    after = ", ".join(week.worse[larger]) or "nobody"
    return f"""**Requests** (ServeGen): {missed}; the others wait as long as before or less. With
    {percent(larger)} of the static sum: {after}."""


def _missed(week: Week) -> list[str]:
    found = []
    for row in week.rows:
        before, after = row.before.wait_ns_p99, row.after.wait_ns_p99
        if after > before:
            more = f" (+{percent(ppm(after - before, before))})" if before > 0 and after < NEVER_NS else ""
            found.append(f"{row.tenant} {_wait(before)} to {_wait(after)}{more}")
    return found


def _requests(weeks: Sequence[Week]) -> list[str]:
    lines = []
    for week in weeks:
        lines += [
            f"## Requests: {week.name}",
            "",
            _wrapped(
                f"""{week.tasks:,} requests in the second week. Static: {gpus(week.static)} GPUs in sum; advised:
                {gpus(week.pool)}, {percent(_saved(week))} fewer. The traces' rates are of one small service each, so
                every {EVERY}rd request drawn from them arrives, {SPEED} times as fast."""
            ),
            "",
            *_tenants(week),
            "",
            "| set-up | GPUs | GPU-hours used | borrowed | longest p99 | refused |",
            "|---|--:|--:|--:|--:|--:|",
        ]
        for name, verdicts in week.others.items():
            lines.append(
                f"| {name} | {gpus(week.sizes[name])} | {gpu_hours(sum(v.used_milli_gpu_ns for v in verdicts))} "
                f"| {gpu_hours(sum(v.borrowed_milli_gpu_ns for v in verdicts))} "
                f"| {_wait(max(v.wait_ns_p99 for v in verdicts))} | {sum(v.refused for v in verdicts):,} |"
            )
        lines.append("")
    return lines


def _tenants(week: Week) -> list[str]:
    return [
        "| tenant | tasks | own cards | guaranteed | elastic_cap | p50 static | advised | p99 static | advised |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(
            f"| {row.tenant} | {row.tasks:,} | {gpus(row.static)} | {gpus(row.guaranteed)} | {gpus(row.elastic_cap)} "
            f"| {_wait(row.before.wait_ns_p50)} | {_wait(row.after.wait_ns_p50)} | {_wait(row.before.wait_ns_p99)} "
            f"| {_wait(row.after.wait_ns_p99)}{_mark(row)} |"
            for row in week.rows
        ),
    ]


def _mark(row: Row) -> str:
    return " **longer**" if row.after.wait_ns_p99 > row.before.wait_ns_p99 else ""


def _jobs(weeks: Sequence[Week]) -> list[str]:
    sizes = sorted(weeks[0].worse)
    return [
        "## Jobs: Philly, week by week",
        "",
        _wrapped(
            f"""Every two consecutive weeks that both have at least {JOBS_MIN} jobs. *Enough* is the size that the
            advice would choose by itself; *crowded* is the part of the second week in which the static quotas would run
            more than the advised pool has, demand as a fluid: what was not served earlier must wait then, whatever the
            schedule."""
        ),
        "",
        "| weeks | jobs | static | pool | fewer | enough | crowded | "
        + " | ".join(f"longer waits at {percent(size)}" for size in sizes)
        + " |",
        "|---|" + "--:|" * (6 + len(sizes)),
        *(
            f"| {week.name.partition('weeks ')[2]} | {week.tasks:,} | {gpus(week.static)} | {gpus(week.pool)} "
            f"| {percent(_saved(week))} | {gpus(week.enough)} | {percent(week.crowded_ppm)} | "
            + " | ".join(f"{len(week.worse[size])} of {len(week.rows)}" for size in sizes)
            + " |"
            for week in weeks
        ),
        "",
    ]


def _misses(requests: Sequence[Week], jobs: Sequence[Week]) -> list[str]:
    """Every tenant that waits longer, by how much."""
    lines = ["## Where the goal is missed", ""]
    for week in (*requests, *jobs):
        missed = _missed(week)
        if missed:
            lines += [*_items(f"**{week.name}**: {'; '.join(missed)}.")]
    if len(lines) == 2:
        lines.append("Nowhere.")
    return [
        *lines,
        "",
        _wrapped(
            """Why: a third fewer GPUs are enough for the sum of what all want, not for every tenant's quota at once.
            Where one tenant is most of the static sum, as analytics is, its burst alone wants more than the pool has
            beside what the others are guaranteed. In weeks that are crowded the pool has less than the static quotas
            would have used, and what one tenant is spared another waits. And a job that was lent a GPU keeps it until
            it ends, so a lender that comes back waits for that, where on its own cards it would not: mostly tenants
            with no wait at all on their own cards that now have some."""
        ),
        "",
    ]


def _method() -> list[str]:
    return [
        "## How it is simulated",
        "",
        _wrapped(
            """Quotas are learned from the first week alone, and so is what the core knows of demand when the second
            begins. What still runs then runs on, and is not counted. A request takes its share of a replica for as long
            as on one that is full of its like, wherever it runs, so a tenant's own cards are neither faster nor slower
            than the pool's; with cards of their own tenants are not charged for the rest of a card or replica. Nothing
            is refused for waiting long."""
        ),
        "",
    ]


def _saved(week: Week) -> int:
    return ppm(week.static - week.pool, week.static)


def _wait(ns: int) -> str:
    return "never" if ns >= NEVER_NS else duration(ns)


def _items(*texts: str) -> list[str]:
    return [textwrap.fill(" ".join(text.split()), WIDTH, initial_indent="- ", subsequent_indent="  ") for text in texts]


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH)
