"""The gateway before the real embedded engine: its answers in one piece, and clients that leave before they come."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from commonpool.backends.local import LocalHandle
from commonpool.core.model import TokenSource, Usage
from commonpool.core.records import STATUS_CLIENT_GONE
from tests.engines.running import engine, model, run, total, until_busy
from tests.gateway.fakes import World, post, until, world
from tests.leaks import MARK

QUESTION: Any = {"model": "tiny", "messages": [{"role": "user", "content": MARK}], "max_tokens": 12}
PROMPT: Any = {"model": "tiny", "prompt": "Once upon", "max_tokens": 6}
TOOL = {"type": "function", "function": {"name": "paint", "parameters": {"type": "object", "properties": {}}}}
LONG = 1800  # tokens; half a minute and more of work
LONG_PROMPT = "hello " * 1500
VOLATILE = {"id", "created", "timings"}


@contextlib.asynccontextmanager
async def served(folder: Path, *, slots: int, context_tokens: int) -> AsyncIterator[tuple[World, LocalHandle]]:
    async with engine(folder, model(slots=slots, context_tokens=context_tokens)) as handle, world() as here:
        here.desk.target = handle.target
        yield here, handle


def api(base_url: str, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=120)


def essence(answer: Any) -> Any:
    """All that an answer says, in its shape, but for what differs from run to run and the choices' sum of usage."""
    whole = {name: value for name, value in answer.model_dump(warnings=False).items() if name not in VOLATILE}
    del whole["usage"]
    for choice in whole["choices"]:
        if choice["logprobs"] is not None:
            choice["logprobs"] = [[*each, each["token"]] for each in choice["logprobs"]["content"]]
    return whole


@pytest.mark.parametrize(
    ("kind", "body", "choices", "prompts"),
    [
        ("chat", QUESTION, 1, 1),
        ("chat", QUESTION | {"n": 2}, 2, 1),
        ("chat", QUESTION | {"logprobs": True, "top_logprobs": 2}, 1, 1),
        ("chat", QUESTION | {"tools": [TOOL]}, 1, 1),
        ("completions", PROMPT, 1, 1),
        ("completions", PROMPT | {"n": 2}, 2, 1),
        ("completions", PROMPT | {"logprobs": 1}, 1, 1),
        ("completions", PROMPT | {"prompt": ["Once upon", "The cat sat on the"], "n": 2}, 2, 2),
    ],
    ids=["chat", "chat n=2", "chat logprobs", "chat tools", "text", "text n=2", "text logprobs", "text two prompts"],
)
def test_an_answer_is_the_engines_own(tmp_path: Path, kind: str, body: Any, choices: int, prompts: int) -> None:
    async def main() -> None:
        async with served(tmp_path, slots=2, context_tokens=512) as (here, handle):
            key = (handle.target.authorization or b"").decode().removeprefix("Bearer ")
            answers: list[Any] = []
            async with api(handle.target.url + "/v1", key) as direct, api(here.base_url, "cp_test") as through:
                for client in (direct, through):
                    create: Any = client.chat.completions.create if kind == "chat" else client.completions.create
                    answers.append(await create(**body, temperature=0))
            own, ours = answers
            assert essence(ours) == essence(own)
            assert len(ours.choices) == choices * prompts
            used = here.desk.ended_events[0].usage
            assert used.source is TokenSource.ENGINE
            assert ours.usage.prompt_tokens == used.tokens_in
            assert ours.usage.completion_tokens == used.tokens_out
            assert ours.usage.total_tokens == used.tokens_in + used.tokens_out
            # The engine tells the first choice's usage, and here each of one prompt is like the other.
            if prompts == 1:
                assert used.tokens_in == own.usage.prompt_tokens
                assert used.tokens_out == choices * own.usage.completion_tokens
            else:
                assert used.tokens_in > own.usage.prompt_tokens

    run(main)


def test_a_prompt_that_does_not_fit_is_the_engines_400(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path, slots=1, context_tokens=512) as (here, _), api(here.base_url, "cp_test") as client:
            with pytest.raises(openai.BadRequestError, match="512"):
                await client.completions.create(model="tiny", prompt=LONG_PROMPT)

    run(main)


@pytest.mark.parametrize("reading", [False, True], ids=["while it is written", "while its prompt is read"])
def test_a_client_that_leaves_before_its_answer_frees_the_only_slot(tmp_path: Path, reading: bool) -> None:
    async def main() -> None:
        async with served(tmp_path, slots=1, context_tokens=4096) as (here, handle):
            client = await here.client()
            body = {"model": "tiny", "prompt": LONG_PROMPT if reading else "Once", "max_tokens": LONG}
            client.send(post(body | {"ignore_eos": True}, "/v1/completions"))
            await until(lambda: any(each.exchange for each in here.gateway.connections))
            (connection,) = here.gateway.connections
            exchange: Any = connection.exchange
            await until(lambda: exchange._events is not None and (reading or exchange._events.tokens_out >= 3))
            client.abort()
            await until(lambda: bool(here.desk.ended_events))
            await until_busy(handle, slots=0)

            (ended,) = here.desk.ended_events
            assert (ended.outcome, ended.status, ended.usage.source) == ("cancelled", STATUS_CLIENT_GONE, "counted")
            if reading:
                assert ended.usage == Usage(here.desk.requests[0].tokens_in, 0, 0, TokenSource.COUNTED)
                assert ended.first_token_at == 0
            else:
                assert 3 <= ended.usage.tokens_out < LONG
            # The next one has the slot, long before the first could have been at its end.
            next_client = await here.client()
            answer = await next_client.ask(
                post({"model": "tiny", "prompt": "Once", "max_tokens": 2}, "/v1/completions")
            )
            assert (answer.status, answer.json["usage"]["completion_tokens"]) == (200, 2)
            assert await total(handle, "tokens_predicted") < LONG
            if reading:
                assert await total(handle, "prompt_tokens") < LONG_PROMPT.count(" ")

    run(main)
