"""Given a request, when it is followed, then each of its steps is told once, and the exit status says how it ended."""

from pathlib import Path

import msgspec
import pytest

from commonpool.api import views
from commonpool.api.wire import requests as wire
from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.cli.watch import meanwhile, settled
from commonpool.core.model import Cause, Outcome, Request, Wait
from commonpool.core.standing import Standing
from tests.api.fakes import NOW, FakeOperations
from tests.cli.serving import serving
from tests.cli.terminal import Terminal
from tests.store.records import loan, usage_record

S = 10**9
ARRIVED = wire.Step(NOW, "arrived", 1, "it came for m", 0)
QUEUED = wire.Step(NOW, "queued", 1, "it is waiting for 2 s: loan to b due", 2 * S)


def life(state: str, *steps: wire.Step, standing: Standing | None = None) -> wire.RequestTimeline:
    return wire.RequestTimeline(
        "r", "support", "helpdesk", "m", "batch", state, NOW + 2 * S, NOW, steps, standing, 0, "EUR"
    )


def test_a_wait_is_no_step_until_it_is_over() -> None:
    assert settled(life("waiting", ARRIVED, QUEUED)) == [ARRIVED]
    assert settled(life("running", ARRIVED, QUEUED)) == [ARRIVED, QUEUED]


def test_meanwhile_it_says_where_the_request_stands() -> None:
    standing = Standing(2, 3, 4 * S, NOW, NOW, 1)
    assert meanwhile(life("waiting", ARRIVED, QUEUED, standing=standing)) == (
        "it is waiting for 2 s: loan to b due; 2 of its tenant are before it now, 3 of others wait too, and its"
        " guarantee alone starts it within 4 s"
    )
    assert meanwhile(life("running", ARRIVED)) == "running since 2 s"
    assert meanwhile(life("completed", ARRIVED)) == ""


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    ended = {"arrived_ns": NOW, "wait_ns": 2 * S, "first_token_ns": 3 * S, "total_ns": 5 * S, "run_ns": 3 * S}
    waits = (Wait(Cause.LOAN_DUE, "research", 2 * S),)
    product.store.add_usage(
        [
            usage_record("good", tenant="support", waits=waits, loans=(loan("research"),), milli_gpu=500, **ended),
            usage_record("bad", tenant="support", outcome=Outcome.FAILED, status=502, **ended),
        ]
    )
    return product


def test_one_that_has_ended_is_told_and_its_end_is_the_exit_status(
    product: FakeOperations, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(product) as url:
        assert run(["watch", "good", "--control", url]) == ExitCode.OK
        lines = capsys.readouterr().out.splitlines()
        assert run(["watch", "bad", "--control", url]) == ExitCode.FAILED
        assert "failed with status 502" in capsys.readouterr().out
        assert run(["watch", "nobody", "--control", url]) == ExitCode.FAILED
        assert "no request 'nobody' is known" in capsys.readouterr().err
    assert [line.split()[1] for line in lines[1:6]] == ["arrived", "queued", "dispatched", "first", "ended"]
    assert "it waited 2 s: loan to research due" in lines[2]


def test_for_machines_each_step_is_a_line(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        assert run(["watch", "good", "--control", url, "--json"]) == ExitCode.OK
    steps = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert [step["what"] for step in steps] == ["arrived", "queued", "dispatched", "first_token", "ended"]


def test_one_that_waits_is_followed_in_a_terminal_until_it_ends(product: FakeOperations, tmp_path: Path) -> None:
    request = Request("live", "support", "helpdesk", "echo", "interactive", "chat", 1)
    product.open_requests["live"] = views.live(request, None)
    with serving(product) as url:
        terminal = Terminal("watch", "live", "--control", url, folder=tmp_path)
        terminal.shows("live: echo for support", "arrived", "running since")
        product.fake_recovered = False  # the product has started again, and does not know it yet
        del product.open_requests["live"]
        terminal.shows("tries again: request 'live' is not known yet")
        product.store.add_usage([usage_record("live", tenant="support", arrived_ns=NOW, wait_ns=0)])
        terminal.shows("dispatched", "completed")
        assert terminal.ends() == 0
        terminal.close()
