"""Clients that are slow or silent, by a clock that the test moves: each limit ends what it is for and nothing else."""

import asyncio
from pathlib import Path

import pytest

from commonpool.core.model import Outcome
from commonpool.engines.registry import OPENAI
from commonpool.gateway.http import LINGER, LINGER_NS
from tests.faults.peer import Peer
from tests.faults.rig import TIMEOUTS, Rig, asking, assert_answers, echo, rig
from tests.gateway.fakes import SECOND, Call, chat_answer, done_event, get, run, text_event, until, usage_event

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer cp_test\r\n"
SMALL = 4096  # a receive buffer that is soon full


async def cut(here: Rig, peer: Peer) -> None:
    """The connection ends without a word."""
    before = len(peer.heard)
    await peer.lost()
    assert len(peer.heard) == before
    assert not here.gateway.connections


@pytest.mark.parametrize(
    "start", [b"P", HEAD, HEAD + b"content-length: 5\r\n\r"], ids=["first byte", "headers", "last byte"]
)
def test_a_head_has_to_come_in_time_however_often_a_byte_comes(tmp_path: Path, start: bytes) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            await here.sent(peer, start)
            for _ in range(TIMEOUTS.header_ns // SECOND):
                here.pass_time(SECOND)
                if not start.endswith(b"\r"):
                    await here.sent(peer, b"x" if start == HEAD else start[:0])
            here.pass_time(SECOND)
            (reply,) = await peer.replies()
            assert (reply.status, reply.code) == (408, "timeout")

    run(main)


def test_a_client_that_says_nothing_is_hung_up_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            await until(lambda: bool(here.gateway.connections))
            here.pass_time(TIMEOUTS.header_ns)
            assert here.gateway.connections
            here.pass_time(1)
            await cut(here, peer)

    run(main)


@pytest.mark.parametrize("used", [False, True])
def test_blank_lines_are_no_sign_of_life(tmp_path: Path, *, used: bool) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            limit = TIMEOUTS.header_ns
            if used:
                peer.send(get("/healthz"))
                await peer.reply()
                limit = TIMEOUTS.idle_ns
            for _ in range(limit // SECOND):
                await here.sent(peer, b"\r\n")
                here.pass_time(SECOND)
            await here.sent(peer, b"\r\n")
            here.pass_time(SECOND)
            await until(lambda: not here.gateway.connections)

    run(main)


@pytest.mark.parametrize("framing", [b"content-length: 5000\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n1000\r\n"])
def test_a_body_may_be_slow_but_not_silent(tmp_path: Path, framing: bytes) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            await here.sent(peer, HEAD + framing)
            for _ in range(5):
                await here.sent(peer, b" ")
                here.pass_time(TIMEOUTS.body_ns)
            here.pass_time(1)
            (reply,) = await peer.replies()
            assert (reply.status, reply.code) == (408, "timeout")

    run(main)


def test_a_connection_that_is_not_used_again_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            mark = here.mark()
            peer.send(asking(mark))
            assert_answers(await peer.reply(), mark)
            here.pass_time(TIMEOUTS.idle_ns)
            assert here.gateway.connections
            here.pass_time(1)
            await cut(here, peer)

    run(main)


def test_a_request_that_waits_or_runs_has_no_limit_of_its_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(OPENAI,), slots=1) as here:
            calls: list[Call] = []
            here.engine.script = calls.append
            peers = [await here.peer() for _ in range(2)]
            for peer in peers:
                await here.sent(peer, asking(here.mark()))
            here.pass_time(2 * TIMEOUTS.idle_ns)
            for peer, mark in zip(peers, here.given, strict=True):
                await until(lambda: bool(calls))
                echo(calls.pop())
                assert_answers(await peer.reply(), mark)

    run(main)


def test_a_client_that_reads_no_more_is_cut_and_its_slot_is_free(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            calls: list[Call] = []
            here.engine.script = calls.append
            peer = await here.peer(receive_bytes=SMALL)
            peer.send(asking(here.mark(), stream=True))
            await until(lambda: bool(calls))
            calls[0].begin_stream()
            for _ in range(80):
                calls[0].chunk(text_event("x" * 100_000))
            await until(lambda: any(each.stalled for each in here.gateway.connections))
            here.pass_time(TIMEOUTS.stall_ns)
            assert not calls[0].lost.is_set()
            here.pass_time(1)
            await calls[0].lost.wait()
            assert [each.outcome for each in here.seen] == [Outcome.CANCELLED]

    run(main)


def test_a_stream_behind_an_answer_that_is_not_read_waits_at_its_engine(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, send_bytes=SMALL) as here:
            calls: list[Call] = []
            here.engine.script = calls.append
            peer = await here.peer(receive_bytes=SMALL)
            peer.send(asking(here.mark()) + asking(here.mark(), stream=True))
            await until(lambda: len(calls) == 1)
            calls[0].answer(chat_answer("x" * 30_000))
            await until(lambda: len(calls) == 2)
            assert not any(each.stalled for each in here.gateway.connections)
            calls[1].begin_stream()
            flood = [text_event("y" * 40_000) for _ in range(20)]
            for event in (*flood, usage_event(), done_event()):
                calls[1].chunk(event)
            calls[1].send(b"0\r\n\r\n")
            await until(lambda: any(each.stalled for each in here.gateway.connections))
            for _ in range(100):
                await asyncio.sleep(0)
            assert unsent(here) < 400_000
            assert (await peer.reply()).body == chat_answer("x" * 30_000)
            assert (await peer.reply()).body == b"".join(flood) + done_event()

    run(main)


@pytest.mark.parametrize("how", ["connection: close\r\n", "HTTP/1.0"])
def test_a_slow_reader_of_a_last_answer_gets_all_of_it(tmp_path: Path, how: str) -> None:
    """The time for a client that does not hang up begins when the answer is out, not when it is handed over."""

    async def main() -> None:
        async with rig(tmp_path, send_bytes=SMALL) as here:
            text = "x" * 60_000
            here.engine.script = lambda call: call.answer(chat_answer(text))
            peer = await here.peer(receive_bytes=SMALL)
            if how == "HTTP/1.0":
                peer.send(asking(here.mark()).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
            else:
                peer.send(asking(here.mark(), headers=how))
            await until(lambda: any(each.state is LINGER for each in here.gateway.connections))
            assert unsent(here) > SMALL
            for _ in range(3):
                here.pass_time(LINGER_NS + 1)
                await peer.more(SMALL)
            (reply,) = await peer.replies()
            assert reply.json["choices"][0]["message"]["content"] == text

    run(main)


def test_a_client_that_does_not_hang_up_is_hung_up_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            mark = here.mark()
            peer.send(asking(mark, headers="connection: close\r\n"))
            (reply,) = await peer.replies()
            assert_answers(reply, mark)
            here.pass_time(LINGER_NS)
            assert here.gateway.connections
            here.pass_time(1)
            await until(lambda: not here.gateway.connections)

    run(main)


@pytest.mark.parametrize("refused", [b"GET / HTTP/3.0\r\n\r\n", HEAD + b"content-length: x\r\n\r\n"])
def test_a_refusal_to_a_client_that_does_not_read_ends_its_connection(tmp_path: Path, refused: bytes) -> None:
    """What follows a request that could not be read is never read as one, be the way to the client full or not."""

    async def main() -> None:
        async with rig(tmp_path, send_bytes=SMALL) as here:
            peer = await here.peer(receive_bytes=SMALL)
            unread = 0
            while not any(each.stalled for each in here.gateway.connections):
                await here.sent(peer, get("/healthz", "HEAD"))
                await asyncio.sleep(0)
                unread += 1
            await here.sent(peer, refused)
            await here.sent(peer, asking(here.mark()))
            for _ in range(unread):
                assert (await peer.reply(bodyless=True)).status == 200
            (reply,) = await peer.replies()
            assert reply.status in (400, 505)
            assert not here.engine.calls

    run(main)


def unsent(here: Rig) -> int:
    """The bytes that the gateway has written and the kernel has not taken."""
    return sum(each._transport.get_write_buffer_size() for each in here.gateway.connections)
