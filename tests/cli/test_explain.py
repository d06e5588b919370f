"""Given a request, when it is explained, then people read what it waited for and what to do about it."""

import msgspec
import pytest

from commonpool.api import views
from commonpool.api.wire import requests as wire
from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.core.model import NS_PER_S, Cause, Request, Wait
from tests.api.fakes import FakeOperations
from tests.cli.serving import serving
from tests.store.records import loan, refused, usage_record

SAID = "completed; waited 4.1 s: loan to support due 3.2 s, behind others of its tenant 900 ms"


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    waits = (Wait(Cause.OWN_QUEUE, "", 900_000_000), Wait(Cause.LOAN_DUE, "support", 3_200_000_000))
    product.store.add_usage(
        [
            usage_record(
                "r1",
                wait_ns=4_100_000_000,
                run_ns=2 * NS_PER_S,
                total_ns=6_100_000_000,
                waits=waits,
                loans=(loan("b", length_ns=2 * NS_PER_S), loan("", milli_gpu=1000, length_ns=NS_PER_S)),
            ),
            refused("r2", reason="promise"),
        ]
    )
    return product


def test_an_ended_request(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        assert run(["explain", "r1", "--control", url]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == [
        f"attempt 1 of m for a (app chat, tier interactive), arrived 2024-01-01 00:00:00Z: {SAID}",
        "      3.2 s  loan to support due (loan_due)",
        "             Keep more of the tenant's guarantee unlent, with headroom or reserved.",
        "     900 ms  behind others of its tenant (own_queue)",
        "             Give it a tier of higher priority, or its tenant a larger guarantee.",
        "  ran 2 s on m-0, the whole took 6.1 s",
        "  on a loan of 0.25 gpu from b for 2 s, ended: task_done",
        "  on a loan of 1 gpu from the unowned part for 1 s, ended: task_done",
    ]


def test_a_refused_request(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        assert run(["explain", "r2", "--control", url]) == ExitCode.OK
    said, advice = capsys.readouterr().out.splitlines()
    assert said.endswith("refused, it could not be started within what its tenant's max_wait promises; did not wait")
    assert advice.startswith("  Try again later, raise the tenant's guarantee")


def test_a_request_that_waits(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    request = Request("r3", "a", "chat", "m", "batch", "chat", 1)
    product.open_requests["r3"] = views.live(request, (Wait(Cause.NO_REPLICA, "m", 12 * NS_PER_S),))
    with serving(product) as url:
        assert run(["explain", "r3", "--control", url]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == [
        "now, m for a (app chat, tier batch): waiting for 12 s: no replica of m ready",
        "       12 s  no replica of m ready (no_replica)",
        "             See `commonpool status` for why its replicas are not ready.",
    ]


def test_json_is_the_whole_story(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        assert run(["explain", "r1", "--json", "--control", url]) == ExitCode.OK
    story = msgspec.json.decode(capsys.readouterr().out, type=wire.RequestStory)
    assert (story.id, story.live, len(story.attempts), len(story.attempts[0].waits)) == ("r1", None, 1, 2)


@pytest.mark.parametrize("request_id", ["r9", "?x=1", "ü"])
def test_an_unknown_request_is_one_sentence(
    product: FakeOperations, request_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(product) as url:
        assert run(["explain", request_id, "--control", url]) == ExitCode.FAILED
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"commonpool: no request '{request_id}' is known")
