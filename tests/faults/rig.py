"""A whole data plane to be abused: the real gateway, desk, machine and journal before an engine that echoes.

Every request carries a mark of its own and the engine's answer repeats it, so that a client which reads a foreign mark
has read a foreign answer. `rig` looks at everything when its test is over: what is left anywhere is a leak.
"""

import asyncio
import contextlib
import gc
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, cast

import msgspec

from commonpool.config.structs import Address, Timeouts
from commonpool.core import views
from commonpool.core.effects import Dispatch, Effect
from commonpool.core.events import Event
from commonpool.core.machine import Machine
from commonpool.core.metering import Note
from commonpool.core.model import Outcome, Policy, Replica, UsageRecord
from commonpool.engines.base import Adapter
from commonpool.engines.registry import OPENAI
from commonpool.gateway.desk import CoreDesk
from commonpool.gateway.http import ServerConnection
from commonpool.gateway.relay import Exchange
from commonpool.gateway.server import Gateway
from commonpool.store.journal import Journal
from tests.faults.peer import Peer, Reply
from tests.gateway.fakes import (
    KEY,
    SECOND,
    Call,
    FakeEngine,
    chat_answer,
    config,
    done_event,
    post,
    principal,
    text_event,
    usage_event,
)

MARK = re.compile(rb"mark-\d{6}-")
TIMEOUTS = Timeouts()
WITHIN_S = 120
TICK_NS = SECOND // 10  # by which the core's time goes on with each tick
MAX_WAIT_NS = 3600 * SECOND  # so that a machine that is slow breaks no promise
SLOTS = 2


class Left(msgspec.Struct, frozen=True):
    """What is left of requests.

    `upstream` and `dead` are connections to engines that are in use or closed, `unmatched` dispatches without a record
    or with two, `faults` errors that reached the loop.
    """

    waiters: int = 0
    entries: int = 0
    milli_gpu: int = 0
    running: int = 0
    waiting: int = 0
    borrowed: int = 0
    slots: int = 0
    connections: int = 0
    exchanges: int = 0
    held: int = 0
    upstream: int = 0
    dead: int = 0
    unmatched: tuple[tuple[str, int], ...] = ()
    unwritten: int = 0
    faults: tuple[str, ...] = ()


class Watched(Machine):
    """A machine that keeps what it dispatched."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.dispatches: list[tuple[str, int]] = []

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects = super().handle(event, now)
        self.dispatches += [(each.request_id, each.attempt) for each in effects if isinstance(each, Dispatch)]
        return effects


class Kept(Journal):
    """A journal that counts the records in it, not what was noted of those that run."""

    def __init__(self, folder: Path, **more: Any) -> None:
        super().__init__(folder, **more)
        self.records = 0

    def append(self, *notes: Note) -> None:
        super().append(*notes)
        ended = [each for each in notes if isinstance(each, UsageRecord) and each.outcome is not Outcome.RUNNING]
        self.records += len(ended)


class Counted(ServerConnection):
    """A connection that tells its rig how many bytes arrived, so that a test can wait for each."""

    __slots__ = ("_rig",)

    def __init__(self, rig: "Rig") -> None:
        super().__init__(rig.gateway)
        self._rig = rig

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._rig.fed += len(data)


class Rig:
    """The data plane. `fed` counts bytes that came from clients, `given` holds the marks in use."""

    def __init__(
        self,
        folder: Path,
        *,
        adapters: tuple[Adapter, ...],
        slots: int,
        body_bytes_max: int,
        send_bytes: int | None,
        rules: Callable[[Policy], Policy],
    ) -> None:
        configured = config(body_bytes_max=body_bytes_max, timeouts=TIMEOUTS)
        deployments = {
            name: msgspec.structs.replace(each, slots=slots, kv_tokens=slots * each.context_tokens)
            for name, each in configured.policy.deployments.items()
        }
        tenants = {
            name: msgspec.structs.replace(each, max_wait_ns=MAX_WAIT_NS)
            for name, each in configured.policy.tenants.items()
        }
        policy = rules(msgspec.structs.replace(configured.policy, deployments=deployments, tenants=tenants))
        self.engine = FakeEngine()
        self.engine.script = echo
        self.seen: list[UsageRecord] = []
        self.faults: list[str] = []
        self.fed = 0
        self.now = [SECOND]
        self.ticks = 0
        self.journal = Kept(folder, ballast_bytes=0)
        self.machine = Watched(policy)
        self.desk = CoreDesk(
            self.machine,
            lambda: 1_700_000_000 * SECOND + self.now[0] + self.ticks * TICK_NS,
            self.journal,
            self.seen.append,
            soon=asyncio.get_running_loop().call_soon,
        )
        self.gateway = Gateway(
            msgspec.structs.replace(configured, policy=policy),
            self.desk,
            lambda authorization, _peer: principal() if authorization == KEY else None,
            clock=lambda: 1_700_000_000 * SECOND,
            monotonic=lambda: self.now[0],
        )
        self.port = 0
        self._adapters = adapters
        self._send_bytes = send_bytes
        self.given: list[bytes] = []
        self._peers: list[Peer] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: self.faults.append(str(context)))
        await self.engine.start()
        await self.gateway.start(Address("127.0.0.1", 0))
        listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
        if self._send_bytes is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_bytes)
        self.port = listening.getsockname()[1]
        self._server = await loop.create_server(lambda: Counted(self), sock=listening, backlog=1000)
        for index, adapter in enumerate(self._adapters):
            self.ready(f"tiny-{index}", self.engine.port, adapter)

    def ready(self, replica_id: str, port: int, adapter: Adapter = OPENAI, model: str = "tiny") -> None:
        """A replica comes up, its engine at `port`."""
        deployment = self.machine.state.policy.deployments[model]
        replica = Replica(replica_id, model, deployment.milli_gpu, deployment.slots, deployment.kv_tokens)
        served = f"served/{model}"
        target = msgspec.structs.replace(
            self.engine.target(adapter), replica_id=replica_id, port=port, served_model=served
        )
        self.desk.replica_ready(replica, target)

    async def peer(self, **more: Any) -> Peer:
        peer = await Peer.connect(self.port, **more)
        self._peers.append(peer)
        return peer

    def mark(self) -> bytes:
        """A mark that no other request has."""
        self.given.append(b"mark-%06d-" % (len(self.given) + 1))
        return self.given[-1]

    async def sent(self, peer: Peer, data: bytes) -> None:
        """Send, and wait until the gateway has seen every byte."""
        before = self.fed
        peer.send(data)
        await self.until_fed(before + len(data))

    async def until_fed(self, size: int) -> None:
        while self.fed < size:  # noqa: ASYNC110 - bounded by the test's own time-out
            await asyncio.sleep(0)

    def pass_time(self, ns: int) -> None:
        """Let the monotonic clock jump, and the gateway look at its connections."""
        self.now[0] += ns
        self.gateway.beat()

    async def good(self) -> None:
        """A good request on a connection of its own is answered with its own mark, and nobody else's."""
        mark = self.mark()
        peer = await self.peer()
        peer.send(asking(mark))
        assert_answers(await peer.reply(), mark)
        await peer.close()

    async def heard_engine(self) -> None:
        """Wait until the gateway has read some of an engine's answer."""
        while not any(each._begun for each in self.gateway.pool._all if each.reader is not None):  # noqa: ASYNC110
            await asyncio.sleep(0)

    def left(self) -> Left:
        state = self.machine.state
        recorded = Counter((record.request_id, record.attempt) for record in self.seen if record.replica)
        dispatched = Counter(self.machine.dispatches)
        twice = [key for key, count in recorded.items() if count > 1]
        return Left(
            waiters=self.desk.open_requests,
            entries=len(self.machine.tasks.entries),
            milli_gpu=state.quotas["main"].use,
            running=sum(view.running for view in views.tenants(state)),
            waiting=sum(view.waiting for view in views.tenants(state)),
            borrowed=sum(view.borrowed for view in views.tenants(state)),
            slots=sum(running.slots_used for site in state.sites.values() for running in site.replicas.values()),
            connections=len(self.gateway.connections),
            exchanges=self.gateway.open_exchanges,
            held=self.gateway.held,
            upstream=sum(each.reader is not None for each in self.gateway.pool._all),
            dead=sum(each._transport is None or each._transport.is_closing() for each in self.gateway.pool._all),
            unmatched=(*((dispatched - recorded) + (recorded - dispatched)), *twice),
            unwritten=len(self.seen) - self.journal.records,
            faults=tuple(self.faults),
        )

    async def settled(self) -> None:
        """Hang up every client, and wait until nothing is left of any request."""
        for peer in self._peers:
            await peer.close()
        self._peers.clear()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WITHIN_S
        while self.left() != Left() and loop.time() < deadline:  # noqa: ASYNC110 - what is left tells nobody
            await asyncio.sleep(0.001)
        assert self.left() == Left()

    async def stop(self) -> None:
        for peer in self._peers:
            await peer.close()
        if self._server is not None:
            self._server.close()
        try:
            async with asyncio.timeout(WITHIN_S):  # a gateway that does not end is a failure, not a hang
                await self.gateway.close()
        finally:
            await self.engine.stop()
            self.journal.close()


@contextlib.asynccontextmanager
async def rig(
    folder: Path,
    *,
    adapters: tuple[Adapter, ...] = (OPENAI, OPENAI),
    slots: int = SLOTS,
    body_bytes_max: int = 256 * 1024,
    send_bytes: int | None = None,
    rules: Callable[[Policy], Policy] = lambda policy: policy,
) -> AsyncIterator[Rig]:
    """A data plane with a replica for each of `adapters`; behind the test's own steps it must be as good as new.

    `send_bytes` keeps the kernel from taking much that a client has not read. `rules` changes the policy.
    """
    gc.freeze()  # what is there already is no business of this test, and looking through it takes long
    here = Rig(
        folder, adapters=adapters, slots=slots, body_bytes_max=body_bytes_max, send_bytes=send_bytes, rules=rules
    )
    await here.start()
    ticking = asyncio.create_task(_tick(here))
    try:
        yield here
        await here.settled()
        if not here.gateway.draining:
            here.engine.script = echo
            await here.good()
            await here.settled()
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
        await here.stop()
        gc.collect()
        kept = [type(each).__name__ for each in gc.get_objects() if isinstance(each, (ServerConnection, Exchange))]
        gc.unfreeze()
    assert not kept, "these outlive their requests"


async def _tick(here: Rig) -> None:
    """As the product does, only sooner: a replica that failed is asked again after a tick, or some."""
    while True:
        await asyncio.sleep(0.02)
        here.ticks += 1
        here.desk.tick()


def echo(call: Call) -> None:
    """Answer with the request's own mark, streamed where that was asked for."""
    mark = cast("re.Match[bytes]", MARK.search(call.body))[0].decode()
    if b'"stream":true' in call.body:
        call.stream(*(text_event(mark) for _ in range(2)), usage_event(), done_event())
    else:
        call.answer(chat_answer(mark))


class _Written:
    """Stands where a transport would, and keeps what it is given."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


def echoed(call: Call) -> bytes:
    """The bytes of the answer that `echo` gives."""
    written = _Written()
    echo(Call(call.path, call.headers, call.body, cast("asyncio.Transport", written)))
    return written.data


def body(mark: bytes, **more: Any) -> bytes:
    """A chat request's body with its mark."""
    content = {"model": "tiny", "messages": [{"role": "user", "content": mark.decode()}], **more}
    return msgspec.json.encode(content)


def asking(mark: bytes, *, headers: str = "", **more: Any) -> bytes:
    """A whole chat request with its mark."""
    return post(body(mark, **more), headers=headers)


def marks(data: bytes) -> set[bytes]:
    return set(MARK.findall(data))


def assert_answers(reply: Reply, mark: bytes) -> None:
    """It is the engine's answer to that request, whole."""
    assert reply.status == 200, reply
    assert marks(reply.body) == {mark}
    if reply.headers["content-type"].startswith("text/event-stream"):
        assert reply.body.endswith(b"data: [DONE]\n\n")
    else:
        assert not reply.json["choices"][0]["message"]["content"].replace(mark.decode(), "")


def pieces(data: bytes, size: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))
