"""The commands: one module a noun, over the admin API of a running product.

`main` is where the process begins and ends: whatever happens becomes an exit code and, where it is not 0, one sentence.
"""

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

import typer

from commonpool.cli import (
    accounts,
    advise,
    alerts,
    audit,
    bill,
    compare,
    config,
    doctor,
    explain,
    grants,
    hints,
    job,
    keys,
    nodes,
    period,
    place,
    prompts,
    reconcile,
    release,
    replicas,
    secrets,
    simulate,
    status,
    tenants,
    top,
    trace,
    up,
    usage,
    version,
    waits,
    watch,
)
from commonpool.cli.exits import EPILOG, CommandError, ExitCode

commands = typer.Typer(
    name="commonpool",
    help="A private GPU cluster shared by departments, as an internal utility for LLM inference.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    up.up,
    config.check,
    config.diff,
    config.apply,
    status.status,
    tenants.tenants,
    top.top,
    watch.watch,
    replicas.replicas,
    nodes.nodes,
    place.place,
    hints.hints,
    grants.grant,
    release.release,
    usage.usage,
    waits.waits,
    bill.bill,
    trace.trace,
    reconcile.reconcile,
    explain.explain,
    simulate.simulate,
    advise.advise,
    compare.compare,
    doctor.doctor,
    config.schema,
    version.version,
):
    commands.command(epilog=EPILOG)(command)
commands.add_typer(keys.keys, epilog=EPILOG)
commands.add_typer(accounts.accounts, epilog=EPILOG)
commands.add_typer(job.job, epilog=EPILOG)
commands.add_typer(period.period, epilog=EPILOG)
commands.add_typer(audit.audit, epilog=EPILOG)
commands.add_typer(alerts.alerts, epilog=EPILOG)
commands.add_typer(prompts.prompts, epilog=EPILOG)
commands.add_typer(secrets.secrets, epilog=EPILOG)


def main() -> None:
    """The console script `commonpool`."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """One command, to its exit code. Nothing is raised."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr] # they are text streams here
    try:
        code = _execute(arguments)
        sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - the last resort: a user reads a sentence, not a traceback
        return _ending(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return code


def _ending(error: Exception, reports: str | None = None) -> ExitCode:
    """Say what happened. `reports` is the folder for what is unexpected, by default the one for temporary files."""
    match error:
        case CommandError():
            return _say(str(error), error.code)
        case BrokenPipeError():
            # Whoever read the output has seen enough. What is still buffered must not be tried again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.FAILED
        case OSError(errno=errno.ENOSPC):
            return _say("the output cannot be written: no space is left on the device", ExitCode.FAILED)
        case _:
            return _unexpected(error, reports)


def _execute(arguments: Sequence[str]) -> int:
    try:
        typer.main.get_command(commands).main(list(arguments), prog_name="commonpool")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK
    return ExitCode.OK


def _say(message: str, code: ExitCode) -> ExitCode:
    sys.stderr.write(f"{message}\n" if "\n" in message else f"commonpool: {message}\n")
    return code


def _unexpected(error: Exception, reports: str | None) -> ExitCode:
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    try:
        with tempfile.NamedTemporaryFile("w", prefix="commonpool-", suffix=".txt", dir=reports, delete=False) as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return _say(f"unexpected error ({said}), and its traceback could not be written", ExitCode.INTERNAL)
    return _say(f"unexpected error ({said}); please report it with {file.name}", ExitCode.INTERNAL)
