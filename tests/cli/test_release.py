"""Given guarantees, when some are released from the command line, then it says what holds and how to take it back."""

import json

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.core.underuse import Underuse
from tests.api.fakes import FakeOperations
from tests.cli.serving import serving

NOWHERE = ["--control", "http://127.0.0.1:1"]
UNDERUSED = Underuse("support", "main", 2000, 80, 100, 20, 500, 1800)


def test_life_of_a_release(capsys: pytest.CaptureFixture[str]) -> None:
    here = FakeOperations()
    with serving(here) as url:
        asked = ["release", "--control", url]
        assert run([*asked, "support", "--gpus", "1.5", "--reason", "summer"]) == ExitCode.OK
        assert capsys.readouterr().out == (
            "tenant support has released 1.5 gpu of its guarantee (release 1);"
            " `commonpool release support --undo` takes it back\n"
        )
        assert run([*asked, "--list"]) == ExitCode.OK
        assert "summer" in capsys.readouterr().out
        assert run([*asked, "support", "--undo"]) == ExitCode.OK
        assert capsys.readouterr().out == "tenant support has its whole guarantee again, 1.5 gpu more\n"
        assert run([*asked, "--list"]) == ExitCode.OK
        listed = capsys.readouterr().out.splitlines()
        assert run([*asked, "support", "--undo"]) == ExitCode.FAILED
    assert listed[0].split() == ["release", "tenant", "gpu", "released", "by", "undone", "by", "reason"]
    moment = ["2027-01-15", "08:00:00Z", "local"]
    assert listed[2].split() == ["1", "support", "1.5", *moment, *moment, "summer"]
    assert here.store.released() == {}


def test_what_is_under_used_is_a_table_with_a_total(capsys: pytest.CaptureFixture[str]) -> None:
    here = FakeOperations()
    with serving(here) as url:
        assert run(["release", "--control", url]) == ExitCode.OK
        assert "no guarantee is under-used" in capsys.readouterr().out
        here.underused = (UNDERUSED,)
        assert run(["release", "--control", url]) == ExitCode.OK
        shown = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert run(["release", "--json", "--control", url]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["tenants"][0]["hours"] == 80
        assert run(["release", "support", "--json", "--control", url]) == ExitCode.OK
    assert shown[2] == ["support", "main", "2", "80", "h", "0.1", "0.02", "0.5", "1.8"]
    assert shown[-1] == ["total", "2", "0.5", "1.8"]
    assert json.loads(capsys.readouterr().out)["milli_gpu"] == 1800


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--undo"], "--undo goes with a TENANT"),
        (["support", "--list"], "--list with nothing else"),
        (["--gpus", "1"], "--gpus and --reason go with a TENANT"),
        (["support", "--undo", "--gpus", "1"], "--gpus and --reason go with a TENANT"),
        (["support", "--gpus", "one"], '"one" is not an amount of GPUs'),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert run(["release", *arguments, *NOWHERE]) == ExitCode.USAGE
    assert says in capsys.readouterr().err


def test_what_the_product_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    here = FakeOperations()
    with serving(here) as url:
        assert run(["release", "support", "--control", url]) == ExitCode.FAILED
        assert run(["release", "support", "--gpus", "2.5", "--control", url]) == ExitCode.USAGE
        assert run(["release", "--list", "--control", url]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert "is not under-used" in err
    assert "can release 2 gpu now, and not 2.5 gpu" in err
    assert out == "nothing has been released\n"
