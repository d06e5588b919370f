"""Clients that go away, in every phase of a request: what they held is given back, and nobody else notices."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from commonpool.core.model import Outcome
from commonpool.engines.registry import LLAMACPP, OPENAI
from commonpool.gateway.http import AHEAD_BYTES_MAX
from tests.faults.peer import Peer
from tests.faults.rig import Rig, asking, assert_answers, echo, echoed, marks, rig
from tests.gateway.fakes import Call, chat_answer, get, run, text_event, until

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer cp_test\r\n"
LARGE = 8 * 1024 * 1024


def leave_with_reset(peer: Peer) -> None:
    peer.reset()


def leave_with_end(peer: Peer) -> None:
    peer.finish()


LEAVE = {"reset": leave_with_reset, "end": leave_with_end}


class Stage:
    """A rig with one slot, whose engine does what a phase needs; `calls` are those it was asked."""

    def __init__(self, here: Rig) -> None:
        self.here = here
        self.calls: list[Call] = []

    async def asked(self, peer: Peer, *, stream: bool = False) -> Call:
        """Send a request that the engine gets and does not answer."""
        self.here.engine.script = self.calls.append
        count = len(self.calls)
        peer.send(asking(self.here.mark(), stream=stream))
        await until(lambda: len(self.calls) > count)
        return self.calls[-1]


Phase = Callable[[Stage, Peer], Awaitable[None]]


async def connected(_stage: Stage, _peer: Peer) -> None:
    await asyncio.sleep(0)


async def within_head(stage: Stage, peer: Peer) -> None:
    await stage.here.sent(peer, HEAD[:-20])


async def within_body(stage: Stage, peer: Peer) -> None:
    await stage.here.sent(peer, HEAD + b"content-length: 5000\r\n\r\n" + b" " * 2000)


async def within_chunk(stage: Stage, peer: Peer) -> None:
    await stage.here.sent(peer, HEAD + b"transfer-encoding: chunked\r\n\r\n1000\r\n" + b" " * 2000)


async def within_chunk_size(stage: Stage, peer: Peer) -> None:
    await stage.here.sent(peer, HEAD + b"transfer-encoding: chunked\r\n\r\n100\r\n" + b" " * 256 + b"\r\n10")


async def before_continue(stage: Stage, peer: Peer) -> None:
    await stage.here.sent(peer, HEAD + b"expect: 100-continue\r\ncontent-length: 5000\r\n\r\n")


async def waiting(stage: Stage, peer: Peer) -> None:
    other = await stage.here.peer()
    await stage.asked(other)
    await stage.here.sent(peer, asking(stage.here.mark()))
    assert stage.here.left().waiting == 1


async def before_the_first_byte(stage: Stage, peer: Peer) -> None:
    await stage.asked(peer)


async def before_the_first_event(stage: Stage, peer: Peer) -> None:
    (await stage.asked(peer, stream=True)).begin_stream()
    await stage.here.heard_engine()


async def within_a_stream(stage: Stage, peer: Peer) -> None:
    call = await stage.asked(peer, stream=True)
    call.begin_stream()
    call.chunk(text_event("one") + text_event("two"))
    await peer.heard_of(b"two")


async def within_an_event(stage: Stage, peer: Peer) -> None:
    call = await stage.asked(peer, stream=True)
    call.begin_stream()
    call.chunk(text_event("one"))
    await peer.heard_of(b"one")
    call.chunk(text_event("two")[:20])


async def within_an_answer(stage: Stage, peer: Peer) -> None:
    call = await stage.asked(peer)
    call.send(echoed(call)[:-20])
    await stage.here.heard_engine()


async def within_a_gathered_answer(stage: Stage, peer: Peer) -> None:
    stage.here.ready("tiny-0", stage.here.engine.port, LLAMACPP)
    call = await stage.asked(peer)
    assert call.json["stream"]
    call.begin_stream()
    call.chunk(text_event("one") + text_event("two"))
    await stage.here.heard_engine()


async def before_reading(stage: Stage, peer: Peer) -> None:
    call = await stage.asked(peer)
    call.answer(chat_answer("x" * 100_000))
    await until(lambda: len(stage.here.seen) == 1)


async def while_stalled(stage: Stage, peer: Peer) -> None:
    call = await stage.asked(peer, stream=True)
    call.begin_stream()
    for _ in range(LARGE // 100_000):
        call.chunk(text_event("x" * 100_000))
    await until(lambda: any(each.stalled for each in stage.here.gateway.connections))


async def between_two(stage: Stage, peer: Peer) -> None:
    mark = stage.here.mark()
    peer.send(asking(mark))
    assert_answers(await peer.reply(), mark)


async def within_a_pipelined_second(stage: Stage, peer: Peer) -> None:
    mark = stage.here.mark()
    peer.send(asking(mark) + HEAD + b"content-length: 5000\r\n\r\n{")
    assert_answers(await peer.reply(), mark)


async def with_a_second_behind(stage: Stage, peer: Peer) -> None:
    await stage.asked(peer)
    await stage.here.sent(peer, asking(stage.here.mark()) + asking(stage.here.mark()))


async def answered_with_a_second_running(stage: Stage, peer: Peer) -> None:
    call = await stage.asked(peer)
    await stage.here.sent(peer, asking(stage.here.mark()))
    echo(call)
    await until(lambda: len(stage.calls) == 2)


async def after_a_refusal(stage: Stage, peer: Peer) -> None:
    await stage.here.sent(peer, b"GET / HTTP/3.0\r\n\r\n")
    await peer.heard_of(b"505")


# For each phase: what the records say of the request that was left, as (outcome, status, whether it was dispatched).
CANCELLED = (Outcome.CANCELLED, 499, True)
COMPLETED = (Outcome.COMPLETED, 200, True)
PHASES: dict[Phase, list[tuple[Outcome, int, bool]]] = {
    connected: [],
    within_head: [],
    within_body: [],
    within_chunk: [],
    within_chunk_size: [],
    before_continue: [],
    waiting: [(Outcome.CANCELLED, 499, False)],
    before_the_first_byte: [CANCELLED],
    before_the_first_event: [CANCELLED],
    within_a_stream: [CANCELLED],
    within_an_event: [CANCELLED],
    within_an_answer: [CANCELLED],
    within_a_gathered_answer: [CANCELLED],
    before_reading: [COMPLETED],
    while_stalled: [CANCELLED],
    between_two: [COMPLETED],
    within_a_pipelined_second: [COMPLETED],
    with_a_second_behind: [CANCELLED],
    answered_with_a_second_running: [COMPLETED, CANCELLED],
    after_a_refusal: [],
}


@pytest.mark.parametrize("how", LEAVE)
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
def test_a_client_that_leaves_gives_everything_back(tmp_path: Path, phase: Phase, how: str) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(OPENAI,), slots=1) as here:
            stage = Stage(here)
            peer = await here.peer()
            await phase(stage, peer)
            LEAVE[how](peer)
            await until(lambda: len(here.gateway.connections) == (1 if phase is waiting else 0))
            assert [(each.outcome, each.status, bool(each.replica)) for each in here.seen] == PHASES[phase]
            for call in stage.calls[1:] if phase is waiting else stage.calls:
                if PHASES[phase][-1] == CANCELLED and call is stage.calls[-1]:
                    await call.lost.wait()  # the engine hears of it

    run(main)


@pytest.mark.parametrize("phase", [within_a_stream, within_a_gathered_answer], ids=lambda phase: phase.__name__)
def test_the_part_of_a_stream_that_was_produced_is_charged(tmp_path: Path, phase: Phase) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(OPENAI,)) as here:
            peer = await here.peer()
            await phase(Stage(here), peer)
            peer.reset()
            await until(lambda: bool(here.seen))
            assert here.seen[0].tokens_out == 2
            assert here.seen[0].tokens_in > 0

    run(main)


def test_the_next_in_the_queue_gets_the_slot_of_one_who_left(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(OPENAI,), slots=1) as here:
            stage = Stage(here)
            first, second, third = [await here.peer() for _ in range(3)]
            call = await stage.asked(first)
            for each in (second, third):
                await here.sent(each, asking(here.mark()))
            second.reset()
            await until(lambda: here.left().waiting == 1)
            here.engine.script = echo
            first.reset()
            assert_answers(await third.reply(), here.given[-1])
            await call.lost.wait()
            assert [each.outcome for each in here.seen] == [Outcome.CANCELLED, Outcome.CANCELLED, Outcome.COMPLETED]

    run(main)


def test_an_answer_that_comes_after_its_client_left_reaches_nobody(tmp_path: Path) -> None:
    """The engine answers in the very moment in which the client goes and another one asks."""

    async def main() -> None:
        async with rig(tmp_path) as here:
            stage = Stage(here)
            for _ in range(50):
                leaver, other = await here.peer(), await here.peer()
                call = await stage.asked(leaver)
                here.engine.script = echo
                mark = here.mark()
                leaver.reset()
                echo(call)
                other.send(asking(mark))
                assert_answers(await other.reply(), mark)
                assert marks(other.heard) == {mark}

    run(main)


@pytest.mark.parametrize("how", LEAVE)
def test_a_flood_behind_a_request_does_not_hide_that_its_client_left(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            stage = Stage(here)
            peer = await here.peer()
            call = await stage.asked(peer)
            peer.send(get("/v1/models") * (4 * AHEAD_BYTES_MAX // 80))
            await until(lambda: any(each._full for each in here.gateway.connections))
            LEAVE[how](peer)
            while not call.lost.is_set():
                here.pass_time(1)
                await asyncio.sleep(0.001)

    run(main)


def test_one_client_too_many_is_told_so_and_the_others_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            here.gateway.connections_max = 3
            peers = [await here.peer() for _ in range(3)]
            await until(lambda: len(here.gateway.connections) == 3)
            surplus = await here.peer()
            (reply,) = await surplus.replies()
            assert (reply.status, reply.code) == (503, "too_many_connections")
            for peer in peers:
                mark = here.mark()
                peer.send(asking(mark))
                assert_answers(await peer.reply(), mark)

    run(main)


def test_a_flood_is_read_no_faster_than_it_is_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, send_bytes=4096) as here:
            peer = await here.peer(receive_bytes=4096)
            count = 400
            peer.send(get("/v1/none", headers=f"x: {'y' * 2000}\r\n") * count)
            await until(lambda: any(each._full for each in here.gateway.connections))
            kept = sum(len(each._ahead) + each._transport.get_write_buffer_size() for each in here.gateway.connections)
            assert kept < 2 * AHEAD_BYTES_MAX + 512 * 1024
            for _ in range(count):
                assert (await peer.reply()).status == 404

    run(main)
