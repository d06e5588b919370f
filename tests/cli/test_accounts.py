"""Given a product, when accounts are managed from the command line, then no password is an argument or is shown."""

import asyncio
import json
import os
import pty
import re
import subprocess
import sys

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.store.accounts import Session
from tests.access.house import PASSWORD
from tests.api.fakes import CONFIG, NOW, FakeOperations, sources
from tests.cli.serving import serving

OTHER = "another horse battery"


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    roles = "[{role: viewer, tenant: support, account: bo}, {role: finance, account: erp}]"
    product.configure(sources(f"{CONFIG}access: {{roles: {roles}}}\n"))
    return product


def program(*args: str) -> list[str]:
    return [sys.executable, "-m", "commonpool", "accounts", *args]


def piped(text: str, *args: str) -> subprocess.CompletedProcess[str]:
    """The command, with this on its standard input."""
    return subprocess.run(program(*args), input=text, capture_output=True, text=True, check=False)


def proven(product: FakeOperations, name: str, password: str) -> bool:
    return asyncio.run(product.people().accounts.proven(name, password)) is not None


def test_life_of_an_account(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        at = ["--control", url]
        made = piped(f"{PASSWORD}\nmore lines\n", "add", "bo", "--note", "on call", *at)
        assert (made.returncode, made.stdout, made.stderr) == (0, "account bo is made; it has viewer in support\n", "")
        assert proven(product, "bo", PASSWORD)

        assert run(["accounts", "list", *at]) == ExitCode.OK
        listed = capsys.readouterr().out
        assert re.search(r"bo +person +viewer in support +2027-01-15 08:00:00Z +may be used +on call", listed)

        changed = piped(f"{OTHER}\r\n", "password", "bo", *at)
        assert changed.stdout == "account bo has another password; who was logged in is not any more\n"
        assert proven(product, "bo", OTHER)

        assert run(["accounts", "disable", "bo", *at]) == ExitCode.OK
        assert "account bo is disabled since 2027-01-15 08:00:00Z\n" in capsys.readouterr().out
        assert run(["accounts", "enable", "bo", *at]) == ExitCode.OK
        assert "account bo may be used again\n" in capsys.readouterr().out
        assert run(["accounts", "remove", "bo", *at]) == ExitCode.OK
        assert "account bo is removed\n" in capsys.readouterr().out
    assert product.store.accounts() == ()


def test_a_service_is_told_how_it_gets_its_key(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        assert run(["accounts", "add", "erp", "--service", "--control", url]) == ExitCode.OK
        said = capsys.readouterr()
        assert "account erp is made; it has finance\n" in said.out
        assert "commonpool keys create --scope admin --account erp" in said.err
        assert run(["accounts", "add", "dms", "--service", "--control", url]) == ExitCode.OK
        assert "give it one under access.roles: {role: ROLE, account: dms}" in capsys.readouterr().err
        assert run(["keys", "create", "--scope", "admin", "--account", "erp", "--control", url]) == ExitCode.OK
        (key,) = product.store.list_keys()
        assert key.account == "erp"
        capsys.readouterr()
        assert run(["accounts", "remove", "erp", "--control", url]) == ExitCode.OK
        assert f"account erp is removed, and its keys are revoked: {key.key_id}\n" in capsys.readouterr().out
        assert run(["accounts", "list", "--json", "--control", url]) == ExitCode.OK
        left = {
            "name": "dms",
            "kind": "service",
            "created_ns": NOW,
            "disabled_ns": None,
            "note": "",
            "roles": "no role",
            "held": [],
        }
        assert json.loads(capsys.readouterr().out) == {"accounts": [left]}


@pytest.mark.parametrize(
    ("text", "name", "code", "says"),
    [
        ("", "bo", ExitCode.USAGE, "standard input has no password; pipe one line"),
        ("short one\n", "bo", ExitCode.USAGE, "has 9 characters; choose one of at least 12"),
        (f"{PASSWORD}\n", "Bo", ExitCode.USAGE, "'Bo' is not a name of an account"),
        (f"{PASSWORD}\n", "cy", ExitCode.FAILED, "there is an account 'cy' already"),
    ],
)
def test_what_is_wrong_is_a_sentence_without_the_password(
    product: FakeOperations, text: str, name: str, code: ExitCode, says: str
) -> None:
    asyncio.run(product.people().accounts.add("cy", "person", PASSWORD))
    with serving(product) as url:
        done = piped(text, "add", name, "--control", url)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert not text.strip() or text.strip() not in done.stderr


@pytest.mark.parametrize("verb", ["disable", "enable", "remove"])
def test_what_there_is_not(product: FakeOperations, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    with serving(product) as url:
        assert run(["accounts", verb, "nobody", "--control", url]) == ExitCode.FAILED
    assert "there is no account 'nobody'" in capsys.readouterr().err


def test_a_password_is_no_argument(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        for words in (["add", "bo", PASSWORD], ["add", "bo", "--password", PASSWORD], ["password", "bo", PASSWORD]):
            assert run(["accounts", *words, "--control", url]) == ExitCode.USAGE
            capsys.readouterr()
    assert product.store.accounts() == ()


def test_at_a_terminal_it_is_typed_twice_and_not_shown(product: FakeOperations) -> None:
    ours, theirs = pty.openpty()
    with serving(product) as url, os.fdopen(ours, "r+b", buffering=0) as terminal:
        command = subprocess.Popen(
            program("add", "bo", "--control", url),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        shown = b""
        for question in (b"Password: ", b"Repeat for confirmation: "):
            while not shown.endswith(question):  # the last blank comes when the terminal shows nothing any more
                shown += terminal.read(1024)
            terminal.write(PASSWORD.encode() + b"\n")
        out, _ = command.communicate(timeout=180)
        assert (command.returncode, out) == (0, b"account bo is made; it has viewer in support\n")
    assert PASSWORD.encode() not in shown
    assert proven(product, "bo", PASSWORD)


def test_who_is_logged_in_is_listed_and_ended(capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    asyncio.run(product.people().accounts.add("cy", "person", PASSWORD))
    with serving(product) as url:
        assert run(["accounts", "sessions", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "nobody is\n"
        product.store.add_session(Session(bytes(range(32)), NOW, NOW, NOW + 10**9, "cy", NOW), 0, 9)
        assert run(["accounts", "sessions", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["0001020304050607", "account:cy"]
        assert run(["accounts", "end-session", "0001020304050607", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "a session of account:cy is over\n"
        assert run(["accounts", "end-session", "0001020304050607", "--control", url]) == ExitCode.FAILED
        assert "there is no session '0001020304050607'" in capsys.readouterr().err
    assert product.store.sessions(NOW, 0, 9) == ()
