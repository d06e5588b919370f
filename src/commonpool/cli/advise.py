"""`commonpool advise`: quotas from what tenants have wanted, tested on what they wanted next, as a plan to apply."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.simulate import DEFAULT_FILE, PRESETS
from commonpool.config.quantities import QuantityError, parse_duration

if TYPE_CHECKING:
    from commonpool.app.past import Past

Window = Annotated[
    str, typer.Option("--window", metavar="DURATION", help="Of the product's own records, the last so long.")
]
Trace = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="A trace instead of the records of the product.", show_default=False),
]
ConfigFile = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="With --trace, the configuration of its tenants.")
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="With --trace, the model that requests ask for. [default: the first]"),
]
PresetName = Annotated[
    str,
    typer.Option("--preset", metavar="NAME", help=f"With --trace, what its replicas are like: {', '.join(PRESETS)}."),
]


def advise(
    *,
    window: Window = "14d",
    trace: Trace = None,
    config: ConfigFile = DEFAULT_FILE,
    model: Model = None,
    preset: PresetName = PRESETS[0],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write the configuration with the advised quotas, for `commonpool apply`.",
            show_default=False,
        ),
    ] = None,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Advise each tenant's guaranteed and elastic_cap, learned from the first half of the past, tested on the second.

    Nothing is changed: the plan is a configuration to look at and apply.
    """
    past = gather(window, trace, config, model, preset, control, token_file)
    from commonpool.cli import advising  # noqa: PLC0415 - the simulator is slow to import

    advising.advise(past, out, as_json=as_json)


def gather(
    window: str,
    trace: Path | None,
    config: Path,
    model: str | None,
    preset: str,
    control: str,
    token_file: Path | None,
) -> "Past":
    """The past that these options mean. Raises CommandError."""
    if preset not in PRESETS:
        raise CommandError(f"there is no preset {preset!r}; there are {', '.join(PRESETS)}", ExitCode.USAGE)
    try:
        window_ns = parse_duration(window)
    except QuantityError as error:
        raise CommandError(f"--window: {error}", ExitCode.USAGE) from None
    from commonpool.cli import past  # noqa: PLC0415 - the simulator is slow to import

    if trace is not None:
        return past.of_trace(trace, config, preset, model)
    return past.own(control, token_file, window_ns)
