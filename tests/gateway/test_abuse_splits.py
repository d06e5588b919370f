"""A request means the same wherever the network happens to cut it: split at every byte, it gets the same answers."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commonpool.engines.base import Adapter
from commonpool.engines.registry import LLAMACPP, OPENAI
from tests.faults.peer import Peer, Reply
from tests.faults.rig import MARK, Rig, asking, body, echo, echoed, marks, pieces, rig
from tests.gateway.fakes import SECOND, Call, get, post, run, until

Build = Callable[[Rig], bytes]


def chunked(here: Rig, size: int, *, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    data = body(here.mark())
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer cp_test\r\n"
    framed = b"".join(
        b"%x%b\r\n%b\r\n" % (len(piece), extension, piece)
        for piece in (data[at : at + size] for at in range(0, len(data), size))
    )
    return head + b"transfer-encoding: chunked\r\n\r\n" + framed + b"0\r\n" + trailer + b"\r\n"


def completion(here: Rig) -> bytes:
    return post({"model": "tiny", "prompt": here.mark().decode()}, "/v1/completions")


def embedding(here: Rig) -> bytes:
    return post({"model": "tiny", "input": [here.mark().decode()]}, "/v1/embeddings")


def older(data: bytes) -> bytes:
    return data.replace(b"HTTP/1.1", b"HTTP/1.0", 1)


NEW = itertools.count(10_000_000)  # what is refused is never quite the same, or it would be held back
# How many answers there are, and what is sent.
REQUESTS: dict[str, tuple[int, Build]] = {
    "chat": (1, lambda here: asking(here.mark())),
    "stream": (1, lambda here: asking(here.mark(), stream=True)),
    "stream with usage": (1, lambda here: asking(here.mark(), stream=True, stream_options={"include_usage": True})),
    "completions": (1, completion),
    "embeddings": (1, embedding),
    "models": (1, lambda _: get("/v1/models")),
    "HEAD": (1, lambda _: get("/healthz", "HEAD", key=None)),
    "chunked": (1, lambda here: chunked(here, 20)),
    "chunked with extensions and trailers": (
        1, lambda here: chunked(here, 40, extension=b';a="b"', trailer=b"Content-Length: 5\r\nx: y\r\n")),
    "expectation": (1, lambda here: asking(here.mark(), headers="expect: 100-continue\r\n")),
    "HTTP/1.0": (1, lambda here: older(asking(here.mark()))),
    "HTTP/1.0 kept alive": (1, lambda here: older(asking(here.mark(), headers="connection: keep-alive\r\n"))),
    "HTTP/1.0 stream": (1, lambda here: older(asking(here.mark(), stream=True))),
    "last request": (1, lambda here: asking(here.mark(), headers="connection: close\r\n")),
    "pipelined pair": (2, lambda here: asking(here.mark()) + asking(here.mark(), stream=True)),
    "pipelined three": (3, lambda here: chunked(here, 200) + get("/v1/models") + asking(here.mark())),
    "refused, then served": (2, lambda here: post({"model": "none", "seed": next(NEW)}) + asking(here.mark())),
    "malformed JSON": (1, lambda _: post(b'{"seed": %d,\n "messages": [}' % next(NEW))),
    "unknown path": (1, lambda _: get("/v1/none")),
}  # fmt: skip


def plain(reply: Reply) -> tuple[int, dict[str, str], bytes]:
    """An answer but for what differs from one request to the next."""
    headers = {name: value for name, value in reply.headers.items() if name not in ("x-request-id", "content-length")}
    assert re.fullmatch(r"[0-9a-f]{16}-[0-9a-f]+", reply.headers["x-request-id"])
    assert reply.interim in ((), (100,))
    return reply.status, headers, MARK.sub(b"mark", reply.body)


async def answers(here: Rig, count: int, peer: Peer, build: Build, at: int = 0) -> list[Any]:
    """Send in two parts, the second when the first was read; every answer as far as it is the same, marks checked."""
    before = len(here.given)
    data = build(here)
    own = here.given[before:]
    for part in (data[:at], data[at:]):
        await here.sent(peer, part)
    found = []
    for _ in range(count):
        reply = await peer.reply(bodyless=data.startswith(b"HEAD"))
        found.append(plain(reply))
        if marks(reply.body):
            assert marks(reply.body) == {own.pop(0)}
    assert not own
    return found


@pytest.mark.parametrize("name", REQUESTS)
def test_wherever_it_is_cut_it_is_answered_the_same(tmp_path: Path, name: str) -> None:
    count, build = REQUESTS[name]

    async def main() -> None:
        async with rig(tmp_path) as here:
            expected = await answers(here, count, await here.peer(), build)
            for at in range(1, len(build(here))):
                peer = await here.peer()
                assert await answers(here, count, peer, build, at) == expected, at
                await peer.close()
                here.pass_time(SECOND)  # who asks the same again at once is slowed

    run(main)


@pytest.mark.parametrize("name", REQUESTS)
def test_byte_by_byte_it_is_answered_the_same(tmp_path: Path, name: str) -> None:
    count, build = REQUESTS[name]

    async def main() -> None:
        async with rig(tmp_path) as here:
            expected = await answers(here, count, await here.peer(), build)
            peer = await here.peer()
            for piece in pieces(build(here), 1):
                await here.sent(peer, piece)
            assert [plain(await peer.reply(bodyless=name == "HEAD")) for _ in range(count)] == expected

    run(main)


@pytest.mark.parametrize("name", ["chat", "stream", "chunked", "pipelined pair"])
def test_on_a_connection_that_knows_its_head_it_is_answered_the_same(tmp_path: Path, name: str) -> None:
    """The second request of a connection may be read by the memory of the first, which must read nothing into it."""
    count, build = REQUESTS[name]

    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            expected = await answers(here, count, peer, build)
            for at in range(1, len(build(here))):
                assert await answers(here, count, peer, build, at) == expected, at

    run(main)


@pytest.mark.parametrize(("adapter", "stream"), [(OPENAI, False), (OPENAI, True), (LLAMACPP, False), (LLAMACPP, True)])
def test_wherever_the_engines_answer_is_cut_the_client_reads_the_same(
    tmp_path: Path, adapter: Adapter, *, stream: bool
) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(adapter,)) as here:
            peer = await here.peer()
            sizes: list[int] = []
            calls: list[Call] = []

            def measure(call: Call) -> None:
                sizes.append(len(echoed(call)))
                echo(call)

            here.engine.script = measure
            (expected,) = await answers(here, 1, peer, lambda here: asking(here.mark(), stream=stream))
            here.engine.script = calls.append
            for at in range(1, sizes[0]):
                mark = here.mark()
                peer.send(asking(mark, stream=stream))
                await until(lambda: bool(calls))
                call = calls.pop()
                call.send(echoed(call)[:at])
                await here.heard_engine()
                call.send(echoed(call)[at:])
                reply = await peer.reply()
                assert plain(reply) == expected, at
                assert marks(reply.body) == {mark}

    run(main)
