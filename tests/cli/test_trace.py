"""Given a request's records, when it is traced, then people see every posting of it and what they sum to."""

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from tests.api.books import HOUR, billed, keep, work
from tests.cli.serving import serving


def test_a_request_down_to_the_money(capsys: pytest.CaptureFixture[str]) -> None:
    product = billed()
    keep(product, "2026-12-30 10:00", "2026-12-30 12:00", [work("r1", "2026-12-30 11:20", HOUR // 2, loan=1000)])
    with serving(product) as url:
        assert run(["trace", "r1", "--control", url]) == ExitCode.OK
        out = capsys.readouterr().out
        assert run(["trace", "r2", "--control", url]) == ExitCode.FAILED
        assert "no attempt at 'r2' has ended" in capsys.readouterr().err
        assert run(["trace", "r1", "--json", "--control", url]) == ExitCode.OK
        assert '"cost_micro": 2250251' in capsys.readouterr().out
    head, tokens, loan, *table = out.splitlines()
    assert head == (
        "attempt 1 of echo for support (app helpdesk, tier interactive): completed, arrived 2026-12-30 09:50:00Z,"
        " waited 0 s, ran 30 min 0 s on 2 gpu"
    )
    assert tokens == "  1,000 tokens in, 500 out"
    assert loan == "  on a loan of 1 gpu from research for 30 min 0 s, ended: task_done"
    assert any(line.split()[:5] == ["2026-12-30", "10:00Z", "used", "support", "→"] for line in table)
    assert [line.split()[-1] for line in table if line.startswith("its tenant pays")] == ["2.250251"]
    assert out.splitlines()[-1] == "together 2.250251 EUR"
