"""Given months of books, when they are listed and closed, then it is said what became of them."""

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from tests.api.books import billed, keep
from tests.cli.serving import serving


def test_list_and_close(capsys: pytest.CaptureFixture[str]) -> None:
    product = billed()
    keep(product, "2026-12-31 22:00", "2027-01-02 00:00")
    with serving(product) as url:
        assert run(["period", "list", "--control", url]) == ExitCode.OK
        assert "2026-12   over, can be closed" in capsys.readouterr().out
        assert run(["period", "close", "2026-12", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out.startswith("2026-12 is closed; ")
        assert run(["period", "close", "2026-12", "--control", url]) == ExitCode.FAILED
        assert run(["period", "close", "2027-01", "--control", url]) == ExitCode.FAILED
        assert run(["period", "close", "next", "--control", url]) == ExitCode.USAGE
        capsys.readouterr()
        assert run(["period", "list", "--json", "--control", url]) == ExitCode.OK
    assert '"state": "closed"' in capsys.readouterr().out
