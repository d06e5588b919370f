"""Given replicas, when they are asked for, then each says what was sent to it and what its engine says of itself."""

import io
import json

import msgspec
import pytest
from rich.console import Console

from commonpool.api.wire.status import EngineStatus, ReplicaStatus
from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.cli.replicas import picture
from tests.api.fakes import NOW, REPLICA, FakeOperations
from tests.cli.serving import serving


def line(engine: EngineStatus | None, **changes: object) -> str:
    """The words of its line in the table."""
    out = Console(file=io.StringIO(), width=300)
    out.print(picture(out, [msgspec.structs.replace(REPLICA, engine=engine, **changes)], NOW))
    assert isinstance(out.file, io.StringIO)
    return " ".join(out.file.getvalue().splitlines()[2].split())


@pytest.mark.parametrize(
    ("engine", "shown"),
    [
        (None, "unknown unknown unknown"),
        (EngineStatus(NOW), "unknown unknown unknown"),
        (EngineStatus(NOW, 0, 0, 0), "0 0 0 %"),
        (EngineStatus(NOW, 3, None, None), "3 unknown unknown"),
        (EngineStatus(NOW, 7, 2, 815, foreign=5), "7 (5 not from here) 2 81 %"),
    ],
)
def test_what_is_not_known_is_never_zero(engine: EngineStatus | None, shown: str) -> None:
    assert line(engine) == f"echo-0.1 echo ready 90 s 2 1 of 4 {shown} –"


def test_where_it_runs() -> None:
    assert line(None, devices=("n1/0", "n1/1"), node="n1").endswith("unknown n1/0, n1/1")
    assert line(None, address="http://h:1").endswith("unknown http://h:1")


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    operations = FakeOperations()
    operations.replica_states = [(msgspec.structs.replace(REPLICA, engine=EngineStatus(NOW, 1, 0, 250)),)]
    with serving(operations) as url:
        assert run(["replicas", "--control", url]) == ExitCode.OK
        assert "25 %" in capsys.readouterr().out
        assert run(["replicas", "--json", "--control", url]) == ExitCode.OK
    (found,) = json.loads(capsys.readouterr().out)["replicas"]
    assert found["engine"] == {"at_ns": NOW, "running": 1, "waiting": 0, "kv_milli": 250, "foreign": 0}


def test_without_replicas_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    operations = FakeOperations()
    none: tuple[ReplicaStatus, ...] = ()
    operations.replica_states = [none]
    with serving(operations) as url:
        assert run(["replicas", "--control", url]) == ExitCode.OK
    assert capsys.readouterr().out == "no replicas\n"
