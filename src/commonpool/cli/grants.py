"""`commonpool grant`: a tenant may use more than its elastic_cap for a while."""

from typing import Annotated

import typer

from commonpool.api import text
from commonpool.api.wire import grants as wire
from commonpool.cli.client import connect, segment
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.config.quantities import QuantityError, parse_duration, parse_gpu


def grant(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Who may use more.")],
    *,
    gpus: Annotated[
        str | None,
        typer.Option("--gpus", metavar="GPU", help="Most it may use meanwhile, borrowed included.", show_default=False),
    ] = None,
    length: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long, e.g. 2h.", show_default=False)
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="Take back what it was granted.")] = False,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Let a tenant use more than its elastic_cap for a while, at most its hard_cap."""
    if end:
        if gpus is not None or length is not None:
            raise CommandError("--end takes a grant back, so leave --gpus and --for out", ExitCode.USAGE)
        path = f"/admin/v1/grants/{segment(tenant, 'TENANT')}/end"
        answer = connect(control, token_file).post(path, None, wire.Grant)
    else:
        if gpus is None or length is None:
            raise CommandError("a grant needs --gpus and --for, or --end to take one back", ExitCode.USAGE)
        try:
            new = wire.NewGrant(tenant, parse_gpu(gpus), parse_duration(length))
        except QuantityError as error:
            raise CommandError(str(error), ExitCode.USAGE) from None
        answer = connect(control, token_file).post("/admin/v1/grants", new, wire.Grant)
    if as_json:
        emit(answer)
    else:
        until = "as configured" if answer.until_ns is None else f"until {text.moment(answer.until_ns)}"
        typer.echo(f"tenant {answer.tenant} may use {text.gpus(answer.elastic_cap_milli_gpu)} gpu, {until}")
