"""The life of a request: relayed, settled before its last byte, retried while nothing came, cancelled in any phase."""

import asyncio
import json
from collections.abc import Callable

import pytest

from commonpool.config.structs import Timeouts
from commonpool.core.model import Fault, Outcome, Reason, TokenSource, Usage
from commonpool.core.records import STATUS_CLIENT_GONE
from commonpool.engines.registry import LLAMACPP
from tests.gateway.fakes import (
    SECOND,
    Call,
    World,
    chat,
    chat_answer,
    done_event,
    event,
    get,
    post,
    run,
    text_event,
    until,
    usage_event,
    usage_json,
    world,
)

ERROR_500 = b'{"error":{"message":"boom at /srv/engine"}}'


# -- whole answers


def test_a_whole_answer_is_relayed_untouched_and_settled_first() -> None:
    async def main() -> None:
        async with world() as here:
            body = chat_answer("  spaced  ", usage=usage_json(11, 5, cached=4))
            here.engine.script = lambda call: call.answer(body)
            client = await here.client()
            await until(lambda: bool(here.gateway.connections))
            here.watch_writes()
            answer = await client.ask(post(chat()))
            assert answer.body == body
            (ended,) = here.desk.ended_events
            assert (ended.outcome, ended.status, ended.attempt) == (Outcome.COMPLETED, 200, 1)
            assert ended.usage == Usage(11, 4, 5, TokenSource.ENGINE)
            assert ended.first_token_at == 1_700_000_000 * SECOND
            assert here.desk.log == ["submit", "ended", "write"]

    run(main)


@pytest.mark.parametrize("stream", [False, True])
def test_the_end_of_an_answer_waits_until_it_is_noted(stream: bool) -> None:
    async def main() -> None:
        async with world() as here:
            if stream:
                here.engine.script = lambda call: call.stream(text_event("a"), usage_event() + done_event())
            noting: list[Callable[[], None]] = []
            here.desk.noting = noting
            client = await here.client()
            await until(lambda: bool(here.gateway.connections))
            here.watch_writes()
            client.send(post(chat(stream=stream)))
            await until(lambda: bool(noting))
            assert here.desk.log.index("ended") == len(here.desk.log) - 1
            noting.pop()()
            answer = await client.answer()
            assert (answer.status, here.desk.log[-1]) == (200, "write")
            assert not stream or answer.body.endswith(done_event())
            # the connection goes on
            here.desk.noting = None
            assert (await client.ask(post(chat(stream=stream)))).status == 200

    run(main)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
def test_the_other_endpoints(path: str) -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.target = here.engine.target(base_path="/openai", authorization=b"Bearer engine-key")
            body = b'{"object":"list","data":[],"usage":{"prompt_tokens":3,"total_tokens":3}}'
            here.engine.script = lambda call: call.answer(body)
            client = await here.client()
            answer = await client.ask(post({"model": "tiny", "prompt": "abc", "input": "abc"}, path))
            assert (answer.status, answer.body) == (200, body)
            (call,) = here.engine.calls
            assert call.path == "/openai" + path
            assert call.headers["authorization"] == "Bearer engine-key"
            assert here.desk.ended_events[0].usage == Usage(3, 0, 0)

    run(main)


def test_an_answer_in_pieces_chunked_or_until_the_connection_closes() -> None:
    async def main() -> None:
        async with world() as here:
            body = chat_answer()

            def in_chunks(call: Call) -> None:
                call.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                call.chunk(body[:10])
                call.chunk(body[10:])
                call.send(b"0\r\n\r\n")

            def until_close(call: Call) -> None:
                call.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + body)
                call.transport.close()

            client = await here.client()
            for script in (in_chunks, until_close):
                here.engine.script = script
                answer = await client.ask(post(chat()))
                assert (answer.status, answer.body) == (200, body)
            assert [ended.outcome for ended in here.desk.ended_events] == ["completed", "completed"]

    run(main)


def test_an_answer_without_usage_is_estimated() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.answer(b'{"choices":[{"message":{"content":"abcdefgh"}}]}')
            client = await here.client()
            await client.ask(post(chat()))
            tokens_in = here.desk.requests[0].tokens_in
            assert here.desk.ended_events[0].usage == Usage(tokens_in, 0, 2, TokenSource.ESTIMATED)

    run(main)


def test_a_plain_answer_to_a_streamed_request_is_relayed_as_it_is() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            answer = await client.ask(post(chat(stream=True)))
            assert (answer.headers["content-type"], answer.body) == ("application/json", chat_answer())

    run(main)


# -- streams


@pytest.mark.parametrize("include_usage", [True, False])
def test_a_stream(include_usage: bool) -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.stream(
                text_event("a"), text_event("b"), usage_event(7, 2), done_event()
            )
            client = await here.client()
            for _ in range(2):  # and the connections on both sides go on
                answer = await client.ask(post(chat(stream=True, stream_options={"include_usage": include_usage})))
                assert answer.headers["content-type"].startswith("text/event-stream")
                usage = usage_event(7, 2) if include_usage else b""
                assert answer.body == text_event("a") + text_event("b") + usage + done_event()
            assert here.engine.calls[0].json["stream_options"] == {"include_usage": True}
            assert [ended.usage for ended in here.desk.ended_events] == [Usage(7, 0, 2)] * 2
            assert len(here.engine.connections) == 1

    run(main)


def test_each_event_is_relayed_as_it_comes_and_done_only_after_settling() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.begin_stream()
            client = await here.client()
            client.send(post(chat(stream=True)))
            await until(lambda: bool(here.engine.calls))
            (call,) = here.engine.calls
            here.watch_writes()
            call.chunk(text_event("a"))
            await client.head()
            assert await client.chunk() == text_event("a")
            call.chunk(text_event("b"))
            assert await client.chunk() == text_event("b")
            call.chunk(usage_event() + done_event())
            await asyncio.sleep(0.02)
            assert here.desk.log == ["submit", "write", "write"]
            call.send(b"0\r\n\r\n")
            assert await client.chunk() == done_event()
            assert await client.chunk() == b""
            assert here.desk.log == ["submit", "write", "write", "ended", "write"]

    run(main)


def test_a_stream_without_usage_is_counted() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.stream(text_event("a"), text_event("b"), done_event())
            client = await here.client()
            await client.ask(post(chat(stream=True)))
            tokens_in = here.desk.requests[0].tokens_in
            assert here.desk.ended_events[0].usage == Usage(tokens_in, 0, 2, TokenSource.COUNTED)

    run(main)


def test_an_engine_that_counts_each_choice_streams_one_merged_usage_chunk() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            here.engine.script = lambda call: call.stream(
                text_event("a"),
                usage_event(7, 1),
                text_event("b", 1),
                text_event("c", 1),
                usage_event(7, 2),
                done_event(),
            )
            client = await here.client()
            answer = await client.ask(post(chat(stream=True, n=2, stream_options={"include_usage": True})))
            events = answer.body.split(b"\n\n")[:-1]
            assert [b'"usage"' in each for each in events] == [False, False, False, True, False]
            assert json.loads(events[3].removeprefix(b"data: "))["usage"] == usage_json(7, 3)
            assert here.desk.ended_events[0].usage == Usage(7, 0, 3)

    run(main)


def test_back_pressure_stops_the_engine_until_the_client_reads() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.begin_stream()
            client = await here.client()
            client.send(post(chat(stream=True)))
            await until(lambda: bool(here.engine.calls))
            (call,) = here.engine.calls
            one = text_event("x" * 50_000)
            count = 400
            for _ in range(count):
                call.chunk(one)
            (connection,) = here.gateway.connections
            await until(lambda: connection.stalled)
            await asyncio.sleep(0.05)
            assert call.transport.get_write_buffer_size() > 0
            here.pass_time(Timeouts().stall_ns)  # silence of a paused engine is not held against it
            call.chunk(done_event())
            call.send(b"0\r\n\r\n")
            await client.head()
            received = sum([len(piece) async for piece in client.chunks()])
            assert received == count * len(one) + len(done_event())
            assert [ended.outcome for ended in here.desk.ended_events] == ["completed"]

    run(main)


# -- refusals and failures


@pytest.mark.parametrize(
    ("reason", "retry_after_ns", "status", "headers"),
    [
        (Reason.NEVER_FITS, None, 400, {}),
        (Reason.QUEUE_FULL, 1, 429, {"retry-after": "1", "retry-after-ms": "1"}),
        (Reason.PROMISE, 2_500_000_000, 429, {"retry-after": "3", "retry-after-ms": "2500"}),
        (Reason.NO_REPLICA, SECOND, 503, {"retry-after": "1", "retry-after-ms": "1000"}),
    ],
)
def test_a_refusal(reason: Reason, retry_after_ns: int | None, status: int, headers: dict[str, str]) -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.refusal = (reason, "The sentence of the core.", retry_after_ns)
            client = await here.client()
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.error["message"]) == (status, "The sentence of the core.")
            assert {name: answer.headers.get(name) for name in headers} == headers
            assert answer.headers["x-request-id"] == here.desk.requests[0].id
            assert here.desk.log == ["submit"]
            here.desk.refusal = None
            assert (await client.ask(post(chat()))).status == 200

    run(main)


def test_an_engines_400_is_relayed_in_our_shape_and_not_retried() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.answer(b'{"object":"error","message":"too long","code":400}', 400)
            client = await here.client()
            for stream in (True, False):
                answer = await client.ask(post(chat(stream=stream)))
                assert (answer.status, answer.error["message"], answer.error["code"]) == (400, "too long", "400")
            ended = here.desk.ended_events
            assert [(each.outcome, each.status, each.usage, each.retry) for each in ended] == [
                (Outcome.FAILED, 400, Usage(), False)
            ] * 2

    run(main)


def break_off(call: Call) -> None:
    call.close()


def answer_503(call: Call) -> None:
    call.answer(b"overloaded", 503)


def answer_500(call: Call) -> None:
    call.answer(ERROR_500, 500)


@pytest.mark.parametrize("script", [break_off, answer_503, answer_500])
@pytest.mark.parametrize("stream", [True, False])
def test_before_the_first_byte_another_attempt_is_made(script: Callable[[Call], None], stream: bool) -> None:
    async def main() -> None:
        async with world() as here:

            def first_fails(call: Call) -> None:
                if len(here.engine.calls) == 1:
                    script(call)
                else:
                    call.answer(chat_answer())

            here.engine.script = first_fails
            client = await here.client()
            assert (await client.ask(post(chat(stream=stream)))).status == 200
            assert [(each.attempt, each.outcome, each.retry) for each in here.desk.ended_events] == [
                (1, Outcome.FAILED, True),
                (2, Outcome.COMPLETED, False),
            ]
            assert here.engine.calls[0].body == here.engine.calls[1].body

    run(main)


@pytest.mark.parametrize(("script", "status"), [(break_off, 502), (answer_503, 503), (answer_500, 500)])
def test_when_no_attempt_is_left_the_last_error_is_answered(script: Callable[[Call], None], status: int) -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = script
            client = await here.client()
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.error["code"]) == (status, "engine_failed")
            assert "/srv" not in answer.error["message"]
            assert [each.retry for each in here.desk.ended_events] == [True, True]
            assert here.gateway.held == 0

    run(main)


def test_an_engine_that_cannot_be_reached() -> None:
    async def main() -> None:
        async with world() as here:
            await here.engine.stop()
            client = await here.client()
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.error["code"]) == (502, "engine_unreached")
            assert [each.usage for each in here.desk.ended_events] == [Usage(), Usage()]
            await here.engine.start()

    run(main)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", 502),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{", 502),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 502),
        (b"no HTTP at all\r\n\r\n", 502),
    ],
)
def test_after_the_first_byte_there_is_no_other_attempt(sent: bytes, status: int) -> None:
    async def main() -> None:
        async with world() as here:

            def script(call: Call) -> None:
                call.send(sent)
                call.transport.close()

            here.engine.script = script
            client = await here.client()
            answer = await client.ask(post(chat()))
            assert answer.status == status
            assert "/srv" not in answer.error["message"]
            assert [(each.outcome, each.retry) for each in here.desk.ended_events] == [(Outcome.FAILED, False)]
            here.engine.script = lambda call: call.answer(chat_answer())
            assert (await client.ask(post(chat()))).status == 200

    run(main)


def answer_400(call: Call) -> None:
    call.answer(b"{}", 400)


def answer_401(call: Call) -> None:
    call.answer(b"{}", 401)


def answer_nonsense(call: Call) -> None:
    call.answer(b"<html>")


def say_nothing(call: Call) -> None:
    del call


def stream_error(call: Call) -> None:
    call.stream(event({"error": {"message": "CUDA error", "code": 500}}))


def stream_refusal(call: Call) -> None:
    call.stream(event({"error": {"message": "too long", "code": 400}}))


def stream_without_end(call: Call) -> None:
    call.stream(text_event("a"))


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        (break_off, Fault.ENGINE),
        (answer_nonsense, Fault.ENGINE),
        (stream_without_end, Fault.ENGINE),
        (say_nothing, Fault.ENGINE),
        (answer_500, Fault.UNCLEAR),
        (answer_503, Fault.UNCLEAR),
        (answer_401, Fault.UNCLEAR),
        (stream_error, Fault.UNCLEAR),
        (answer_400, Fault.NONE),
        (stream_refusal, Fault.NONE),
    ],
)
def test_whose_fault_a_failure_is(script: Callable[[Call], None], fault: Fault) -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.attempts = 1
            here.engine.script = script
            client = await here.client()
            client.send(post(chat(stream=script is not answer_nonsense)))
            await until(lambda: bool(here.engine.calls))
            if script is say_nothing:
                here.pass_time(Timeouts().first_byte_ns + 1)
            await client.answer()
            assert [(each.outcome, each.fault) for each in here.desk.ended_events] == [(Outcome.FAILED, fault)]

    run(main)


def test_what_is_cut_when_the_gateway_stops_is_not_the_engines_fault() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = say_nothing
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(here.engine.calls))
            await here.gateway.drain(0)
            assert (await client.answer()).status == 503
            assert [each.fault for each in here.desk.ended_events] == [Fault.NONE]

    run(main)


def cut(call: Call) -> None:
    call.close()


def end_early(call: Call) -> None:
    call.send(b"0\r\n\r\n")


def error_event(call: Call) -> None:
    call.chunk(event({"error": {"message": "CUDA error at /srv", "code": 500}}))


def endless_event(call: Call) -> None:
    call.chunk(b"data: " + b"x" * 2_000_000)


@pytest.mark.parametrize("ending", [cut, end_early, error_event, endless_event])
def test_a_stream_that_breaks_ends_with_an_error_event_and_is_counted(ending: Callable[[Call], None]) -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.begin_stream()
            client = await here.client()
            client.send(post(chat(stream=True)))
            await until(lambda: bool(here.engine.calls))
            call = here.engine.calls[0]
            call.chunk(text_event("a") + text_event("b")[:20])
            await client.head()
            assert await client.chunk() == text_event("a")
            if ending is error_event:
                call.chunk(text_event("b")[20:])
                assert await client.chunk() == text_event("b")
            ending(call)
            last = await client.chunk()
            assert last.startswith(b'data: {"error":{')
            assert last.endswith(b"}}\n\n")
            assert b"/srv" not in last
            assert await client.chunk() == b""
            (ended,) = here.desk.ended_events
            produced = 2 if ending is error_event else 1
            assert (ended.outcome, ended.status, ended.retry) == (Outcome.FAILED, 200, False)
            assert ended.usage == Usage(here.desk.requests[0].tokens_in, 0, produced, TokenSource.COUNTED)
            await until(lambda: not here.engine.connections or ending is end_early)
            here.engine.script = lambda call: call.answer(chat_answer())
            assert (await client.ask(post(chat()))).status == 200

    run(main)


@pytest.mark.parametrize(
    ("begun", "limit", "status"), [(False, Timeouts().first_byte_ns, 504), (True, Timeouts().stall_ns, 504)]
)
def test_an_engine_that_is_silent_is_given_up_and_its_connection_closed(begun: bool, limit: int, status: int) -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.send(
                b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n" if begun else b""
            )
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(here.engine.calls))
            await asyncio.sleep(0.02)
            here.pass_time(limit)
            assert here.desk.ended_events == []
            here.pass_time(1)
            assert (await client.answer()).status == status
            assert [(each.status, each.retry) for each in here.desk.ended_events] == [(504, False)]
            await until(lambda: not here.engine.connections)

    run(main)


# -- the client goes away


async def gone(here: World) -> None:
    await until(lambda: not here.gateway.connections)
    assert here.gateway.held == 0
    assert not here.desk.waiting


def test_while_its_request_waits() -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.holding = True
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(here.desk.waiting))
            client.abort()
            await gone(here)
            assert here.desk.log == ["submit", "cancel"]

    run(main)


def test_half_closing_counts_as_going_away() -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.holding = True
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(here.desk.waiting))
            client.writer.write_eof()
            await gone(here)
            assert here.desk.log == ["submit", "cancel"]

    run(main)


def test_while_the_engine_is_being_connected() -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.holding = True
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(here.desk.waiting))
            here.desk.dispatch(here.desk.requests[0].id)
            next(iter(here.gateway.connections)).cut()
            await gone(here)
            ends = [(each.outcome, each.status) for each in here.desk.ended_events]
            assert ends == [("cancelled", STATUS_CLIENT_GONE)]
            await until(lambda: not here.gateway.pool._all)

    run(main)


@pytest.mark.parametrize("stream", [True, False])
def test_before_the_first_byte(stream: bool) -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda _: None
            client = await here.client()
            client.send(post(chat(stream=stream)))
            await until(lambda: bool(here.engine.calls))
            client.abort()
            await here.engine.calls[0].lost.wait()
            await gone(here)
            (ended,) = here.desk.ended_events
            assert (ended.outcome, ended.status) == (Outcome.CANCELLED, STATUS_CLIENT_GONE)
            source = TokenSource.COUNTED if stream else TokenSource.ESTIMATED
            assert ended.usage == Usage(here.desk.requests[0].tokens_in, 0, 0, source)

    run(main)


def test_within_a_stream_and_what_was_produced_is_counted() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.begin_stream()
            client = await here.client()
            client.send(post(chat(stream=True)))
            await until(lambda: bool(here.engine.calls))
            call = here.engine.calls[0]
            for _ in range(3):
                call.chunk(text_event("a"))
            await client.head()
            for _ in range(3):
                call.chunk(text_event("b"))
            received = b""
            while received.count(b"data:") < 6:
                received += await client.chunk()
            client.abort()
            await call.lost.wait()
            await gone(here)
            (ended,) = here.desk.ended_events
            assert (ended.outcome, ended.status) == (Outcome.CANCELLED, STATUS_CLIENT_GONE)
            assert ended.usage == Usage(here.desk.requests[0].tokens_in, 0, 6, TokenSource.COUNTED)

    run(main)


def test_between_two_attempts() -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.keeping = True
            here.engine.script = break_off
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(here.desk.ended_events))
            client.abort()
            await gone(here)
            assert here.desk.log == ["submit", "ended", "cancel"]

    run(main)


def test_with_more_requests_behind_it() -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.holding = True
            client = await here.client()
            client.send(post(chat()) + post(chat()) + get("/healthz"))
            await until(lambda: bool(here.desk.waiting))
            client.abort()
            await gone(here)
            assert here.desk.log == ["submit", "cancel"]

    run(main)


def test_a_connection_on_which_a_request_was_cancelled_is_never_used_again() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            assert (await client.ask(post(chat()))).status == 200
            here.engine.script = lambda _: None
            client.send(post(chat()))
            await until(lambda: len(here.engine.calls) == 2)
            cancelled = here.engine.calls[1]
            client.abort()
            await cancelled.lost.wait()
            here.engine.script = lambda call: call.answer(chat_answer("mine"))
            other = await here.client()
            assert (await other.ask(post(chat()))).body == chat_answer("mine")
            assert here.engine.calls[2].transport is not cancelled.transport

    run(main)


def test_nothing_is_answered_that_could_not_be_recorded() -> None:
    async def main() -> None:
        told: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with world() as here:

            def broken(_: object) -> None:
                raise RuntimeError("a defect")

            here.desk.on_ended = broken
            client = await here.client()
            client.send(post(chat()))
            assert await client.ended()
            await until(lambda: not here.gateway.connections)
            assert [str(context["exception"]) for context in told] == ["a defect"]

    run(main)


# -- bytes


def test_the_bodies_of_request_and_answer_are_counted_as_the_client_sees_them() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            whole = await client.ask(post(chat()))
            here.engine.script = lambda call: call.stream(text_event("a"), text_event("b"), usage_event(), done_event())
            streamed = await client.ask(post(chat(stream=True)))
            bodies = [chat(), chat(stream=True)]
            assert [r.bytes_in for r in here.desk.requests] == [
                len(json.dumps(b, separators=(",", ":"))) for b in bodies
            ]
            assert [ended.bytes_out for ended in here.desk.ended_events] == [len(whole.body), len(streamed.body)]

    run(main)


def test_an_answer_that_breaks_off_counts_as_far_as_it_was_sent() -> None:
    async def main() -> None:
        async with world() as here:

            def broken(call: Call) -> None:
                call.begin_stream()
                call.chunk(text_event("a"))
                call.transport.close()

            here.engine.script = broken
            client = await here.client()
            answer = await client.ask(post(chat(stream=True)))
            assert b'"error"' in answer.body
            assert [ended.bytes_out for ended in here.desk.ended_events] == [len(answer.body)]

    run(main)


def test_an_attempt_that_sent_nothing_counts_nothing() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.answer(ERROR_500, 502)
            client = await here.client()
            await client.ask(post(chat()))
            assert [ended.bytes_out for ended in here.desk.ended_events] == [0, 0]

    run(main)
