"""The page of the comparison. Every figure and every verdict on it is worked out here from what was simulated."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
from benchmarks import policy_setups as setups
from benchmarks.policy_goals import Goal, goals, growth, why
from benchmarks.policy_runs import (
    COMMONPOOL,
    FIFO,
    FIFO_USE_PPM,
    LIFTED,
    PREEMPT,
    STATIC,
    Found,
    Neighbours,
    Owner,
    Share,
)
from benchmarks.policy_setups import BATCH, INTERACTIVE
from benchmarks.vtc_setups import CHARGINGS, EIGHT, GAP_BOUND, PUBLISHED_GAPS, PUBLISHED_SHARE_ERROR, WEIGHTS, Row

from commonpool.simulator.figures import Figures, Outcomes, Part, Spread, ppm
from commonpool.simulator.report import duration, gpu_hours, gpus, percent

SPEED_GOAL: Final = 50_000
SPEED_REPLICAS: Final = 2
SPEED_ROUNDS: Final = 3


class Speed(msgspec.Struct, frozen=True):
    """Of the day at its own pace: requests simulated in a second of CPU, those that the core alone decides in one, when
    it is told the same events again, and how many ran at a time.
    """

    requests_per_s: float
    core_per_s: float
    running_mean: float


class All(msgspec.Struct, frozen=True):
    """All that the page tells. Speeds by core, medians."""

    day: Found
    jobs: Found
    tokens: tuple[Row, ...]
    speeds: dict[str, Speed]


def page(found: All, made: str) -> str:
    """`made` says when and on what."""
    day, jobs = found.day, found.jobs
    judged = [("day", day, goals(day)), ("jobs", jobs, goals(jobs))]
    words = wrapped(
        """`make bench-policies` writes this page. The production `Machine` decides in every simulation, under the
        settings of each policy; `docs/simulator.md` says what is modelled and what each figure means. *Within* are
        the tasks at whose arrival their tenant asks for no more than its guarantee, had all it ever sent started at
        once: the same tasks under every policy. Guarantees are in proportion to the 60th percentile of each tenant's
        demand and fill the pool; the elastic cap is twice that, and in the last column, *caps lifted*, the whole
        pool. A violation was refused, or waited longer than its tier's target."""
    )
    parts = [
        "# Ways to share, compared on public traces",
        _quotes(found),
        words,
        "## A day of requests",
        _day_words(found),
        _runs(day),
        _tenants(day),
        "## 109 days of training jobs",
        _jobs_words(jobs),
        _runs(jobs),
        _tenants(jobs),
        "## Goals",
        _goals(judged),
        *(_others(name, each) for name, each, _ in judged),
        "### Where a goal is missed",
        _missed(judged),
        "## Two tenants send three times as much",
        _neighbours(day.neighbours) if day.neighbours else "",
        "## Token counters",
        _tokens(found.tokens),
        "## The simulator's speed",
        _speeds(found),
        made,
    ]
    return "\n\n".join(parts) + "\n"


# -- words -------------------------------------------------------------------------------------------------------------


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph whose lines fit the page."""
    words = " ".join(text.split()).replace(" %", "\0%")  # never parted
    return textwrap.fill(words, 120, subsequent_indent=indent, break_long_words=False).replace("\0", " ")


def _quotes(found: All) -> str:
    """Five lines."""
    day, jobs = found.day, found.jobs
    within = {label: run.outcomes.total.within for label, run in day.runs.items()}
    moved = [
        f"at most {change:+.0f} % ({who})" for label in (COMMONPOOL, LIFTED) for who, change in [_worst(day, label)]
    ]
    speed = max((each.requests_per_s for each in found.speeds.values()), default=0)
    lines = [
        f"""**In use**: on a day of requests hard quotas use {_use(day, STATIC)} of the pool, one queue for all
        {_use(day, FIFO)}, commonpool {_use(day, LIFTED)} ({_use(day, COMMONPOOL)} with caps at twice the
        guarantees); of 109 days of training jobs {_use(jobs, STATIC)}, {_use(jobs, FIFO)}, {_use(jobs, LIFTED)}
        ({_use(jobs, COMMONPOOL)}).""",
        f"""**Guarantees**: of the day's requests within their tenant's guarantee one queue fails
        {_failed(within[FIFO])}, hard quotas {_failed(within[STATIC])}, commonpool {_failed(within[LIFTED])}; of
        those that find nothing of their own tenant waiting, {_share(day.runs[LIFTED].first_within)}.""",
        f"""**Waits**: the mean wait within guarantee is {_wait(day, LIFTED)} where one queue makes it
        {_wait(day, FIFO)}; of the jobs {_wait(jobs, LIFTED)} where it is {_wait(jobs, FIFO)}.""",
        f"""**Neighbours**: when two tenants send three times as much, the 99th percentile of another's wait grows by
        {moved[0]} with caps at twice the guarantees, by {moved[1]} with caps lifted.""",
        f"""**Nothing is interrupted**: no preemption, {_late(found)} late, where guarantees by force kill
        {_killed(day):,} requests and {_killed(jobs):,} jobs; and {speed:,.0f} requests are simulated in a second.""",
    ]
    return "\n".join(wrapped(f"- {line}", "  ") for line in lines)


def _day_words(found: All) -> str:
    day = found.day
    running = max((each.running_mean for each in found.speeds.values()), default=0)
    replicas = day.pool_milli_gpu // setups.PRESET.milli_gpu
    return wrapped(
        f"""`{setups.REQUESTS}`, {day.arrivals:,} requests of {len(day.owners)} tenants, replayed {setups.SPEED}
        times as fast: at its own pace they keep {running:.1f} sequences busy on average, less than one replica. From
        {setups.FROM_HOUR:02}:00 on: the hours before hold {percent(day.early_ppm)} of the day's work, so no pool
        which carries the rest could be 80 % in use over the whole day. {replicas} replicas of preset
        {setups.PRESET.name} with a context of {setups.CONTEXT_TOKENS:,} tokens, {gpus(day.pool_milli_gpu)} GPUs: of
        all counts the one that brings the use under `fifo` nearest to {percent(FIFO_USE_PPM)}.
        {_listed(setups.BATCH_TENANTS)} are of the tier batch (target {duration(setups.TARGETS_NS[BATCH])}, max_wait
        {duration(setups.MAX_WAIT_NS[BATCH])}), the others interactive (target
        {duration(setups.TARGETS_NS[INTERACTIVE])}, max_wait {duration(setups.MAX_WAIT_NS[INTERACTIVE])})."""
    )


def _jobs_words(jobs: Found) -> str:
    return wrapped(
        f"""`{setups.JOBS}`, {jobs.arrivals:,} jobs of {len(jobs.owners)} virtual clusters in
        {duration(jobs.length_ns)}, on {gpus(jobs.pool_milli_gpu)} GPUs, 20 % above the mean demand. Target
        {duration(setups.TARGETS_NS[BATCH])}, max_wait {duration(setups.JOB_MAX_WAIT_NS)}. All have one priority, so
        `priority` is `fifo`; the pool is one node."""
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown, all but the first column to the right."""
    lines = [f"| {' | '.join(head)} |", "|---|" + "--:|" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _runs(found: Found) -> str:
    """A column for each policy."""
    runs = found.runs

    def row(words: str, cell: Callable[[Outcomes], str]) -> list[str]:
        return [words, *(cell(run.outcomes) for run in runs.values())]

    def waits(words: str, part: Callable[[Figures], Part]) -> list[list[str]]:
        def spread(name: str) -> Callable[[Outcomes], str]:
            return lambda each: duration(getattr(part(each.total).wait, f"{name}_ns"))

        return [row(f"wait {words}, {name}", spread(name)) for name in ("mean", "p50", "p90", "p99")]

    def length(name: str) -> Callable[[Outcomes], str]:
        return lambda each: duration(getattr(each.total.loans.length, f"{name}_ns")) if each.total.loans.count else "–"

    return table(
        ["", *runs],
        [
            row("in use", lambda each: percent(each.utilisation_ppm)),
            row("violations within", lambda each: _failed(each.total.within)),
            row("violations beyond", lambda each: _failed(each.total.beyond)),
            row("refused", lambda each: f"{each.total.all.refused:,}"),
            *waits("within", lambda total: total.within),
            *waits("beyond", lambda total: total.beyond),
            *waits("of all", lambda total: total.all),
            row("late", lambda each: f"{each.total.late:,}"),
            row("preemptions", lambda each: f"{each.total.preemptions:,}"),
            row("GPU-hours lost", lambda each: gpu_hours(each.total.lost_milli_gpu_ns)),
            row("loans", lambda each: f"{each.total.loans.count:,}"),
            row("GPU-hours lent", lambda each: gpu_hours(each.total.loans.milli_gpu_ns)),
            row("length of a loan, p50", length("p50")),
            row("p90", length("p90")),
            row("longest", length("max")),
            row("service gap, tokens", lambda each: f"{each.service_gap:,}" if found.tasks == "requests" else "–"),
            row("fragmented", lambda each: percent(each.fragmentation_ppm) if found.tasks == "jobs" else "–"),
            ["nothing of its own waiting: tasks", *(f"{run.first.count:,}" for run in runs.values())],
            ["violations", *(_share(run.first) for run in runs.values())],
            ["of those within: tasks", *(f"{run.first_within.count:,}" for run in runs.values())],
            ["violations", *(_share(run.first_within) for run in runs.values())],
        ],
    )


def _tenants(found: Found) -> str:
    """Under commonpool, and the most telling columns with caps lifted."""
    capped, free = (found.runs[label].outcomes.tenants for label in (COMMONPOOL, LIFTED))
    head = ["commonpool", "tier", "mean demand", "guaranteed", "cap", "within", "violations", "wait mean", "p99"]
    head += ["beyond", "violations", "refused", "wait p50", "p90", "p99", "borrowed GPU h", "lent"]
    head += ["caps lifted: violations within", "beyond", "wait mean within", "p99 of all"]
    return table(head, [_tenant(*each) for each in zip(found.owners, capped, free, strict=True)])


def _tenant(owner: Owner, capped: Figures, free: Figures) -> list[str]:
    within, beyond, wait = capped.within, capped.beyond, capped.all.wait
    return [
        owner.name,
        owner.tier,
        *map(gpus, (owner.demand_mean, owner.guaranteed, owner.elastic_cap)),
        f"{within.arrivals:,}",
        f"{within.violations:,}",
        *map(duration, (within.wait.mean_ns, within.wait.p99_ns)),
        f"{beyond.arrivals:,}",
        f"{beyond.violations:,}",
        f"{capped.all.refused:,}",
        *map(duration, (wait.p50_ns, wait.p90_ns, wait.p99_ns)),
        *map(gpu_hours, (capped.loans.milli_gpu_ns, capped.lent_milli_gpu_ns)),
        f"{free.within.violations:,}",
        f"{free.beyond.violations:,}",
        *map(duration, (free.within.wait.mean_ns, free.all.wait.p99_ns)),
    ]


def _goals(judged: Sequence[tuple[str, Found, list[Goal]]]) -> str:
    columns = [(name, label) for name, _, _ in judged for label in (COMMONPOOL, LIFTED)]
    head = ["goal", *(name if label == COMMONPOOL else f"{name}, caps lifted" for name, label in columns)]
    words = list(dict.fromkeys(goal.words for _, _, each in judged for goal in each))
    cells = {(goal.words, name, goal.label): goal.verdict for name, _, each in judged for goal in each}
    return table(head, [[each, *(cells.get((each, *column), "") for column in columns)] for each in words])


def _others(name: str, found: Found) -> str:
    """Whoever is better than commonpool in what commonpool is for."""
    within = {label: run.outcomes.total.within for label, run in found.runs.items()}
    best = min(within[COMMONPOOL].violations, within[LIFTED].violations)
    better = [
        f"`{label}` {part.violations:,} (and {found.runs[label].outcomes.total.beyond.violations:,} beyond, "
        f"{_use(found, label)} in use, {found.runs[label].outcomes.total.preemptions:,} killed)"
        for label, part in within.items()
        if part.violations < best
    ]
    if not better:
        return f"On the {name} no other policy has fewer violations within guarantee."
    return wrapped(
        f"With fewer violations within guarantee on the {name} than the {best:,} of commonpool: {'; '.join(better)}."
    )


def _missed(judged: Sequence[tuple[str, Found, list[Goal]]]) -> str:
    lines = [wrapped(f"- {line}", "  ") for name, found, each in judged for line in why(name, found, each)]
    return "\n".join(lines) or "None is missed."


def _neighbours(neighbours: Neighbours) -> str:
    head = ["", "p99, caps twice", "tripled", "change", "within", "tripled", "change"]
    head += ["p99, caps lifted", "tripled", "change", "within", "tripled", "change"]
    rows = []
    for at, figures in enumerate(neighbours.before[COMMONPOOL].tenants):
        row = [figures.tenant + (" (sends 3 ×)" if figures.tenant in neighbours.loaded else "")]
        for label in (COMMONPOOL, LIFTED):
            before, after = neighbours.before[label].tenants[at], neighbours.after[label].tenants[at]
            row += _change(before.all.wait, after.all.wait) + _change(before.within.wait, after.within.wait)
        rows.append(row)
    words = wrapped(
        f"""{_listed(neighbours.loaded)} are the burstiest (largest 99th percentile over mean of demand): each of
        their requests comes three times, guarantees and caps stay. Under `commonpool`, the wait of each tenant:"""
    )
    return f"{words}\n\n{table(head, rows)}"


def _change(before: Spread, after: Spread) -> list[str]:
    return [duration(before.p99_ns), duration(after.p99_ns), f"{growth(before.p99_ns, after.p99_ns):+.0f} %"]


def _worst(day: Found, label: str) -> tuple[str, float]:
    """Which other tenant's p99 grows most, and by how many percent."""
    if day.neighbours is None:
        return "nobody", 0
    before, after = (each[label].tenants for each in (day.neighbours.before, day.neighbours.after))
    grown = [
        (one.tenant, growth(one.all.wait.p99_ns, other.all.wait.p99_ns))
        for one, other in zip(before, after, strict=True)
        if one.tenant not in day.neighbours.loaded
    ]
    return max(grown, key=lambda each: each[1], default=("nobody", 0))


def _tokens(rows: Sequence[Row]) -> str:
    charged = [charging.name for charging in CHARGINGS]
    setups_seen = list(dict.fromkeys(row.setup for row in rows))
    found = {(row.setup, row.charging): row for row in rows}
    fcfs, counters, truth = PUBLISHED_GAPS
    published = {EIGHT.name: f"FCFS {fcfs:,}, VTC {counters:,}, true lengths {truth:,}"}
    gaps = table(
        ["largest service gap", *charged, "published"],
        [
            [name, *(f"{found[name, each].gap_max:,}" for each in charged), published.get(name, "")]
            for name in setups_seen
        ],
    )
    errors = table(
        ["largest error of a share, % of all service", *charged, "published"],
        [
            [
                name,
                *(f"{max(map(abs, found[name, each].share_errors), default=0):.2f}" for each in charged),
                f"{PUBLISHED_SHARE_ERROR}" if name == WEIGHTS.name else "",
            ]
            for name in setups_seen
            if found[name, charged[0]].share_errors
        ],
    )
    words = wrapped(
        f"""The set-ups by which virtual token counters were published (`benchmarks/vtc_setups.py`; M = 10,000 KV
        tokens, proved gap at most {GAP_BOUND:,}), by how the counters are charged for output: as it comes, as the
        product expects it (*learned*), corrected meanwhile, or knowing it."""
    )
    return f"{words}\n\n{gaps}\n\n{errors}"


def _speeds(found: All) -> str:
    rows = [
        [
            core,
            f"{each.requests_per_s:,.0f}",
            "met" if each.requests_per_s >= SPEED_GOAL else "**missed**",
            f"{each.core_per_s:,.0f}",
            percent(round(1e6 * each.requests_per_s / each.core_per_s)),
        ]
        for core, each in found.speeds.items()
    ]
    words = wrapped(
        f"""The whole day at its own pace on {SPEED_REPLICAS} replicas under `commonpool`, caps lifted, until its
        figures are there; and the core alone, told the same events once more. Medians of {SPEED_ROUNDS}, by CPU time,
        each in a process of its own."""
    )
    head = ["core", "requests/s", f"goal {SPEED_GOAL:,}", "core alone, requests/s", "its part of the time"]
    return f"{words}\n\n{table(head, rows)}"


# -- cells -------------------------------------------------------------------------------------------------------------


def _use(found: Found, label: str) -> str:
    return percent(found.runs[label].outcomes.utilisation_ppm)


def _wait(found: Found, label: str) -> str:
    return duration(found.runs[label].outcomes.total.within.wait.mean_ns)


def _failed(part: Part) -> str:
    return f"{part.violations:,} ({percent(ppm(part.violations, part.arrivals))})"


def _share(share: Share) -> str:
    return f"{share.violations:,} ({percent(ppm(share.violations, share.count))})"


def _late(found: All) -> str:
    late = sum(
        each.runs[label].outcomes.total.late for each in (found.day, found.jobs) for label in (COMMONPOOL, LIFTED)
    )
    return f"{late:,}" if late else "nothing"


def _killed(found: Found) -> int:
    return found.runs[PREEMPT].outcomes.total.preemptions


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
