"""Fakes for the gateway: a desk that does as it is told, an engine that plays a script, and a client in bytes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import msgspec
import uvloop

from commonpool.config.structs import Address, AttachedEngine, Config, Model, Timeouts
from commonpool.config.structs import App as ConfiguredApp
from commonpool.core.effects import Refuse
from commonpool.core.events import Ended, Recalled
from commonpool.core.model import Deployment, Policy, Pool, Price, Reason, Request, Tenant, Tier, Wait
from commonpool.engines.base import Adapter, Target
from commonpool.gateway.caches import ALL
from commonpool.gateway.desk import Waiter
from commonpool.gateway.identity import Identity, Principal
from commonpool.gateway.server import Gateway
from tests.leaks import MARK, none_in

KEY = b"Bearer cp_test"
OPENAI = Adapter("openai")
SECOND = 1_000_000_000


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run an async test, bounded in time so that a hang is a failure and not a hang."""

    async def bounded() -> None:
        async with asyncio.timeout(240):
            await main()

    uvloop.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens on the loop; the test's own time-out bounds it."""
    while not condition():  # noqa: ASYNC110 - what is waited for does not know of tests
        await asyncio.sleep(0.001)


def config(
    *,
    models: tuple[str, ...] = ("tiny", "big"),
    body_bytes_max: int = 32 * 1024 * 1024,
    timeouts: Timeouts | None = None,
) -> Config:
    """Two tenants; support may use every model, research only the first."""
    tenant = Tenant("support", "main", 2000, 4000, 4000, {"interactive": 9, "batch": 3}, 120 * SECOND)
    policy = Policy(
        pools={"main": Pool("main", 4000)},
        tiers={"interactive": Tier("interactive"), "batch": Tier("batch")},
        groups={},
        tenants={
            "support": tenant,
            "research": msgspec.structs.replace(tenant, name="research", models=models[:1], priority={"batch": 3}),
        },
        deployments={name: Deployment(name, "1", "main", 1000, 4, 16384, 4096) for name in models},
        prices={"main": Price("main", 2_500_000)},
    )
    return Config(
        policy=policy,
        models={
            name: Model(name, "1", "main", 1000, 1, 4, 4096, 16384, AttachedEngine(("http://127.0.0.1:1",)))
            for name in models
        },
        apps={"support": {"helpdesk": ConfiguredApp("helpdesk", "CC-1001")}, "research": {}},
        currency="EUR",
        timeouts=timeouts or Timeouts(),
        body_bytes_max=body_bytes_max,
    )


def principal(**changes: Any) -> Principal:
    return msgspec.structs.replace(Principal("k1", "support", "helpdesk", None, None, "data"), **changes)


class FakeDesk:
    """Dispatches at once, or holds, or refuses; remembers everything it was told, in order."""

    def __init__(self, target: Target | None = None, *, attempts: int = 2) -> None:
        self.target = target
        self.attempts = attempts
        self.holding = False  # keep new requests waiting
        self.keeping = False  # keep failed ones waiting for another attempt
        self.noting: list[Callable[[], None]] | None = (
            None  # who waits until what ended is noted; None: that is at once
        )
        self.refusal: tuple[Reason, str, int | None] | None = None
        self.requests: list[Request] = []
        self.recalls: list[Recalled] = []
        self.ended_events: list[Ended] = []
        self.cancelled: list[str] = []
        self.waiting: dict[str, Waiter] = {}
        self.part = ALL
        self.landings: list[tuple[str, int, bool]] = []
        self.log: list[str] = []
        self.on_ended: Callable[[Ended], None] = lambda _event: None

    def submit(self, request: Request, waiter: Waiter) -> None:
        self.requests.append(request)
        self.log.append("submit")
        self.waiting[request.id] = waiter
        if self.refusal is not None:
            reason, message, retry_after_ns = self.refusal
            del self.waiting[request.id]
            waiter.refused(Refuse(request.id, reason, message, retry_after_ns))
        elif not self.holding:
            self.dispatch(request.id)

    def recall(self, event: Recalled, waiter: Waiter) -> None:
        self.recalls.append(event)
        self.log.append("recall")
        if self.holding:
            self.waiting[event.request.id] = waiter
        elif self.refusal is not None:
            waiter.refused(Refuse(event.request.id, *self.refusal))
        else:
            waiter.recalled()

    def dispatch(self, request_id: str, attempt: int = 1, wait_ns: int = 0, waits: tuple[Wait, ...] = ()) -> None:
        assert self.target is not None
        self.waiting[request_id].dispatched(self.target, attempt, wait_ns, waits, self.part)

    def landed(self, request_id: str, attempt: int, *, ran: bool) -> None:
        self.log.append("landed")
        self.landings.append((request_id, attempt, ran))

    def cancel(self, request_id: str) -> None:
        self.log.append("cancel")
        self.cancelled.append(request_id)
        del self.waiting[request_id]

    def ended(self, event: Ended, then: Callable[[], None] | None = None) -> None:
        self.log.append("ended")
        self.ended_events.append(event)
        self.on_ended(event)
        waiter = self.waiting[event.request_id]
        if not event.retry:
            del self.waiting[event.request_id]
        elif self.keeping:
            pass
        elif event.attempt < self.attempts:
            self.dispatch(event.request_id, event.attempt + 1)
        else:
            del self.waiting[event.request_id]
            waiter.failed()
        if then is not None and self.noting is None:
            then()
        elif then is not None and self.noting is not None:
            self.noting.append(then)


class Call:
    """One request as the fake engine got it, and its side of the connection."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes, transport: asyncio.Transport) -> None:
        self.path = path
        self.headers = headers
        self.body = body
        self.transport = transport
        self.lost = asyncio.Event()

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def answer(self, body: bytes, status: int = 200, headers: str = "", content_type: str = "application/json") -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n{headers}content-length: {len(body)}\r\n\r\n"
        self.send(head.encode() + body)

    def begin_stream(self) -> None:
        self.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def stream(self, *events: bytes) -> None:
        """A whole answer, each event in a chunk of its own."""
        self.begin_stream()
        for event in events:
            self.chunk(event)
        self.send(b"0\r\n\r\n")

    def close(self) -> None:
        self.transport.abort()


class _EngineConnection(asyncio.Protocol):
    def __init__(self, engine: "FakeEngine") -> None:
        self.half_closed = False
        self._engine = engine
        self._buffer = b""
        self._calls: list[Call] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._engine.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was lost
        self._engine.connections.remove(self)
        for call in self._calls:
            call.lost.set()

    def eof_received(self) -> bool:
        self.half_closed = True
        return self._engine.keeps_open

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            first, *lines = self._buffer[:end].decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            total = end + 4 + int(headers.get("content-length", "0"))
            if len(self._buffer) < total:
                return
            body = self._buffer[end + 4 : total]
            self._buffer = self._buffer[total:]
            call = Call(first.split()[1], headers, body, self.transport)
            self._calls.append(call)
            self._engine.calls.append(call)
            self._engine.script(call)


class FakeEngine:
    """Calls `script` with each request; the script answers, now or later, or does not."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.connections: list[_EngineConnection] = []
        self.keeps_open = False  # its half of a connection whose other half is closed
        self.script: Callable[[Call], None] = lambda call: call.answer(chat_answer())
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(lambda: _EngineConnection(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in tuple(self.connections):
            connection.transport.abort()
        await until(lambda: not self.connections)
        await self._server.wait_closed()

    def target(self, adapter: Adapter = OPENAI, **more: Any) -> Target:
        return Target("tiny-0", "127.0.0.1", self.port, adapter, **{"served_model": "served/tiny", **more})


class _Watched:
    """A transport that tells of its writes."""

    def __init__(self, transport: asyncio.Transport, log: list[str]) -> None:
        self._transport = transport
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self._log.append("write")
        self._transport.write(data)


class World:
    """A gateway with its fakes, and raw connections to it."""

    def __init__(self, gateway: Gateway, desk: FakeDesk, engine: FakeEngine, port: int, now: list[int]) -> None:
        self.gateway = gateway
        self.desk = desk
        self.engine = engine
        self.port = port
        self._now = now
        self._clients: list[Client] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def client(self) -> "Client":
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        client = Client(reader, writer)
        self._clients.append(client)
        return client

    def pass_time(self, ns: int) -> None:
        """Let the monotonic clock jump, and the gateway look at its connections."""
        self._now[0] += ns
        self.gateway.beat()

    def watch_writes(self) -> None:
        """Have the desk's log also tell of each write to the one client there is."""
        (connection,) = self.gateway.connections
        connection._transport = cast("asyncio.Transport", _Watched(connection._transport, self.desk.log))

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.gateway.close()
        await self.engine.stop()


@contextlib.asynccontextmanager
async def world(
    configured: Config | None = None,
    *,
    adapter: Adapter = OPENAI,
    identify: Callable[[bytes], Principal | None] | None = None,
    identity: Identity | None = None,
    **more: Any,
) -> AsyncIterator[World]:
    """A gateway on a free port with a fake desk and a fake engine; time moves only by `World.pass_time`."""
    engine = FakeEngine()
    await engine.start()
    desk = FakeDesk(engine.target(adapter))
    known = {KEY: principal()}
    now = [SECOND]
    gateway = Gateway(
        configured or config(),
        desk,
        identity.identify if identity else lambda authorization, _peer: (identify or known.get)(authorization),
        clock=lambda: 1_700_000_000 * SECOND,
        monotonic=lambda: now[0],
        **more,
    )
    port = await gateway.start(Address("127.0.0.1", 0))
    here = World(gateway, desk, engine, port, now)
    try:
        yield here
    finally:
        await here.close()


class Answer(msgspec.Struct):
    """An HTTP answer, read whole."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        return error


class Client:
    """A client in bytes: sends what it is told and reads answers one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self) -> tuple[int, dict[str, str]]:
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode()[:-4].split("\r\n")
        pairs = (line.partition(": ") for line in lines)
        return int(first.split()[1]), {name: value for name, _, value in pairs}

    async def answer(self, *, bodyless: bool = False) -> Answer:
        status, headers = await self.head()
        if bodyless or status == 100:
            body = b""
        elif "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding") == "chunked":
            body = b"".join([piece async for piece in self.chunks()])
        else:
            body = await self.reader.read()
        if status >= 400 or b'"error"' in body:
            none_in(body, "an error")
        return Answer(status, headers, body)

    async def chunks(self) -> AsyncIterator[bytes]:
        while piece := await self.chunk():
            yield piece

    async def chunk(self) -> bytes:
        size = int((await self.reader.readuntil(b"\r\n"))[:-2], 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def ask(self, data: bytes) -> Answer:
        self.send(data)
        return await self.answer()

    async def ended(self) -> bool:
        """Whether the gateway ends the connection without another byte."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    def abort(self) -> None:
        """Go away without a word."""
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def post(body: Any, path: str = "/v1/chat/completions", headers: str = "", key: bytes | None = KEY) -> bytes:
    """A whole request; `body` is bytes, or what is to be JSON."""
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    credential = b"" if key is None else b"authorization: %b\r\n" % key
    start = f"POST {path} HTTP/1.1\r\nhost: gateway\r\n{headers}".encode()
    return b"%b%bcontent-length: %d\r\n\r\n%b" % (start, credential, len(raw), raw)


def get(path: str, method: str = "GET", headers: str = "", key: bytes | None = KEY) -> bytes:
    credential = b"" if key is None else b"authorization: %b\r\n" % key
    return f"{method} {path} HTTP/1.1\r\nhost: gateway\r\n{headers}".encode() + credential + b"\r\n"


def chat(**more: Any) -> dict[str, Any]:
    """The body of a small chat request."""
    return {"model": "tiny", "messages": [{"role": "user", "content": MARK}], **more}


def usage_json(tokens_in: int = 7, tokens_out: int = 3, cached: int | None = None) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return usage


def chat_answer(*texts: str, usage: dict[str, Any] | None = None, **more: Any) -> bytes:
    """A whole answer as an engine gives it."""
    return msgspec.json.encode(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "served/tiny",
            "choices": [
                {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
                for index, text in enumerate(texts or ("hi there",))
            ],
            "usage": usage_json() if usage is None else usage,
            **more,
        }
    )


def event(payload: Any, ending: bytes = b"\n\n") -> bytes:
    raw = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
    return b"data: " + raw + ending


def text_event(text: str, index: int = 0, ending: bytes = b"\n\n") -> bytes:
    delta = {"index": index, "delta": {"content": text}, "finish_reason": None}
    return event(_chunk(choices=[delta]), ending)


def usage_event(tokens_in: int = 7, tokens_out: int = 3, ending: bytes = b"\n\n") -> bytes:
    return event(_chunk(choices=[], usage=usage_json(tokens_in, tokens_out)), ending)


def progress_event(ending: bytes = b"\n\n") -> bytes:
    """An engine has read some of the prompt."""
    delta = {"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}
    return event(_chunk(choices=[delta], prompt_progress={"total": 34, "cache": 0, "processed": 18}), ending)


def done_event(ending: bytes = b"\n\n") -> bytes:
    return event(b"[DONE]", ending)


def _chunk(**more: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "served/tiny", **more}
