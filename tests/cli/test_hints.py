"""Given what could be merged, when hints are asked for, then each says what it gives, what it costs, and each step."""

import json

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.cli.hints import lines
from commonpool.core.hints import Hint, Step
from tests.api.fakes import FakeOperations
from tests.cli.serving import serving

S = 10**9
STEPS = (Step("m-0.1", ("n1/0",), "n2", ("n2/1",), 12 * S), Step("j1", ("n1/0", "n1/1"), "n3", (), 3 * S))


def test_a_hint() -> None:
    assert list(lines(Hint("node", "n1", 2, 1, 250, 15 * S, STEPS))) == [
        "empty node n1: gains 2 whole gpu(s), 1 free node(s), 0.25 gpu less that is free and of no use; costs 15 s",
        "  drain m-0.1 on n1/0: 12 s; it would fit on n2 (n2/1)",
        "  drain j1 on n1/0, n1/1: 3 s; it would fit on n3",
    ]
    assert next(lines(Hint("gpu", "n1/0", 1, 0, -40, 0, ()))) == "empty gpu n1/0: gains 1 whole gpu(s); costs 0 s"


class Merging(FakeOperations):
    """A product with a hint."""

    def hints(self) -> list[Hint]:
        return [Hint("node", "n1", 2, 1, 250, 15 * S, STEPS)]


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeOperations()) as url:
        assert run(["hints", "--control", url]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("no hints: ")
    with serving(Merging()) as url:
        assert run(["hints", "--control", url]) == ExitCode.OK
        assert len(capsys.readouterr().out.splitlines()) == 3
        assert run(["hints", "--json", "--control", url]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["hints"][0]["steps"][0]["holder"] == "m-0.1"
