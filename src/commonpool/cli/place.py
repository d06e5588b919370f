"""`commonpool place --dry-run`: where a job or a replica would go now, and why not elsewhere."""

from typing import TYPE_CHECKING, Annotated

import typer

from commonpool.api import text
from commonpool.api.wire import nodes as wire
from commonpool.cli import hardware
from commonpool.cli.client import connect
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.config.quantities import format_memory
from commonpool.core.candidates import Candidate
from commonpool.core.footprint import Footprint
from commonpool.core.trial import Trial

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def place(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show where it would go; nothing is taken.")] = False,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose job it would be.", show_default=False)] = "",
    model: Annotated[
        str, typer.Option("--model", help="Ask for one more replica of this model instead.", show_default=False)
    ] = "",
    gpus: hardware.Gpus = None,
    gpu_memory: hardware.GpuMemory = None,
    mig: hardware.Mig = "",
    count: hardware.Count = 1,
    together: hardware.Apart = "node",
    gpu_model: hardware.GpuModels = None,
    runtime: hardware.Runtime = "",
    expect: hardware.Expect = None,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show where a job or a replica would be placed now, each node's score, and what its quota says."""
    if not dry_run:
        raise CommandError(
            "nothing is placed by hand: jobs are submitted, replicas follow demand; --dry-run shows where one would go",
            ExitCode.USAGE,
        )
    asked = hardware.hardware(gpus, gpu_memory, mig, count, together, gpu_model, runtime)
    question = wire.PlaceQuestion(tenant, model, asked, hardware.expected(expect))
    trial = connect(control, token_file).post("/admin/v1/place", question, Trial)
    if as_json:
        emit(trial)
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    out.print(picture(out, trial))


def picture(out: "Console", trial: Trial) -> "RenderableType":
    """The nodes in a table, best first, and what would happen."""
    from rich.console import Group  # noqa: PLC0415 - rich is slow to import
    from rich.text import Text  # noqa: PLC0415 - the same

    from commonpool.cli import show  # noqa: PLC0415 - the same

    said = Group(*map(show.clean, lines(trial)))
    if not trial.candidates:
        return said
    columns = [
        *(show.Column(title, right=False) for title in ("node", "devices", "weights there", "linked")),
        *map(show.Column, ("fragmentation", "free")),
        show.Column("why not", right=False),
    ]
    return Group(show.table(out, columns, list(map(_row, trial.candidates))), Text(), said)


def lines(trial: Trial) -> list[str]:
    """What it comes to, what its quota says, and where it would go."""
    if trial.impossible:
        return [trial.impossible]
    said = [f"it takes {_taken(trial.footprint)} of pool {trial.pool}"] if trial.footprint is not None else []
    if trial.allowance is not None:
        said.append(f"quota: {trial.allowance.text}")
    if trial.ahead:
        said.append(f"{trial.ahead:,} job(s) wait in the pool already; those whose turn is before it come first")
    if trial.unplaced:
        said.append(f"no place: {trial.unplaced}")
    elif trial.node:
        devices = f" on {', '.join(trial.devices)}" if trial.devices else ""
        said.append(f"place: node {trial.node}{devices}")
    else:
        said.append(
            f"place: the nodes of pool {trial.pool} are not known, so its GPUs are only counted; enough is free"
        )
    return said


def _taken(asked: Footprint) -> str:
    each = asked.profile or f"{text.gpus(asked.milli_gpu)} gpu"
    many = f"{asked.devices} × {each}" if asked.devices != 1 else each
    return (
        f"{many} with {format_memory(asked.memory_mib)}{' each' if asked.devices > 1 else ''}"
        if asked.memory_mib
        else many
    )


def _row(candidate: Candidate) -> tuple[str, ...]:
    if candidate.barrier is not None:
        return candidate.node, "", "", "", "", "", f"{candidate.barrier.value}: {candidate.reason}"
    growth = text.gpus(abs(candidate.growth))
    return (
        candidate.node,
        ", ".join(candidate.devices),
        "yes" if candidate.loaded else "no",
        "yes" if candidate.linked else "no",
        f"{'-' if candidate.growth < 0 else '+'}{growth}",
        text.gpus(max(0, candidate.free)),
        "",
    )
