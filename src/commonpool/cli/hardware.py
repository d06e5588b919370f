"""The options with which work says what it needs of the GPUs."""

from typing import Annotated

import typer

from commonpool.cli.exits import CommandError, ExitCode
from commonpool.config.quantities import QuantityError, parse_duration, parse_gpu, parse_memory
from commonpool.core.model import Hardware, Together

Gpus = Annotated[
    str | None, typer.Option("--gpus", metavar="GPU", help="GPUs, or a part of one, e.g. 2 or 0.5.", show_default=False)
]
GpuMemory = Annotated[
    str | None,
    typer.Option("--gpu-memory", metavar="SIZE", help="Memory on each GPU, e.g. 18GiB.", show_default=False),
]
Mig = Annotated[str, typer.Option("--mig", metavar="PROFILE", help="A MIG profile, e.g. 1g.10gb.", show_default=False)]
Count = Annotated[int, typer.Option("--count", min=1, help="How many, with --gpu-memory alone or --mig.")]
Apart = Annotated[
    Together, typer.Option("--together", help="Several GPUs are on one node, linked (island), or anywhere.")
]
GpuModels = Annotated[
    list[str] | None, typer.Option("--gpu-model", help="A GPU model that will do; may be repeated. [default: all]")
]
Runtime = Annotated[str, typer.Option("--runtime", help="A runtime that its node must have.", show_default=False)]
Expect = Annotated[
    str | None,
    typer.Option("--expect", metavar="DURATION", help="How long it will take, e.g. 2h.", show_default=False),
]


def hardware(
    gpus: str | None,
    gpu_memory: str | None,
    mig: str,
    count: int,
    together: Together,
    gpu_models: list[str] | None,
    runtime: str,
) -> Hardware | None:
    """What these options ask for; None where none of them does. Raises `CommandError`."""
    asks = gpus is not None or gpu_memory is not None or bool(mig)
    if not asks:
        if count != 1 or together != "node" or gpu_models or runtime:
            raise CommandError("what is needed is said with --gpus, --gpu-memory or --mig", ExitCode.USAGE)
        return None
    try:
        return Hardware(
            milli_gpu=0 if gpus is None else parse_gpu(gpus),
            memory_mib=0 if gpu_memory is None else parse_memory(gpu_memory),
            profile=mig,
            count=count,
            together=together,
            models=tuple(gpu_models or ()),
            runtime=runtime,
        )
    except QuantityError as error:
        raise CommandError(str(error), ExitCode.USAGE) from None


def expected(expect: str | None) -> int | None:
    """Nanoseconds. Raises `CommandError`."""
    try:
        return None if expect is None else parse_duration(expect)
    except QuantityError as error:
        raise CommandError(str(error), ExitCode.USAGE) from None
