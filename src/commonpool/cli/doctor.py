"""`commonpool doctor`: weak settings of a configuration and of this machine, and what to do about each."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from commonpool.api.wire import keys as wire
from commonpool.cli.checkup import Finding, gather, judge
from commonpool.cli.client import connect
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.config import Config, ConfigError, parse_sources, read_sources
from commonpool.store.looking import SeenKey

DEFAULT_FILE = Path("commonpool.yaml")


class Checkup(msgspec.Struct, frozen=True):
    """What `doctor` prints. `unseen` are sentences about what could not be looked at."""

    file: str
    running: bool
    findings: tuple[Finding, ...]
    unseen: tuple[str, ...]


def doctor(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The configuration.")] = DEFAULT_FILE,
    *,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Find weak settings, and say what to do. Exits with 1 where one is serious.

    Run it where the product runs, as its user; the product itself need not run.
    """
    try:
        sources = read_sources(file)
        config = parse_sources(sources)
    except ConfigError as error:
        raise CommandError(str(error), ExitCode.INVALID_CONFIG) from None
    now_ns = time.time_ns()
    facts = gather(config, map(Path, sources.files), now_ns, _keys(config, control, token_file, now_ns))
    result = Checkup(str(file), facts.running is not None, tuple(judge(facts)), tuple(facts.unseen))
    if as_json:
        emit(result)
    else:
        _show(result)
    if any(finding.serious for finding in result.findings):
        raise typer.Exit(ExitCode.FAILED)


def _keys(config: Config, control: str, token_file: Path | None, now_ns: int) -> Sequence[SeenKey] | str:
    """The live keys as the product tells them, where its store is no file; or why it does not."""
    if config.store_url is None:
        return "Keys: there is no store yet."
    try:
        keys = connect(control, token_file).get("/admin/v1/keys", wire.Keys).keys
    except CommandError as error:
        return f"Keys: they are in PostgreSQL, and the product does not tell them: {error}."
    live = [key for key in keys if key.revoked_ns is None and (key.expires_ns is None or key.expires_ns > now_ns)]
    return [SeenKey(key.id, key.scope, key.tenant, key.expires_ns, key.note) for key in live]


def _show(result: Checkup) -> None:
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    for finding in result.findings:
        out.print(show.clean(f"{'serious' if finding.serious else 'weak'}: {finding.what}"))
        out.print(show.clean(f"  {finding.do}"))
    for sentence in result.unseen:
        out.print(show.clean(f"not looked at: {sentence}"))
    serious = sum(finding.serious for finding in result.findings)
    out.print(f"{serious} serious, {len(result.findings) - serious} weak; the product {_state(result)}")


def _state(result: Checkup) -> str:
    return "runs" if result.running else "does not run here"
