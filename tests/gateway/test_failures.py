"""Lines of log about requests that were refused or failed."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from commonpool.core.model import NS_PER_S, Reason, Request
from commonpool.gateway.errors import ApiError
from commonpool.gateway.failures import ALIKE_MAX, Failures
from commonpool.observe.traces import Traces
from tests.gateway.fakes import SECOND, chat, post, run, text_event, world
from tests.leaks import MARK

FULL = ApiError(429, "queue_full", f"The queue is full of {MARK}.")


def request(tenant: str = "support", number: int = 1) -> Request:
    return Request(f"r{number}", tenant, "helpdesk", "tiny", "interactive", "chat", 7)


def test_of_those_alike_one_is_told_and_the_next_says_how_many_there_were() -> None:
    now = [0]
    failures = Failures(lambda: now[0])
    with capture_logs() as lines:
        for number in range(4):
            failures.tell(request(number=number), FULL)
        failures.tell(request("research"), FULL)
        now[0] = 10 * NS_PER_S
        failures.tell(request(number=9), FULL, "abc")
    assert [(line["request_id"], line["tenant"], line["alike_before"]) for line in lines] == [
        ("r0", "support", 0),
        ("r1", "research", 0),
        ("r9", "support", 3),
    ]
    assert lines[-1] == {
        "event": "request refused",
        "log_level": "info",
        "request_id": "r9",
        "tenant": "support",
        "app": "helpdesk",
        "model": "tiny",
        "tier": "interactive",
        "status": 429,
        "code": "queue_full",
        "alike_before": 3,
        "trace_id": "abc",
    }


def test_what_is_remembered_is_bounded() -> None:
    failures = Failures(lambda: 0)
    with capture_logs():
        for number in range(3 * ALIKE_MAX):
            failures.tell(request(f"t{number}"), FULL)
    assert len(failures._alike) <= ALIKE_MAX


def lines_of(status: int, **asked: Any) -> list[dict[str, Any]]:
    """What is logged of a request at an engine that answers with this status."""
    with capture_logs() as lines:

        async def main() -> None:
            async with world(traces=Traces(lambda _ended: None, 1000, lambda: SECOND)) as here:
                here.engine.script = lambda call: call.answer(b"{}", status)
                if status == 429:
                    here.desk.refusal = (Reason.QUEUE_FULL, "full", SECOND)
                client = await here.client()
                await client.ask(post(chat(**asked)))

        run(main)
    return [dict(line) for line in lines]


@pytest.mark.parametrize(
    ("status", "asked", "event", "level"),
    [
        (503, {}, "request failed", "warning"),
        (429, {}, "request refused", "info"),
        (200, {"model": "none"}, "request refused", "info"),
    ],
)
def test_a_request_that_ends_with_an_error_is_a_line(
    status: int, asked: dict[str, Any], event: str, level: str
) -> None:
    (line,) = lines_of(status, **asked)
    assert (line["event"], line["log_level"], line["tenant"]) == (event, level, "support")
    assert line["request_id"]
    assert ("trace_id" in line) == (not asked)
    assert MARK not in repr(line)


def test_one_that_is_answered_is_none() -> None:
    with capture_logs() as lines:

        async def main() -> None:
            async with world() as here:
                client = await here.client()
                assert (await client.ask(post(chat()))).status == 200

        run(main)
    assert lines == []


def test_a_stream_that_breaks_off_is_a_line() -> None:
    with capture_logs() as lines:

        async def main() -> None:
            async with world() as here:

                def broken(call: Any) -> None:
                    call.begin_stream()
                    call.chunk(text_event("hi"))
                    call.close()

                here.engine.script = broken
                client = await here.client()
                await client.ask(post(chat(stream=True)))

        run(main)
    (line,) = lines
    assert (line["event"], line["code"]) == ("request failed", "engine_failed")
