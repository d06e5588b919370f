"""Engines that let go of streams only: always asked for one, which is put together for a client that wants none."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from commonpool.core.model import Outcome, TokenSource, Usage
from commonpool.core.records import STATUS_CLIENT_GONE
from commonpool.engines.registry import LLAMACPP, OPENAI
from commonpool.gateway.relay import ANSWER_BYTES_MAX
from tests.gateway.fakes import (
    SECOND,
    Answer,
    Call,
    World,
    chat,
    chat_answer,
    done_event,
    event,
    post,
    progress_event,
    run,
    text_event,
    until,
    usage_event,
    usage_json,
    world,
)

ROLE = event({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"role": "assistant"}}]})


def says(*events: bytes) -> Callable[[Call], None]:
    return lambda call: call.stream(*events)


def chunk(choice: dict[str, Any], **more: Any) -> bytes:
    return event({"object": "chat.completion.chunk", "choices": [{"index": 0, **choice}], **more})


async def answered(here: World, body: dict[str, Any], *events: bytes, path: str = "/v1/chat/completions") -> Answer:
    here.engine.script = says(*events)
    client = await here.client()
    return await client.ask(post(body, path))


async def begun(here: World, *events: bytes) -> Call:
    """A request of a client that wants its answer in one piece, and the engine after these events."""
    here.engine.script = lambda call: call.begin_stream()
    client = await here.client()
    client.send(post(chat()))
    await until(lambda: bool(here.engine.calls))
    call = here.engine.calls[-1]
    for each in events:
        call.chunk(each)
    return call


async def left(here: World, call: Call) -> Usage:
    """The client goes away; what is recorded of its request."""
    here._clients[-1].abort()
    await call.lost.wait()
    await until(lambda: not here.gateway.connections)
    assert here.gateway.held == 0
    (ended,) = here.desk.ended_events
    assert (ended.outcome, ended.status) == (Outcome.CANCELLED, STATUS_CLIENT_GONE)
    return ended.usage


# -- what the engine is asked


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_stream_with_progress_is_asked_for_always(path: str, stream: bool) -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            body = {**chat(stream=stream, return_progress=False, cache_prompt=True), "prompt": "x"}
            await answered(here, body, text_event("a"), done_event(), path=path)
            (call,) = here.engine.calls
            asked = {"stream": True, "stream_options": {"include_usage": True}, "return_progress": True}
            assert call.json == {**chat(), "prompt": "x", "model": "served/tiny", **asked}
            assert here.desk.requests[0].stream is stream

    run(main)


def test_embeddings_are_asked_for_as_they_are() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            body = b'{"object":"list","data":[],"usage":{"prompt_tokens":3,"total_tokens":3}}'
            here.engine.script = lambda call: call.answer(body)
            client = await here.client()
            answer = await client.ask(post({"model": "tiny", "input": ["a", "b"]}, "/v1/embeddings"))
            assert answer.body == body
            assert here.engine.calls[0].json == {"model": "served/tiny", "input": ["a", "b"]}

    run(main)


# -- whole answers


def test_a_stream_becomes_one_answer_settled_before_it_is_written() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            here.engine.script = says(
                progress_event(), ROLE, text_event("Hé"), b": ping\n\n", text_event("llo"),
                chunk({"delta": {}, "finish_reason": "stop"}), usage_event(7, 2), done_event(),
            )  # fmt: skip
            client = await here.client()
            await until(lambda: bool(here.gateway.connections))
            here.watch_writes()
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
            assert int(answer.headers["content-length"]) == len(answer.body)
            assert answer.headers["x-request-id"] == here.desk.requests[0].id
            assert answer.json == json.loads(chat_answer("Héllo", usage=usage_json(7, 2)))
            assert here.desk.log == ["submit", "ended", "write"]
            (ended,) = here.desk.ended_events
            assert (ended.outcome, ended.status, ended.usage) == (Outcome.COMPLETED, 200, Usage(7, 0, 2))
            assert (await client.ask(post(chat()))).status == 200  # and the connections on both sides go on
            assert len(here.engine.connections) == 1

    run(main)


def test_calls_of_tools_and_log_probabilities_are_joined() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            call = {"index": 0, "id": "t0", "type": "function", "function": {"name": "add", "arguments": ""}}
            more = [{"index": 0, "function": {"arguments": piece}} for piece in ('{"a"', ":1}")]
            answer = await answered(
                here,
                chat(tools=[], logprobs=True),
                chunk({"delta": {"role": "assistant", "content": None, "tool_calls": [call]}}),
                *[chunk({"delta": {"tool_calls": [each]}, "logprobs": {"content": [{"token": "t"}]}}) for each in more],
                chunk({"delta": {}, "finish_reason": "tool_calls"}),
                usage_event(7, 2),
                done_event(),
            )
            (choice,) = answer.json["choices"]
            assert choice["message"]["tool_calls"] == [
                {"id": "t0", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
            ]
            assert choice["finish_reason"] == "tool_calls"
            assert choice["logprobs"] == {"content": [{"token": "t"}] * 2}

    run(main)


@pytest.mark.parametrize("beside", [True, False], ids=["usage beside the choice", "usage alone"])
@pytest.mark.parametrize("stream", [True, False])
def test_the_usage_of_each_choice_is_summed(stream: bool, beside: bool) -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            ends = []
            for index in (1, 0):
                end = {"index": index, "text": "", "finish_reason": "stop"}
                usage = usage_json(7, 3 + index, cached=2)
                ends += [chunk(end, usage=usage)] if beside else [chunk(end), event({"choices": [], "usage": usage})]
            texts = [chunk({"index": index, "text": text}) for index, text in ((1, "b"), (0, "a"))]
            asked = {"model": "tiny", "prompt": "x", "n": 2, "stream": stream}
            if stream:
                asked["stream_options"] = {"include_usage": True}
            answer = await answered(here, asked, *texts, *ends, done_event(), path="/v1/completions")
            if stream:
                *chunks, last, done = answer.body.split(b"\n\n")[:-1]
                assert done == b"data: [DONE]"
                assert all(b'"usage"' not in each for each in chunks)
                whole = json.loads(last.removeprefix(b"data: "))
                assert whole["choices"] == []
            else:
                whole = answer.json
                assert [choice["text"] for choice in whole["choices"]] == ["a", "b"]
            assert whole["usage"] == usage_json(7, 7, cached=2)
            assert here.desk.ended_events[0].usage == Usage(7, 2, 7)

    run(main)


def test_an_answer_without_usage_is_counted() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            answer = await answered(here, chat(), progress_event(), text_event("a"), text_event("b"), done_event())
            assert "usage" not in answer.json
            tokens_in = here.desk.requests[0].tokens_in
            assert here.desk.ended_events[0].usage == Usage(tokens_in, 0, 2, TokenSource.COUNTED)

    run(main)


def test_any_engine_that_streams_unasked_is_put_together() -> None:
    async def main() -> None:
        async with world(adapter=OPENAI) as here:
            answer = await answered(here, chat(), text_event("a"), usage_event(7, 1), done_event())
            assert answer.json["choices"][0]["message"]["content"] == "a"
            assert here.desk.ended_events[0].usage == Usage(7, 0, 1)

    run(main)


# -- progress and the first token


@pytest.mark.parametrize("stream", [True, False])
def test_progress_is_not_passed_on_and_is_no_first_token(stream: bool) -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            ticks = itertools.count(5 * SECOND)
            here.gateway.clock = lambda: next(ticks)
            here.engine.script = lambda call: call.begin_stream()
            client = await here.client()
            await until(lambda: bool(here.gateway.connections))
            here.watch_writes()
            client.send(post(chat(stream=stream)))
            await until(lambda: bool(here.engine.calls))
            (call,) = here.engine.calls
            (connection,) = here.gateway.connections
            exchange: Any = connection.exchange
            call.chunk(progress_event())
            call.chunk(progress_event())
            await until(lambda: exchange._events is not None)
            assert exchange._first_token_at == 0
            call.chunk(text_event("a"))
            await until(lambda: exchange._first_token_at > 0)
            first = exchange._first_token_at
            call.chunk(text_event("b"))
            call.chunk(usage_event(7, 2) + done_event())
            call.send(b"0\r\n\r\n")
            answer = await client.answer()
            if stream:
                assert answer.body == text_event("a") + text_event("b") + done_event()
            assert b"prompt_progress" not in answer.body
            assert here.desk.ended_events[0].first_token_at == first

    run(main)


# -- failures: nothing was sent, so each is a plain error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ({"code": 400, "message": "the prompt is too long", "type": "x"}, 400, "400"),
        ({"code": 500, "message": "CUDA error at /srv"}, 502, "engine_failed"),
    ],
)
@pytest.mark.parametrize("before", [(), (progress_event(),), (progress_event(), text_event("a"))])
def test_an_error_event_is_answered_with_a_status(
    error: dict[str, Any], status: int, code: str, before: tuple[bytes, ...]
) -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            answer = await answered(here, chat(), *before, event({"error": error}))
            assert (answer.status, answer.error["code"]) == (status, code)
            assert "/srv" not in answer.error["message"]
            (ended,) = here.desk.ended_events
            assert (ended.outcome, ended.status, ended.usage) == (Outcome.FAILED, status, Usage())
            await here.engine.calls[0].lost.wait()
            assert (await answered(here, chat(), text_event("a"), done_event())).status == 200

    run(main)


def test_an_engines_400_before_the_stream_is_relayed_in_our_shape() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            here.engine.script = lambda call: call.answer(b'{"error":{"code":400,"message":"too long"}}', 400)
            client = await here.client()
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.error["message"]) == (400, "too long")

    run(main)


@pytest.mark.parametrize("before", [(), (progress_event(),), (progress_event(), text_event("a"))])
def test_while_nothing_was_sent_a_stream_that_is_cut_is_tried_again(before: tuple[bytes, ...]) -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:

            def script(call: Call) -> None:
                if len(here.engine.calls) == 1:
                    call.begin_stream()
                    for each in before:
                        call.chunk(each)
                    call.transport.close()
                else:
                    call.stream(text_event("whole"), usage_event(7, 1), done_event())

            here.engine.script = script
            client = await here.client()
            answer = await client.ask(post(chat()))
            assert answer.json["choices"][0]["message"]["content"] == "whole"
            assert [(each.outcome, each.retry, each.usage) for each in here.desk.ended_events] == [
                (Outcome.FAILED, True, Usage()),
                (Outcome.COMPLETED, False, Usage(7, 0, 1)),
            ]

    run(main)


def test_when_every_attempt_is_cut_the_error_has_a_status() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:

            def script(call: Call) -> None:
                call.begin_stream()
                call.chunk(text_event("a"))
                call.transport.close()

            here.engine.script = script
            client = await here.client()
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.error["code"]) == (502, "engine_failed")
            assert here.gateway.held == 0

    run(main)


@pytest.mark.parametrize(
    "events",
    [
        (text_event("a"),),
        (text_event("a"), event(b"no JSON"), done_event()),
        (text_event("a"), event({"choices": ["a"]}), done_event()),
        (event(b'{"choices":[{"delta":' + b'{"a":' * 100_000), done_event()),
        (b"data: " + b"x" * 2_000_000,),
    ],
    ids=["no [DONE]", "no JSON", "no choice", "too deep", "too large"],
)
def test_what_is_no_answer_is_an_error(events: tuple[bytes, ...]) -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            answer = await answered(here, chat(), *events)
            assert (answer.status, answer.error["code"]) == (502, "engine_failed")
            assert [(each.outcome, each.retry) for each in here.desk.ended_events] == [(Outcome.FAILED, False)]
            assert here.gateway.held == 0

    run(main)


def test_what_is_kept_of_an_answer_is_bounded() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            call = await begun(here, text_event("a"))
            (connection,) = here.gateway.connections
            exchange: Any = connection.exchange
            await until(lambda: exchange._first_token_at > 0)
            exchange._size = ANSWER_BYTES_MAX
            call.chunk(text_event("b"))
            answer = await here._clients[-1].answer()
            assert (answer.status, answer.error["code"]) == (502, "answer_too_large")
            await call.lost.wait()

    run(main)


# -- the client goes away


@pytest.mark.parametrize("events", [None, (), (progress_event(),)], ids=["no head", "the head", "progress"])
def test_before_the_first_token_nothing_was_produced(events: tuple[bytes, ...] | None) -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            if events is None:
                here.engine.script = lambda _: None
                client = await here.client()
                client.send(post(chat()))
                await until(lambda: bool(here.engine.calls))
            else:
                await begun(here, *events)
                (connection,) = here.gateway.connections
                exchange: Any = connection.exchange
                await until(lambda: exchange._events is not None)
            (call,) = here.engine.calls
            usage = await left(here, call)
            assert usage == Usage(here.desk.requests[0].tokens_in, 0, 0, TokenSource.COUNTED)
            assert here.desk.ended_events[0].first_token_at == 0

    run(main)


def test_within_the_answer_what_came_of_it_is_counted() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            call = await begun(here, progress_event(), ROLE, *[text_event("a")] * 3)
            (connection,) = here.gateway.connections
            exchange: Any = connection.exchange
            await until(lambda: exchange._events is not None and exchange._events.tokens_out == 3)
            usage = await left(here, call)
            assert usage == Usage(here.desk.requests[0].tokens_in, 0, 3, TokenSource.COUNTED)

    run(main)


def test_another_adapter_for_the_second_attempt_is_asked_in_its_own_way() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            here.desk.keeping = True
            here.engine.script = lambda call: call.close()
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(here.desk.ended_events))
            here.engine.script = lambda call: call.answer(chat_answer())
            here.desk.target = msgspec.structs.replace(here.engine.target(OPENAI), replica_id="tiny-1")
            here.desk.dispatch(here.desk.requests[0].id, 2)
            assert (await client.answer()).body == chat_answer()
            assert here.engine.calls[-1].json == {**chat(), "model": "served/tiny"}

    run(main)
