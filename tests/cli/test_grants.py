"""Given a product, when a tenant is granted more from the command line, then it says what holds, and until when."""

import json

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.config import parse_sources
from tests.api.fakes import CONFIG, NOW, FakeOperations, sources
from tests.cli.serving import serving

NOWHERE = ["--control", "http://127.0.0.1:1"]


def product() -> FakeOperations:
    made = FakeOperations()
    made._config = parse_sources(
        sources(CONFIG.replace("elastic_cap: 4_gpu}", "elastic_cap: 2_gpu, hard_cap: 3_gpu}", 1))
    )
    return made


def test_life_of_a_grant(capsys: pytest.CaptureFixture[str]) -> None:
    here = product()
    with serving(here) as url:
        assert run(["grant", "support", "--gpus", "2.5_gpu", "--for", "2h", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "tenant support may use 2.5 gpu, until 2027-01-15 10:00:00Z\n"
        assert run(["grant", "support", "--end", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "tenant support may use 2 gpu, as configured\n"
        assert run(["grant", "support", "--end", "--json", "--control", url]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["until_ns"] is None
    assert here.granted == [("support", 2500, NOW + 7200 * 10**9), ("support", 0, NOW), ("support", 0, NOW)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["support"], "a grant needs --gpus and --for"),
        (["support", "--gpus", "2"], "a grant needs --gpus and --for"),
        (["support", "--end", "--for", "2h"], "leave --gpus and --for out"),
        (["support", "--gpus", "two", "--for", "2h"], '"two" is not an amount of GPUs'),
        (["support", "--gpus", "2", "--for", "2"], '"2" is not a duration'),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert run(["grant", *arguments, *NOWHERE]) == ExitCode.USAGE
    assert says in capsys.readouterr().err


def test_what_the_product_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    here = product()
    with serving(here) as url:
        assert run(["grant", "support", "--gpus", "4", "--for", "2h", "--control", url]) == ExitCode.USAGE
        assert run(["grant", "no/body", "--end", "--control", url]) == ExitCode.FAILED
    assert "hard_cap of tenant support (3 gpu)" in capsys.readouterr().err
    assert here.granted == []
