"""Given the control plane on a real socket, then it is reached, and goes away when it is stopped."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from commonpool.api import routes
from commonpool.api.bodies import SEATS_MAX
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
        server = Server(reading, timeouts=Timeouts(header_ns=100 * NS_PER_MS), body_within_s=0.1)
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
        server = Server(reading, timeouts=Timeouts(header_ns=3600 * NS_PER_S), body_within_s=3600)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(begun + b"x" * 4 * HEAD_BYTES_MAX)
        async with asyncio.timeout(WITHIN_S):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() in {b"", TOO_LONG}
        writer.close()
        await server.stop()

    asyncio.run(life())


def test_a_body_has_to_come_in_time_however_often_a_byte_comes() -> None:
    async def life() -> int:
        server = Server(reading, timeouts=Timeouts(body_ns=3600 * NS_PER_S), body_within_s=0.1)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
        ending = asyncio.create_task(closed(reader))
        sent = 0
        with contextlib.suppress(ConnectionError):
            while not ending.done() and sent < 1_000_000:
                writer.write(b"x")
                sent += 1
                await asyncio.wait([ending], timeout=0.01)
        assert await ending
        writer.close()
        await server.stop()
        return sent

    assert asyncio.run(life()) > 0


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


FORM = b"name=bo&password=wrong"
SLOW = 80  # of each of two addresses: more than there are places, or seats


async def begun(port: int, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Somebody who has begun to send the form of the log-in page."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    lines = ["POST /login HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Origin: http://127.0.0.1:{port}"]
    writer.write("\r\n".join([*lines, f"Content-Length: {len(FORM)}", "", ""]).encode() + FORM[:4])
    return reader, writer


def test_bodies_sent_drop_by_drop_from_several_addresses_shut_nobody_out(product: FakeOperations) -> None:
    async def life() -> list[bytes]:
        server = Server(routes.application(product))
        await server.start("127.0.0.1", 0)
        slow = [await begun(server.port, address) for address in ("127.0.0.2", "127.0.0.3") for _ in range(SLOW)]
        ending = {asyncio.create_task(reader.read()) for reader, _ in slow}
        ended: set[asyncio.Task[bytes]] = set()
        async with asyncio.timeout(WITHIN_S):
            while len(ended) < 2 * SLOW - SEATS_MAX:
                over, ending = await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
                ended |= over
        said = [b"" if task.exception() else task.result() for task in ended]
        # Everybody else is answered, also who has sent half of a form.
        reader, writer = await begun(server.port, "127.0.0.4")
        said.append(await fetch(server.port))
        writer.write(FORM[4:])
        said.append(await reader.readline())
        writer.close()
        for task in ending:
            task.cancel()
        for _, each in slow:
            each.close()
        await server.stop()
        return said

    *ended, asked, sent = asyncio.run(life())
    assert ended == [b""] * (2 * SLOW - SEATS_MAX)
    assert asked.startswith(b"HTTP/1.1 200 ")
    assert sent.startswith(b"HTTP/1.1 401 ")


def test_a_connection_that_is_answered_makes_way_and_one_that_is_not_does_not(product: FakeOperations) -> None:
    async def life() -> tuple[bytes, bytes]:
        server = Server(routes.application(product), lobby=Lobby(most=2, per_address=2))
        await server.start("127.0.0.1", 0)
        waiting, sends = await begun(server.port, "127.0.0.1")
        used, asks = await asyncio.open_connection("127.0.0.1", server.port)
        asks.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await used.readline() == b"HTTP/1.1 200 OK\r\n"
        await used.readuntil(b"}")
        answer = await fetch(server.port)
        assert await closed(used)
        sends.write(FORM[4:])
        sent = await waiting.readline()
        for each in (sends, asks):
            each.close()
        await server.stop()
        return answer, sent

    answer, sent = asyncio.run(life())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert sent.startswith(b"HTTP/1.1 401 ")
