"""`commonpool prompts`: a tenant's own log of what it asked and was answered."""

from typing import Annotated
from urllib.parse import quote

import typer

from commonpool.api import text
from commonpool.api.wire import prompts as wire
from commonpool.cli.client import Client, connect
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.config.quantities import QuantityError, format_duration, parse_duration

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="Whose log; its own people may read it, nobody else.")]
RequestId = Annotated[
    str, typer.Argument(metavar="REQUEST_ID", help="The request's id: the x-request-id of its answer.")
]

prompts = typer.Typer(
    name="prompts", help="Switch on, read and delete a tenant's log of its prompts.", no_args_is_help=True
)


@prompts.command("on")
def switch_on(
    tenant: Tenant,
    *,
    keep: Annotated[str, typer.Option("--keep", metavar="DURATION", help="How long entries are kept.")] = "30d",
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Keep what the tenant asks and is answered from now on, encrypted with a key of its own."""
    try:
        wanted = wire.PromptLogOn(parse_duration(keep))
    except QuantityError as error:
        raise CommandError(f"--keep: {error}", ExitCode.USAGE) from None
    _say(connect(control, token_file).post(f"{_path(tenant)}/on", wanted, wire.PromptLog), as_json=as_json)


@prompts.command("off")
def switch_off(
    tenant: Tenant, *, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Keep nothing more; what is kept stays until it is deleted or too old."""
    _say(connect(control, token_file).post(f"{_path(tenant)}/off", None, wire.PromptLog), as_json=as_json)


@prompts.command("list")
def list_entries(
    tenant: Tenant,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="So many at most.")] = 100,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """List what is kept, the newest first, without what was said."""
    found = _entries(connect(control, token_file), tenant, limit)
    if as_json:
        emit(found)
        return
    from commonpool.cli import show as tables  # noqa: PLC0415 - rich is slow to import

    titles = ("request", "at", "app", "model", "endpoint", "status", "bytes")
    rows = [
        (
            each.request_id,
            text.moment(each.at_ns),
            each.app,
            each.model,
            each.endpoint,
            f"{each.status}",
            f"{each.size}",
        )
        for each in found.entries
    ]
    out = tables.console()
    out.print(tables.table(out, [tables.Column(title, right=title == "bytes") for title in titles], rows))
    typer.echo(_state(found.log))


@prompts.command()
def show(
    tenant: Tenant,
    request_id: RequestId,
    *,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show what was asked and answered."""
    found = connect(control, token_file).get(_path(tenant, request_id), wire.Prompt)
    if as_json:
        emit(found)
        return
    typer.echo(found.asked)
    typer.echo()
    typer.echo(found.answered)
    if found.cut:
        typer.echo("commonpool: this is not all of it; what is longer than 1MiB is cut", err=True)


@prompts.command()
def delete(
    tenant: Tenant,
    request_id: Annotated[
        str | None, typer.Argument(metavar="[REQUEST_ID]", help="One entry.", show_default=False)
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every entry, and the key that they need.")] = False,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Delete one entry, or all of them."""
    if everything is (request_id is not None):
        raise CommandError("name one request, or delete all with --all", ExitCode.USAGE)
    deleted = connect(control, token_file).delete(_path(tenant, request_id), wire.Deleted)
    if as_json:
        emit(deleted)
    else:
        typer.echo(f"{deleted.count} deleted")


def _entries(client: Client, tenant: str, limit: int) -> wire.PromptEntries:
    """The newest entries, of as many pages as that takes."""
    page = client.get(_path(tenant), wire.PromptEntries)
    entries = page.entries
    while page.after is not None and len(entries) < limit:
        page = client.get(_path(tenant), wire.PromptEntries, {"after": page.after})
        entries += page.entries
    return wire.PromptEntries(page.log, entries[:limit], page.after if len(entries) <= limit else None)


def _path(tenant: str, request_id: str | None = None) -> str:
    path = f"/admin/v1/tenants/{quote(tenant, safe='')}/prompts"
    return path if request_id is None else f"{path}/{quote(request_id, safe='')}"


def _say(log: wire.PromptLog, *, as_json: bool) -> None:
    if as_json:
        emit(log)
    else:
        typer.echo(_state(log))


def _state(log: wire.PromptLog) -> str:
    if log.since_ns is None or log.keep_ns is None:
        state = "is off"
    else:
        kept = format_duration(log.keep_ns)
        state = f"is on since {text.moment(log.since_ns)}, by {log.switched_by}; entries are kept for {kept}"
    lost = f"; {log.lost} could not be kept" if log.lost else ""
    return f"the prompt log of tenant {log.tenant} {state}; {log.kept_bytes} bytes are kept{lost}"
