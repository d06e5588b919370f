"""`commonpool up`: the product itself, in this process or on a Ray cluster, until it is stopped."""

import contextlib
import enum
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from commonpool.cli.client import TOKEN_VARIABLE
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Json
from commonpool.cli.output import emit_line
from commonpool.config import ConfigError
from commonpool.config.roles import PLATFORM_ADMIN

if TYPE_CHECKING:
    from commonpool.app import Started

DEFAULT_FILE = Path("commonpool.yaml")


class Place(enum.StrEnum):
    """Where the product runs."""

    LOCAL = "local"
    RAY = "ray"


class ShownKey(msgspec.Struct, frozen=True):
    """A key that was made at the first start, shown this once. Without a tenant it is a platform-admin's."""

    tenant: str
    app: str
    key: str


class Ready(msgspec.Struct, frozen=True):
    """The one line that `up --json` prints when the product serves. URLs are without a path.

    `local`: commands on this machine need no key.
    """

    gateway: str
    control: str
    models: tuple[str, ...]
    tenants: tuple[str, ...]
    keys: tuple[ShownKey, ...]
    warnings: tuple[str, ...]
    local: bool = True


def up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The configuration.")] = DEFAULT_FILE,
    *,
    backend: Annotated[
        Place, typer.Option(help="Where it runs: in this process, or on the nodes of a Ray cluster.")
    ] = Place.LOCAL,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The Ray cluster that this machine is a node of; auto finds it. None: one is started here.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start the product and serve until Ctrl-C.

    Ctrl-C lets running requests finish; a second one stops at once.
    """
    if address is not None and backend is not Place.RAY:
        raise CommandError("--address is of a Ray cluster, and the product runs in this process; add --backend ray.")
    if backend is Place.RAY and importlib.util.find_spec("ray") is None:
        raise CommandError("--backend ray needs Ray, which is not installed; run `pip install 'commonpool[ray]'`.")
    # The servers take half a second to import, which no other command needs.
    from commonpool import app, console  # noqa: PLC0415
    from commonpool.cli import show  # noqa: PLC0415
    from commonpool.store.contract import StoreError  # noqa: PLC0415
    from commonpool.store.journal import JournalError  # noqa: PLC0415

    with contextlib.ExitStack() as starting:
        starting.enter_context(show.progress(f"starting what {file} describes"))

        def announce(started: "Started") -> None:
            starting.close()
            if as_json:
                emit_line(readiness(started))
            else:
                typer.echo(welcome(readiness(started)))

        try:
            if backend is Place.RAY:
                from commonpool.cluster import launch  # noqa: PLC0415 - only this needs Ray

                launch.run(file, announce, console.routes, address)
            else:
                app.run(file, announce, console.routes())
        except ConfigError as error:
            raise CommandError(str(error), ExitCode.INVALID_CONFIG) from None
        except (app.StartError, StoreError, JournalError) as error:
            raise CommandError(str(error)) from None


def readiness(started: "Started") -> Ready:
    """What is shown of what was started: of the keys their text, and no digest."""
    keys = tuple(ShownKey(new.key.tenant, new.key.app, new.text) for new in started.new_keys)
    return Ready(
        started.gateway, started.control, started.models, started.tenants, keys, started.warnings, started.local
    )


def welcome(ready: Ready) -> str:
    """What a newcomer reads: where everything is, the keys, and what to do first."""
    base_url = f"{ready.gateway}/v1"
    program = _program()
    where = "" if ready.control == CONTROL_URL else f" --control {ready.control}"
    key = next((shown.key for shown in ready.keys if shown.tenant), "YOUR_KEY")
    model = ready.models[0] if ready.models else "MODEL"
    messages = [{"role": "user", "content": "Say hello."}]
    headers = f"-H 'Authorization: Bearer {key}' -H 'Content-Type: application/json'"
    body = json.dumps({"model": model, "messages": messages, "max_tokens": 40})
    lines = ["commonpool is ready.", "", f"  gateway  {base_url}", f"  console  {ready.control}/"]
    lines += [f"  warning  {warning}" for warning in ready.warnings]
    return "\n".join(
        [
            *lines,
            "",
            *_keys(ready, program),
            "",
            "Ask for something:",
            f"  curl {base_url}/chat/completions {headers} -d '{body}'",
            "",
            "Or with the openai package:",
            "  from openai import OpenAI",
            f'  client = OpenAI(base_url="{base_url}", api_key="{key}")',
            f'  print(client.chat.completions.create(model="{model}", messages={messages}, max_tokens=40))',
            "",
            *_key_for_commands(ready),
            f"Then look: `{program} status{where}`, `{program} usage --by tenant,model{where}`.",
            "Ctrl-C stops: running requests finish first, a second Ctrl-C does not wait for them.",
        ]
    )


def _key_for_commands(ready: Ready) -> list[str]:
    """What is to be done first where commands need an admin key."""
    if ready.local:
        return []
    key = next((shown.key for shown in ready.keys if not shown.tenant), "ADMIN_KEY")
    return [f"Commands need an admin key (access.local is false): export {TOKEN_VARIABLE}={key}"]


def _program() -> str:
    """What to type for this program: its name where the shell finds it, else its path."""
    if shutil.which("commonpool"):
        return "commonpool"
    path = Path(sys.argv[0]).absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _keys(ready: Ready, program: str) -> list[str]:
    if not ready.keys:
        name = ready.tenants[0] if ready.tenants else "NAME"
        return [f"The keys were shown when they were made; `{program} keys create --tenant {name}` makes another."]
    named = [(f"{shown.tenant} ({shown.app})" if shown.tenant else PLATFORM_ADMIN, shown.key) for shown in ready.keys]
    width = max(len(name) for name, _ in named)
    return ["Keys, shown this once:", *(f"  {name:<{width}}  {key}" for name, key in named)]
