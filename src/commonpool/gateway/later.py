"""Requests that are answered later: taken where max_wait cannot be kept, done when there is time, fetched at a place of
their own.

A client says with `Prefer: respond-async` (RFC 7240) that it takes its answer later. What the core then refuses for its
promise is kept (`store.later.Keeper`), and its client is told where it will find the answer. The work itself takes the
way of every request, to the desk and to an engine; but its client is an errand of ours, which hands the answer to the
keeper.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol

import msgspec
import structlog

from commonpool.access.secrets import SecretsError
from commonpool.core.effects import Refuse
from commonpool.core.events import Arrived, Ended
from commonpool.core.model import LATER, Limits, Request, Wait
from commonpool.engines.base import Target
from commonpool.engines.heard import answer_of
from commonpool.gateway import wire
from commonpool.gateway.caches import Part
from commonpool.gateway.desk import Attempts, Desk, Waiter
from commonpool.gateway.errors import NS_PER_S, ApiError, of_refusal
from commonpool.gateway.failures import Failures
from commonpool.gateway.http import Outlet, Purse, ServerConnection, crowded
from commonpool.gateway.pulse import Pulse
from commonpool.gateway.relay import Exchange
from commonpool.gateway.upstream import Pool
from commonpool.gateway.wire import Ask
from commonpool.observe.traces import Track
from commonpool.store.contract import StoreError
from commonpool.store.later import Keeper, LaterPlace, LaterText, Owner, Reply, Underway, Work

PATH: Final = b"/v1/later/"
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024

log = structlog.get_logger()


class LaterDesk(Desk, Protocol):
    """What is needed of the owner of the core."""

    def again(self, event: Arrived, waiter: Waiter) -> None:
        """What was kept comes again: one of the waiter's methods follows, now or later, unless it is cancelled."""


class Home(Protocol):
    """What is needed of the gateway. `held` counts the bytes that are kept for all clients together."""

    pool: Pool
    pulse: Pulse
    clock: Callable[[], int]
    limits: Callable[[str, str, str], bytes]
    failures: Failures
    held: int
    held_max: int

    def purse_of(self, tenant: str) -> Purse:
        """Where what is kept for a tenant is counted."""

    def resumed(self, request: Request, trace: bytes, taken_ns: int) -> Track | bytes:
        """The trace of a request that was kept with these header lines, and is handed in now."""

    def tapped(self, outlet: Outlet, request: Request, asked: bytes) -> Outlet:
        """Where an answer is to be written, so that whoever keeps prompts hears of it."""


class Errands:
    """What is answered later: what clients ask about it, and the work that is under way."""

    def __init__(self, keeper: Keeper, desk: LaterDesk) -> None:
        self.keeper = keeper
        self.desk = desk
        self.home: Home
        self._errands: dict[Errand, None] = {}
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, home: Home) -> None:
        """Begin to do what is kept, from here."""
        self.home = home
        self.keeper.served_by(self)

    # -- what clients ask ----------------------------------------------------------------------------------------------

    def submit(
        self, connection: ServerConnection, exchange: Exchange, ask: Ask, sizes: Limits, trace: bytes, size: int
    ) -> None:
        """Hand in the request of a client that takes its answer later; `size` is that of its body."""
        request = exchange.request
        if self.keeper.takes(request.tenant, size):
            deferral = _Deferral(self, connection, exchange, ask, sizes, trace)
            self.desk.submit(msgspec.structs.replace(request, later=True), deferral)
        else:
            self.desk.submit(request, exchange)

    def ask(self, connection: ServerConnection, method: str, place: LaterPlace, limits: bytes) -> None:
        """Somebody asks after what is theirs, or does not want it any more (DELETE)."""
        if method == "DELETE":
            self.spawn(self._forget(connection, place, limits))
        elif place.stage == "answered":
            self.spawn(self._fetch(connection, place, limits))
        else:
            connection.answer(202, _lines(place) + limits, told(place), place.head.id)

    async def _fetch(self, connection: ServerConnection, place: LaterPlace, limits: bytes) -> None:
        asking = connection.exchange = _Asking()
        if not connection.hold(place.head.size):
            connection.fail(crowded(), place.head.id, limits)
            return
        try:
            reply = await self.keeper.reply(place.head.id)
        except StoreError as error:
            log.warning("an answer that is kept cannot be read", id=place.head.id, error=str(error))
            _fail(asking, connection, _unreadable(), limits)
            return
        if asking.left:
            return
        if reply is None:
            connection.fail(no_such(place.head.id), headers=limits)
            return
        lines = b"x-commonpool-later: answered\r\n"
        if reply.status >= 400:  # noqa: PLR2004 - it stays what it is, however often it is fetched
            lines += b"x-should-retry: false\r\n"
        connection.answer(reply.status, lines + limits, reply.body, place.head.id)

    async def _forget(self, connection: ServerConnection, place: LaterPlace, limits: bytes) -> None:
        asking = connection.exchange = _Asking()
        try:
            await self.keeper.forget(place.head.id)
        except StoreError as error:
            log.warning("what is kept for later cannot be deleted", id=place.head.id, error=str(error))
            _fail(asking, connection, _unreadable(), limits)
            return
        if not asking.left:
            body = msgspec.json.encode({"id": place.head.id, "object": "later", "deleted": True})
            connection.answer(200, limits, body)

    # -- the work ------------------------------------------------------------------------------------------------------

    def serve(self, work: Work, owner: Owner) -> Underway | None:
        """See `store.later.Server`."""
        if self._stopping:
            return None
        errand = Errand(self, self.home, owner, work)
        if not errand.hold(len(work.text.body)):
            errand.release()
            return None
        self._errands[errand] = None
        errand.begin()
        return errand

    def over(self, errand: "Errand") -> None:
        """Nothing more comes of it."""
        self._errands.pop(errand, None)

    @property
    def running(self) -> int:
        """How many are on an engine now."""
        return sum(errand.runs for errand in self._errands)

    def overdue(self, now_ns: int) -> None:
        """Once a beat: end what has run for as long as it may."""
        for errand in tuple(self._errands):
            errand.exchange.overdue(now_ns)

    def stop(self, *, at_once: bool) -> None:
        """The gateway stops: what waits is left for the next start, and `at_once` what runs, too."""
        self._stopping = True
        for errand in tuple(self._errands):
            if at_once or not errand.runs:
                errand.stop()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Asking:
    """An answer of our own that is being read from the store, as its connection sees it."""

    def __init__(self) -> None:
        self.left = False

    def gone(self) -> None:
        self.left = True

    def pause(self) -> None:
        """It is written at once."""

    def resume(self) -> None:
        """As `pause`."""

    def overdue(self, now_ns: int) -> None:
        """It takes as long as the store does."""


class _Deferral:
    """A request whose client takes its answer later: it waits like any other, until it would be refused for that."""

    def __init__(
        self, later: Errands, connection: ServerConnection, exchange: Exchange, ask: Ask, sizes: Limits, trace: bytes
    ) -> None:
        self.request = exchange.request
        self._later = later
        self._connection = connection
        self._exchange = exchange
        self._ask = ask
        self._sizes = sizes
        self._trace = trace

    @property
    def first_token_at(self) -> int:
        return self._exchange.first_token_at

    def dispatched(self, target: Target, attempt: int, wait_ns: int, waits: tuple[Wait, ...], part: Part) -> None:
        self._exchange.dispatched(target, attempt, wait_ns, waits, part)

    def recalled(self) -> None:
        self._exchange.recalled()

    def failed(self) -> None:
        self._exchange.failed()

    def refused(self, refusal: Refuse) -> None:
        if refusal.later:
            asking = self._connection.exchange = _Asking()
            self._later.spawn(self._keep(asking))
        else:
            self._exchange.refused(refusal)

    async def _keep(self, asking: _Asking) -> None:
        """It is durable before its client hears of it. What cannot be kept is handed in as that of any client."""
        later, request = self._later, self.request
        kept = msgspec.structs.replace(request, endpoint=LATER, stream=False, fallback=False)
        text = LaterText(self._ask.endpoint, self._ask.whole_body(), self._sizes, self._trace)
        try:
            place = await later.keeper.keep(kept, text)
        except (StoreError, SecretsError) as error:
            log.warning("a request cannot be kept for later", id=request.id, error=str(error))
            place = None
        if asking.left:
            if place is not None:  # nobody knows of it
                try:
                    await later.keeper.forget(request.id)
                except StoreError as error:
                    log.warning("what nobody waits for cannot be deleted", id=request.id, error=str(error))
        elif place is None:
            self._connection.exchange = self._exchange
            later.desk.submit(request, self._exchange)
        else:
            limits = later.home.limits(request.tenant, request.app, request.key)
            where = b"preference-applied: respond-async\r\nlocation: %b%b\r\n" % (PATH, request.id.encode())
            self._connection.answer(202, where + _lines(place) + limits, told(place), request.id)


class Errand:
    """A piece of work under way: the client of its exchange, and its waiter at the desk.

    The end of an attempt that answers it is told to the desk when the answer is kept: what was paid for is there.
    """

    def __init__(self, later: Errands, home: Home, owner: Owner, work: Work) -> None:
        self.request = work.head.request
        self.pool, self.pulse, self.clock = home.pool, home.pulse, home.clock
        self.limits, self.failures = home.limits, home.failures
        self.http10 = self.stalled = False
        self._later = later
        self._home = home
        self._owner = owner
        self._work = work
        self._purse = home.purse_of(self.request.tenant)
        self._held = 0
        self._ended: Ended | None = None  # what the desk is to be told when the answer is kept
        self._alone = False  # nobody waits for the answer any more
        ask = wire.read(work.text.endpoint, work.text.body)
        outlet = home.tapped(self, self.request, work.text.body)
        # It is traced as what was asked, from when it was taken: one span, below the one of its client.
        asked = msgspec.structs.replace(self.request, endpoint=work.text.endpoint)
        trace = home.resumed(asked, work.text.trace, work.head.taken_ns)
        self._track = trace if isinstance(trace, Track) else None
        self.exchange = Exchange(self, outlet, self.request, ask, trace, work.text.sizes)

    def begin(self) -> None:
        head = self._work.head
        self._later.desk.again(Arrived(self.request, self._work.attempts, head.taken_ns), self)

    @property
    def runs(self) -> bool:
        """Whether it is on an engine, or its answer is being kept."""
        return self.exchange.runs or self._ended is not None

    def drop(self) -> None:
        self._alone = True
        self.exchange.gone()
        self._over()

    def stop(self) -> None:
        """It is to be done after the next start."""
        if self._ended is None:
            self._alone = True
            if self._track is not None:
                self._track.leave()
            self.exchange.cut()
            self._over()
            self._owner.stopped()

    def release(self) -> None:
        self.hold(-self._held)

    def _over(self) -> None:
        self.release()
        self._later.over(self)

    # -- Waiter --------------------------------------------------------------------------------------------------------

    @property
    def first_token_at(self) -> int:
        return self.exchange.first_token_at

    def dispatched(self, target: Target, attempt: int, wait_ns: int, waits: tuple[Wait, ...], part: Part) -> None:
        if not self._alone:
            self._owner.runs(attempt)
        self.exchange.dispatched(target, attempt, wait_ns, waits, part)

    def recalled(self) -> None:
        """Answers that are kept are not looked for here."""

    def failed(self) -> None:
        self.exchange.failed()

    def refused(self, refusal: Refuse) -> None:
        error = of_refusal(refusal)
        self._over()
        if self._owner.refused(refusal, Reply(error.status, error.body())) and self._track is not None:
            self._track.over(error.status, error.code)

    # -- Place, and the desk of its exchange ---------------------------------------------------------------------------

    @property
    def desk(self) -> Attempts:
        return self

    def slow(self, error: ApiError, tenant: str, key: str, parts: Iterable[bytes]) -> None:
        """Nobody is there to be slowed down."""

    def cancel(self, request_id: str) -> None:
        self._later.desk.cancel(request_id)

    def ended(self, event: Ended, then: Callable[[], None] | None = None) -> None:
        if event.retry or self._alone:
            self._later.desk.ended(event, then)
            return
        self._ended = event  # told when the answer is where it will be found
        if then is not None:
            then()

    def landed(self, request_id: str, attempt: int, *, ran: bool) -> None:
        self._later.desk.landed(request_id, attempt, ran=ran)

    # -- Outlet --------------------------------------------------------------------------------------------------------

    def persistence(self) -> bytes:
        return b""

    def close_after(self) -> None:
        """There is no connection."""

    def hold(self, size: int) -> bool:
        home, purse = self._home, self._purse
        self._held += size
        home.held += size
        purse.held += size
        return home.held + purse.held <= home.held_max

    def write(self, data: bytes) -> None:
        """Its answer is wanted in one piece, so there are no others."""

    def finish(self, data: bytes) -> None:
        status, body = answer_of(data)
        if len(body) > ANSWER_BYTES_MAX:
            error = ApiError(
                502, "answer_too_large", f"The answer has more than {ANSWER_BYTES_MAX} bytes; ask for less."
            )
            status, body = error.status, error.body()
        self._reply(Reply(status or 500, body))

    def fail(self, error: ApiError, request_id: str = "", headers: bytes = b"") -> None:  # noqa: ARG002 - as any client
        self._reply(Reply(error.status, error.body()))

    def left(self) -> None:
        """It is we who left."""

    def cut(self) -> None:
        """There is no connection."""

    def _reply(self, reply: Reply) -> None:
        if not self._alone:
            self._owner.answered(reply, self._kept)

    def _kept(self) -> None:
        """The answer is where it will be found."""
        event, self._ended = self._ended, None
        self._over()
        if event is not None:
            self._later.desk.ended(event)


def told(place: LaterPlace) -> bytes:
    """What is told of a place whose answer is not there yet, or of what was just taken."""
    head = place.head
    return msgspec.json.encode(
        {
            "id": head.id,
            "object": "later",
            "status": place.stage,
            "model": head.request.model,
            "created_at": head.taken_ns // NS_PER_S,
            "expires_at": head.until_ns // NS_PER_S,
        }
    )


def no_such(id_: str) -> ApiError:
    """404: alike for what was never there, is no longer kept, or is somebody else's."""
    message = f"There is nothing to be answered later under {PATH.decode()}{id_[:80]}, or it is kept no longer."
    return ApiError(404, "later_not_found", message)


def _lines(place: LaterPlace) -> bytes:
    seconds = max(1, -(-place.retry_after_ns // NS_PER_S))
    return b"retry-after: %d\r\nx-commonpool-later: %b\r\n" % (seconds, place.stage.encode())


def _unreadable() -> ApiError:
    return ApiError(503, "later_unavailable", "What is kept cannot be read now; try again.", retry_after_ns=NS_PER_S)


def _fail(asking: _Asking, connection: ServerConnection, error: ApiError, limits: bytes) -> None:
    if not asking.left:
        connection.fail(error, headers=limits)
