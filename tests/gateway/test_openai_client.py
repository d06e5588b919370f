"""The official `openai` client, unchanged, against the gateway."""

import asyncio
import json
from typing import Any

import openai
import pytest

from commonpool.core.model import Reason
from commonpool.engines.registry import LLAMACPP
from commonpool.gateway.identity import Principal
from tests.gateway.fakes import (
    SECOND,
    World,
    chat_answer,
    done_event,
    event,
    principal,
    run,
    text_event,
    until,
    usage_event,
    usage_json,
    world,
)
from tests.leaks import MARK

MESSAGES: Any = [{"role": "user", "content": MARK}]


def known(authorization: bytes) -> Principal | None:
    return principal() if authorization == b"Bearer cp_test" else None


def client(here: World, key: str = "cp_test", retries: int = 0) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=here.base_url, api_key=key, max_retries=retries, timeout=180)


def test_chat() -> None:
    async def main() -> None:
        async with world(identify=known) as here, client(here) as api:
            answer = await api.chat.completions.create(model="tiny", messages=MESSAGES)
            assert answer.choices[0].message.content == "hi there"
            assert answer.usage is not None
            assert answer.usage.total_tokens == 10
            assert answer._request_id == here.desk.requests[0].id

    run(main)


def test_the_synchronous_client_in_a_thread() -> None:
    async def main() -> None:
        async with world(identify=known) as here:

            def calls() -> list[str | None]:
                with openai.OpenAI(base_url=here.base_url, api_key="cp_test", max_retries=0, timeout=180) as api:
                    return [
                        api.chat.completions.create(model="tiny", messages=MESSAGES).choices[0].message.content
                        for _ in range(3)
                    ]

            assert await asyncio.to_thread(calls) == ["hi there"] * 3

    run(main)


@pytest.mark.parametrize("include_usage", [None, True, False])
def test_streaming(include_usage: bool | None) -> None:
    async def main() -> None:
        async with world(identify=known) as here, client(here) as api:
            here.engine.script = lambda call: call.stream(
                text_event("Hé"), text_event("llo"), usage_event(7, 2), done_event()
            )
            options: Any = {} if include_usage is None else {"stream_options": {"include_usage": include_usage}}
            stream = await api.chat.completions.create(model="tiny", messages=MESSAGES, stream=True, **options)
            chunks = [chunk async for chunk in stream]
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Héllo"
            totals = [chunk.usage.total_tokens for chunk in chunks if chunk.usage is not None]
            assert totals == ([9] if include_usage else [])
            assert all(chunk.choices for chunk in chunks) is not bool(include_usage)

    run(main)


def test_tools_go_to_the_engine_and_calls_come_back() -> None:
    async def main() -> None:
        async with world(identify=known) as here, client(here) as api:
            call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
            choice = {"index": 0, "message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}
            body = {**json.loads(chat_answer()), "choices": [choice]}
            here.engine.script = lambda engine_call: engine_call.answer(json.dumps(body).encode())
            tools: Any = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
            answer = await api.chat.completions.create(model="tiny", messages=MESSAGES, tools=tools, tool_choice="auto")
            assert here.engine.calls[0].json["tools"] == tools
            tool_calls: Any = answer.choices[0].message.tool_calls
            assert tool_calls[0].function.arguments == '{"a":1}'

    run(main)


def test_two_choices_of_an_engine_that_counts_one() -> None:
    async def main() -> None:
        async with world(identify=known, adapter=LLAMACPP) as here, client(here) as api:
            here.engine.script = lambda call: call.stream(
                text_event("two", 1), text_event("one"), usage_event(7, 2), usage_event(7, 3), done_event()
            )
            answer = await api.chat.completions.create(model="tiny", messages=MESSAGES, n=2)
            assert [choice.message.content for choice in answer.choices] == ["one", "two"]
            assert answer.usage is not None
            assert (answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 12)

    run(main)


def test_completions_embeddings_and_models() -> None:
    async def main() -> None:
        async with world(identify=known) as here, client(here) as api:
            usage = {"prompt_tokens": 2, "total_tokens": 2}
            vector = {"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}
            whole = {"object": "list", "model": "m", "data": [vector], "usage": usage}
            here.engine.script = lambda call: call.answer(json.dumps(whole).encode())
            embedding = await api.embeddings.create(model="tiny", input=[[1, 2]], encoding_format="float")
            assert embedding.data[0].embedding == [0.5, 0.25]
            text = {"id": "c", "object": "text_completion", "created": 1, "model": "m", "usage": usage_json()}
            choice = {"index": 0, "text": "abc", "finish_reason": "stop", "logprobs": None}
            here.engine.script = lambda call: call.answer(json.dumps({**text, "choices": [choice]}).encode())
            completion = await api.completions.create(model="tiny", prompt="x")
            assert completion.choices[0].text == "abc"
            assert [model.id async for model in api.models.list()] == ["big", "tiny"]
            assert (await api.models.retrieve("tiny")).owned_by == "commonpool"

    run(main)


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (Reason.NEVER_FITS, openai.BadRequestError),
        (Reason.QUEUE_FULL, openai.RateLimitError),
        (Reason.BUDGET, openai.RateLimitError),
        (Reason.NO_REPLICA, openai.InternalServerError),
        (Reason.UNKNOWN_TENANT, openai.PermissionDeniedError),
        (Reason.UNKNOWN_MODEL, openai.NotFoundError),
    ],
)
def test_refusals_become_its_exceptions(reason: Reason, error: type[openai.APIStatusError]) -> None:
    async def main() -> None:
        async with world(identify=known) as here, client(here) as api:
            here.desk.refusal = (reason, "Because.", SECOND)
            with pytest.raises(error, match="Because") as raised:
                await api.chat.completions.create(model="tiny", messages=MESSAGES)
            assert isinstance(raised.value.code, str)
            assert raised.value.request_id == here.desk.requests[0].id

    run(main)


def test_errors_become_its_exceptions() -> None:
    async def main() -> None:
        async with world(identify=known) as here, client(here) as api:
            with pytest.raises(openai.AuthenticationError, match="unknown, revoked, expired"):
                await api.with_options(api_key="cp_wrong").chat.completions.create(model="tiny", messages=MESSAGES)
            with pytest.raises(openai.NotFoundError, match="big, tiny"):
                await api.chat.completions.create(model="nope", messages=MESSAGES)
            with pytest.raises(openai.BadRequestError, match="`n` must be"):
                await api.chat.completions.create(model="tiny", messages=MESSAGES, n=1000)
            here.engine.script = lambda call: call.close()
            with pytest.raises(openai.InternalServerError):
                await api.chat.completions.create(model="tiny", messages=MESSAGES)
            error = event({"error": {"message": "boom", "code": 500}})
            here.engine.script = lambda call: call.stream(text_event("a"), error)
            stream = await api.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
            with pytest.raises(openai.APIError, match="failed within its answer"):
                [chunk async for chunk in stream]

    run(main)


def test_it_retries_a_429_after_the_time_we_name() -> None:
    async def main() -> None:
        async with world(identify=known) as here, client(here, retries=2) as api:
            here.desk.refusal = (Reason.REQUESTS_PER_MINUTE, "Too many.", 3_000_000)

            async def relent() -> None:
                await until(lambda: len(here.desk.requests) == 2)
                here.desk.refusal = None

            relenting = asyncio.get_running_loop().create_task(relent())
            answer = await api.chat.completions.create(model="tiny", messages=MESSAGES)
            await relenting
            assert answer.choices[0].message.content == "hi there"
            assert len({request.id for request in here.desk.requests}) == 3

    run(main)


def test_a_spent_budget_is_not_tried_again() -> None:
    async def main() -> None:
        async with world(identify=known) as here, client(here, retries=2) as api:
            here.desk.refusal = (Reason.BUDGET, "All is spent.", None)
            with pytest.raises(openai.RateLimitError, match="All is spent") as raised:
                await api.chat.completions.create(model="tiny", messages=MESSAGES)
            assert (raised.value.code, raised.value.type) == ("insufficient_quota", "insufficient_quota")
            assert len(here.desk.requests) == 1

    run(main)


def test_leaving_a_stream_frees_the_engine() -> None:
    async def main() -> None:
        async with world(identify=known) as here, client(here) as api:
            here.engine.script = lambda call: call.begin_stream()
            creating = asyncio.get_running_loop().create_task(
                api.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
            )
            await until(lambda: bool(here.engine.calls))
            here.engine.calls[0].chunk(text_event("a"))
            stream = await creating
            assert (await anext(aiter(stream))).choices[0].delta.content == "a"
            await stream.close()
            await here.engine.calls[0].lost.wait()
            await until(lambda: bool(here.desk.ended_events))
            assert here.desk.ended_events[0].outcome == "cancelled"

    run(main)
