"""Given a product, when it is asked where some work would go, then each node says its score or why not."""

import io
import json

import pytest
from rich.console import Console

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.cli.place import lines, picture
from commonpool.core.candidates import Barrier, Candidate
from commonpool.core.footprint import Footprint
from commonpool.core.trial import Allowance, Trial
from tests.api.fakes import FakeOperations
from tests.cli.serving import serving

NOWHERE = ["--control", "http://127.0.0.1:1"]
TRIAL = Trial(
    "main",
    Footprint(2, 1000, 20480),
    allowance=Allowance(2000, 0, (), None, "It is within the guarantee of tenant a."),
    node="n1",
    devices=("n1/0", "n1/1"),
    candidates=(
        Candidate("n1", ("n1/0", "n1/1"), loaded=True, growth=-128, free=2500),
        Candidate("n2", barrier=Barrier.GPU, reason="1 of its devices have that much free."),
    ),
    ahead=3,
)


def test_the_table_has_each_part_of_the_score_and_the_one_reason() -> None:
    out = Console(file=io.StringIO(), width=200)
    out.print(picture(out, TRIAL))
    assert isinstance(out.file, io.StringIO)
    shown = [line.split() for line in out.file.getvalue().splitlines() if line.strip()]
    assert shown[0] == ["node", "devices", "weights", "there", "linked", "fragmentation", "free", "why", "not"]
    assert shown[2] == ["n1", "n1/0,", "n1/1", "yes", "yes", "-0.128", "2.5"]
    assert " ".join(shown[3]) == "n2 gpu: 1 of its devices have that much free."


def test_what_would_happen() -> None:
    assert lines(TRIAL) == [
        "it takes 2 × 1 gpu with 20GiB each of pool main",
        "quota: It is within the guarantee of tenant a.",
        "3 job(s) wait in the pool already; those whose turn is before it come first",
        "place: node n1 on n1/0, n1/1",
    ]


def test_what_would_not() -> None:
    assert lines(Trial("main", Footprint(1, 500), unplaced="Full.")) == [
        "it takes 0.5 gpu of pool main",
        "no place: Full.",
    ]
    assert lines(Trial("main", impossible="Never.")) == ["Never."]
    assert "only counted; enough is free" in lines(Trial("main", Footprint(1, 500, profile="1g.10gb")))[-1]


def test_nothing_is_placed_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["place", "--tenant", "support", "--gpus", "1", *NOWHERE]) == ExitCode.USAGE
    assert "nothing is placed by hand" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--tenant", "support", "--gpus", "two"], '"two" is not an amount of GPUs'),
        (["--tenant", "support", "--gpus", "2", "--expect", "2"], '"2" is not a duration'),
        (["--tenant", "support", "--count", "2"], "what is needed is said with --gpus, --gpu-memory or --mig"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert run(["place", "--dry-run", *arguments, *NOWHERE]) == ExitCode.USAGE
    assert says in capsys.readouterr().err


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeOperations()) as url:
        asked = ["place", "--dry-run", "--control", url]
        assert run([*asked, "--tenant", "support", "--gpus", "1"]) == ExitCode.OK
        assert capsys.readouterr().out.splitlines() == [
            "it takes 1 gpu of pool main",
            "quota: It is within the guarantee of tenant support.",
            "place: the nodes of pool main are not known, so its GPUs are only counted; enough is free",
        ]
        assert run([*asked, "--tenant", "support", "--gpus", "0.5", "--json"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["footprint"]["milli_gpu"] == 500
        assert run([*asked, "--model", "ecco"]) == ExitCode.USAGE
    assert "there is no model 'ecco'" in capsys.readouterr().err
