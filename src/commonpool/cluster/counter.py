"""The core's side of the gateways: a counter for each, where its requests stand at the product's own desk."""

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from commonpool.cluster.messages import Batch, Counted, Go, Hello, Landed, News, Reply, address_of
from commonpool.core.effects import Fail, Recall, Refuse
from commonpool.core.events import Arrived, Cancelled, Ended, Recalled, Resumed
from commonpool.core.model import Outcome, Request, TokenSource, Usage, Wait
from commonpool.core.records import STATUS_CLIENT_GONE
from commonpool.engines.base import Target
from commonpool.gateway.caches import Part
from commonpool.gateway.desk import CoreDesk

NEWS_MAX: Final = 4096  # in one reply; the rest is in the next

log = structlog.get_logger()


class RemoteWaiter:
    """One request of a gateway elsewhere: what the desk says of it becomes news for that gateway."""

    __slots__ = ("_counter", "attempt", "request", "runs")

    def __init__(self, counter: "Counter", request: Request, attempt: int = 0) -> None:
        self._counter = counter
        self.request = request
        self.attempt = attempt
        self.runs = attempt > 0

    @property
    def first_token_at(self) -> int:
        """It is told at the end; until then the gateway knows it."""
        return 0

    def dispatched(self, target: Target, attempt: int, wait_ns: int, waits: tuple[Wait, ...], part: Part) -> None:
        self.attempt = attempt
        self.runs = True
        self._counter.tell(Go(self.request.id, attempt, wait_ns, waits, address_of(target), part), self.request)

    def recalled(self) -> None:
        self._counter.over(self.request, Recall(self.request.id))

    def refused(self, refusal: Refuse) -> None:
        self._counter.over(self.request, refusal)

    def failed(self) -> None:
        self._counter.over(self.request, Fail(self.request.id))


class Counter:
    """One gateway process's requests and the news for it. `counted` hears of what it has counted.

    `limits` gives the rate-limit header lines of a tenant, an app and a key.
    """

    def __init__(
        self,
        hello: Hello,
        desk: CoreDesk,
        *,
        limits: Callable[[str, str, str], bytes],
        counted: Callable[[Counted], None],
    ) -> None:
        self.session = hello.session
        self.hello = hello.number
        self._desk = desk
        self._limits = limits
        self._counted = counted
        self._heard = 0  # the last batch that was taken in
        self._waiters: dict[str, RemoteWaiter] = {}
        self._news: deque[News] = deque()
        self._first = 1  # the number of the oldest news that is kept
        self._callers: set[tuple[str, str, str]] = set()  # those in the news since the last reply
        self._limited: set[str] = set()  # the keys that had lines the last time
        self._told = asyncio.Event()
        self._closed = False

    # -- what the gateway calls ------------------------------------------------------------------------------------

    def resume(self, ran: Resumed) -> None:
        """It was dispatched by a core that is gone, and runs."""
        waiter = self._waiters[ran.request.id] = RemoteWaiter(self, ran.request, ran.attempt)
        self._desk.resume(ran, waiter)

    def finish(self, event: Ended) -> None:
        """An attempt ended. One that was told to a core before is recorded again, which the store takes once."""
        waiter = self._waiters.get(event.request_id)
        if waiter is not None:
            waiter.runs = False
            if not event.retry:
                del self._waiters[event.request_id]
        self._desk.ended(event)

    def submit(self, request: Request) -> None:
        waiter = self._waiters[request.id] = RemoteWaiter(self, request)
        self._desk.submit(request, waiter)

    def recall(self, event: Recalled) -> None:
        waiter = self._waiters[event.request.id] = RemoteWaiter(self, event.request)
        self._desk.recall(event, waiter)

    def take(self, batch: Batch, hold: Callable[[Request], None] | None = None) -> None:
        """What happened there, in order; a batch that was taken in before does nothing.

        New requests go to `hold`, where there is one, but for those that need nothing.
        """
        if batch.number <= self._heard:
            return
        self._heard = batch.number
        for event in batch.events:
            if isinstance(event, Arrived):
                (hold or self.submit)(event.request)
            elif isinstance(event, Recalled):
                self.recall(event)
            elif isinstance(event, Ended):
                self.finish(event)
            elif isinstance(event, Cancelled):
                self._cancel(event.request_id)
            elif isinstance(event, Landed):
                self._desk.landed(event.request_id, event.attempt, ran=event.ran)
            elif isinstance(event, Counted):
                self._counted(event)

    def reply(self, seen: int, now_ns: int = 0) -> Reply:
        """The news that the gateway has not had yet; `seen` is the last number that it had."""
        while self._news and self._first <= seen:
            self._news.popleft()
            self._first += 1
        news = list(self._news) if len(self._news) <= NEWS_MAX else [self._news[at] for at in range(NEWS_MAX)]
        limits = {}
        for tenant, app, key in sorted(self._callers):
            lines = self._limits(tenant, app, key)
            if lines or key in self._limited:
                limits[key] = lines
                (self._limited.add if lines else self._limited.discard)(key)
        self._callers.clear()
        self._told.clear()
        return Reply(self._first, news, limits, now_ns=now_ns)

    async def listen(self, seen: int, within_s: float) -> Reply:
        """The news as soon as there is some, or none after a while."""
        if not self._news or self._first + len(self._news) - 1 <= seen:
            self._told.clear()
            try:
                async with asyncio.timeout(within_s):
                    await self._told.wait()
            except TimeoutError:
                pass
        return self.reply(seen)

    def _cancel(self, request_id: str) -> None:
        """Its client left while it waited; if it was dispatched meanwhile, the gateway says how that ended."""
        waiter = self._waiters.get(request_id)
        if waiter is not None and not waiter.runs:
            del self._waiters[request_id]
            self._desk.cancel(request_id)

    # -- what the product says -------------------------------------------------------------------------------------

    @property
    def open_requests(self) -> int:
        return len(self._waiters)

    def has(self, request_id: str) -> bool:
        """Whether a request of this gateway waits or runs."""
        return request_id in self._waiters

    def tell(self, news: News, about: Request | None = None) -> None:
        """News for the gateway; about a request, the rate limits of whoever sent it are told too."""
        if self._closed:
            return
        self._news.append(news)
        if about is not None:
            self._callers.add((about.tenant, about.app, about.key))
        self._told.set()

    def over(self, request: Request, news: Recall | Refuse | Fail) -> None:
        self._waiters.pop(request.id, None)
        self.tell(news, request)

    def close(self) -> None:
        """The gateway is gone, and with it its clients: everything of it ends, so that nothing stays taken."""
        self._closed = True
        self._told.set()
        waiters, self._waiters = list(self._waiters.values()), {}
        # Those that wait first: what ends makes room, and none of them is to be sent on only to be ended.
        for waiter in waiters:
            if not waiter.runs:
                self._desk.cancel(waiter.request.id)
        for waiter in waiters:
            if waiter.runs:
                usage = Usage(waiter.request.tokens_in, 0, 0, TokenSource.ESTIMATED)
                self._desk.ended(Ended(waiter.request.id, waiter.attempt, Outcome.CANCELLED, usage, STATUS_CLIENT_GONE))


class Hall:
    """The counters of all gateways, by their names, and the order in which they come back after a restart.

    Requests are submitted only when every gateway of before has told what runs there (or the time for it is over): else
    slots and quota that are still in use would be given out again. Then they are in the order of their arrival,
    those that have come meanwhile behind those that waited. `clock` is the core's.
    """

    def __init__(self, make: Callable[[Hello], Counter], clock: Callable[[], int]) -> None:
        self._make = make
        self._clock = clock
        self._counters: dict[str, Counter] = {}
        self._missing: set[str] = set()
        self.recovered = asyncio.Event()  # every gateway of before has told what runs there, or its time is over
        self._held: list[tuple[int, Counter, Request | Ended]] = []

    def expect(self, gateways: set[str], within_s: float) -> None:
        """These gateways are there, and each will say hello."""
        self._missing = gateways - set(self._counters)
        if self._missing:
            asyncio.get_running_loop().call_later(within_s, self._release)
        else:
            self.recovered.set()

    def greet(self, hello: Hello) -> Counter:
        """A gateway says what it has. If it says so again, the answer was lost. If it is another process, all that the
        earlier one had is lost.
        """
        known = self.find(hello.gateway, hello.session)
        if known is not None and known.hello == hello.number:
            return known
        self._close(hello.gateway)
        counter = self._counters[hello.gateway] = self._make(hello)
        for ran in hello.running:
            counter.resume(ran)
        for finished in hello.finished:
            counter.resume(finished.ran)
            if finished.end.retry:
                self._held.append((finished.ran.arrived, counter, finished.end))
            else:
                counter.finish(finished.end)
        self._held += [(arrived, counter, request) for arrived, request in hello.waiting]
        self._came(hello.gateway)
        return counter

    def find(self, gateway: str, session: str) -> Counter | None:
        counter = self._counters.get(gateway)
        return counter if counter is not None and counter.session == session else None

    def whose(self, request_id: str) -> str | None:
        """The gateway of a request that waits or runs."""
        return next((name for name, counter in self._counters.items() if counter.has(request_id)), None)

    def lost(self, gateway: str, session: str | None = None) -> None:
        """The gateway's process is gone; with `session`, only if it is still that one."""
        counter = self._counters.get(gateway)
        if counter is None or session in (None, counter.session):
            self._close(gateway)
            self._came(gateway)

    def _close(self, gateway: str) -> None:
        counter = self._counters.pop(gateway, None)
        if counter is not None:
            self._held = [each for each in self._held if each[1] is not counter]
            counter.close()

    def _came(self, gateway: str) -> None:
        """Nothing more is to be heard of what ran there."""
        self._missing.discard(gateway)
        if not self._missing:
            self._release()

    def tell_all(self, news: News) -> None:
        for counter in self._counters.values():
            counter.tell(news)

    @property
    def open_requests(self) -> int:
        return sum(counter.open_requests for counter in self._counters.values()) + len(self._held)

    async def listen(self, gateway: str, session: str, seen: int, within_s: float) -> Reply:
        """The next news for a gateway."""
        counter = self.find(gateway, session)
        return Reply(unknown=True) if counter is None else await counter.listen(seen, within_s)

    def take(self, batch: Batch) -> Reply:
        """Take in a gateway's batch; what there is to tell it by then is the reply."""
        counter = self.find(batch.gateway, batch.session)
        if counter is None:
            return Reply(unknown=True)
        counter.take(batch, functools.partial(self._hold, counter) if self._missing else None)
        if self._held:
            self._drop(counter, {event.request_id for event in batch.events if isinstance(event, Cancelled)})
        return counter.reply(batch.seen, self._clock())

    def _hold(self, counter: Counter, request: Request) -> None:
        self._held.append((self._clock(), counter, request))

    def _drop(self, counter: Counter, left: set[str]) -> None:
        """The clients of these have left while they were held."""
        self._held = [
            (arrived, of, what)
            for arrived, of, what in self._held
            if of is not counter or isinstance(what, Ended) or what.id not in left
        ]

    def _release(self) -> None:
        """Submit what waited, oldest first."""
        if self._missing:
            log.warning("gateways of before did not come back in time", gateways=sorted(self._missing))
            self._missing.clear()
        held, self._held = self._held, []
        for _, counter, what in sorted(held, key=lambda each: each[0]):
            if isinstance(what, Ended):
                counter.finish(what)
            else:
                counter.submit(what)
        self.recovered.set()
