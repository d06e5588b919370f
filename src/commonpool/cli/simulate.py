"""`commonpool simulate`: what sharing would give each tenant, in figures, before anything is switched on."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Final

import typer

from commonpool.cli.exits import CommandError, ExitCode
from commonpool.config.quantities import QuantityError, parse_duration

DEFAULT_FILE = Path("commonpool.yaml")
ALL: Final = "all"
# Names that the help shows; where they come from takes longer to import than most commands run.
POLICIES: Final = ("fifo", "static", "priority", "preempt", "vtc", "commonpool")
PRESETS: Final = ("7b-a100", "7b-h100", "32b-a100", "32b-h100", "72b-a100", "72b-h100")
DEFAULT_POLICIES: Final = ("fifo", "static", "commonpool")


def simulate(
    *,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="What arrives: a trace, plain or gzip.")
    ] = None,
    synthetic: Annotated[
        str | None,
        typer.Option(
            "--synthetic",
            metavar="DURATION",
            help="Instead of a trace: generated demand of the configuration's own tenants for so long, e.g. 24h.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The configuration.")] = DEFAULT_FILE,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help=f"A policy to compare: {', '.join(POLICIES)} or {ALL}; may be repeated."
            f" [default: {', '.join(DEFAULT_POLICIES)}]",
            show_default=False,
        ),
    ] = None,
    guarantees: Annotated[
        str,
        typer.Option(
            "--guarantees",
            metavar="WHICH",
            help="config: the configuration's. p60: in proportion to each tenant's 60th percentile of demand, filling"
            " the pool; makes tenants that only the trace has.",
        ),
    ] = "config",
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="The model that requests ask for. [default: the first]"),
    ] = None,
    preset: Annotated[
        str,
        typer.Option("--preset", metavar="NAME", help=f"What its replicas are like: {', '.join(PRESETS)}."),
    ] = PRESETS[0],
    replicas: Annotated[
        str | None,
        typer.Option(
            "--replicas",
            metavar="MIN-MAX",
            help="Let its replicas follow demand within these bounds, e.g. 1-8. [default: as many as its pool holds]",
            show_default=False,
        ),
    ] = None,
    speed: Annotated[
        str, typer.Option("--speed", metavar="FACTOR", help="Let the trace arrive so many times as fast.")
    ] = "1",
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Keep the first N arrivals.", min=1, show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Same seed, same report.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for report.html, report.json, summary.csv and tenants.csv.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Replay a trace through the scheduler that decides in production, under several policies, and compare them.

    Nothing needs to run, and nothing is changed.
    """
    if preset not in PRESETS:
        raise CommandError(f"there is no preset {preset!r}; there are {', '.join(PRESETS)}", ExitCode.USAGE)
    if guarantees not in {"config", "p60"}:
        raise CommandError(f"--guarantees {guarantees!r} is neither config nor p60", ExitCode.USAGE)
    if (trace is None) == (synthetic is None):
        raise CommandError("give either --trace FILE or --synthetic DURATION", ExitCode.USAGE)
    if synthetic is not None and (speed != "1" or limit is not None):
        raise CommandError("--speed and --limit are about a trace; leave them out with --synthetic", ExitCode.USAGE)
    policies, factor, length_ns = chosen(policy or DEFAULT_POLICIES), _factor(speed), _length(synthetic)
    bounds = _bounds(replicas)
    from commonpool.cli.comparison import Choices, compare  # noqa: PLC0415 - slow to import

    compare(Choices(trace, length_ns, config, policies, guarantees, model, preset, factor, limit, seed, out, bounds))


def chosen(written: Sequence[str]) -> list[str]:
    """Names of policies, each once, in the order of reports. Raises CommandError for one that does not exist."""
    unknown = [name for name in written if name not in POLICIES and name != ALL]
    if unknown:
        raise CommandError(
            f"there is no policy {unknown[0]!r}; there are {', '.join(POLICIES)}, or {ALL}", ExitCode.USAGE
        )
    return [name for name in POLICIES if name in written or ALL in written]


def _factor(written: str) -> Fraction:
    try:
        factor = Fraction(written)
    except (ValueError, ZeroDivisionError):
        factor = Fraction(0)
    if factor <= 0:
        raise CommandError(f"--speed {written!r} is not a factor above zero; write it like 2 or 0.5", ExitCode.USAGE)
    return factor


def _bounds(written: str | None) -> tuple[int, int] | None:
    """The fewest and the most replicas."""
    if written is None:
        return None
    least, _, most = written.partition("-")
    if not (least.isdecimal() and most.isdecimal() and 0 <= int(least) <= int(most) and int(most) > 0):
        raise CommandError(f"--replicas {written!r} is not a range; write it like 1-8", ExitCode.USAGE)
    return int(least), int(most)


def _length(written: str | None) -> int:
    try:
        return parse_duration(written) if written is not None else 0
    except QuantityError as error:
        raise CommandError(f"--synthetic: {error}", ExitCode.USAGE) from None
