"""`commonpool check|diff|apply|schema`: a configuration looked at, compared with what runs, brought into force."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from commonpool.api import text
from commonpool.api.wire.config import Changes, Configuration
from commonpool.api.wire.status import Status
from commonpool.cli.client import Client, connect
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.config import (
    Config,
    ConfigError,
    Problem,
    Sources,
    is_tenant_file,
    load,
    load_tenant,
    merge_tenant,
    read_sources,
)
from commonpool.config.billing import unpriced
from commonpool.config.promises import promised
from commonpool.config.schema import render
from commonpool.config.structs import EmbeddedEngine
from commonpool.engines import files

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

File = Annotated[Path, typer.Argument(metavar="FILE", help="A whole configuration, or a tenant's own file.")]
DEFAULT_FILE = Path("commonpool.yaml")

TEXTS_WIDE = 120  # also in a pipe: values are whole lists
POLL_S = 0.5
SETTLE_S = 900.0  # replicas of the largest models start within minutes; a drain has its own deadline
UNSETTLED = frozenset({"starting", "draining", "stopping"})


class PoolSummary(msgspec.Struct, frozen=True):
    """What a configuration promises of a pool, and what its replicas hold."""

    name: str
    rule: str
    nodes: int
    capacity_milli_gpu: int
    guaranteed_milli_gpu: int
    replicas_milli_gpu: int
    replicas: int
    tenants: int


class Checked(msgspec.Struct, frozen=True):
    """The result of `check`. `pools` is empty for a tenant's own file, which has none."""

    file: str
    ok: bool
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    pools: tuple[PoolSummary, ...] = ()
    tenants: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


def check(file: File = DEFAULT_FILE, *, as_json: Json = False) -> None:
    """Say all that is wrong in a configuration. Nothing needs to run."""
    result = examine(file)
    if as_json:
        emit(result)
    elif result.problems:
        typer.echo("\n".join(map(str, result.problems)))
    else:
        _show_checked(result)
    if not result.ok:
        raise typer.Exit(ExitCode.INVALID_CONFIG)


def examine(file: Path) -> Checked:
    """The configuration in this file, checked."""
    try:
        if is_tenant_file(file):
            return Checked(str(file), ok=True, tenants=(load_tenant(file).name,))
        config = load(file)
        missing = (*_missing(config), *_certificates(config, str(file)), *_policies(config))
    except ConfigError as error:
        return Checked(str(file), ok=False, problems=error.problems)
    return Checked(
        str(file),
        ok=True,
        warnings=(*config.warnings, *unpriced(config, time.time_ns()), *missing),
        pools=_pools(config),
        tenants=tuple(config.policy.tenants),
        models=tuple(config.models),
    )


def _missing(config: Config) -> list[str]:
    """What the product would not start with, if it ran on this machine."""
    found = []
    for model in config.models.values():
        if isinstance(model.engine, EmbeddedEngine):
            try:
                files.resolve(model.engine.file, model.name)
            except files.EngineFileError as error:
                found.append(f"On this machine: {error}")
    return found


def _policies(config: Config) -> list[str]:
    """What of the operator's policies is not on this machine; ConfigError for what is wrong in those that are."""
    folder = config.access.policies
    if folder is None:
        return []
    if not folder.is_dir():
        return [f"On this machine: access.policies: {folder} is no folder, so its policies are not checked."]
    from commonpool.access import policy_files  # noqa: PLC0415 - few have policies of their own

    policy_files.load(folder)
    return []


def _certificates(config: Config, file: str) -> list[str]:
    """What of the listeners' certificates is not on this machine; ConfigError for what is, and is of no use."""
    listeners = {"gateway_tls": config.listen.gateway_tls, "control_tls": config.listen.control_tls}
    configured = {f"listen.{key}": pair for key, pair in listeners.items() if pair is not None}
    if not configured:
        return []
    from commonpool.access import tls  # noqa: PLC0415 - cryptography is slow to import

    found, problems = [], []
    for key, pair in configured.items():
        try:
            tls.load(key, pair, time.time())
        except tls.TlsError as error:
            if error.missing:
                found.append(f"On this machine: {error}")
            else:
                at, _, sentence = str(error).partition(" ")
                problems.append(Problem(file, None, None, at, None, sentence))
    if problems:
        raise ConfigError(problems)
    return found


def _pools(config: Config) -> tuple[PoolSummary, ...]:
    found = []
    for pool in config.policy.pools.values():
        tenants = [tenant for tenant in config.policy.tenants.values() if tenant.pool == pool.name]
        models = [model for model in config.models.values() if model.pool == pool.name]
        found.append(
            PoolSummary(
                name=pool.name,
                rule=pool.rule,
                nodes=sum(node.pool == pool.name for node in config.nodes.values()),
                capacity_milli_gpu=pool.milli_gpu,
                guaranteed_milli_gpu=promised(config.policy, pool.name),
                replicas_milli_gpu=sum(model.milli_gpu * model.replicas for model in models),
                replicas=sum(model.replicas for model in models),
                tenants=len(tenants),
            )
        )
    return tuple(found)


def _show_checked(result: Checked) -> None:
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    if not result.pools:
        out.print(f"{result.file} is valid: tenant {result.tenants[0]}")
        return
    out.print(f"{result.file} is valid: {len(result.tenants)} tenant(s), {len(result.models)} model(s)")
    titles = ("nodes", "capacity", "guaranteed", "held by replicas", "replicas", "tenants")
    columns = [show.Column("pool", right=False), show.Column("rule", right=False), *map(show.Column, titles)]
    rows = [
        (
            pool.name,
            pool.rule,
            f"{pool.nodes:,}",
            text.gpus(pool.capacity_milli_gpu),
            text.gpus(pool.guaranteed_milli_gpu),
            text.gpus(pool.replicas_milli_gpu),
            f"{pool.replicas:,}",
            f"{pool.tenants:,}",
        )
        for pool in result.pools
    ]
    out.print(show.table(out, columns, rows))
    for warning in result.warnings:
        out.print(show.clean(f"warning: {warning}"))


def diff(
    file: File = DEFAULT_FILE, *, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Compare a configuration with the one that runs. Exits with 1 where they differ."""
    client = connect(control, token_file)
    changes = client.post("/admin/v1/config/diff", wanted(client, file), Changes)
    if as_json:
        emit(changes)
    else:
        _show_changes(changes, "no differences")
    if changes.changes:
        raise typer.Exit(ExitCode.FAILED)


def apply(
    file: File = DEFAULT_FILE,
    *,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait for replicas that start or drain.")] = False,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Bring a configuration into force, or change nothing at all.

    No request is dropped: what runs goes on, and replicas are drained first.
    """
    client = connect(control, token_file)
    changes = client.post("/admin/v1/config/apply", wanted(client, file), Changes)
    if as_json:
        emit(changes)
    else:
        _show_changes(changes, "nothing to change")
        if changes.changes:
            typer.echo(f"in force as revision {changes.revision}")
    if changes.changes and not no_wait:
        _settle(client)


def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    emit(render())


def wanted(client: Client, file: Path) -> Configuration:
    """What this file asks for: a whole configuration, or the one in force with this tenant replaced or added."""
    try:
        if not is_tenant_file(file):
            return Configuration(read_sources(file))
        tenant = load_tenant(file)
    except ConfigError as error:
        raise CommandError(str(error), ExitCode.INVALID_CONFIG) from None
    now = client.get("/admin/v1/config", Configuration)
    sources: Sources = merge_tenant(now.sources, tenant.name, tenant.text, tenant.source)
    return Configuration(sources, now.revision)


def _show_changes(changes: Changes, none: str) -> None:
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console(wide=TEXTS_WIDE)
    out.print(changes_picture(out, changes) if changes.changes else none)
    for warning in changes.warnings:
        out.print(show.clean(f"warning: {warning}"))


def changes_picture(out: "Console", changes: Changes) -> "RenderableType":
    """What differs, as people read it."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    columns = [show.Column(title, right=False) for title in ("key", "now", "then", "effect")]
    rows = [(change.key, change.old or text.NONE, change.new or text.NONE, change.effect) for change in changes.changes]
    return show.table(out, columns, rows)


def _settle(client: Client) -> None:
    """Wait until every model has the replicas that it should have, twice in a row: one may be between two states."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    deadline = time.monotonic() + SETTLE_S
    settled = 0
    with show.bars() as bar:
        progress = bar("replicas that start or drain")
        while True:
            now = client.get("/admin/v1/status", Status)
            progress(sum(min(model.ready, model.wanted) for model in now.models), sum(m.wanted for m in now.models))
            moving = [f"{replica.id} ({replica.state})" for replica in now.replicas if replica.state in UNSETTLED]
            moving += [
                f"{model.name} ({model.ready} of {model.wanted})"
                for model in now.models
                if model.ready != model.wanted and not (model.broken or model.unplaced)
            ]
            settled = 0 if moving else settled + 1
            if settled > 1:
                break
            if time.monotonic() > deadline:
                names = ", ".join(moving)
                raise CommandError(f"the change is in force, but after {SETTLE_S:.0f} s it still waits for {names}")
            time.sleep(POLL_S)
    ill = [f"model {model.name} cannot be started: {model.error}" for model in now.models if model.broken]
    ill += [f"model {model.name} finds no place: {model.unplaced}" for model in now.models if model.unplaced]
    if ill:
        raise CommandError("the change is in force, but " + "; ".join(ill))
