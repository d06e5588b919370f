"""`commonpool secrets`: another master key for what is encrypted in the store."""

import typer

from commonpool.api.wire import prompts as wire
from commonpool.cli.client import connect
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit

secrets = typer.Typer(name="secrets", help="Change the master key.", no_args_is_help=True)


@secrets.callback()
def group() -> None:
    """Change the master key of what is encrypted in the store."""


@secrets.command()
def rotate(*, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Have secrets.master_key wrap every data key, in place of secrets.previous_master_key.

    The product is given both before, with a restart. What was interrupted can be done again.
    """
    rotated = connect(control, token_file).post("/admin/v1/secrets/rotate", None, wire.Rotated)
    if as_json:
        emit(rotated)
        return
    if not rotated.count:
        typer.echo("no data key had to be wrapped anew: secrets.master_key wraps all there are")
        return
    typer.echo(
        f"{rotated.count} data keys were wrapped anew; take secrets.previous_master_key out of the configuration"
    )
