"""Given the control plane on a real socket, then it is reached, and goes away when it is stopped."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from commonpool.api import routes
from commonpool.api.lobby import Lobby
from commonpool.api.server import HEAD_BYTES_MAX, TOO_LONG, Server
from commonpool.config.structs import Timeouts
from commonpool.core.model import NS_PER_S
from tests.api.fakes import FakeOperations


async def fetch(port: int, *headers: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = ["GET /admin/v1/status HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close", *headers, "", ""]
    writer.write("\r\n".join(lines).encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_serves_and_stops(product: FakeOperations) -> None:
    async def life() -> tuple[bytes, bytes]:
        server = Server(routes.application(product))
        await server.start("127.0.0.1", 0)
        here = await fetch(server.port)
        # A forwarded address must not make the peer local, nor the local peer anything else.
        passed_on = await fetch(server.port, "X-Forwarded-For: 127.0.0.1")
        await server.stop()
        await server.stop()
        with pytest.raises(ConnectionRefusedError):
            await fetch(server.port)
        return here, passed_on

    here, passed_on = asyncio.run(life())
    assert here.startswith(b"HTTP/1.1 200 ")
    assert passed_on.startswith(b"HTTP/1.1 401 ")


def test_taken_port_is_an_error_of_its_own(product: FakeOperations) -> None:
    async def life(port: int) -> None:
        server = Server(routes.application(product))
        with pytest.raises(OSError, match="in use"):
            await server.start("127.0.0.1", port)
        await server.stop()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        asyncio.run(life(taken.getsockname()[1]))


NS_PER_MS = 1_000_000
WITHIN_S = 120


async def reading(_scope: Any, receive: Any, send: Any) -> None:
    """An application that answers once it has the whole body, or nobody is there."""
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


async def closed(reader: asyncio.StreamReader) -> bool:
    """Whether the other side ends it, sooner or later."""
    async with asyncio.timeout(WITHIN_S):
        try:
            return await reader.read() == b""
        except ConnectionResetError:
            return True


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\r\n", id="an empty line"),
        pytest.param(b"GET /healthz HT", id="half a head"),
        pytest.param(b"POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nname", id="half a body"),
    ],
)
def test_whoever_sends_no_whole_request_is_cut(sent: bytes) -> None:
    async def life() -> None:
        soon = Timeouts(header_ns=100 * NS_PER_MS, body_ns=100 * NS_PER_MS)
        server = Server(reading, timeouts=soon)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        assert await closed(reader)
        writer.close()
        await server.stop()

    asyncio.run(life())


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"GET /", id="an address"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: ", id="a header"),
        pytest.param(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx: ", id="a trailer"),
    ],
)
def test_a_head_without_an_end_is_not_kept(begun: bytes) -> None:
    async def life() -> None:
        patient = Timeouts(header_ns=3600 * NS_PER_S, body_ns=3600 * NS_PER_S)
        server = Server(reading, timeouts=patient)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(begun + b"x" * 4 * HEAD_BYTES_MAX)
        async with asyncio.timeout(WITHIN_S):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() in {b"", TOO_LONG}
        writer.close()
        await server.stop()

    asyncio.run(life())


def test_a_long_body_is_no_long_head() -> None:
    async def life() -> None:
        server = Server(reading)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        length = 8 * HEAD_BYTES_MAX
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % length + b"x" * length)
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()
        await server.stop()

    asyncio.run(life())


def test_half_a_head_on_a_connection_that_was_used_is_cut(product: FakeOperations) -> None:
    async def life() -> None:
        server = Server(routes.application(product), timeouts=Timeouts(header_ns=1000 * NS_PER_MS))
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(2):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await reader.readuntil(b"}")
        writer.write(b"GET /heal")
        assert await closed(reader)
        writer.close()
        await server.stop()

    asyncio.run(life())


def test_a_reader_that_takes_no_answer_is_cut() -> None:
    async def life() -> None:
        gone = asyncio.Event()
        lobby = Lobby()

        async def much(_scope: Any, _receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while len(lobby):
                await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
            gone.set()

        server = Server(much, timeouts=Timeouts(stall_ns=100 * NS_PER_MS), lobby=lobby)
        await server.start("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", server.port)) as reader:
            reader.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            async with asyncio.timeout(WITHIN_S):
                await gone.wait()
        await server.stop()

    asyncio.run(life())


def test_silent_connections_shut_nobody_out(product: FakeOperations) -> None:
    async def life() -> list[bytes]:
        server = Server(routes.application(product), lobby=Lobby(most=40, per_address=40))
        await server.start("127.0.0.1", 0)
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(300)]
        answers = [await fetch(server.port) for _ in range(5)]
        # Those that were there longest have made way.
        assert await closed(silent[0][0])
        for _, writer in silent:
            writer.close()
        await server.stop()
        return answers

    assert [answer[:13] for answer in asyncio.run(life())] == [b"HTTP/1.1 200 "] * 5
