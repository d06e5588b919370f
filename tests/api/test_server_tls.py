"""The control plane behind TLS: reached by those who trust it, and by the commands."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from commonpool.access.tls import TlsError
from commonpool.api import routes
from commonpool.api.server import Server
from commonpool.config.structs import Timeouts, Tls
from tests.access.certificates import Authority
from tests.api.fakes import FakeOperations

REQUEST = b"GET /admin/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def fetch(port: int, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(REQUEST)
    answer = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        answer = await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()
    return answer


def test_serves_those_who_trust_it(product: FakeOperations, authority: Authority) -> None:
    async def life() -> None:
        server = Server(routes.application(product), authority.issue("server"))
        await server.start("127.0.0.1", 0)
        assert (await fetch(server.port, authority.trusting())).startswith(b"HTTP/1.1 200 ")
        with pytest.raises(ssl.SSLCertVerificationError):
            await fetch(server.port, ssl.create_default_context())
        # Plain HTTP is not answered, and harms nobody.
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(REQUEST)
        assert b"200" not in await reader.read()
        writer.close()
        assert (await fetch(server.port, authority.trusting())).startswith(b"HTTP/1.1 200 ")
        await server.stop()
        with pytest.raises(ConnectionRefusedError):
            await fetch(server.port, authority.trusting())

    asyncio.run(life())


def test_asks_its_clients_for_a_certificate(product: FakeOperations, authority: Authority) -> None:
    async def life() -> None:
        made = authority.issue("server")
        server = Server(routes.application(product), Tls(made.certificate, made.key, authority.file))
        await server.start("127.0.0.1", 0)
        ours = authority.trusting(authority.issue("operator", client=True))
        assert (await fetch(server.port, ours)).startswith(b"HTTP/1.1 200 ")
        assert await fetch(server.port, authority.trusting()) == b""
        await server.stop()

    asyncio.run(life())


def test_whoever_does_not_shake_hands_is_cut(product: FakeOperations, authority: Authority) -> None:
    async def life() -> None:
        server = Server(routes.application(product), authority.issue("server"), Timeouts(header_ns=100_000_000))
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        writer.close()
        await server.stop()

    asyncio.run(life())


def test_a_certificate_of_no_use_is_an_error_of_its_own(product: FakeOperations, authority: Authority) -> None:
    async def life() -> None:
        server = Server(routes.application(product), authority.issue("old", begins_days=-3, ends_days=-1))
        with pytest.raises(TlsError, match=r"listen\.control_tls\.certificate .* expired"):
            await server.start("127.0.0.1", 0)
        await server.stop()

    asyncio.run(life())
