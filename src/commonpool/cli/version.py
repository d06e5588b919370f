"""`commonpool version`."""

import inspect
import platform

import typer

from commonpool import __version__
from commonpool.cli.options import Json
from commonpool.cli.output import emit
from commonpool.core.machine import Machine


def version(*, as_json: Json = False) -> None:
    """Print the version, and whether the core runs compiled."""
    core = "pure Python" if inspect.isfunction(Machine.handle) else "compiled"
    if as_json:
        emit({"version": __version__, "python": platform.python_version(), "core": core})
    else:
        typer.echo(f"commonpool {__version__} (core: {core})")
