"""Clients that ask the same again at once are slowed, and those that behave as OpenAI's are not."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.model import Reason
from commonpool.gateway.repeats import (
    ASKED_MAX,
    HELD_MAX,
    HELD_NS_MAX,
    PAUSE_NS,
    TOLERATED,
    Hurry,
    Repeats,
    Slowed,
    likeness,
)
from tests.gateway.fakes import KEY, SECOND, Client, chat, chat_answer, post, principal, run, until, world

MS = 1_000_000


def loop(repeats: Repeats, *, seconds: int, retry_after_ns: int | None = None, pause_ns: int = MS) -> list[Slowed]:
    """A client that asks again as soon as it is answered, as often as it comes to."""
    now, told = SECOND, []
    while now < (1 + seconds) * SECOND:
        slowed = repeats.slowed("k", 1, retry_after_ns, now)
        told.append(slowed or Slowed(0, Hurry.AT_ONCE))
        now += pause_ns + told[-1].ns
    return told


@pytest.mark.parametrize("pause_ns", [0.1 * MS, MS, 20 * MS, 100 * MS])
@pytest.mark.parametrize(("retry_after_ns", "why"), [(None, Hurry.AT_ONCE), (30 * SECOND, Hurry.BEFORE_RETRY_AFTER)])
def test_a_tight_loop_is_slowed_to_a_few_a_second(retry_after_ns: int | None, why: Hurry, pause_ns: float) -> None:
    told = loop(Repeats(), seconds=60, retry_after_ns=retry_after_ns, pause_ns=int(pause_ns))
    held = [slowed for slowed in told if slowed.ns]
    assert {slowed.why for slowed in held} == {why}
    assert max(slowed.ns for slowed in held) <= HELD_NS_MAX
    assert told.index(held[0]) >= TOLERATED
    assert len(told) < 5 * TOLERATED + 60 * 4


def test_the_header_says_how_long_and_why() -> None:
    slowed = Slowed(250 * MS, Hurry.BEFORE_RETRY_AFTER)
    assert slowed.header() == b"x-commonpool-slowed: 0.250s; the same was asked again before retry after\r\n"


def clients_of_openai(dice: random.Random, count: int, retry_after_ns: int | None) -> Iterator[int]:
    """The times at which so many clients at once ask, with the two retries and the back-off of OpenAI's library."""
    for _ in range(count):
        at = SECOND + dice.randrange(5 * MS)
        yield at
        for retry in range(2):
            if retry_after_ns is not None and 0 < retry_after_ns <= 60 * SECOND:
                at += retry_after_ns
            else:
                at += int(min(0.5 * 2**retry, 8.0) * (1 - 0.25 * dice.random()) * SECOND)
            at += 50_000  # the way there
            yield at


@given(
    seed=st.integers(0, 1 << 32),
    count=st.integers(1, TOLERATED),
    retry_after_ns=st.sampled_from([None, 1 * SECOND, 22 * SECOND, 60 * SECOND]),
)
def test_openais_clients_with_the_same_request_are_never_slowed(
    seed: int, count: int, retry_after_ns: int | None
) -> None:
    repeats = Repeats()
    for at in sorted(clients_of_openai(random.Random(seed), count, retry_after_ns)):
        assert repeats.slowed("k", 1, retry_after_ns, at) is None


def test_a_client_of_openais_that_thinks_nothing_of_a_long_retry_after_is_never_slowed() -> None:
    """Above a minute it backs off on its own: two tries a client come before it was time."""
    repeats = Repeats()
    for at in sorted(clients_of_openai(random.Random(1), TOLERATED // 3, 120 * SECOND)):
        assert repeats.slowed("k", 1, 120 * SECOND, at) is None


def test_requests_that_differ_and_other_keys_have_nothing_to_do_with_it() -> None:
    repeats = Repeats()
    assert any(slowed.ns for slowed in loop(repeats, seconds=10))
    now = 11 * SECOND
    assert repeats.slowed("other", 1, None, now) is None
    assert repeats.slowed("k", 2, None, now) is None
    assert all(repeats.slowed("k", number, None, now) is None for number in range(10, 300))


def test_one_who_waits_is_forgiven() -> None:
    repeats = Repeats()
    loop(repeats, seconds=60)
    later = 600 * SECOND
    assert repeats.slowed("k", 1, None, later) is None
    assert repeats.slowed("k", 1, None, later + PAUSE_NS) is None


def test_what_is_remembered_and_what_is_held_is_bounded() -> None:
    repeats = Repeats()
    for number in range(3 * ASKED_MAX):
        repeats.slowed("k", number, None, SECOND)
    assert len(repeats) == ASKED_MAX
    repeats.held = HELD_MAX
    assert not any(slowed.ns for slowed in loop(repeats, seconds=1))


def test_likeness_looks_at_lengths_beginnings_and_ends() -> None:
    long = b"x" * 1_000_000
    assert likeness([b"a", long]) == likeness([b"a", bytes(long)])
    others = [[b"b", long], [b"a", long + b"x"], [b"a", long[:-1] + b"y"], [b"ax", long[1:]], [long, b"a"]]
    assert likeness([b"a", long]) not in {likeness(other) for other in others}


# -- in the gateway, whose clock stands still here: all that comes again comes too early


async def wear_out(client: Client, request: bytes) -> None:
    """Ask as often as is tolerated."""
    for _ in range(TOLERATED):
        assert "x-commonpool-slowed" not in (await client.ask(request)).headers


@pytest.mark.parametrize(
    ("request_", "status"), [(post(b"{"), 400), (post(chat(model="nothing")), 404), (post(chat()), 500)]
)
def test_an_error_that_is_asked_for_again_and_again_comes_late_and_says_so(request_: bytes, status: int) -> None:
    told: list[tuple[str, str]] = []

    async def main() -> None:
        async with world(slowed=lambda tenant, why: told.append((tenant, why))) as here:
            here.engine.script = lambda call: call.answer(b"{}", 500)
            client = await here.client()
            await wear_out(client, request_)
            for late in ("0.050s", "0.100s"):
                answer = await client.ask(request_)
                assert (answer.status, answer.headers["x-commonpool-slowed"]) == (
                    status,
                    f"{late}; the same was asked again at once",
                )
            assert told == [("support", "at_once")] * 2
            here.engine.script = lambda call: call.answer(chat_answer())
            assert (await client.ask(post(chat()))).status == 200

    run(main)


def test_while_an_error_is_held_back_nothing_is_held_for_it_and_others_go_on() -> None:
    async def main() -> None:
        keys = {KEY: principal(), b"Bearer other": principal(key_id="k2")}
        async with world(identify=keys.get) as here:
            here.gateway.repeats = Repeats(step_ns=SECOND)
            here.desk.refusal = (Reason.QUEUE_FULL, "Full.", 20 * SECOND)
            client = await here.client()
            await wear_out(client, post(chat()))
            client.send(post(chat()) + post(chat()))
            await until(lambda: here.gateway.repeats.held == 1)
            assert (here.gateway.held, here.desk.waiting) == (0, {})
            other = await here.client()
            answer = await other.ask(post(chat(), key=b"Bearer other"))
            assert (answer.status, here.gateway.repeats.held) == (429, 1)
            late = await client.answer()
            assert late.headers["x-commonpool-slowed"].endswith("before retry after")
            assert late.headers["retry-after"] == "20"
            assert (await client.answer()).status == 429  # what was sent behind it has its turn

    run(main)


def test_a_client_that_leaves_while_its_error_is_held_back_leaves_nothing() -> None:
    async def main() -> None:
        async with world() as here:
            here.gateway.repeats = Repeats(step_ns=HELD_NS_MAX)
            client = await here.client()
            await wear_out(client, post(b"{"))
            client.send(post(b"{"))
            await until(lambda: here.gateway.repeats.held == 1)
            client.abort()
            await until(lambda: not here.gateway.connections)
            assert here.gateway.repeats.held == 0

    run(main)


def test_when_the_gateway_stops_what_is_held_back_is_told_at_once() -> None:
    async def main() -> None:
        async with world() as here:
            here.gateway.repeats = Repeats(step_ns=HELD_NS_MAX)
            client = await here.client()
            await wear_out(client, post(b"{"))
            client.send(post(b"{"))
            await until(lambda: here.gateway.repeats.held == 1)
            assert await here.gateway.drain(0) == 0
            assert (await client.answer()).status == 400
            assert await client.ended()

    run(main)


def test_what_succeeds_is_never_held_back_however_often_it_is_asked() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.answer(chat_answer())
            client = await here.client()
            for _ in range(2 * TOLERATED):
                assert (await client.ask(post(chat()))).status == 200
            assert len(here.gateway.repeats) == 0

    run(main)
