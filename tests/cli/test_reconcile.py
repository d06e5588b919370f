"""Given closed hours, when the books are reconciled, then the exit code says whether they close."""

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.core.ledger import Phase, Span
from tests.api.books import HOUR, at, billed, keep
from tests.cli.serving import serving

START = "2026-12-30 10:00"
SINCE = ["--since", "2026-12-30"]


def test_books_that_close(capsys: pytest.CaptureFixture[str]) -> None:
    product = billed()
    keep(product, START, "2026-12-30 12:00")
    with serving(product) as url:
        assert run(["reconcile", *SINCE, "--control", url]) == ExitCode.OK
        out = capsys.readouterr().out
        assert out.count("14,400.000   14,400.000") == 2
        assert "!" not in out
        assert run(["reconcile", *SINCE, "--until", "2026-12-30T01:00Z", "--control", url]) == ExitCode.OK
    assert capsys.readouterr().out == "no hour of that time is in the books\n"


def test_books_that_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    product = billed()
    product.store.add_meters([Span("x", Phase.HELD, "main", "", "platform", 1000, at(START), at(START) + HOUR)])
    keep(product, START, "2026-12-30 12:00")
    with serving(product) as url:
        assert run(["reconcile", *SINCE, "--control", url]) == ExitCode.FAILED
        read = capsys.readouterr()
        assert "2026-12-30 09:00Z !" in read.out
        assert "main 2026-12-30 09:00Z: -3,600.000 gpu s not known to the core" in read.out
        assert read.err == (
            "commonpool: the books of 1 of 2 hours do not close, the first in pool main at 2026-12-30 09:00:00Z: its"
            " causes say where to look\n"
        )
        assert run(["reconcile", *SINCE, "--json", "--control", url]) == ExitCode.FAILED
    assert '"closes": false' in capsys.readouterr().out
