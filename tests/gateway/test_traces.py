"""Given a gateway that traces, when requests come, then each is one trace, and the engine knows it."""

from typing import Any

from commonpool.core.model import Cause, Reason, Wait
from commonpool.observe.spans import payload, spans
from commonpool.observe.traces import Ended, Traces
from tests.gateway.fakes import (
    SECOND,
    chat,
    chat_answer,
    done_event,
    post,
    run,
    text_event,
    until,
    usage_event,
    world,
)
from tests.leaks import leaks
from tests.observe.collector import Received, decoded

NOW = 1_700_000_000 * SECOND
PARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


class Watched:
    """What was traced."""

    def __init__(self, permille: int = 1000) -> None:
        self.ended: list[Ended] = []
        self.traces = Traces(self.ended.append, permille, lambda: NOW)

    def spans(self) -> list[Received]:
        encoded = payload([span for each in self.ended for span in spans(each)], {"service.name": "commonpool"})
        assert list(leaks(encoded.decode("latin-1"))) == []
        return decoded(encoded)


def test_one_span_of_the_request_and_two_of_its_attempt() -> None:
    async def main() -> None:
        watched = Watched()
        async with world(traces=watched.traces) as here:
            client = await here.client()
            headers = f"traceparent: {PARENT}\r\ntracestate: vendor=1\r\n"
            assert (await client.ask(post(chat(max_tokens=9), headers=headers))).status == 200
            (call,) = here.engine.calls
            (request,) = here.desk.requests
        root, queue, engine = watched.spans()
        assert (root.name, queue.name, engine.name) == ("chat tiny", "queue", "chat tiny")
        assert {span.trace_id for span in (root, queue, engine)} == {PARENT[3:35]}
        assert (root.parent_id, queue.parent_id, engine.parent_id) == (PARENT[36:52], root.span_id, root.span_id)
        assert len({root.span_id, queue.span_id, engine.span_id}) == 3
        assert call.headers["traceparent"] == f"00-{PARENT[3:35]}-{engine.span_id}-01"
        assert call.headers["tracestate"] == root.state == "vendor=1"
        asked = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "tiny",
            "gen_ai.request.max_tokens": 9,
            "commonpool.request_id": request.id,
            "commonpool.tenant": "support",
            "commonpool.app": "helpdesk",
            "commonpool.cost_center": request.cost_center,
            "commonpool.tier": request.tier,
        }
        used = {
            "gen_ai.response.model": "tiny",
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 3,
            "gen_ai.usage.cache_read.input_tokens": 0,
        }
        assert root.attributes == {
            **asked,
            **used,
            "gen_ai.provider.name": "commonpool",
            "http.request.method": "POST",
            "http.response.status_code": 200,
            "commonpool.wait_ns": 0,
            "commonpool.attempts": 1,
        }
        assert queue.attributes == {"commonpool.attempt": 1}
        assert engine.attributes == {
            **asked,
            **used,
            "gen_ai.provider.name": "openai",
            "server.address": "127.0.0.1",
            "server.port": here.engine.target().port,
            "http.response.status_code": 200,
            "commonpool.replica": here.engine.target().replica_id,
            "commonpool.attempt": 1,
            "commonpool.outcome": "completed",
        }
        assert [root.failed, engine.failed] == [False, False]

    run(main)


def test_a_stream_is_no_more_spans_however_many_chunks_it_has() -> None:
    async def main() -> None:
        watched = Watched()
        async with world(traces=watched.traces) as here:

            def stream(call: Any) -> None:
                call.stream(*(text_event("x") for _ in range(50)), usage_event(), done_event())

            here.engine.script = stream
            client = await here.client()
            assert (await client.ask(post(chat(stream=True)))).status == 200
        found = watched.spans()
        assert [span.name for span in found] == ["chat tiny", "queue", "chat tiny"]
        assert found[2].events == {"first_token": NOW}

    run(main)


def test_the_wait_says_for_what_and_not_because_of_whom() -> None:
    async def main() -> None:
        watched = Watched()
        async with world(traces=watched.traces) as here:
            here.desk.holding = True
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(here.desk.waiting))
            (request_id,) = here.desk.waiting
            waits = (Wait(Cause.LOAN_DUE, "research", SECOND), Wait(Cause.SLOTS, "tiny", 2 * SECOND))
            here.desk.dispatch(request_id, wait_ns=3 * SECOND, waits=waits)
            await client.answer()
        root, queue, engine = watched.spans()
        assert root.attributes["commonpool.wait_ns"] == 3 * SECOND
        assert queue.times == (NOW, NOW + 3 * SECOND)
        assert engine.times[0] == NOW + 3 * SECOND
        assert queue.attributes == {
            "commonpool.attempt": 1,
            "commonpool.wait.loan_due_ns": SECOND,
            "commonpool.wait.slots_ns": 2 * SECOND,
        }
        assert "research" not in repr([span.attributes for span in (root, queue, engine)])

    run(main)


def test_each_attempt_has_its_spans_and_the_engine_its_own_parent() -> None:
    async def main() -> None:
        watched = Watched()
        async with world(traces=watched.traces) as here:
            answers = iter([503, 200])

            def answer(call: Any) -> None:
                call.answer(chat_answer("hi"), next(answers))

            here.engine.script = answer
            client = await here.client()
            assert (await client.ask(post(chat()))).status == 200
            parents = [call.headers["traceparent"][36:52] for call in here.engine.calls]
        root, first_queue, first, second_queue, second = watched.spans()
        assert parents == [first.span_id, second.span_id]
        assert [span.attributes["commonpool.attempt"] for span in (first_queue, first, second_queue, second)] == [
            1,
            1,
            2,
            2,
        ]
        assert (first.failed, first.attributes["commonpool.outcome"]) == (True, "failed")
        assert first.attributes["error.type"]
        assert (second.failed, root.failed, "error.type" in root.attributes) == (False, False, False)
        assert root.attributes["commonpool.attempts"] == 2

    run(main)


def test_what_failed_at_last_says_why() -> None:
    async def main() -> None:
        watched = Watched()
        async with world(traces=watched.traces) as here:
            here.engine.script = lambda call: call.answer(b"{}", 503)
            client = await here.client()
            status = (await client.ask(post(chat()))).status
        root, *_, last = watched.spans()
        assert (root.failed, root.attributes["http.response.status_code"]) == (True, status)
        assert root.attributes["error.type"] == last.attributes["error.type"] != ""
        assert "gen_ai.usage.output_tokens" not in root.attributes

    run(main)


def test_what_is_refused_is_one_span_and_no_error_of_the_server() -> None:
    async def main() -> None:
        watched = Watched()
        async with world(traces=watched.traces) as here:
            here.desk.refusal = (Reason.QUEUE_FULL, "full", SECOND)
            client = await here.client()
            assert (await client.ask(post(chat()))).status == 429
        (root,) = watched.spans()
        assert (root.attributes["error.type"], root.attributes["http.response.status_code"]) == ("queue_full", 429)
        assert not root.failed

    run(main)


def test_a_client_that_leaves_ends_its_trace_once() -> None:
    async def main() -> None:
        watched = Watched()
        async with world(traces=watched.traces) as here:
            here.desk.holding = True
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(here.desk.waiting))
            client.abort()
            await until(lambda: bool(here.desk.cancelled))
        (root,) = watched.spans()
        assert root.attributes["error.type"] == "cancelled"
        assert root.attributes["http.response.status_code"] == 499

    run(main)


def test_who_is_not_sampled_costs_no_span_and_the_engine_is_told() -> None:
    async def main() -> None:
        watched = Watched(permille=0)
        async with world(traces=watched.traces) as here:
            client = await here.client()
            unsampled = PARENT[:-1] + "0"
            for headers in ("", f"traceparent: {unsampled}\r\ntracestate: a=1\r\n", f"traceparent: {PARENT}\r\n"):
                assert (await client.ask(post(chat(), headers=headers))).status == 200
            begun, passed, followed = [call.headers for call in here.engine.calls]
        assert begun["traceparent"].endswith("-00")
        assert begun["traceparent"][3:35] != "0" * 32
        assert (passed["traceparent"], passed["tracestate"]) == (unsampled, "a=1")
        assert followed["traceparent"][:36] == PARENT[:36]
        assert [span.trace_id for span in watched.spans()] == [PARENT[3:35]] * 3

    run(main)


def test_a_tracestate_that_is_none_or_comes_alone_goes_nowhere() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            long = "a=" + "x" * 600
            for headers in ("tracestate: a=1\r\n", f"traceparent: {PARENT}\r\ntracestate: {long}\r\n"):
                assert (await client.ask(post(chat(), headers=headers))).status == 200
            assert ["tracestate" in call.headers for call in here.engine.calls] == [False, False]
            await client.ask(post(chat(), headers=f"traceparent: {PARENT}\r\ntracestate: a=1\r\ntracestate: b=2\r\n"))
            assert here.engine.calls[-1].headers["tracestate"] == "a=1, b=2"

    run(main)
