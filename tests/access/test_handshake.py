"""Handshakes: bounded in number, and over when the listener is."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from commonpool.access.handshake import Door
from commonpool.access.tls import Certificate
from tests.access.certificates import Authority

SECOND = 1_000_000_000


class Echo(asyncio.Protocol):
    """Says back what it hears, in capitals."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())  # type: ignore[attr-defined] # it can be written to


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    def bounded(main: Callable[[], Awaitable[None]]) -> None:
        async def inner() -> None:
            async with asyncio.timeout(240):
                await main()

        (uvloop.run if request.param == "uvloop" else asyncio.run)(inner())

    return bounded


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def listening(door: Door) -> tuple[asyncio.Server, int]:
    server = await asyncio.get_running_loop().create_server(lambda: door.greet(Echo), "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def echoed(port: int, authority: Authority) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority.trusting())
    writer.write(b"hello")
    said = await reader.read(5)
    writer.close()
    await writer.wait_closed()
    return said


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - what is waited for does not know of tests
        await asyncio.sleep(0.001)


def test_too_many_at_once_cost_the_oldest_and_no_honest_client(
    authority: Authority, run: Callable[[Callable[[], Awaitable[None]]], None]
) -> None:
    async def main() -> None:
        door = Door(Certificate("k", authority.issue("server")), within_ns=60 * SECOND, most=3)
        server, port = await listening(door)
        silent = []
        for number in range(5):
            silent.append(await asyncio.open_connection("127.0.0.1", port))
            await until(lambda number=number: len(door) == min(number + 1, 3))  # type: ignore[misc]
        for reader, _ in silent[:2]:
            assert await reader.read() == b""
        assert await echoed(port, authority) == b"HELLO"
        assert await silent[2][0].read() == b""
        assert not silent[3][0].at_eof()
        server.close()
        door.close()
        for reader, writer in silent:
            assert await reader.read() == b""
            writer.close()
        await until(lambda: len(door) == 0)
        await server.wait_closed()

    run(main)


def test_whoever_is_too_slow_or_leaves_is_forgotten(
    authority: Authority, run: Callable[[Callable[[], Awaitable[None]]], None]
) -> None:
    async def main() -> None:
        door = Door(Certificate("k", authority.issue("server")), within_ns=SECOND // 10)
        server, port = await listening(door)
        slow, slow_writer = await asyncio.open_connection("127.0.0.1", port)
        slow_writer.write(b"\x16\x03\x01\x02\x00")
        gone = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: len(door) == 2)
        gone[1].transport.abort()
        assert await slow.read() == b""
        await until(lambda: len(door) == 0)
        assert await echoed(port, authority) == b"HELLO"
        slow_writer.close()
        server.close()
        await server.wait_closed()

    run(main)
