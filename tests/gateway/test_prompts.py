"""What is heard for a prompt log: of its tenants alone, whole, and without a difference to what the client gets."""

from collections.abc import Callable
from typing import Any

import pytest

from commonpool.core.model import Outcome
from commonpool.engines.heard import answer_of
from commonpool.gateway.prompts import ANSWERED_BYTES_MAX, ASKED_BYTES_MAX
from commonpool.store.prompts import Spoken
from tests.gateway.fakes import Call, chat, chat_answer, done_event, post, run, text_event, until, world


class Ears:
    def __init__(self) -> None:
        self.spoken: list[Spoken] = []

    def hear(self, spoken: Spoken) -> None:
        self.spoken.append(spoken)

    def lose(self, tenant: str, count: int) -> None:
        raise AssertionError((tenant, count))


async def heard(body: Any, script: Any, *, on: bool = True) -> tuple[list[Spoken], Any]:
    """One request of a tenant whose prompts are kept, and what its client got."""
    ears = Ears()
    spoken = ears.spoken
    async with world(listener=ears) as here:
        here.gateway.log_prompts(frozenset(["support"] if on else ["research"]))
        here.engine.script = script
        client = await here.client()
        return spoken, await client.ask(post(body))


def test_a_request_and_its_answer_are_heard_as_they_were() -> None:
    async def main() -> None:
        body = chat(user="me", temperature=0)
        (spoken,), answer = await heard(body, lambda call: call.answer(chat_answer("hi")))
        assert (answer.status, answer_of(spoken.answered)) == (200, (200, answer.body))
        assert spoken.head.request_id == answer.headers["x-request-id"]
        assert (spoken.head.tenant, spoken.head.app, spoken.head.model) == ("support", "helpdesk", "tiny")
        assert b'"user":"me"' in spoken.asked
        assert (spoken.cut, spoken.gone) == (False, False)

    run(main)


def test_a_stream_is_heard_event_by_event() -> None:
    async def main() -> None:
        events = (text_event("hel"), text_event("lo"), done_event())
        (spoken,), answer = await heard(chat(stream=True), lambda call: call.stream(*events))
        assert answer_of(spoken.answered) == (200, answer.body) == (200, b"".join(events))

    run(main)


def test_an_error_is_heard_too() -> None:
    async def main() -> None:
        (spoken,), answer = await heard(chat(), lambda call: call.answer(b'{"error":{"message":"no"}}', 400))
        assert answer_of(spoken.answered) == (400, answer.body)

    run(main)


def test_of_others_nothing_is_heard() -> None:
    async def main() -> None:
        spoken, answer = await heard(chat(), lambda call: call.answer(chat_answer()), on=False)
        assert (answer.status, spoken) == (200, [])

    run(main)


def test_a_client_that_leaves_is_heard_as_far_as_it_got() -> None:
    async def main() -> None:
        ears = Ears()
        spoken = ears.spoken
        async with world(listener=ears) as here:
            here.gateway.log_prompts(frozenset({"support"}))
            calls: list[Call] = []
            here.engine.script = calls.append
            client = await here.client()
            client.send(post(chat(stream=True)))
            await until(lambda: bool(calls))
            calls[0].begin_stream()
            calls[0].chunk(text_event("hel"))
            await client.head()
            client.abort()
            await until(lambda: bool(spoken))
            assert spoken[0].gone
            assert answer_of(spoken[0].answered) == (200, text_event("hel"))

    run(main)


def test_a_client_that_leaves_while_its_answer_is_noted_is_heard_once() -> None:
    async def main() -> None:
        ears = Ears()
        async with world(listener=ears) as here:
            here.gateway.log_prompts(frozenset({"support"}))
            noting: list[Callable[[], None]] = []
            here.desk.noting = noting
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(noting))
            assert not ears.spoken
            client.abort()
            await until(lambda: bool(ears.spoken))
            for end in noting:
                end()
            assert [each.gone for each in ears.spoken] == [True]
            assert [each.outcome for each in here.desk.ended_events] == [Outcome.COMPLETED]

    run(main)


@pytest.mark.parametrize("long", ["asked", "answered"])
def test_what_is_very_long_is_cut(long: str) -> None:
    async def main() -> None:
        asked = chat(more="x" * (ASKED_BYTES_MAX if long == "asked" else 0))
        answered = chat_answer("x" * (ANSWERED_BYTES_MAX if long == "answered" else 0))
        (spoken,), answer = await heard(asked, lambda call: call.answer(answered))
        assert (answer.status, spoken.cut) == (200, True)
        assert (len(spoken.asked) == ASKED_BYTES_MAX) is (long == "asked")
        assert (spoken.answered == b"") is (long == "answered")
        assert answer.json["choices"]

    run(main)


def test_copies_count_as_held() -> None:
    async def main() -> None:
        ears = Ears()
        spoken = ears.spoken
        async with world(listener=ears) as here:
            here.gateway.log_prompts(frozenset({"support"}))
            calls: list[Call] = []
            here.engine.script = calls.append
            client = await here.client()
            client.send(post(chat(stream=True)))
            await until(lambda: bool(calls))
            before = here.gateway.held
            calls[0].begin_stream()
            calls[0].chunk(text_event("x" * 1000))
            await client.head()
            await client.chunk()
            assert here.gateway.held > before + 1000
            here.gateway.held_max = here.gateway.held
            calls[0].chunk(text_event("y"))
            calls[0].chunk(done_event())
            calls[0].send(b"0\r\n\r\n")
            assert [text_event("y"), done_event()] == [await client.chunk() for _ in range(2)]
            await until(lambda: bool(spoken))
            assert spoken[0].cut
            await until(lambda: here.gateway.held == 0)

    run(main)
