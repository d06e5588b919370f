"""A gateway with the real core before the real embedded engine, and what tenants ask of it."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from commonpool.backends.local import LocalHandle
from commonpool.config.structs import Address, App, Config
from commonpool.core.machine import Machine
from commonpool.core.model import Replica, UsageRecord
from commonpool.gateway.caches import Caches
from commonpool.gateway.desk import CoreDesk
from commonpool.gateway.identity import Principal
from commonpool.gateway.server import Gateway
from commonpool.store.journal import Journal
from tests.engines.running import engine, model, total
from tests.gateway.fakes import Client, config, post

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


def key(tenant: str) -> bytes:
    return b"Bearer cp_%b" % tenant.encode()


def configured(tenants: Sequence[str], slots: int, context_tokens: int) -> Config:
    """One model of one replica, and tenants that may each use all of it."""
    base = config(models=("tiny",))
    like = msgspec.structs.replace(base.policy.tenants["support"], guaranteed=0)
    shape = msgspec.structs.replace(
        base.policy.deployments["tiny"], slots=slots, context_tokens=context_tokens, kv_tokens=slots * context_tokens
    )
    policy = msgspec.structs.replace(
        base.policy,
        tenants={name: msgspec.structs.replace(like, name=name) for name in tenants},
        deployments={"tiny": shape},
    )
    return msgspec.structs.replace(base, policy=policy, apps={name: {"app": App("app")} for name in tenants})


class Served:
    """Requests of tenants, one connection each, and the records of what they used."""

    def __init__(self, handle: LocalHandle, port: int, desk: CoreDesk, records: list[UsageRecord]) -> None:
        self.handle = handle
        self.records = records
        self._port = port
        self._desk = desk

    def running(self) -> int:
        """Requests that wait or run, those of clients that have left included until the engine is through with them."""
        return self._desk.open_requests

    def doubts(self) -> int:
        """Attempts that the engine may yet run though they have ended."""
        return sum(attempt.ended for attempt in self._desk._caches._attempts.values())

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        client = Client(reader, writer)
        try:
            yield client
        finally:
            await client.close()

    async def ask(self, tenant: str, body: dict[str, Any], path: str = COMPLETIONS) -> Any:
        """The answer to a request that is given one."""
        async with self.client() as client:
            answer = await client.ask(post({"model": "tiny", **body}, path, key=key(tenant)))
            assert answer.status == 200, answer.body
            return answer.json

    async def read(self, tenant: str, prompt: str, **more: Any) -> tuple[int, int, int]:
        """Have a prompt read: tokens of it, those found in the cache by the answer, and those that the engine read."""
        before = await total(self.handle, "prompt_tokens")
        usage = (await self.ask(tenant, {"prompt": prompt, "max_tokens": 1, "temperature": 0, **more}))["usage"]
        evaluated = await total(self.handle, "prompt_tokens") - before
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], evaluated


@contextlib.asynccontextmanager
async def served(
    folder: Path, tenants: Sequence[str], *, slots: int, context_tokens: int = 512
) -> AsyncIterator[Served]:
    records: list[UsageRecord] = []
    ours = configured(tenants, slots, context_tokens)
    journal = Journal(folder / "journal", ballast_bytes=0)
    principals = {key(name): Principal(name, name, "app", None, None, "data") for name in tenants}
    ticks = itertools.count(time.time_ns())
    async with engine(folder, model(slots=slots, context_tokens=context_tokens)) as handle:
        desk = CoreDesk(Machine(ours.policy), lambda: next(ticks), journal, records.append, caches=Caches(b"k" * 32))
        gateway = Gateway(
            ours,
            desk,
            lambda authorization, _peer: principals.get(authorization),
            clock=time.time_ns,
            monotonic=time.monotonic_ns,
        )
        port = await gateway.start(Address("127.0.0.1", 0))
        try:
            desk.replica_ready(Replica("tiny-0.1", "tiny", 1000, slots, slots * context_tokens), handle.target)
            yield Served(handle, port, desk, records)
        finally:
            await gateway.close()
            journal.close()
