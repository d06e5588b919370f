"""Receivers of alerts on loopback: an HTTP server that notes what is posted, and a mail server that notes e-mails."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from email import message_from_bytes
from email.message import Message
from email.policy import default
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

OK = b'{"errcode":0,"errmsg":"ok","code":0,"msg":"success"}'


class Posted(msgspec.Struct, frozen=True):
    """One post: its path, its query, its headers in lower case, and its body."""

    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Hook:
    """Notes what is posted to it. `status` and `answer` are what it says; `posted` what it took or refused."""

    def __init__(self) -> None:
        self.posted: list[Posted] = []
        self.status = 200
        self.answer = OK
        self.port = 0
        self._server: asyncio.Server | None = None
        self._came = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self) -> None:
        """Listen, at the same port again where it did before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Be away."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def until(self, enough: Callable[[list[Posted]], bool]) -> None:
        """Return when what came is enough."""
        async with asyncio.timeout(120), self._came:
            await self._came.wait_for(lambda: enough(self.posted))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            parts = urlsplit(first.split()[1])
            async with self._came:
                self.posted.append(Posted(parts.path, parse_qs(parts.query), headers, body))
                self._came.notify_all()
            head = f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(self.answer)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + self.answer)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def hook() -> AsyncIterator[Hook]:
    receiver = Hook()
    await receiver.open()
    try:
        yield receiver
    finally:
        await receiver.close()


class Mailbox:
    """Notes the e-mails that arrive, who logged in, and whether that was over TLS."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.recipients: list[str] = []
        self.logins: list[tuple[bytes, bytes]] = []
        self.encrypted: list[bool] = []
        self.port = 0

    async def handle_DATA(  # noqa: N802 - aiosmtpd calls it so
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        """Called by aiosmtpd."""
        assert isinstance(envelope.content, bytes)
        self.mails.append(message_from_bytes(envelope.content, policy=default))
        self.recipients += envelope.rcpt_tos
        transport = server.transport
        self.encrypted.append(
            session.ssl is not None or (transport is not None and transport.get_extra_info("ssl_object") is not None)
        )
        return "250 Message accepted for delivery"

    def authenticate(self, _server: SMTP, _session: Session, _envelope: Envelope, _how: str, data: Any) -> AuthResult:
        """Lets in who knows the password."""
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"word-of-mail", handled=False)


@contextlib.asynccontextmanager
async def mailbox(
    starttls: ssl.SSLContext | None = None, implicit: ssl.SSLContext | None = None, *, login: bool = False
) -> AsyncIterator[Mailbox]:
    box = Mailbox()

    def session() -> SMTP:
        asked = {"authenticator": box.authenticate, "auth_required": True} if login else {}
        return SMTP(
            box,
            hostname="localhost",
            tls_context=starttls,
            require_starttls=starttls is not None,
            auth_require_tls=starttls is not None,
            **asked,  # type: ignore[arg-type]
        )

    server = await asyncio.get_running_loop().create_server(session, "127.0.0.1", 0, ssl=implicit)
    box.port = server.sockets[0].getsockname()[1]
    try:
        yield box
    finally:
        server.close()
        await server.wait_closed()
