"""The page of the placement benchmark. Every figure and every verdict on it is worked out here."""

import statistics
from collections.abc import Sequence
from typing import Final

import msgspec
from benchmarks.placement_runs import ARRIVALS_PERCENT, Run
from benchmarks.policy_page import table, wrapped

# GPUs allocated, in percent, by Weng et al. (ATC'23), on the default trace.
PUBLISHED: Final = {"random fit": 87.5, "best fit": 93.08, "FGD": 95.39}
GOAL_ALLOCATED: Final = 95.5
GOAL_SPEED: Final = 10_000
OURS: Final = "commonpool"


class Found(msgspec.Struct, frozen=True):
    """Runs by trace and policy, one a seed; placements a second of CPU of one run of OURS, by core."""

    nodes: int
    gpus: int
    runs: dict[str, dict[str, list[Run]]]
    speeds: dict[str, list[Run]]


def page(found: Found, made: str) -> str:
    """`made` says when and on what."""
    default = found.runs["default"][OURS]
    seeds = len(default)
    parts = [
        "# Placement on a public trace",
        wrapped(
            f"""`make bench-placement` writes this page. The production inventory places the pods of openb (Alibaba's
            clusterdata v2023: {found.nodes:,} nodes, {found.gpus:,} GPUs) by the protocol of FGD's evaluation (Weng et
            al., ATC'23): pods arrive in random order until they ask for {ARRIVALS_PERCENT} % of the GPUs, none ends,
            each is placed or dropped. CPU, memory and GPU models are honoured. GPUs allocated at the end, in percent,
            {seeds} orders each."""
        ),
        "## GPUs allocated",
        *(f"Trace `{trace}`:\n\n{_allocated(runs)}" for trace, runs in found.runs.items()),
        wrapped(
            f"""Published for the default trace: {", ".join(f"{name} {value}" for name, value in PUBLISHED.items())}.
            `commonpool` learns what is asked for from what arrives; with *demand known* it is told the trace's shapes
            at the start, as FGD is. `docs/placement.md` says how it decides."""
        ),
        "## Speed",
        _speeds(found),
        wrapped(
            """A placement is found and taken; the time of the arrivals that fit nowhere is counted too. CPU time of one
            process, the first order of the default trace."""
        ),
        "## Goals",
        _goals(found),
        made,
    ]
    return "\n\n".join(parts) + "\n"


def mean(runs: Sequence[Run]) -> float:
    return statistics.mean(run.allocated for run in runs)


def speed(runs: Sequence[Run]) -> float:
    """Placements a second, the median."""
    return statistics.median(run.placed / run.seconds for run in runs)


def _allocated(runs: dict[str, list[Run]]) -> str:
    head = ["policy", "mean", "least", "most", "pods placed"]
    rows = []
    for name, each in runs.items():
        figures = [run.allocated for run in each]
        placed = statistics.mean(run.placed for run in each)
        rows.append([name, *(f"{figure:.2f}" for figure in (mean(each), min(figures), max(figures))), f"{placed:,.0f}"])
    return table(head, rows)


def _speeds(found: Found) -> str:
    rows = []
    for core, runs in found.speeds.items():
        arrived = statistics.median(run.arrived / run.seconds for run in runs)
        rows.append([core, f"{speed(runs):,.0f}", f"{arrived:,.0f}", f"{1e6 / speed(runs):,.0f}"])
    return table(["core", "placements/s", "arrivals/s", "µs a placement"], rows)


def _goals(found: Found) -> str:
    allocated = mean(found.runs["default"][OURS])
    rows = [
        [
            f"at least {GOAL_ALLOCATED} % of the GPUs allocated on the default trace",
            f"{allocated:.2f}",
            _verdict(allocated >= GOAL_ALLOCATED),
        ]
    ]
    for core, runs in found.speeds.items():
        each = speed(runs)
        rows.append([f"at least {GOAL_SPEED:,} placements/s, {core}", f"{each:,.0f}", _verdict(each >= GOAL_SPEED)])
    return table(["goal", "measured", ""], rows)


def _verdict(met: bool) -> str:
    return "met" if met else "missed"
