"""`commonpool version`."""

import platform

import typer

from commonpool import __version__
from commonpool.cli.options import Json
from commonpool.cli.output import emit


def version(*, as_json: Json = False) -> None:
    """Print the version."""
    if as_json:
        emit({"version": __version__, "python": platform.python_version()})
    else:
        typer.echo(f"commonpool {__version__}")
