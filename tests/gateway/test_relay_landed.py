"""What an attempt says to the engine of the prompt cache, and when the desk hears that it has landed."""

import asyncio
from typing import Any

import msgspec
import pytest

from commonpool.config.structs import Timeouts
from commonpool.core.model import Outcome
from commonpool.engines.registry import EMBEDDED, VLLM
from commonpool.gateway.caches import Part
from commonpool.gateway.upstream import LEFT_NS
from tests.gateway.fakes import OPENAI, Call, World, chat, chat_answer, done_event, post, run, text_event, until, world

SLOT = {"id_slot": b"3", "cache_prompt": b"true"}
HEAD = Part(SLOT, "head")
WHOLE = Part({"cache_prompt": b"false"}, "whole")
DOORS = {"cache_salt": "mine", "extra_key": "mine", "cache_prompt": True, "id_slot": 0, "slot_id": 0}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("adapter", [OPENAI, EMBEDDED], ids=lambda each: each.name)
def test_the_engine_gets_our_word_and_never_the_clients(adapter: Any, stream: bool) -> None:
    async def main() -> None:
        async with world(adapter=adapter) as here:
            here.desk.part = Part({"cache_salt": b'"ours"', **SLOT})
            here.engine.script = lambda call: call.stream(text_event("hi"), done_event())
            client = await here.client()
            await client.ask(post(chat(stream=stream, **DOORS)))
            (call,) = here.engine.calls
            found = {name: call.json.get(name) for name in DOORS}
            assert found == {
                "cache_salt": "ours",
                "id_slot": 3,
                "cache_prompt": True,
                "extra_key": None,
                "slot_id": None,
            }

    run(main)


def test_without_a_word_of_ours_there_is_none() -> None:
    async def main() -> None:
        async with world(adapter=VLLM) as here:
            client = await here.client()
            await client.ask(post(chat(**DOORS)))
            assert DOORS.keys().isdisjoint(here.engine.calls[0].json)

    run(main)


@pytest.mark.parametrize(
    ("part", "status", "landings"),
    [(HEAD, 200, [True]), (HEAD, 400, [False]), (WHOLE, 200, [True]), (Part({}), 200, [])],
    ids=["in a slot", "refused", "loose", "nobody asks"],
)
def test_it_has_landed_before_it_has_ended(part: Part, status: int, landings: list[bool]) -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.part = part
            here.engine.script = lambda call: call.answer(chat_answer(), status)
            client = await here.client()
            assert (await client.ask(post(chat()))).status == status
            assert here.desk.landings == [(here.desk.requests[0].id, 1, ran) for ran in landings]
            assert here.desk.log == ["submit", *("landed" for _ in landings), "ended"]

    run(main)


@pytest.mark.parametrize(("part", "early"), [(HEAD, 1), (WHOLE, 0)], ids=["in a slot", "loose"])
def test_in_a_slot_it_has_landed_when_its_answer_begins_and_loose_when_that_is_whole(part: Part, early: int) -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.part = part
            calls: list[Call] = []
            here.engine.script = calls.append
            client = await here.client()
            client.send(post(chat(stream=True)))
            await until(lambda: bool(calls))
            calls[0].begin_stream()
            calls[0].chunk(text_event("hi"))
            await client.head()
            await client.chunk()
            assert len(here.desk.landings) == early
            calls[0].chunk(done_event())
            calls[0].send(b"0\r\n\r\n")
            await until(lambda: bool(here.desk.ended_events))
            assert [ran for _, _, ran in here.desk.landings] == [True]

    run(main)


async def left_early(here: World, part: Part = HEAD) -> Call:
    """A client that goes away while the engine has said nothing."""
    here.desk.part = part
    here.engine.script = lambda _call: None
    client = await here.client()
    client.send(post(chat()))
    await until(lambda: bool(here.engine.calls))
    client.abort()
    await until(lambda: not here.gateway.connections)
    return here.engine.calls[0]


def test_what_was_left_has_landed_when_the_engine_closes_the_connection() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.keeps_open = True
            call = await left_early(here)
            call.answer(chat_answer())  # nobody reads it
            await until(lambda: here.engine.connections[0].half_closed)
            await asyncio.sleep(0.02)
            assert here.desk.log == ["submit"]  # its place at the engine is not free before that
            call.transport.close()
            await until(lambda: bool(here.desk.ended_events))
            assert here.desk.landings == [(here.desk.requests[0].id, 1, False)]
            assert here.desk.log == ["submit", "landed", "ended"]
            assert here.desk.ended_events[0].outcome is Outcome.CANCELLED

    run(main)


def test_an_engine_that_never_closes_what_was_left_is_cut_off_and_nobody_knows() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.keeps_open = True
            await left_early(here, WHOLE)
            here.pass_time(LEFT_NS)
            assert here.desk.log == ["submit"]
            here.pass_time(1)
            assert here.desk.log == ["submit", "ended"]
            here.pass_time(Timeouts().first_byte_ns - LEFT_NS - 1)
            await asyncio.sleep(0)
            assert len(here.gateway.pool._all) == 1
            here.pass_time(1)
            await until(lambda: not here.gateway.pool._all)
            assert here.desk.log == ["submit", "ended"]

    run(main)


def test_what_the_engine_was_busy_with_ends_when_it_closes_the_connection() -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.part = HEAD
            calls: list[Call] = []
            here.engine.script = calls.append
            client = await here.client()
            client.send(post(chat(stream=True)))
            await until(lambda: bool(calls))
            calls[0].begin_stream()
            calls[0].chunk(text_event("hi"))
            await client.head()
            here.engine.keeps_open = True
            client.abort()
            await until(lambda: here.engine.connections[0].half_closed)
            await asyncio.sleep(0.02)
            assert here.desk.log == ["submit", "landed"]
            calls[0].transport.close()
            await until(lambda: bool(here.desk.ended_events))
            assert here.desk.log == ["submit", "landed", "ended"]
            assert here.desk.ended_events[0].usage.tokens_out == 1

    run(main)


def test_what_is_left_when_the_gateway_closes_has_ended() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.keeps_open = True
            await left_early(here)
            await here.gateway.close()
            assert here.desk.log == ["submit", "ended"]

    run(main)


def test_what_the_engine_broke_off_or_never_got_has_landed() -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.part = HEAD
            here.desk.attempts = 1
            here.engine.script = Call.close
            client = await here.client()
            assert (await client.ask(post(chat()))).status == 502
            assert here.desk.log == ["submit", "landed", "ended"]
            here.desk.target = msgspec.structs.replace(here.engine.target(), port=1)
            assert (await client.ask(post(chat()))).status == 502
            assert here.desk.log == ["submit", "landed", "ended"] * 2
            assert [ran for _, _, ran in here.desk.landings] == [False, False]

    run(main)


def test_what_an_engine_was_silent_over_for_too_long_has_landed_when_it_closes_the_connection() -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.part = HEAD
            here.engine.keeps_open = True
            here.engine.script = lambda _call: None
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(here.engine.calls))
            here.pass_time(Timeouts().first_byte_ns + 1)
            assert (await client.answer()).status == 504
            assert (here.desk.log, here.desk.landings) == (["submit", "ended"], [])
            await until(lambda: here.engine.connections[0].half_closed)
            here.engine.calls[0].transport.close()
            await until(lambda: not here.gateway.pool._all)
            assert here.desk.landings == [(here.desk.requests[0].id, 1, False)]

    run(main)
