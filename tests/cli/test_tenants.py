"""Given tenants, when they are asked for from the command line, then each is shown with who pays for its apps."""

import json

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from tests.api.fakes import FakeOperations
from tests.cli.serving import serving


def test_tenants_are_shown_with_their_apps_and_cost_centres(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeOperations()) as url:
        assert run(["tenants", "--control", url]) == ExitCode.OK
        rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
        assert rows == [
            ["research", "–", "default", "–"],
            ["research", "–", "papers", "–"],
            ["research", "–", "slides", "–"],
            ["support", "–", "default", "–"],
            ["support", "–", "helpdesk", "CC-1"],
        ]
        assert run(["tenants", "--json", "--control", url]) == ExitCode.OK
        assert [each["name"] for each in json.loads(capsys.readouterr().out)["tenants"]] == ["research", "support"]
