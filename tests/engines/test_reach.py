"""Connecting to an engine: at an address that was judged, and with TLS by its name."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from commonpool.backends import probe
from commonpool.backends.base import BackendError
from commonpool.config.outgoing import OutgoingError
from commonpool.core.model import NS_PER_S
from commonpool.engines import reach
from commonpool.engines.base import Target
from commonpool.engines.registry import OPENAI
from tests.access.certificates import Authority


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that hears what is sent to it."""
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


def target(host: str, port: int, **more: Any) -> Target:
    return Target("m-0.1", host, port, OPENAI, "m", **more)


async def said(to: Target) -> None:
    transport, _ = await reach.connect(asyncio.Protocol, to)
    transport.write(b"hello")
    transport.close()


def test_by_address_and_by_the_name_of_this_machine() -> None:
    async def story() -> None:
        async with listening() as (port, heard):
            await said(target("127.0.0.1", port))
            await said(target("localhost", port))
            await said(target("localhost", port, destinations=("127.0.0.0/8",)))
            while len(heard) < 3:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.01)
            assert heard == [b"hello"] * 3

    asyncio.run(story())


@pytest.mark.parametrize(
    ("host", "destinations"),
    [("127.0.0.1", ("10.0.0.0/8",)), ("localhost", ()), ("0x7f000001", None), ("0x7f000001", ("0.0.0.0/0",))],
)
def test_nothing_is_sent_where_nothing_may_be(host: str, destinations: tuple[str, ...] | None) -> None:
    async def story() -> None:
        async with listening() as (port, heard):
            to = target(host, port, destinations=destinations)
            with pytest.raises(OutgoingError):
                await reach.connect(asyncio.Protocol, to)
            with pytest.raises(BackendError, match=r"cannot be reached: .*(destinations|this machine itself)"):
                await probe.ask(to, "GET", "/", b"", NS_PER_S)
            await asyncio.sleep(0.05)
            assert heard == []

    asyncio.run(story())


def test_tls_is_with_its_name_at_whatever_address(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("server")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    asked: list[str | None] = []
    server.sni_callback = lambda _, name, __: asked.append(name)

    async def story() -> None:
        async with listening(server) as (port, _):
            await said(target("localhost", port, tls=authority.trusting()))
            assert asked == ["localhost"]
            with pytest.raises(ssl.SSLCertVerificationError):
                await said(target("localhost", port, tls=ssl.create_default_context()))

    asyncio.run(story())


def test_nobody_listens() -> None:
    async def story() -> None:
        with pytest.raises(ConnectionRefusedError):
            await said(target("127.0.0.1", 1))

    asyncio.run(story())
