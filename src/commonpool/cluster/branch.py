"""The gateway's side: the `Desk` of a gateway whose core is an actor elsewhere.

What happens in one turn of the loop goes to the core in one call, and one call at a time is under way: what happens
meanwhile is the next one's batch, so that the batches grow with the load and the calls do not. News that is no answer
to what happened comes by a second call that waits for it.

Each request is known here until its end was heard there. A core that was restarted knows nothing: it is told what runs
and what waits (`Hello`), and the clients notice nothing but a longer wait.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog

from commonpool.cluster import messages
from commonpool.cluster.messages import (
    Batch,
    Counted,
    Finished,
    Go,
    Hello,
    KeyChanged,
    Landed,
    Logging,
    News,
    Readiness,
    Reconfigured,
    Reply,
    Told,
)
from commonpool.cluster.times import CoreTime
from commonpool.config.structs import Config
from commonpool.core.effects import Fail, Recall, Refuse
from commonpool.core.events import Arrived, Cancelled, Ended, Recalled, Resumed
from commonpool.core.model import NS_PER_S, Outcome, Reason, Request, Usage
from commonpool.core.records import STATUS_CLIENT_GONE
from commonpool.gateway.desk import Waiter
from commonpool.store.contract import Key

LISTEN_S: Final = 10.0
CALL_S: Final = 30.0  # a call that takes longer is made again
AGAIN_S: Final = 0.1
COUNT_S: Final = 5.0
AWAY_NS: Final = 60 * NS_PER_S  # a core that is away for longer than its restart takes

log = structlog.get_logger()


class Core(Protocol):
    """The core actor's methods. Each may raise anything while the core is away, and may have been performed then."""

    def hello(self, hello: bytes) -> Awaitable[bytes]:
        """Answers with `Welcome`."""

    def tell(self, batch: bytes) -> Awaitable[bytes]:
        """Answers with `Reply`."""

    def listen(self, gateway: str, session: str, seen: int, within_s: float) -> Awaitable[bytes]:
        """Answers with `Reply`, when there is news or after a while."""


class Branch(Protocol):
    """The rest of the gateway, as far as the core has news for it."""

    def welcomed(self, config: Config, keys: list[Key]) -> None:
        """By what and for whom requests are judged from now on."""

    def reconfigured(self, config: Config) -> None:
        """By what requests are judged from now on."""

    def key_changed(self, key: Key) -> None:
        """Whom a key stands for from now on."""

    def log_prompts(self, tenants: frozenset[str]) -> None:
        """Whose prompts are told to the core from now on."""


class _Open:
    """One request that waits or runs. `attempt` is the last that was dispatched; `end` is its end, when it is over.

    `recalled` is what was told of one whose answer is kept.
    """

    __slots__ = ("arrived", "attempt", "end", "recalled", "replica_id", "request", "started", "waiter")

    def __init__(self, told: Arrived | Recalled, waiter: Waiter, arrived: int) -> None:
        self.request = told.request
        self.recalled = told if isinstance(told, Recalled) else None
        self.waiter = waiter
        self.arrived = arrived
        self.attempt = 0
        self.started = 0
        self.replica_id = ""
        self.end: Ended | None = None

    def ran(self) -> Resumed:
        return Resumed(self.request, self.attempt, self.arrived, self.started, self.replica_id)


class RemoteDesk:
    """Belongs to one event loop. `clock` gives nanoseconds since the epoch; `now()` does by the core's clock.

    `counted` takes what was counted at the gateway since it was asked last. It is asked when a batch is made for a core
    that answers: while nobody takes it, it is one sum there, and not a message every few seconds here.
    """

    def __init__(
        self,
        gateway: str,
        session: str,
        core: Core,
        branch: Branch,
        clock: Callable[[], int],
        *,
        counted: Callable[[], Counted | None] = lambda: None,
        again_s: float = AGAIN_S,
        count_s: float = COUNT_S,
    ) -> None:
        self._gateway = gateway
        self._session = session
        self._core = core
        self._branch = branch
        self._clock = clock
        self._counted = counted
        self._again_s = again_s
        self._count_s = count_s
        self.now = CoreTime(clock)
        self._open: dict[str, _Open] = {}
        self._outbox: list[Told] = []
        self._count_due = False
        self._sending: list[Told] = []  # the batch under way
        # Of those that have ended and whose end was not heard yet: what ran.
        self._unheard: dict[tuple[str, int], Resumed] = {}
        self._hellos = 0
        self._number = 0
        self._seen = 0
        self._something = asyncio.Event()
        self._limits: dict[str, bytes] = {}
        self._away_since: int | None = clock()
        self._readiness = Readiness(ready=False, why="The core has not been reached yet.")

    # -- Desk ------------------------------------------------------------------------------------------------------

    def submit(self, request: Request, waiter: Waiter) -> None:
        self._ask(Arrived(request), waiter)

    def recall(self, event: Recalled, waiter: Waiter) -> None:
        self._ask(event, waiter)

    def cancel(self, request_id: str) -> None:
        if self._open.pop(request_id, None) is not None:
            self._send(Cancelled(request_id))

    def ended(self, event: Ended, then: Callable[[], None] | None = None) -> None:
        """Its record is durable when the core has heard it, which is soon after this returns (docs/ray.md)."""
        request = self._open[event.request_id]
        if event.retry:
            request.end = event
        else:
            del self._open[event.request_id]
        self._end(event, request)
        if then is not None:
            then()

    def landed(self, request_id: str, attempt: int, *, ran: bool) -> None:
        self._send(Landed(request_id, attempt, ran))

    def _ask(self, event: Arrived | Recalled, waiter: Waiter) -> None:
        request_id = event.request.id
        if self._away_since is not None and self._clock() - self._away_since > AWAY_NS:
            waiter.refused(_away(request_id))
            return
        self._open[request_id] = _Open(event, waiter, self.now())
        self._send(event)

    def _end(self, event: Ended, request: _Open) -> None:
        self._unheard[event.request_id, event.attempt] = request.ran()
        self._send(event)

    def _send(self, event: Told) -> None:
        self._outbox.append(event)
        self._something.set()

    # -- what the gateway asks -------------------------------------------------------------------------------------

    def ready(self) -> tuple[bool, str]:
        """Whether the product is ready, or a sentence why not."""
        if self._away_since is not None:
            return False, "The core cannot be reached; requests wait for it."
        return self._readiness.ready, self._readiness.why

    def limits(self, tenant: str, app: str, key: str) -> bytes:  # noqa: ARG002 - a key is of one app of one tenant
        """The rate-limit header lines of a key, as the core said last."""
        return self._limits.get(key, b"")

    def first_token_at(self, request_id: str) -> int:
        """When the first token of the answer to a request that runs came, by the core's clock; 0: not yet."""
        request = self._open.get(request_id)
        return 0 if request is None else request.waiter.first_token_at

    # -- the calls -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Talk with the core for ever."""
        while True:
            await self._greet()
            telling = asyncio.create_task(self._tell(), name="tell")
            listening = asyncio.create_task(self._listen(), name="listen")
            counting = asyncio.create_task(self._count(), name="count")
            tasks = {telling, listening, counting}
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                done = await asyncio.gather(*tasks, return_exceptions=True)
            for each in done:
                if isinstance(each, Exception):
                    raise each

    async def _greet(self) -> None:
        """Tell a core all there is, until one has heard it."""
        hello = self._hello()
        data = messages.encode(hello)
        while True:  # the core answers when it has recovered, so this may take a while
            try:
                welcome = messages.decode_welcome(await self._call(self._core.hello(data)))
            except Exception as error:  # noqa: BLE001 - whatever Ray raises, the core is not there now
                self._away(str(error))
                await asyncio.sleep(self._again_s)
            else:
                break
        for finished in hello.finished:
            if not finished.end.retry:
                self._unheard.pop((finished.end.request_id, finished.end.attempt), None)
        self.now.begin(welcome.now_ns)
        self._away_since = None
        self._readiness = welcome.readiness
        self._branch.welcomed(messages.unpack_config(welcome.config), welcome.keys)
        self._branch.log_prompts(frozenset(welcome.logging))

    def _hello(self) -> Hello:
        lost = [*self._sending, *self._outbox]  # `Counted` among it may have been added up, so it is not told again
        self._sending = []
        finished = [
            Finished(ran, event)
            for event in lost
            if isinstance(event, Ended) and not event.retry
            if (ran := self._unheard.get((event.request_id, event.attempt))) is not None
        ]
        running, waiting = [], []
        self._outbox = []
        for each in self._open.values():
            if each.recalled is not None:
                self._outbox.append(each.recalled)  # a record that this makes twice is kept once
            elif not each.attempt:
                waiting.append((each.arrived, each.request))
            elif each.end is None:
                running.append(each.ran())
            else:
                finished.append(Finished(each.ran(), each.end))
        self._number = self._seen = 0
        self._hellos += 1
        return Hello(self._gateway, self._session, self._hellos, finished, running, waiting)

    async def _tell(self) -> None:
        """Send what happens, one batch at a time; returns when the core does not know us."""
        while True:
            while not self._take():
                self._something.clear()
                await self._something.wait()
            self._number += 1
            reply = await self._sent(Batch(self._gateway, self._session, self._number, self._seen, self._sending))
            if reply.unknown:
                return
            for event in self._sending:
                if isinstance(event, Ended):
                    self._unheard.pop((event.request_id, event.attempt), None)
            self._sending = []
            self._hear(reply)

    def _take(self) -> bool:
        """Make the next batch of what there is; False where there is nothing."""
        self._sending, self._outbox = self._outbox, []
        if self._count_due and self._away_since is None:
            self._count_due = False
            counted = self._counted()
            if counted is not None:
                self._sending.append(counted)
        return bool(self._sending)

    async def _count(self) -> None:
        """Send what was counted, which is no reason for a call in the moment in which it is."""
        while True:
            await asyncio.sleep(self._count_s)
            self._count_due = True
            self._something.set()

    async def _sent(self, batch: Batch) -> Reply:
        """The reply to a batch, which is sent until there is one."""
        while True:
            try:
                sent = self._clock()
                reply = messages.decode_reply(await self._call(self._core.tell(messages.encode(batch))))
            except Exception as error:  # noqa: BLE001 - as above
                self._away(str(error))
                await asyncio.sleep(self._again_s)
            else:
                if not reply.unknown:
                    self.now.answered(sent, reply.now_ns)
                return reply

    async def _listen(self) -> None:
        """Wait for news, again and again; returns when the core does not know us."""
        while True:
            try:
                call = self._core.listen(self._gateway, self._session, self._seen, LISTEN_S)
                reply = messages.decode_reply(await self._call(call))
            except Exception as error:  # noqa: BLE001 - as above
                self._away(str(error))
                await asyncio.sleep(self._again_s)
                continue
            if reply.unknown:
                return
            self._hear(reply)

    async def _call(self, call: Awaitable[bytes]) -> bytes:
        async with asyncio.timeout(CALL_S):
            return await call

    def _away(self, why: str) -> None:
        """The core does not answer. Those that have waited for it for too long are refused."""
        now = self._clock()
        if self._away_since is None:
            log.warning("the core cannot be reached; requests wait for it", why=why.splitlines()[0] if why else "")
            self._away_since = now
        if now - self._away_since > AWAY_NS:
            for request_id in [each.request.id for each in self._open.values() if not each.attempt or each.end]:
                self._send(Cancelled(request_id))
                self._open.pop(request_id).waiter.refused(_away(request_id))

    # -- what the core says ----------------------------------------------------------------------------------------

    def _hear(self, reply: Reply) -> None:
        self._away_since = None
        self._limits.update(reply.limits)
        for number, news in enumerate(reply.news, reply.first):
            if number > self._seen:
                self._seen = number
                self._heed(news)

    def _heed(self, news: News) -> None:
        match news:
            case Go():
                self._go(news)
            case Recall() | Refuse() | Fail():
                self._over(news)
            case KeyChanged(key):
                self._branch.key_changed(key)
            case Logging(tenants):
                self._branch.log_prompts(frozenset(tenants))
            case Reconfigured(config):
                self._branch.reconfigured(messages.unpack_config(config))
            case Readiness():
                self._readiness = news

    def _over(self, news: Recall | Refuse | Fail) -> None:
        request = self._open.pop(news.request_id, None)
        if request is None:
            return
        match news:
            case Recall():
                request.waiter.recalled()
            case Refuse():
                request.waiter.refused(news)
            case Fail():
                request.waiter.failed()

    def _go(self, news: Go) -> None:
        request = self._open.get(news.request_id)
        if request is None:  # its client left in the moment of the decision
            self.landed(news.request_id, news.attempt, ran=False)
            self._send(Ended(news.request_id, news.attempt, Outcome.CANCELLED, Usage(), STATUS_CLIENT_GONE))
            return
        request.attempt = news.attempt
        request.started = self.now()
        request.replica_id = news.target.replica_id
        request.end = None
        target = messages.target_of(news.target)
        request.waiter.dispatched(target, news.attempt, news.wait_ns, news.waits, news.part)


def _away(request_id: str) -> Refuse:
    message = "The core of the product has not answered for a minute, so nothing is served; try again later."
    return Refuse(request_id, Reason.NO_JOURNAL, message, 10 * NS_PER_S)
