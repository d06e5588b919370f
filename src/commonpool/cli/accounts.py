"""`commonpool accounts`: people with a password, services with keys. A password is typed or piped, never an option."""

import sys
from typing import Annotated
from urllib.parse import quote

import typer

from commonpool.api import text
from commonpool.api.wire import people as wire
from commonpool.cli.client import connect, segment
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit

PATH = "/admin/v1/accounts"
SESSIONS = "/admin/v1/sessions"

Name = Annotated[str, typer.Argument(metavar="NAME", help="The account's name.")]

accounts = typer.Typer(name="accounts", help="Accounts of people and services.", no_args_is_help=True)


@accounts.command()
def add(
    name: Name,
    *,
    service: Annotated[bool, typer.Option("--service", help="A machine: it has keys and no password.")] = False,
    note: Annotated[str, typer.Option("--note", help="Whose it is.", show_default=False)] = "",
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Make an account. Its password is asked for, or read as a line from standard input."""
    client = connect(control, token_file)
    new = wire.NewAccount(name, "service" if service else "person", "" if service else _password(), note)
    account = client.post(PATH, new, wire.Account)
    if as_json:
        emit(account)
        return
    typer.echo(f"account {account.name} is made; it has {account.roles}")
    if account.roles == "no role":
        sys.stderr.write(f"give it one under access.roles: {{role: ROLE, account: {account.name}}}\n")
    if service:
        sys.stderr.write(f"make it a key: commonpool keys create --scope admin --account {account.name}\n")


@accounts.command("list")
def list_accounts(*, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """List all accounts and what they are."""
    found = connect(control, token_file).get(PATH, wire.Accounts)
    if as_json:
        emit(found)
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    titles = ("name", "kind", "roles", "created", "state", "note")
    rows = [
        (
            account.name,
            account.kind,
            account.roles,
            text.moment(account.created_ns),
            "may be used" if account.disabled_ns is None else f"disabled since {text.moment(account.disabled_ns)}",
            account.note,
        )
        for account in found.accounts
    ]
    out = show.console()
    out.print(show.table(out, [show.Column(title, right=False) for title in titles], rows))


@accounts.command()
def sessions(*, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """List who is logged in."""
    found = connect(control, token_file).get(SESSIONS, wire.Sessions)
    if as_json:
        emit(found)
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    titles = ("id", "who", "logged in", "last used", "ends")
    rows = [
        (each.id, each.who, *map(text.moment, (each.created_ns, each.used_ns, each.expires_ns)))
        for each in found.sessions
    ]
    out = show.console()
    out.print(show.table(out, [show.Column(title, right=False) for title in titles], rows) if rows else "nobody is")


@accounts.command("end-session")
def end_session(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Its id, as the list shows it.")],
    *,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """End somebody's session: they have to log in again."""
    answer = connect(control, token_file).delete(f"{SESSIONS}/{segment(session, 'SESSION')}", wire.EndedSession)
    if as_json:
        emit(answer)
    else:
        typer.echo(f"a session of {answer.who} is over")


@accounts.command()
def password(
    name: Name, *, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Give an account another password, asked for or read as a line from standard input; its sessions are over."""
    client = connect(control, token_file)
    account = client.post(f"{PATH}/{_quoted(name)}/password", wire.NewPassword(_password()), wire.Account)
    _tell(account, f"account {account.name} has another password; who was logged in is not any more", as_json=as_json)


@accounts.command()
def disable(name: Name, *, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Let nobody use an account: its sessions are over, its keys do not count."""
    account = connect(control, token_file).post(f"{PATH}/{_quoted(name)}/disable", None, wire.Account)
    _tell(account, f"account {account.name} is disabled since {text.moment(account.disabled_ns)}", as_json=as_json)


@accounts.command()
def enable(name: Name, *, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Let an account be used again."""
    account = connect(control, token_file).post(f"{PATH}/{_quoted(name)}/enable", None, wire.Account)
    _tell(account, f"account {account.name} may be used again", as_json=as_json)


@accounts.command()
def remove(name: Name, *, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Remove an account; its sessions are over, its keys revoked."""
    gone = connect(control, token_file).delete(f"{PATH}/{_quoted(name)}", wire.RemovedAccount)
    revoked = f", and its keys are revoked: {', '.join(gone.revoked_keys)}" if gone.revoked_keys else ""
    _tell(gone, f"account {gone.name} is removed{revoked}", as_json=as_json)


def _tell(answer: wire.Account | wire.RemovedAccount, sentence: str, *, as_json: bool) -> None:
    if as_json:
        emit(answer)
    else:
        typer.echo(sentence)


def _password() -> str:
    """From a terminal it is asked for twice and not shown; otherwise it is a line of standard input."""
    if sys.stdin.isatty():
        typed: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return typed
    line = sys.stdin.readline()
    if not line.strip():
        raise CommandError("standard input has no password; pipe one line, or run this at a terminal", ExitCode.USAGE)
    return line.rstrip("\r\n")


def _quoted(name: str) -> str:
    return quote(name, safe="")
