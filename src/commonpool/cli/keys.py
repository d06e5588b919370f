"""`commonpool keys`: keys made, listed, revoked, rotated. A key itself is shown once."""

import sys
import time
from typing import Annotated, Literal

import typer

from commonpool.api import text
from commonpool.api.wire import keys as wire
from commonpool.cli.client import connect
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.config.limits import describe_limits, parse_limits
from commonpool.config.quantities import QuantityError, parse_duration
from commonpool.core.model import Limits

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id: the part between its first two underscores.")]

keys = typer.Typer(name="keys", help="Make, list, revoke and rotate keys.", no_args_is_help=True)


@keys.command()
def create(
    *,
    tenant: Annotated[
        str, typer.Option("--tenant", help="Whose it is; none for an admin key of the platform.", show_default=False)
    ] = "",
    app: Annotated[str, typer.Option("--app", help="The tenant's app. [default: default]", show_default=False)] = "",
    scope: Annotated[
        Literal["data", "admin"], typer.Option("--scope", help="data for the gateway, admin for the admin API.")
    ] = "data",
    tier: Annotated[
        str | None, typer.Option("--tier", help="The tier of requests that name none.", show_default=False)
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="Only this model; may be repeated. [default: its tenant's]")
    ] = None,
    only_tier: Annotated[
        list[str] | None, typer.Option("--only-tier", help="Only this tier; may be repeated. [default: its tenant's]")
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option("--network", metavar="CIDR", help="Only from this network; may be repeated. [default: all]"),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="LIMIT=AMOUNT",
            help="A limit of its own, e.g. requests=60/min; may be repeated. [default: none]",
        ),
    ] = None,
    role: Annotated[
        str, typer.Option("--role", help="Of an admin key. [default: platform-admin]", show_default=False)
    ] = "",
    account: Annotated[
        str, typer.Option("--account", help="The service account that an admin key is of.", show_default=False)
    ] = "",
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="DURATION", help="Ends after this, e.g. 90d. [default: never]")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="What it is for.", show_default=False)] = "",
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Make a key and show it, this once."""
    new = wire.NewKey(
        tenant=tenant,
        app=app,
        scope=scope,
        tier=tier,
        models=tuple(model) if model else None,
        tiers=tuple(only_tier) if only_tier else None,
        networks=tuple(network) if network else None,
        limits=_limits(limit or []),
        role=role,
        account=account,
        expires_ns=None if expires is None else time.time_ns() + _duration(expires, "--expires"),
        note=note,
    )
    client = connect(control, token_file)
    _show_created(client.post("/admin/v1/keys", new, wire.CreatedKey), as_json=as_json)


@keys.command("list")
def list_keys(*, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """List all keys, without their secrets."""
    found = connect(control, token_file).get("/admin/v1/keys", wire.Keys)
    if as_json:
        emit(found)
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    now_ns = time.time_ns()
    titles = ("id", "scope", "tenant", "app", "tier", "models", "only", "created", "expires", "state", "note")
    rows = [
        (
            key.id,
            _scope(key),
            key.tenant or text.NONE,
            key.app or text.NONE,
            key.tier or text.NONE,
            "all" if key.models is None else ",".join(key.models),
            _only(key),
            text.moment(key.created_ns),
            text.moment(key.expires_ns),
            _state(key, now_ns),
            key.note,
        )
        for key in found.keys
    ]
    out = show.console()
    columns = [show.Column(title, right=False, whole=title in ("id", "tenant")) for title in titles]
    out.print(show.table(out, columns, rows))


@keys.command()
def revoke(
    key_id: KeyId, *, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """End a key at once."""
    key = connect(control, token_file).post(f"/admin/v1/keys/{_id(key_id)}/revoke", None, wire.Key)
    if as_json:
        emit(key)
    else:
        typer.echo(f"key {key.id} is revoked since {text.moment(key.revoked_ns)}")


@keys.command()
def rotate(
    key_id: KeyId,
    *,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="DURATION", help="How long the old key still works beside the new one.")
    ] = "1h",
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Make a key like this one in its place, and show it, this once."""
    rotation = wire.Rotation(_duration(overlap, "--overlap"))
    client = connect(control, token_file)
    created = client.post(f"/admin/v1/keys/{_id(key_id)}/rotate", rotation, wire.CreatedKey)
    _show_created(created, as_json=as_json)


def _show_created(created: wire.CreatedKey, *, as_json: bool) -> None:
    if as_json:
        emit(created)
        return
    key = created.about
    whose = f"app {key.app} of tenant {key.tenant}" if key.scope == "data" else f"the admin API ({_scope(key)})"
    until = f" until {text.moment(key.expires_ns)}" if key.expires_ns is not None else ""
    # The key alone on standard output, so that it can be piped into a secret store.
    sys.stderr.write(f"key {key.id} for {whose}{until}; keep it now, it is not shown again:\n")
    sys.stderr.flush()
    typer.echo(created.key)


def _scope(key: wire.Key) -> str:
    """What it is for, and of an admin key as whom."""
    if key.scope == "data":
        return key.scope
    return f"admin: {key.role or key.account or 'platform-admin'}"


def _only(key: wire.Key) -> str:
    """What bounds it beside models: tiers, networks, limits."""
    limits = (f"{name}={amount}" for name, amount in describe_limits(key.limits).items() if amount is not None)
    return " ".join([*(key.tiers or ()), *(key.networks or ()), *limits]) or text.NONE


def _limits(written: list[str]) -> Limits:
    try:
        return parse_limits(written)
    except ValueError as error:
        raise CommandError(f"--limit: {error}", ExitCode.USAGE) from None


def _state(key: wire.Key, now_ns: int) -> str:
    if key.revoked_ns is not None:
        return "revoked"
    return "expired" if key.expires_ns is not None and key.expires_ns <= now_ns else "live"


def _id(key_id: str) -> str:
    if not key_id.isascii() or not key_id.isalnum():
        hint = key_id.split("_")[1] if key_id.startswith("cp_") else "letters and digits"
        raise CommandError(f"that is not the id of a key; an id is {hint}, see `commonpool keys list`", ExitCode.USAGE)
    return key_id


def _duration(written: str, option: str) -> int:
    try:
        return parse_duration(written)
    except QuantityError as error:
        raise CommandError(f"{option}: {error}", ExitCode.USAGE) from None
