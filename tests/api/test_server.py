"""Given the control plane on a real socket, then it is reached, and goes away when it is stopped."""

import asyncio
import socket

import pytest

from commonpool.api import routes
from commonpool.api.server import Server
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
