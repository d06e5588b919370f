"""Several choices of an engine whose usage counts the first one only."""

import asyncio
import json

import pytest

from commonpool.core.model import TokenSource, Usage
from tests.gateway.fakes import LLAMACPP, Call, chat, chat_answer, post, run, until, usage_json, world


def test_the_other_choices_are_counted_by_the_engines_tokenizer() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:

            def script(call: Call) -> None:
                if call.path == "/tokenize":
                    call.answer(json.dumps({"tokens": list(range(len(call.json["content"])))}).encode())
                else:
                    call.answer(chat_answer("a", "bb", "cccc", usage=usage_json(7, 1)))

            here.engine.script = script
            client = await here.client()
            answer = await client.ask(post(chat(n=3)))
            assert answer.json["usage"] == usage_json(7, 1 + 2 + 4)
            assert [choice["message"]["content"] for choice in answer.json["choices"]] == ["a", "bb", "cccc"]
            assert [call.path for call in here.engine.calls[1:]] == ["/tokenize", "/tokenize"]
            (ended,) = here.desk.ended_events
            assert ended.usage == Usage(7, 0, 7, TokenSource.ENGINE)

    run(main)


def test_one_choice_needs_no_recount() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:
            client = await here.client()
            assert (await client.ask(post(chat()))).body == chat_answer()
            assert len(here.engine.calls) == 1

    run(main)


@pytest.mark.parametrize("failure", ["close", "status", "nonsense"])
def test_where_the_tokenizer_fails_the_length_stands_in(failure: str) -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:

            def script(call: Call) -> None:
                if call.path != "/tokenize":
                    call.answer(chat_answer("a", "b" * 8, usage=usage_json(7, 1)))
                elif failure == "close":
                    call.close()
                else:
                    call.answer(b"[]", 500 if failure == "status" else 200)

            here.engine.script = script
            client = await here.client()
            answer = await client.ask(post(chat(n=2)))
            assert answer.json["usage"] == usage_json(7, 3)
            assert here.desk.ended_events[0].usage == Usage(7, 0, 3, TokenSource.ESTIMATED)

    run(main)


def test_a_client_that_leaves_meanwhile_is_settled_once() -> None:
    async def main() -> None:
        async with world(adapter=LLAMACPP) as here:

            def script(call: Call) -> None:
                if call.path != "/tokenize":
                    call.answer(chat_answer("a", "b", usage=usage_json(7, 1)))

            here.engine.script = script
            client = await here.client()
            client.send(post(chat(n=2)))
            await until(lambda: len(here.engine.calls) == 2)
            client.abort()
            await here.engine.calls[1].lost.wait()
            await asyncio.sleep(0.01)
            assert [(ended.outcome, ended.usage) for ended in here.desk.ended_events] == [("cancelled", Usage(7, 0, 1))]

    run(main)
