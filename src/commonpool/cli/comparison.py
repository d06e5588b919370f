"""What `simulate` does once its options are right.

Imported where it is used: rich, jinja2 and the simulator take longer to import than most commands run.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from commonpool.cli import show
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.config import ConfigError, read_sources
from commonpool.core.model import Job, Policy, Scaling
from commonpool.simulator import report as reports
from commonpool.simulator.contract import SimulationError
from commonpool.simulator.demand import WINDOW_NS
from commonpool.simulator.figures import Figures, Outcomes, Part, ppm
from commonpool.simulator.policies import POLICIES
from commonpool.simulator.presets import PRESETS
from commonpool.simulator.scenario import Scenario, cluster, generated, prepare, simulate, target
from commonpool.simulator.traces import TraceError, read
from commonpool.simulator.workload import Workload

P60 = "p60"


class Choices(msgspec.Struct, frozen=True):
    """The options of `simulate`, each checked by itself: a trace, or `generated_ns` of generated demand."""

    trace: Path | None
    generated_ns: int
    config: Path
    policies: Sequence[str]
    guarantees: str
    model: str | None
    preset: str
    speed: Fraction
    limit: int | None
    seed: int
    out: Path | None
    replicas: tuple[int, int] | None = None  # None: as many as the pool holds


def compare(choices: Choices) -> None:
    """Simulate each policy, show what came of it, and write the report. Raises CommandError."""
    preset = PRESETS[choices.preset]
    if choices.out is not None and choices.out.exists() and not choices.out.is_dir():
        raise CommandError(f"--out {choices.out} is a file; name a folder for the report", ExitCode.USAGE)
    try:
        with show.progress("reading what arrives"):
            sources = read_sources(choices.config)
            shared = prepare(
                sources,
                _workload_of(choices),
                preset,
                model=choices.model,
                p60=choices.guarantees == P60,
                window_ns=max(1, round(WINDOW_NS / choices.speed)),
                scaling=Scaling(*choices.replicas) if choices.replicas else None,
            )
        with show.bars() as bar:
            outcomes = [
                simulate(shared, POLICIES[name], seed=choices.seed, progress=bar(name)) for name in choices.policies
            ]
    except ConfigError as error:
        raise CommandError(str(error), ExitCode.INVALID_CONFIG) from None
    except (TraceError, SimulationError) as error:
        raise CommandError(str(error)) from None
    report = _report(shared, outcomes, choices)
    screen = show.console()
    screen.print(picture(screen, report))
    if choices.out is not None:
        try:
            files = reports.write(report, choices.out)
        except OSError as error:
            message = f"the report cannot be written to {choices.out}: {error.strerror or error}"
            raise CommandError(message) from None
        typer.echo(f"\nwritten: {', '.join(map(str, files))}")


def _workload_of(choices: Choices) -> Callable[[Policy, str], Workload]:
    """What makes the workload of a policy and a model."""
    trace = choices.trace
    if trace is not None:
        return lambda policy, model: read(
            trace, target(policy, model), speed=choices.speed, seed=choices.seed, limit=choices.limit
        )
    return lambda policy, model: generated(
        policy, cluster(policy, PRESETS[choices.preset]), model, choices.generated_ns, choices.seed
    )


def _report(shared: Scenario, outcomes: Sequence[Outcomes], choices: Choices) -> reports.Report:
    arrivals = shared.workload.arrivals
    jobs = sum(isinstance(arrival.task, Job) for arrival in arrivals)
    kinds = [word for word, count in (("requests", len(arrivals) - jobs), ("jobs", jobs)) if count]
    settings = {
        "config": choices.config.name,
        "guarantees": choices.guarantees,
        "model": next(iter(shared.policy.deployments)),
        "preset": choices.preset,
        "speed": str(choices.speed),
        "seed": str(choices.seed),
        **({"limit": str(choices.limit)} if choices.limit else {}),
        **({"replicas": "{}-{}".format(*choices.replicas)} if choices.replicas else {}),
    }
    return reports.Report(
        workload=shared.workload.name,
        tasks=" and ".join(kinds),
        arrivals=len(arrivals),
        dropped=shared.workload.dropped,
        start_ns=shared.demand.start_ns,
        end_ns=shared.demand.end_ns,
        settings=settings,
        policies=tuple(outcomes),
    )


def picture(out: Console, report: reports.Report) -> RenderableType:
    """The report as people read it on a terminal: a row for each policy, then each tenant under the last of them."""
    last = report.policies[-1]
    length = reports.duration(report.end_ns - report.start_ns)
    capacity = reports.gpus(last.capacity_milli_gpu)
    lines = [f"{report.arrivals:,} {report.tasks} of {report.workload} in {length}, on {capacity} gpu"]
    lines += [f"left out: {count:,}, {why}" for why, count in report.dropped.items()]
    columns = ["in use", "violations within", "beyond", "wait mean within", "p99 within", "mean all", "p99 all"]
    columns += ["refused", "killed", "lost gpu h", "loans"]
    follows = any(outcomes.starts for outcomes in report.policies)
    columns += ["held gpu h", "starts"] if follows else []
    per_policy = show.table(
        out,
        [show.Column("policy", right=False), *map(show.Column, columns)],
        [
            _policy_row(outcomes) + ((reports.gpu_hours(outcomes.held_milli_gpu_ns), f"{outcomes.starts:,}") * follows)
            for outcomes in report.policies
        ],
    )
    columns = ["guaranteed", "arrivals", "within", "violations within", "beyond", "refused"]
    columns += ["wait p50", "p90", "p99", "max", "borrowed gpu h", "lent"]
    per_tenant = show.table(
        out,
        [show.Column(f"tenant ({last.policy})", right=False), *map(show.Column, columns)],
        [_tenant_row(figures) for figures in last.tenants],
    )
    return Group(*map(show.clean, lines), Text(), per_policy, Text(), per_tenant)


def _policy_row(outcomes: Outcomes) -> tuple[str, ...]:
    total = outcomes.total
    return (
        outcomes.policy,
        reports.percent(outcomes.utilisation_ppm),
        _violations(total.within),
        _violations(total.beyond),
        *map(reports.duration, (total.within.wait.mean_ns, total.within.wait.p99_ns)),
        *map(reports.duration, (total.all.wait.mean_ns, total.all.wait.p99_ns)),
        f"{total.all.refused:,}",
        f"{total.preemptions:,}",
        reports.gpu_hours(total.lost_milli_gpu_ns),
        f"{total.loans.count:,}",
    )


def _tenant_row(figures: Figures) -> tuple[str, ...]:
    wait = figures.all.wait
    return (
        figures.tenant,
        reports.gpus(figures.guaranteed_milli_gpu),
        f"{figures.all.arrivals:,}",
        f"{figures.within.arrivals:,}",
        _violations(figures.within),
        _violations(figures.beyond),
        f"{figures.all.refused:,}",
        *map(reports.duration, (wait.p50_ns, wait.p90_ns, wait.p99_ns, wait.max_ns)),
        reports.gpu_hours(figures.loans.milli_gpu_ns),
        reports.gpu_hours(figures.lent_milli_gpu_ns),
    )


def _violations(part: Part) -> str:
    return reports.percent(ppm(part.violations, part.arrivals))
