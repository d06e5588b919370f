"""Gateways' desks and a core in one process, with a wire between them that loses what it is told to lose."""

import asyncio
import itertools
from collections import Counter as Tally
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from commonpool.cluster import messages
from commonpool.cluster.branch import RemoteDesk
from commonpool.cluster.counter import Counter, Hall
from commonpool.cluster.messages import Counted, Readiness, Welcome
from commonpool.cluster.tallies import Tallies
from commonpool.config.structs import Config
from commonpool.core import views
from commonpool.core.effects import Refuse
from commonpool.core.events import Ended, Recalled
from commonpool.core.machine import Machine
from commonpool.core.model import Outcome, Replica, Request, Usage, UsageRecord, Wait
from commonpool.engines.base import Adapter, Target
from commonpool.engines.registry import OPENAI
from commonpool.gateway.caches import Part
from commonpool.gateway.desk import CoreDesk
from commonpool.observe.exporting import Became
from commonpool.store.contract import Key
from commonpool.store.journal import Journal
from tests.gateway.fakes import SECOND, config

SLOTS = 2
EPOCH = 1_700_000_000 * SECOND
TARGET = Target("tiny-0.1", "127.0.0.1", 1, OPENAI, "tiny")


def policy_config() -> Config:
    configured = config()
    deployments = {
        name: msgspec.structs.replace(each, slots=SLOTS, kv_tokens=SLOTS * each.context_tokens)
        for name, each in configured.policy.deployments.items()
    }
    return msgspec.structs.replace(
        configured, policy=msgspec.structs.replace(configured.policy, deployments=deployments)
    )


def request(request_id: str, tenant: str = "support", key: str = "k1") -> Request:
    return Request(request_id, tenant, "helpdesk", "tiny", "batch", "chat", 10, 10, key=key)


class Core:
    """The core's process: gone and made anew by `restart`. `records` are those of all that there have been."""

    def __init__(self, folder: Path, adapter: Adapter = OPENAI) -> None:
        self._folder = folder
        self._target = msgspec.structs.replace(TARGET, adapter=adapter)
        self._lives = itertools.count()
        self.records: list[UsageRecord] = []
        self.calls: Tally[str] = Tally()
        self.now = EPOCH
        self.down = False
        self.lose: Tally[str] = Tally()  # so many replies of each call
        self.expected: set[str] = set()
        self.logging: list[str] = []
        self.config = policy_config()
        self.restart()

    def restart(self) -> None:
        self.machine = Machine(self.config.policy)
        journal = Journal(self._folder / str(next(self._lives)), ballast_bytes=0)
        self.desk = CoreDesk(self.machine, lambda: self.now, journal, self.records.append)
        self.hall = Hall(
            lambda hello: Counter(hello, self.desk, limits=lambda *of: "/".join(of).encode(), counted=self.counted),
            lambda: EPOCH,
        )
        self.hall.expect(self.expected, 3600)
        self.desk.replica_ready(Replica("tiny-0.1", "tiny", 1000, SLOTS, SLOTS * 4096), self._target)
        self.errors: Tally[str] = Tally()
        self.slowed: Tally[tuple[str, str]] = Tally()
        self.traces = Became()
        self.counts = 0  # so many messages brought them

    def ticked(self) -> bool:
        """Time passes: a replica that failed is tried again."""
        self.now += SECOND
        self.desk.tick()
        return True

    def counted(self, counted: Counted) -> None:
        self.errors.update(counted.answered)
        self.slowed.update({(tenant, why): count for tenant, why, count in counted.slowed})
        self.traces = self.traces.plus(counted.traces)
        self.counts += 1

    async def hello(self, hello: bytes) -> bytes:
        return await self._call("hello", lambda: self._greet(hello))

    async def tell(self, batch: bytes) -> bytes:
        return await self._call("tell", lambda: messages.encode(self.hall.take(messages.decode_batch(batch))))

    async def listen(self, gateway: str, session: str, seen: int, within_s: float) -> bytes:
        hall = self.hall
        return await self._call("listen", lambda: self._news(hall, gateway, session, seen, within_s))

    async def _call(self, name: str, perform: Callable[[], "bytes | Awaitable[bytes]"]) -> bytes:
        self.calls[name] += 1
        await asyncio.sleep(0)
        if self.down:
            raise ConnectionError("the core is down")
        answer = perform()
        if not isinstance(answer, bytes):
            answer = await answer
        if self.lose[name]:
            self.lose[name] -= 1
            raise ConnectionError("the answer was lost")
        return answer

    def _greet(self, hello: bytes) -> bytes:
        self.hall.greet(messages.decode_hello(hello))
        ready = Readiness(ready=True, why="")
        return messages.encode(Welcome(EPOCH, messages.pack_config(self.config), [], ready, self.logging))

    async def _news(self, hall: Hall, gateway: str, session: str, seen: int, within_s: float) -> bytes:
        waiting = asyncio.ensure_future(hall.listen(gateway, session, seen, within_s))
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=0.005)
            if hall is not self.hall or self.down:  # its process is gone
                waiting.cancel()
                raise ConnectionError("the core is gone")
        return messages.encode(waiting.result())

    @property
    def use(self) -> int:
        return sum(view.in_use for view in views.tenants(self.machine.state))

    @property
    def waiting(self) -> int:
        return sum(view.waiting for view in views.tenants(self.machine.state))


class Client:
    """The relay's side of one request."""

    def __init__(self, desk: RemoteDesk, request_id: str, key: str = "k1") -> None:
        self.desk = desk
        self.request = request(request_id, key=key)
        self.attempts: list[int] = []
        self.targets: list[Target] = []
        self.parts: list[Part] = []
        self.over: list[str] = []
        self.first_token_at = 0

    def dispatched(self, target: Target, attempt: int, wait_ns: int, waits: tuple[Wait, ...], part: Part) -> None:
        assert (target.url, wait_ns >= 0, waits is not None) == (TARGET.url, True, True)
        self.attempts.append(attempt)
        self.targets.append(target)
        self.parts.append(part)

    def recalled(self) -> None:
        self.over.append("recalled")

    def refused(self, refusal: Refuse) -> None:
        self.over.append(str(refusal.reason))

    def failed(self) -> None:
        self.over.append("failed")

    def submit(self) -> "Client":
        self.desk.submit(self.request, self)
        return self

    def recall(self) -> "Client":
        self.desk.recall(Recalled(self.request, Usage(10, 10, 5), 100), self)
        return self

    def land(self) -> None:
        self.desk.landed(self.request.id, self.attempts[-1], ran=True)

    def end(self, outcome: Outcome = Outcome.COMPLETED, *, retry: bool = False) -> None:
        if not retry:
            self.over.append("ended")
        usage = Usage(10, 0, 5)
        self.desk.ended(Ended(self.request.id, self.attempts[-1], outcome, usage, 200, EPOCH + SECOND, retry))


class Gateway:
    """One gateway's desk, talking with the core for as long as it lives."""

    def __init__(self, core: Core, name: str, session: str = "1", count_s: float = 0.001) -> None:
        self.name = name
        self.traced = Became()
        self.tallies = Tallies(lambda: self.traced)
        self.desk = RemoteDesk(
            name, session, core, self, lambda: EPOCH, counted=self.tallies.take, again_s=0.001, count_s=count_s
        )
        self.revoked: list[str] = []
        self.logging: frozenset[str] | None = None
        self._talking = asyncio.ensure_future(self.desk.run())

    def client(self, request_id: str, key: str = "k1") -> Client:
        return Client(self.desk, f"{self.name}-{request_id}", key).submit()

    def recalled(self, request_id: str) -> Client:
        """One whose answer is kept."""
        return Client(self.desk, f"{self.name}-{request_id}").recall()

    def welcomed(self, config: Config, keys: list[Key]) -> None:
        assert (config, keys) == (policy_config(), [])

    def reconfigured(self, config: Config) -> None:
        assert config == policy_config()

    def key_changed(self, key: Key) -> None:
        self.revoked.append(key.key_id)

    def log_prompts(self, tenants: frozenset[str]) -> None:
        self.logging = tenants

    async def end(self) -> None:
        self._talking.cancel()
        await asyncio.gather(self._talking, return_exceptions=True)
