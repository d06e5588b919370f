"""Engines that misbehave, in every phase of an answer: a right answer, or one clear error, and never foreign bytes."""

import asyncio
import gzip
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from commonpool.core.model import Outcome
from commonpool.engines.base import Adapter
from commonpool.engines.registry import LLAMACPP, OPENAI
from tests.faults.peer import Peer, Reply
from tests.faults.rig import TIMEOUTS, Rig, asking, assert_answers, echo, echoed, marks, rig
from tests.gateway.fakes import SECOND, Call, chat_answer, done_event, run, text_event, until, usage_event

FOREIGN = b"mark-888888-"
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
ANSWER = chat_answer("fine")
LENGTH = b"content-length: %d\r\n" % len(ANSWER)
CHUNKS = OK + b"transfer-encoding: chunked\r\n\r\n"
WHOLE = OK + LENGTH + b"\r\n" + ANSWER
OTHER = OK + b"content-length: %d\r\n\r\n%b" % (len(chat_answer(FOREIGN.decode())), chat_answer(FOREIGN.decode()))
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

EVENT = STREAM + b"%x\r\n%b\r\n" % (len(text_event("one")), text_event("one"))

Script = Callable[[Call], None]

# How the client asks and the engine is asked: in one piece, streamed, or streamed for a client that wants one piece.
WHOLLY, STREAMED, GATHERED = "whole", "streamed", "gathered"


def two(mode: str) -> tuple[Adapter, Adapter]:
    return (LLAMACPP, LLAMACPP) if mode == GATHERED else (OPENAI, OPENAI)


def says(data: bytes) -> Script:
    """Sends this, and keeps the connection open."""
    return lambda call: call.send(data)


def ends(data: bytes) -> Script:
    """Sends this, and ends the connection in good order."""

    def script(call: Call) -> None:
        call.send(data)
        call.transport.close()

    return script


def endless(call: Call, data: bytes) -> None:
    """Send on and on, until nobody reads it any more."""

    if not call.transport.is_closing():
        if not call.transport.get_write_buffer_size():
            call.send(data * 50)
        asyncio.get_running_loop().call_soon(endless, call, data)


def goes_on(data: bytes, more: bytes) -> Script:
    """Sends this, and then more for ever."""

    def script(call: Call) -> None:
        call.send(data)
        endless(call, more)

    return script


def resets(data: bytes) -> Script:
    """Sends this, and resets the connection."""

    def script(call: Call) -> None:
        call.send(data)
        sock = call.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        call.close()

    return script


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def coded(content_type: str, data: bytes) -> bytes:
    """An answer that is compressed, which nobody asked for."""
    body = gzip.compress(data)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-encoding: gzip\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n%b" % (len(body), body)


# An answer that is none: each attempt fails, and the client gets this status. All connections are given up.
BROKEN: dict[str, tuple[Script, int]] = {
    "closes before the head": (ends(b""), 502),
    "closes within the status line": (ends(b"HTTP/1.1 2"), 502),
    "closes within the head": (ends(OK), 502),
    "closes within a body of told length": (ends(WHOLE[:-1]), 502),
    "closes before a body of told length": (ends(OK + LENGTH + b"\r\n"), 502),
    "closes within a chunk": (ends(CHUNKS + b"ff\r\n{"), 502),
    "closes before the last chunk": (ends(CHUNKS + chunk(ANSWER)), 502),
    "closes within JSON of untold length": (ends(OK + b"\r\n" + ANSWER[:-9]), 502),
    "closes behind early hints": (ends(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"), 502),
    "resets before the head": (resets(b""), 502),
    "resets within the head": (resets(OK), 502),
    "resets within the body": (resets(WHOLE[:-1]), 502),
    "garbage": (says(b"\x15\x03\x01 this is no HTTP\r\n\r\n"), 502),
    "HTTP/0.9": (says(ANSWER), 502),
    "SSH": (says(b"SSH-2.0-OpenSSH_9\r\n"), 502),
    "a request": (says(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"), 502),
    "status of four digits": (says(WHOLE.replace(b"200", b"2000")), 502),
    "status that is a word": (says(WHOLE.replace(b"200", b"abc")), 502),
    "two lengths": (says(OK + LENGTH + b"content-length: 5\r\n\r\n" + ANSWER), 502),
    "list of lengths": (says(OK + b"content-length: 5, 5\r\n\r\n" + ANSWER), 502),
    "negative length": (says(OK + b"content-length: -5\r\n\r\n" + ANSWER), 502),
    "length and chunked": (says(OK + LENGTH + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"), 502),
    "chunked and length": (says(OK + b"transfer-encoding: chunked\r\n" + LENGTH + b"\r\n0\r\n\r\n"), 502),
    "bad chunk size": (says(CHUNKS + b"xyz\r\n" + ANSWER), 502),
    "chunk longer than told": (says(CHUNKS + b"5\r\n" + ANSWER), 502),
    "folded header": (says(OK + b"x: a\r\n b\r\n" + LENGTH + b"\r\n" + ANSWER), 502),
    "NUL in a header": (says(OK + b"x: a\0b\r\n" + LENGTH + b"\r\n" + ANSWER), 502),
    "bare LF": (says(WHOLE.replace(b"\r\n", b"\n")), 502),
    "another protocol": (says(b"HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n" + WHOLE), 502),
    "another protocol, half said": (says(b"HTTP/1.1 101 X\r\nupgrade: h2c\r\n\r\n" + WHOLE), 502),
    "endless head": (goes_on(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"), 502),
    "endless header": (goes_on(OK + b"x: ", b"y" * 1000), 502),
    "endless early hints": (goes_on(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"), 502),
    "endless promises": (goes_on(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), 502),
    "200 that is HTML": (says(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>"), 502),
    "200 that is empty": (says(OK + b"content-length: 0\r\n\r\n"), 502),
    "compressed": (says(coded("application/json", ANSWER)), 502),
    "compressed stream": (says(coded("text/event-stream", text_event("one") + done_event())), 502),
    "zip bomb": (says(coded("application/json", b" " * 50_000_000)), 502),
    "204": (says(b"HTTP/1.1 204 No Content\r\n\r\n"), 502),
    "304": (says(b"HTTP/1.1 304 Not Modified\r\n\r\n"), 502),
    "302": (says(b"HTTP/1.1 302 Found\r\nlocation: http://other/\r\ncontent-length: 0\r\n\r\n"), 502),
    "205": (says(b"HTTP/1.1 205 Reset Content\r\ncontent-length: 0\r\n\r\n"), 502),
    "401": (says(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"), 502),
    "999": (says(b"HTTP/1.1 999 What\r\ncontent-length: 0\r\n\r\n"), 502),
}

# A right answer in an odd wrapping.
SERVED: dict[str, Script] = {
    "continue first": says(b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE),
    "early hints first": says(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\ncontent-length: 5\r\n\r\n" + WHOLE),
    "early hints twice": says(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 2 + WHOLE),
    "untold length": ends(OK + b"\r\n" + ANSWER),
    "untold length in HTTP/1.0": ends(OK.replace(b"1.1", b"1.0") + b"\r\n" + ANSWER),
    "chunks": says(CHUNKS + chunk(ANSWER[:9]) + chunk(ANSWER[9:]) + b"0\r\n\r\n"),
    "chunks with trailers": says(CHUNKS + chunk(ANSWER) + b"0\r\nx-more: y\r\ncontent-type: text/event-stream\r\n\r\n"),
    "identity, said": says(WHOLE.replace(b"\r\n\r\n", b"\r\ncontent-encoding: identity\r\n\r\n", 1)),
    "no reason": says(WHOLE.replace(b"200 OK", b"200 ")),
    "large header": says(WHOLE.replace(b"\r\n\r\n", b"\r\nx: " + b"y" * 30_000 + b"\r\n\r\n", 1)),
    "closes behind it": ends(WHOLE),
    "says that it closes": says(WHOLE.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)),
    "header lines meant for the client": says(
        OK
        + b"set-cookie: a=b\r\nx-request-id: forged\r\nlocation: http://other/\r\nretry-after: 9\r\n"
        + b"upgrade: h2c\r\nconnection: upgrade\r\n"
        + WHOLE.removeprefix(OK)
    ),
    "extra bytes behind it": says(WHOLE + b"xyz"),
    "another answer behind it": says(WHOLE + OTHER),
    "a stream behind it": says(WHOLE + STREAM + chunk(text_event(FOREIGN.decode()))),
    "an error behind it": says(WHOLE + b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n"),
}

# How a stream goes on, and breaks, once its first event was relayed: an error is its last event.
BROKEN_STREAMS: dict[str, Script] = {
    "closes": ends(b""),
    "closes within an event": ends(chunk(text_event("two")[:10])),
    "closes within a chunk": ends(chunk(text_event("two"))[:10]),
    "ends without [DONE]": says(b"0\r\n\r\n"),
    "bad chunk size": says(b"zz\r\n"),
    "an error within it": says(chunk(b'data: {"error":{"message":"/secret/path: out of memory"}}\n\n')),
    "event of 2 MiB": says(chunk(b"data: " + b"x" * 2 * 1024 * 1024)),
    "endless line": goes_on(b"", chunk(b"y" * 1000)),
}


async def ask(here: Rig, *, stream: bool = False) -> Reply:
    peer = await here.peer()
    peer.send(asking(here.mark(), stream=stream))
    reply = await peer.reply()
    await goes_on_with(here, peer)
    return reply


async def goes_on_with(here: Rig, peer: Peer) -> None:
    """The client's connection goes on where the answer ended."""
    here.engine.script = echo
    mark = here.mark()
    peer.send(asking(mark))
    assert_answers(await peer.reply(), mark)


@pytest.mark.parametrize("mode", [WHOLLY, STREAMED, GATHERED])
@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_that_is_none_is_one_clear_error(tmp_path: Path, name: str, mode: str) -> None:
    script, status = BROKEN[name]

    async def main() -> None:
        async with rig(tmp_path, adapters=two(mode)) as here:
            here.engine.script = script
            reply = await ask(here, stream=mode == STREAMED)
            assert reply.status == status
            assert reply.code in ("engine_failed", "engine_refused")
            failed, last = here.seen[:-1], here.seen[-1]
            assert 1 <= len(failed) <= 2
            assert all((each.outcome, each.tokens_out) == (Outcome.FAILED, 0) for each in failed)
            assert last.outcome is Outcome.COMPLETED
            # A retry is another replica's, and what broke is not used again.
            assert len({each.replica for each in failed}) == len(failed)
            for call in here.engine.calls[: len(failed)]:
                if name not in ("302", "205", "401", "999", "200 that is HTML", "200 that is empty"):
                    await call.lost.wait()

    run(main)


@pytest.mark.parametrize("mode", [WHOLLY, GATHERED])
@pytest.mark.parametrize("name", SERVED)
def test_a_right_answer_in_an_odd_wrapping_is_relayed_as_it_is(tmp_path: Path, name: str, mode: str) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=two(mode)) as here:
            here.engine.script = SERVED[name]
            reply = await ask(here)
            assert (reply.status, reply.body, reply.interim) == (200, ANSWER, ())
            assert (
                not {"set-cookie", "location", "retry-after", "link", "upgrade", "x", "x-more"} & reply.headers.keys()
            )
            assert reply.headers["x-request-id"] == here.seen[0].request_id
            assert [each.outcome for each in here.seen] == [Outcome.COMPLETED] * 2
            if "behind it" in name:
                await here.engine.calls[0].lost.wait()

    run(main)


@pytest.mark.parametrize("name", BROKEN_STREAMS)
def test_a_stream_that_breaks_ends_with_an_error_that_the_client_can_read(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            peer, call = await begun(here, stream=True)
            await peer.heard_of(b"one")
            BROKEN_STREAMS[name](call)
            reply = await peer.reply()
            assert reply.status == 200
            first, last, nothing = reply.body.split(b"\n\n")
            assert (first + b"\n\n", nothing) == (text_event("one"), b"")
            error = msgspec.json.decode(last.removeprefix(b"data: "))["error"]
            assert error["code"] == "engine_failed"
            assert "secret" not in error["message"]
            assert [each.outcome for each in here.seen] == [Outcome.FAILED]
            await goes_on_with(here, peer)

    run(main)


@pytest.mark.parametrize("name", [*BROKEN_STREAMS, "event that is none"])
def test_a_gathered_stream_that_breaks_is_one_clear_error(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(LLAMACPP,)) as here:
            peer, call = await begun(here, stream=False)
            await here.heard_engine()
            script = BROKEN_STREAMS.get(name, says(chunk(b"data: [1]\n\n")))
            script(call)
            here.engine.script = script  # for the second attempt, where there is one
            reply = await peer.reply()
            assert (reply.status, reply.code) == (502, "engine_failed")
            assert b"secret" not in reply.body
            assert {each.outcome for each in here.seen} == {Outcome.FAILED}
            await goes_on_with(here, peer)

    run(main)


async def begun(here: Rig, *, stream: bool) -> tuple[Peer, Call]:
    """A request whose engine has sent the first event of its answer."""
    calls: list[Call] = []
    here.engine.script = calls.append
    peer = await here.peer()
    peer.send(asking(here.mark(), stream=stream))
    await until(lambda: bool(calls))
    calls[0].send(EVENT)
    return peer, calls[0]


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_never_answers_is_given_up(tmp_path: Path, *, stream: bool) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            calls: list[Call] = []
            here.engine.script = calls.append
            peer = await here.peer()
            peer.send(asking(here.mark(), stream=stream))
            await until(lambda: bool(calls))
            here.pass_time(TIMEOUTS.first_byte_ns)
            assert not calls[0].lost.is_set()
            here.pass_time(1)
            reply = await peer.reply()
            assert (reply.status, reply.code) == (504, "engine_silent")
            await calls[0].lost.wait()

    run(main)


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_falls_silent_within_its_answer_is_given_up(tmp_path: Path, *, stream: bool) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            calls: list[Call] = []
            here.engine.script = calls.append
            peer = await here.peer()
            peer.send(asking(here.mark(), stream=stream))
            await until(lambda: bool(calls))
            calls[0].send(EVENT if stream else WHOLE[:-1])
            await here.heard_engine()
            here.pass_time(TIMEOUTS.stall_ns + 1)
            reply = await peer.reply()
            assert reply.status == (200 if stream else 504)
            assert b"engine_silent" in reply.body
            await calls[0].lost.wait()

    run(main)


def test_an_engine_whose_client_is_slow_is_not_called_silent(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, send_bytes=4096) as here:
            calls: list[Call] = []
            here.engine.script = calls.append
            peer = await here.peer(receive_bytes=4096)
            peer.send(asking(here.mark(), stream=True))
            await until(lambda: bool(calls))
            calls[0].begin_stream()
            for _ in range(5):
                calls[0].chunk(text_event("x" * 100_000))
            await until(lambda: any(each.stalled for each in here.gateway.connections))
            here.pass_time(TIMEOUTS.stall_ns)
            for event in (usage_event(), done_event()):
                calls[0].chunk(event)
            calls[0].send(b"0\r\n\r\n")
            reply = await peer.reply()
            assert reply.body.count(b"x" * 100_000) == 5
            assert reply.body.endswith(done_event())
            assert here.seen[0].outcome is Outcome.COMPLETED

    run(main)


def test_a_connection_on_which_unasked_bytes_came_is_not_used_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(OPENAI,)) as here:
            for late in (b"xyz", OTHER, b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n"):
                peer = await here.peer()
                mark = here.mark()
                peer.send(asking(mark))
                assert_answers(await peer.reply(), mark)
                last = here.engine.calls[-1]
                last.send(late)
                await last.lost.wait()
                mark = here.mark()
                peer.send(asking(mark))
                assert_answers(await peer.reply(), mark)
                assert FOREIGN not in peer.heard

    run(main)


def test_a_connection_that_was_closed_meanwhile_costs_no_attempt(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(OPENAI,)) as here:
            await here.good()
            here.engine.calls[-1].close()
            await here.good()
            first = here.engine.calls[-1]

            def close_once(call: Call) -> None:
                here.engine.script = echo
                assert call.transport is first.transport
                call.close()

            here.engine.script = close_once
            await here.good()
            assert [(each.outcome, each.attempt) for each in here.seen] == [(Outcome.COMPLETED, 1)] * 3

    run(main)


def test_a_replica_that_cannot_be_reached_is_passed_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=()) as here:
            with socket.socket() as bound:  # nobody listens there, and nobody else gets the port
                bound.bind(("127.0.0.1", 0))
                here.ready("tiny-0", bound.getsockname()[1])
                here.ready("tiny-1", here.engine.port)
                await here.good()
            assert [(each.replica, each.outcome, each.attempt) for each in here.seen] == [
                ("tiny-0", Outcome.FAILED, 1),
                ("tiny-1", Outcome.COMPLETED, 2),
            ]

    run(main)


def test_where_no_replica_can_be_reached_the_client_hears_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=()) as here:
            with socket.socket() as bound:
                bound.bind(("127.0.0.1", 0))
                here.ready("tiny-0", bound.getsockname()[1])
                peer = await here.peer()
                peer.send(asking(here.mark()))
                reply = await peer.reply()
                assert (reply.status, reply.code) == (502, "engine_unreached")
                assert [each.outcome for each in here.seen] == [Outcome.FAILED] * 2
            here.ready("tiny-1", here.engine.port)
            here.desk.replica_lost("tiny-0")

    run(main)


@pytest.mark.parametrize(
    "usage",
    [
        b"[]",
        b'{"prompt_tokens":-1}',
        b'{"prompt_tokens":"7"}',
        b'{"prompt_tokens":1e999}',
        b'{"prompt_tokens":%d,"completion_tokens":1}' % 2**62,
        b'{"prompt_tokens":7,"completion_tokens":%d}' % 2**70,
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_usage_that_cannot_be_is_not_believed(tmp_path: Path, usage: bytes, *, stream: bool) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            if stream:
                event = b'data: {"choices":[],"usage":%b}\n\n' % usage
                data = STREAM + chunk(text_event("one")) + chunk(event) + chunk(done_event()) + b"0\r\n\r\n"
            else:
                answer = b'{"choices":[{"index":0,"message":{"content":"one two"}}],"usage":%b}' % usage
                data = OK + b"content-length: %d\r\n\r\n%b" % (len(answer), answer)
            here.engine.script = says(data)
            assert (await ask(here, stream=stream)).status == 200
            record = here.seen[0]
            assert record.outcome is Outcome.COMPLETED
            assert 0 < record.tokens_in < 1000
            assert 0 < record.tokens_out < 1000

    run(main)


def test_answers_in_turn_never_cross(tmp_path: Path) -> None:
    """Engines that answer in the reverse order, on connections that are used again and again."""

    async def main() -> None:
        async with rig(tmp_path, adapters=(OPENAI,), slots=8) as here:
            calls: list[Call] = []
            here.engine.script = calls.append
            peers = [await here.peer() for _ in range(8)]
            for _ in range(10):
                own = [here.mark() for _ in peers]
                for peer, mark in zip(peers, own, strict=True):
                    peer.send(asking(mark))
                await until(lambda: len(calls) == len(peers))
                while calls:
                    call = calls.pop()
                    call.send(echoed(call))
                for peer, mark in zip(peers, own, strict=True):
                    assert_answers(await peer.reply(), mark)
            assert all(len(marks(peer.heard)) == 10 for peer in peers)
            here.pass_time(SECOND)

    run(main)
