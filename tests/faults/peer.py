"""A client in bytes that believes nothing: it reads answers strictly and keeps every byte it ever heard."""

import asyncio
import contextlib
import re
import socket
import struct
from typing import Any

import msgspec

_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-9][0-9]{2}) [\x20-\x7e]+")
_HEADER_LINE = re.compile(rb"([a-z0-9-]+): ([\x21-\x7e][\x20-\x7e]*)")
_SIZE_LINE = re.compile(rb"[0-9a-f]{1,8}")
_RESET = struct.pack("ii", 1, 0)


class Reply(msgspec.Struct, frozen=True):
    """One answer, whole. `interim` is the statuses of the 1xx answers before it."""

    status: int
    headers: dict[str, str]
    body: bytes
    interim: tuple[int, ...] = ()

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The `code` of an error; its body has to be one."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"].strip()
        code: str = error["code"]
        return code


class UnfinishedError(Exception):
    """What was read so far is no whole answer."""


def read_reply(data: bytes, *, bodyless: bool = False, ended: bool = False) -> tuple[Reply, bytes]:
    """The answer that `data` begins with, and what is behind it; AssertionError where a byte of it is not HTTP/1.1.

    `bodyless`: it answers a HEAD. `ended`: the connection was closed behind `data`.
    """
    interim: tuple[int, ...] = ()
    while True:
        head, found, rest = data.partition(b"\r\n\r\n")
        if not found:
            raise UnfinishedError
        first, *lines = head.split(b"\r\n")
        status_line = _STATUS_LINE.fullmatch(first)
        assert status_line, first
        status = int(status_line[1])
        headers = _headers(lines)
        if status >= 200:
            break
        interim += (status,)
        data = rest
    reply = Reply(status, headers, b"", interim)
    if bodyless or status in (204, 304):
        return reply, rest
    if "content-length" in headers:
        length = int(headers["content-length"])
        if len(rest) < length:
            raise UnfinishedError
        return msgspec.structs.replace(reply, body=rest[:length]), rest[length:]
    if "transfer-encoding" in headers:
        assert headers["transfer-encoding"] == "chunked"
        body, rest = _dechunked(rest)
        return msgspec.structs.replace(reply, body=body), rest
    assert headers["connection"] == "close", "the answer does not say where it ends"
    if not ended:
        raise UnfinishedError
    return msgspec.structs.replace(reply, body=rest), b""


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER_LINE.fullmatch(line)
        assert found, line
        name = found[1].decode()
        assert name not in headers, f"{name} is there twice"
        headers[name] = found[2].decode()
    assert not {"content-length", "transfer-encoding"} <= headers.keys()
    return headers


def _dechunked(data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        line, found, data = data.partition(b"\r\n")
        if not found:
            raise UnfinishedError
        assert _SIZE_LINE.fullmatch(line), line
        size = int(line, 16)
        if len(data) < size + 2:
            raise UnfinishedError
        assert data[size : size + 2] == b"\r\n"
        body += data[:size]
        data = data[size + 2 :]
        if not size:
            return body, data


class Peer:
    """One connection to the gateway. `heard` is everything that ever came on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard = b""
        self._unread = b""
        self._ended = False
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int, *, receive_bytes: int | None = None) -> "Peer":
        """`receive_bytes` keeps the kernel from taking much that the test has not read."""
        sock = socket.socket()
        sock.setblocking(False)
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(*await asyncio.open_connection(sock=sock, limit=1024 if receive_bytes else 65536))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the gateway has taken what was sent, or does not want it."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def finish(self) -> None:
        """Send no more; still listen."""
        self._writer.write_eof()

    def reset(self) -> None:
        """Go away with a reset, whatever was not read."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()

    async def more(self, size: int = 65536) -> bool:
        """Read once; false at the end. A reset raises ConnectionError."""
        data = await self._reader.read(size)
        self.heard += data
        self._unread += data
        self._ended = not data
        return bool(data)

    async def heard_of(self, what: bytes) -> None:
        """Read until `what` was heard."""
        while what not in self.heard:
            assert await self.more(), f"the connection ended without {what!r}"

    async def reply(self, *, bodyless: bool = False) -> Reply:
        """The next answer."""
        while True:
            try:
                reply, self._unread = read_reply(self._unread, bodyless=bodyless, ended=self._ended)
            except UnfinishedError:
                if self._ended:
                    raise AssertionError(f"the connection ended within an answer: {self._unread[-200:]!r}") from None
                await self.more()
            else:
                return reply

    async def replies(self) -> list[Reply]:
        """Every answer until the gateway ends the connection, which it must do without a reset."""
        while await self.more():
            pass
        found = []
        while self._unread:
            found.append(await self.reply())
        return found

    async def lost(self) -> bool:
        """Read on until the connection is gone; whether that was by a reset."""
        try:
            while await self.more():
                pass
        except ConnectionError:
            return True
        return False

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
