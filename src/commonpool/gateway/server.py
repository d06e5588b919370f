"""The data plane: where it listens, what paths it has, and how it stops.

The life of a request: a `ServerConnection` reads its head, `Gateway.admit` judges it, the body is read, `Gateway.begin`
turns it into a core request and an `Exchange`, and the desk says when it is sent on.
"""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from commonpool.access import tls
from commonpool.access.handshake import Door
from commonpool.config.structs import Address, Config, Timeouts
from commonpool.core.events import Recalled
from commonpool.core.model import Endpoint, Request
from commonpool.gateway import wire
from commonpool.gateway.chunked import too_large
from commonpool.gateway.desk import Desk
from commonpool.gateway.errors import ApiError, model_not_found
from commonpool.gateway.failures import Failures
from commonpool.gateway.head import Head
from commonpool.gateway.http import BUSY, Outlet, Purse, ServerConnection, crowded
from commonpool.gateway.identity import Principal
from commonpool.gateway.later import PATH as LATER
from commonpool.gateway.later import Errands, no_such
from commonpool.gateway.overheard import Heard
from commonpool.gateway.prompts import Tap
from commonpool.gateway.pulse import BEAT_NS, Pulse
from commonpool.gateway.recall import Question, Recall
from commonpool.gateway.relay import Exchange
from commonpool.gateway.repeats import HeldBack, Repeats, likeness
from commonpool.gateway.rules import Rules
from commonpool.gateway.upstream import Pool
from commonpool.observe.traces import Traces, Track, passed_on
from commonpool.store.prompts import Listener

NS_PER_S: Final = 1_000_000_000
CONNECTIONS_MAX: Final = 20_000
CROWDED_IDLE_NS: Final = 2 * NS_PER_S
HELD_BYTES_MAX: Final = 1024 * 1024 * 1024
BACKLOG: Final = 4096

_MODELS: Final = b"/v1/models"
_HEALTH: Final = b"/healthz"
_READY: Final = b"/readyz"
_ENDPOINTS: Final[dict[bytes, Endpoint]] = {
    b"/v1/chat/completions": "chat",
    b"/v1/completions": "completions",
    b"/v1/embeddings": "embeddings",
}
_PATHS: Final = ", ".join(path.decode() for path in (*_ENDPOINTS, _MODELS, _MODELS + b"/{model}", _HEALTH, _READY))


class Gateway:
    """The OpenAI-compatible server.

    `clock` gives nanoseconds since the epoch, for what is recorded; `monotonic` those that time-outs are measured by.
    `ready` says whether every model has a replica, or a sentence why not. `limits` gives the rate-limit header lines of
    a tenant, an app and a key, each with its end. `failed(status, code)` hears of each error that is answered and of
    which the core keeps no record, `slowed(tenant, why)` of each that is held back, `spoken` of all that is asked and
    answered of the tenants of `log_prompts`. `later` keeps what is answered later; without it nothing is. `traces`
    begins the traces of requests; None: there are none but those of clients, which are passed on.
    """

    def __init__(
        self,
        config: Config,
        desk: Desk,
        identify: Callable[[bytes, str | None], Principal | None],
        *,
        clock: Callable[[], int],
        monotonic: Callable[[], int],
        ready: Callable[[], tuple[bool, str]] = lambda: (True, ""),
        limits: Callable[[str, str, str], bytes] = lambda _tenant, _app, _key: b"",
        failed: Callable[[int, str], None] = lambda _status, _code: None,
        slowed: Callable[[str, str], None] = lambda _tenant, _why: None,
        listener: Listener | None = None,
        later: Errands | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.desk = desk
        self.clock = clock
        self.limits = limits
        self.pulse = Pulse(monotonic(), clock())
        self.pool = Pool(self.pulse, config.timeouts)
        self.draining = False
        self.held = 0
        self.held_max = max(HELD_BYTES_MAX, 2 * config.body_bytes_max)
        self.repeats = Repeats()
        self.failures = Failures(monotonic)
        self.connections_max = CONNECTIONS_MAX
        self.connections: set[ServerConnection] = set()
        self._monotonic = monotonic
        self._identify = identify
        self._ready = ready
        self._failed = failed
        self._slowed = slowed
        self._purses: dict[str, Purse] = {}
        self._tap = Tap(listener)
        self._traces = traces
        self._recall = Recall(config)
        self._prefix = secrets.token_hex(8)
        self._counter = itertools.count(1)
        self._created_s = clock() // NS_PER_S
        self._servers: list[asyncio.Server] = []
        self._door: Door | None = None
        self._watching: asyncio.Task[None] | None = None  # its certificate
        self._beat: asyncio.TimerHandle | None = None
        self._config = config
        self.body_bytes_max = config.body_bytes_max
        self._rules = Rules(config)
        self._later = later
        if later is not None:
            later.open(self)

    # -- life ------------------------------------------------------------------------------------------------------

    async def start(self, address: Address) -> int:
        """Listen; the port that was bound.

        Raises OSError where it is taken or may not be bound, TlsError where its certificate is of no use.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._entry(), address.host, address.port, backlog=BACKLOG)
        self._servers.append(server)
        if self._beat is None:
            self._beat = loop.call_later(BEAT_NS / NS_PER_S, self._on_beat, loop)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def _entry(self) -> Callable[[], asyncio.Protocol]:
        """What makes the protocol of each client: behind a handshake where the listener has TLS."""

        def connection() -> asyncio.Protocol:
            return ServerConnection(self)

        files = self._config.listen.gateway_tls
        if files is None:
            return connection
        certificate = tls.Certificate("listen.gateway_tls", files)
        door = self._door = Door(certificate, within_ns=self._config.timeouts.header_ns)
        self._watching = asyncio.create_task(certificate.watch(), name="certificate of the gateway")
        return lambda: door.greet(connection)

    def reconfigure(self, config: Config) -> None:
        """Requests that arrive from now on are judged by `config`; what waits or runs goes on."""
        self._rules = Rules(config)
        self._recall.configure(config)
        self._config = config
        self.body_bytes_max = config.body_bytes_max
        self.pool.timeouts = config.timeouts

    def log_prompts(self, tenants: frozenset[str]) -> None:
        """What these ask from now on, and get for it, is heard."""
        self._tap.tenants = tenants

    def trace(self, traces: Traces | None) -> None:
        """Requests that arrive from now on are traced by these."""
        self._traces = traces

    async def drain(self, within_ns: int) -> int:
        """Stop: take nothing new, let what waits and runs finish for `within_ns`, then cut it; how many were cut."""
        loop = asyncio.get_running_loop()
        self.draining = True
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.retire()
            if isinstance(connection.exchange, HeldBack):
                connection.exchange.tell()
        if self._later is not None:
            self._later.stop(at_once=False)
        deadline = loop.time() + within_ns / NS_PER_S
        while self._busy and loop.time() < deadline:  # noqa: ASYNC110 - spares the hot path a signal
            await asyncio.sleep(min(0.02, max(0.0, deadline - loop.time())))
        left = [each.exchange for each in self.connections if isinstance(each.exchange, Exchange)]
        # Those that wait first: what is cut makes room, and none of them is to be sent on only to be cut.
        for exchange in sorted(left, key=lambda each: each.runs):
            exchange.cut()
        if self._later is not None:
            self._later.stop(at_once=True)
        return len(left)

    async def close(self) -> None:
        """Close everything at once; what runs is cancelled."""
        self.draining = True
        for server in self._servers:
            server.close()
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        if self._watching is not None:
            self._watching.cancel()
        if self._door is not None:
            self._door.close()
        if self._later is not None:
            self._later.stop(at_once=True)
        for connection in tuple(self.connections):
            connection.cut()
        while self.connections:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        await self.pool.close()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)
        for server in self._servers:
            await server.wait_closed()

    @property
    def open_exchanges(self) -> int:
        """Requests that wait or run."""
        return sum(connection.state is BUSY for connection in self.connections)

    @property
    def _busy(self) -> bool:
        """Whether anything is under way that may be waited for."""
        return self.open_exchanges > 0 or (self._later is not None and self._later.running > 0)

    def beat(self) -> None:
        """Refresh the time and act on whatever is overdue; called by a timer twice a second."""
        self.pulse.beat(self._monotonic(), self.clock())
        timeouts = self._patience()
        for connection in tuple(self.connections):
            connection.overdue(self.pulse.now_ns, timeouts)
        if self._later is not None:
            self._later.overdue(self.pulse.now_ns)
        self.pool.sweep()
        self._recall.sweep(self.pulse.now_ns)

    def _patience(self) -> Timeouts:
        """How long clients may be silent. Where nearly as many are connected as may be, those that ask for nothing are
        closed much sooner.
        """
        timeouts = self._config.timeouts
        if 10 * len(self.connections) <= 9 * self.connections_max:
            return timeouts
        return msgspec.structs.replace(
            timeouts,
            header_ns=min(timeouts.header_ns, CROWDED_IDLE_NS),
            idle_ns=min(timeouts.idle_ns, CROWDED_IDLE_NS),
        )

    def _on_beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._beat = loop.call_later(BEAT_NS / NS_PER_S, self._on_beat, loop)
        self.beat()

    # -- Service: what the connections call ------------------------------------------------------------------------

    def opened(self, connection: ServerConnection) -> bool:
        self.connections.add(connection)
        return len(self.connections) <= self.connections_max

    def closed(self, connection: ServerConnection) -> None:
        self.connections.discard(connection)

    def next_id(self) -> str:
        return f"{self._prefix}-{next(self._counter):x}"

    def purse(self, principal: Principal | None) -> Purse:
        tenant = "" if principal is None else principal.tenant
        purse = self._purses.get(tenant)
        return self.purse_of(tenant) if purse is None else purse

    def purse_of(self, tenant: str) -> Purse:
        return self._purses.setdefault(tenant, Purse())

    def refused(self, error: ApiError) -> None:
        if not error.recorded:
            self._failed(error.status, error.code)

    def admit(self, head: Head, length: int, peer: str | None) -> Principal | None:
        if head.path not in _ENDPOINTS or head.method != "POST":
            self._check_path(head)
            if head.path in (_HEALTH, _READY):
                return None
        if self.draining:
            raise ApiError(503, "stopping", "The gateway is stopping; try again.", retry_after_ns=NS_PER_S, close=True)
        principal = None if head.authorization is None else self._identify(head.authorization, peer)
        if principal is None:
            raise _unknown_key(head.authorization, peer)
        if principal.scope != "data":
            raise ApiError(403, "wrong_scope", "This key is for administration; requests need a tenant's key.")
        if length > self.body_bytes_max:
            raise too_large(self.body_bytes_max)
        if self.held + self.purse(principal).held + 2 * length > self.held_max:
            raise crowded()
        return principal

    def _check_path(self, head: Head) -> None:
        """Raise for a path that is not there (404) or a method it does not take (405)."""
        path = head.path
        if path in _ENDPOINTS:
            methods: tuple[str, ...] = ("POST",)
        elif path in (_HEALTH, _READY):
            methods = ("GET", "HEAD")
        elif path == _MODELS or path.startswith(_MODELS + b"/"):
            methods = ("GET",)
        elif path.startswith(LATER) and self._later is not None:
            methods = ("GET", "DELETE")
        else:
            paths = _PATHS if self._later is None else f"{_PATHS}, {LATER.decode()}{{id}}"
            raise ApiError(404, "path_not_found", f"There is nothing at this path; there are {paths}.")
        if head.method not in methods:
            allow = ", ".join(methods)
            raise ApiError(405, "method_not_allowed", f"This path takes {allow}.", allow=allow)

    def begin(self, connection: ServerConnection, head: Head, principal: Principal | None, body: bytes) -> None:
        endpoint = _ENDPOINTS.get(head.path)
        if principal is None:
            self._answer_health(connection, head)
        elif endpoint is None and head.path.startswith(LATER):
            self._answer_later(connection, head, principal)
        elif endpoint is None:
            self._answer_models(connection, head, principal)
        else:
            request_id = self.next_id()
            try:
                ask = wire.read(endpoint, body)
                request, sizes = self._rules.request(request_id, principal, ask, len(body))
            except ApiError as error:
                self.failures.tell_of(request_id, principal.tenant, error, app=principal.app)
                self.slow(error, principal.tenant, principal.key_id, (head.path, body))
                connection.fail(error, request_id, self._limits_of(principal))
                return
            traces, parent, state = self._traces, head.traceparent, head.tracestate
            trace = passed_on(parent, state) if traces is None else traces.begin(request, parent, state)
            outlet = self.tapped(connection, request, body) if self._tap.tenants else connection
            exchange = Exchange(self, outlet, request, ask, trace, sizes)
            connection.exchange = exchange
            question = self._recall.question(request, ask) if self._recall.used else None
            if question is None or not self._recalled(question, exchange):
                if head.later and self._later is not None and request.tenant in self._config.later:
                    self._later.submit(connection, exchange, ask, sizes, passed_on(parent, state), len(body))
                else:
                    self.desk.submit(request, exchange)

    def _recalled(self, question: Question, exchange: Exchange) -> bool:
        """Whether its answer is kept, and all is done; if not, it will be kept, if it may."""
        reply = self._recall.find(question, self.pulse.now_ns)
        if reply is None:
            exchange.overhear(partial(self._keep, question, exchange), self._recall.answer_bytes_max)
            return False
        if exchange.answer_with(reply):  # before it is counted as answered
            self.desk.recall(Recalled(exchange.request, reply.usage, len(reply.body)), exchange)
        return True

    def _keep(self, question: Question, exchange: Exchange, heard: Heard) -> None:
        self._recall.keep(question, heard, exchange.served, self.pulse.now_ns)

    # -- Place: what the exchanges call beside -------------------------------------------------------------------------

    def tapped(self, outlet: Outlet, request: Request, asked: bytes) -> Outlet:
        """Where an answer is to be written, so that whoever keeps prompts hears of it."""
        return self._tap.on(outlet, request, self.clock(), asked)

    def resumed(self, request: Request, trace: bytes, taken_ns: int) -> Track | bytes:
        """The trace of a request that was kept with these header lines, and is handed in now."""
        return trace if self._traces is None else self._traces.resume(request, trace, taken_ns)

    def slow(self, error: ApiError, tenant: str, key: str, parts: Iterable[bytes]) -> None:
        if self.draining:
            return
        error.slowed = self.repeats.slowed(key, likeness(parts), error.retry_after_ns, self._monotonic())
        if error.slowed is not None:
            self._slowed(tenant, error.slowed.why)

    # -- answers of our own ----------------------------------------------------------------------------------------

    def _answer_health(self, connection: ServerConnection, head: Head) -> None:
        if head.path == _HEALTH:
            connection.answer(200, b"", b'{"status":"ok"}')
            return
        ready, why = (False, "The gateway is stopping.") if self.draining else self._ready()
        if not ready:
            raise ApiError(503, "not_ready", why, retry_after_ns=NS_PER_S)
        connection.answer(200, b"", b'{"status":"ready"}')

    def _answer_models(self, connection: ServerConnection, head: Head, principal: Principal) -> None:
        models = self._rules.models(principal)
        name = unquote_to_bytes(head.path[len(_MODELS) + 1 :]).decode(errors="replace")
        if name and name not in models:
            raise model_not_found(name, models)
        answer = (
            self._model(name) if name else {"object": "list", "data": [self._model(each) for each in sorted(models)]}
        )
        connection.answer(200, self._limits_of(principal), msgspec.json.encode(answer))

    def _answer_later(self, connection: ServerConnection, head: Head, principal: Principal) -> None:
        """What was taken to be answered later: for whoever has a key of the app that asked it, and nobody else."""
        name = head.path[len(LATER) :].decode(errors="replace")
        limits = self._limits_of(principal)
        place = None if self._later is None else self._later.keeper.find(principal.tenant, principal.app, name)
        if self._later is None or place is None:
            connection.fail(no_such(name), headers=limits)
        else:
            self._later.ask(connection, head.method, place, limits)

    def _limits_of(self, principal: Principal) -> bytes:
        return self.limits(principal.tenant, principal.app, principal.key_id)

    def _model(self, name: str) -> dict[str, str | int]:
        return {"id": name, "object": "model", "created": self._created_s, "owned_by": "commonpool"}


def _unknown_key(authorization: bytes | None, peer: str | None) -> ApiError:
    if authorization is None:
        message = "There is no Authorization header; send `Authorization: Bearer KEY`."
    else:
        message = (
            "The key in the Authorization header is unknown, revoked, expired or not allowed from "
            f"{peer or 'this socket'}, or it is not `Bearer KEY`."
        )
    return ApiError(401, "invalid_api_key", message)
