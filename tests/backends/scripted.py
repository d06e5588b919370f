"""An engine in this process that answers as it is told to, over real HTTP on a port of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from commonpool.engines.base import Target
from commonpool.engines.registry import LLAMACPP, OPENAI

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")


class ScriptedEngine:
    """`health` and `answers` are the statuses of its pages; 0 is silence, -1 a closed connection.

    `adapter` is what it is taken for, `metrics` what its page of metrics has; None is no such page, "" silence.
    """

    def __init__(self) -> None:
        self.health = 200
        self.answers = dict.fromkeys(PATHS, 200)
        self.heads: list[str] = []
        self.raw: bytes | None = None
        self.adapter = LLAMACPP
        self.metrics: str | None = None
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()

    def target(self, replica_id: str = "m-0.1", *, openai: bool = False, base_path: str = "") -> Target:
        adapter = OPENAI if openai else self.adapter
        return Target(replica_id, "127.0.0.1", self.port, adapter, "m", base_path, b"Bearer k")

    @property
    def asked(self) -> list[str]:
        """Method and path of each request so far."""
        return [head.partition(" HTTP/")[0] for head in self.heads]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        path = head.split()[1]
        if path.endswith("/metrics"):
            await self._measure(reader, writer)
            return
        status = self.health if head.startswith("GET") else self.answers[path[path.index("/v1") :]]
        if status == 0:
            await reader.read()
        elif status > 0:
            body = b'{"status":%d}' % status
            answer = b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
            writer.write(answer if self.raw is None else self.raw)
            await writer.drain()

    async def _measure(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.metrics == "":
            await reader.read()
            return
        status, body = (404, b"") if self.metrics is None else (200, self.metrics.encode())
        writer.write(b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        await writer.drain()

    def hang_up(self) -> None:
        for writer in self._open:
            writer.close()


@contextlib.asynccontextmanager
async def scripted() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine()
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
    engine.port = server.sockets[0].getsockname()[1]
    try:
        yield engine
    finally:
        server.close()
        engine.hang_up()
        await server.wait_closed()
