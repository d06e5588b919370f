"""Given whatever happens, then the process ends with the right code and a sentence, as a real process."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commonpool import __version__
from commonpool.cli import _ending, commands, run
from commonpool.cli.exits import EPILOG, ExitCode
from tests.api.fakes import FakeOperations
from tests.cli.serving import serving

PROGRAM = [sys.executable, "-m", "commonpool"]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"commonpool {__version__} (core: pure Python)\n"


@pytest.mark.parametrize("arguments", [["nope"], ["status", "--nope"], ["keys", "revoke"], ["check", "a", "b"]])
def test_wrong_usage(arguments: list[str]) -> None:
    assert run(arguments) == ExitCode.USAGE


def test_every_command_explains_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert EPILOG.startswith("Exit codes: 0 done")
    names = [command.name or command.callback.__name__ for command in commands.registered_commands if command.callback]
    for name in [*names, "keys"]:
        assert run([name, "--help"]) == ExitCode.OK
        assert "Exit codes: 0 done" in " ".join(capsys.readouterr().out.split())


def test_every_command_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    one = [each.name or each.callback.__name__ for each in commands.registered_commands if each.callback]
    groups = [
        each.name or (each.typer_instance and each.typer_instance.info.name) for each in commands.registered_groups
    ]
    assert len(groups) > 5
    assert {name for name in [*one, *groups] if not re.search(rf"^\| `{name}[ `]", page, re.MULTILINE)} == set()


def test_every_exit_code_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    for code in ExitCode:
        assert f"| {code.value} |" in page


def test_unexpected_error_is_a_sentence_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _ending(ZeroDivisionError("division\nby zero"), str(tmp_path)) == ExitCode.INTERNAL
    (report,) = tmp_path.iterdir()
    said = f"commonpool: unexpected error (ZeroDivisionError: division); please report it with {report}\n"
    assert capsys.readouterr().err == said
    assert "by zero" in report.read_text()


def test_unexpected_error_without_a_place_for_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _ending(ZeroDivisionError("x"), str(tmp_path / "none")) == ExitCode.INTERNAL
    assert "its traceback could not be written" in capsys.readouterr().err


def test_reader_that_has_seen_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        ended = subprocess.run([*PROGRAM, "schema"], stdout=closed, stderr=subprocess.PIPE, check=False, timeout=180)
    assert (ended.returncode, ended.stderr) == (ExitCode.FAILED, b"")


def test_full_disk() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([*PROGRAM, "schema"], stdout=full, stderr=subprocess.PIPE, check=False, timeout=180)
    assert ended.returncode == ExitCode.FAILED
    assert ended.stderr.startswith(b"commonpool: the output cannot be written: no space is left on the device")


def test_interrupt_is_quiet() -> None:
    with serving(FakeOperations()) as url:
        command = [*PROGRAM, "status", "--watch", "--json", "--control", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watching:
            assert watching.stdout is not None
            assert watching.stderr is not None
            assert watching.stdout.readline().startswith(b'{"version"')
            watching.send_signal(signal.SIGINT)
            assert watching.wait(180) == ExitCode.INTERRUPTED
            assert watching.stderr.read() == b""


def test_output_that_cannot_show_a_character() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    with serving(FakeOperations()) as url:
        ended = subprocess.run(
            [*PROGRAM, "status", "--control", url], env=environment, capture_output=True, check=False, timeout=180
        )
    assert (ended.returncode, ended.stderr) == (ExitCode.OK, b"")
    assert b"support" in ended.stdout


def test_completion_is_offered() -> None:
    environment = {
        **os.environ,
        "_COMMONPOOL_COMPLETE": "complete_bash",
        "COMP_WORDS": "commonpool st",
        "COMP_CWORD": "1",
    }
    ended = subprocess.run(PROGRAM, env=environment, capture_output=True, check=False, timeout=180)
    assert ended.stdout.split() == [b"status"]
