"""The life of one request: it waits at the desk, is sent to a replica, and its answer is relayed and settled.

An exchange is the desk's waiter, the reader of the engine's answer, and what the client's connection knows of its
answer. Each attempt that is dispatched is reported to the desk as ended exactly once, before the last byte of the
answer is written.
"""

import enum
from collections.abc import Callable
from typing import Final, Protocol

from commonpool.core.effects import Refuse
from commonpool.core.events import Ended
from commonpool.core.model import Outcome, Request, TokenSource, Usage
from commonpool.engines.base import Target
from commonpool.gateway import answers
from commonpool.gateway.desk import Desk
from commonpool.gateway.errors import NS_PER_MS, ApiError, of_refusal
from commonpool.gateway.http import ServerConnection
from commonpool.gateway.pulse import Pulse
from commonpool.gateway.recount import Recount
from commonpool.gateway.sse import EventStream, EventTooLargeError
from commonpool.gateway.upstream import Loss, Pool, UpstreamConnection
from commonpool.gateway.wire import Ask

STATUS_GONE: Final = 499
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
RETRIED: Final = frozenset({502, 503, 504})
PATHS: Final = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "embeddings": "/v1/embeddings"}
_LAST_CHUNK: Final = b"0\r\n\r\n"
_WAITED_NOT: Final = b"x-commonpool-wait: 0.000s\r\n"


class Place(Protocol):
    """What an exchange needs of the gateway. `clock` gives nanoseconds since the epoch."""

    desk: Desk
    pool: Pool
    pulse: Pulse
    clock: Callable[[], int]
    limits: Callable[[str], bytes]


class _Phase(enum.Enum):
    WAITING = "waiting"  # at the desk
    RUNNING = "running"  # an attempt is dispatched and has not ended
    OVER = "over"


_WAITING, _RUNNING, _OVER = _Phase  # bound once: an attribute of an Enum is slow
_COMPLETED: Final = Outcome.COMPLETED


class Exchange:
    """One request and its answer."""

    __slots__ = ("_ask", "_attempt", "_body", "_connection", "_error", "_events", "_first_token_at", "_fresh", "_phase",
                 "_place", "_request", "_size", "_started", "_status", "_target", "_trace", "_upstream",
                 "_wait_ns")  # fmt: skip

    _target: Target
    _upstream: UpstreamConnection | Recount

    def __init__(self, place: Place, connection: ServerConnection, request: Request, ask: Ask, trace: bytes) -> None:
        self._place = place
        self._connection = connection
        self._request = request
        self._ask = ask
        self._trace = trace
        self._phase = _WAITING
        self._attempt = 0
        self._wait_ns = 0
        self._status = 0
        self._first_token_at = 0
        self._events: EventStream | None = None
        self._body: list[bytes] = []
        self._size = 0
        self._started = False  # the head of a streamed answer is written
        self._fresh = False  # a kept connection was closed under this attempt already
        self._error: ApiError | None = None  # that of the last attempt

    # -- Waiter ----------------------------------------------------------------------------------------------------

    def dispatched(self, target: Target, attempt: int, wait_ns: int) -> None:
        self._target = target
        self._attempt = attempt
        self._wait_ns = wait_ns
        if self._phase is _OVER:  # the client left in the moment of the decision
            self._end(Outcome.CANCELLED, Usage(), STATUS_GONE)
            return
        self._phase = _RUNNING
        self._first_token_at = 0
        self._fresh = False
        self._send()

    def refused(self, refusal: Refuse) -> None:
        self._fail(of_refusal(refusal))

    def failed(self) -> None:
        self._fail(self._error or ApiError(502, "engine_failed", "No engine could take the request; try again."))

    def _send(self) -> None:
        self._status = 0
        self._body.clear()
        body = self._ask.body(self._target.served_model)
        path = PATHS[self._request.endpoint]
        self._upstream = self._place.pool.send(self._target, path, body, self, extra=self._trace, fresh=self._fresh)

    # -- Reader ----------------------------------------------------------------------------------------------------

    def head(self, status: int, *, event_stream: bool) -> None:
        self._status = status
        self._first_token_at = self._place.clock()
        if event_stream and status == 200:  # noqa: PLR2004 - OK
            adapter = self._target.adapter
            per_choice = adapter.usage_per_choice and self._request.sequences > 1
            self._events = EventStream(include_usage=self._ask.include_usage, per_choice=per_choice)

    def data(self, piece: bytes) -> None:
        events = self._events
        if events is None:
            self._body.append(piece)
            self._size += len(piece)
            if self._size > ANSWER_BYTES_MAX or not self._connection.hold(len(piece)):
                self._upstream.abort()
                self._attempt_failed(ApiError(502, "answer_too_large", "The engine's answer is too large to be kept."))
            return
        try:
            out = events.feed(piece)
        except EventTooLargeError:
            self._upstream.abort()
            self._attempt_failed(ApiError(502, "engine_failed", "The engine sent an event larger than any real one."))
            return
        if out:
            self._relay(out)
        if events.failed:
            self._upstream.abort()
            self._attempt_failed(ApiError(502, "engine_failed", "The engine failed within its answer; try again."))

    def done(self) -> None:
        events = self._events
        if events is not None:
            self._stream_done(events)
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        if self._status != 200:  # noqa: PLR2004 - OK
            error = answers.engine_error(self._status, body)
            self._attempt_failed(error, retry=self._status in RETRIED)
            return
        usage = answers.usage_of(body)
        if usage is None:
            usage = answers.estimate(self._request.tokens_in, answers.texts_of(body))
        elif self._request.sequences > 1 and self._target.adapter.usage_per_choice:
            self._recount(body, usage)
            return
        self._answer(body, usage)

    def lost(self, loss: Loss) -> None:
        match loss:
            case Loss.STALE if not self._fresh:
                self._fresh = True
                self._send()
            case Loss.UNREACHED:
                self._attempt_failed(
                    ApiError(502, "engine_unreached", "The engine cannot be reached; try again."), retry=True
                )
            case Loss.STALE | Loss.BROKEN:
                self._attempt_failed(
                    ApiError(502, "engine_failed", "The engine closed the connection; try again."), retry=True
                )
            case Loss.CUT:
                self._attempt_failed(ApiError(502, "engine_failed", "The engine broke off its answer; try again."))
            case Loss.SILENT:
                self._attempt_failed(ApiError(504, "engine_silent", "The engine was silent for too long; try again."))

    # -- answering -------------------------------------------------------------------------------------------------

    def _answer(self, body: bytes, usage: Usage) -> None:
        """Settle, then write a whole answer."""
        self._phase = _OVER
        self._end(_COMPLETED, usage, 200)
        self._connection.finish(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
            % (self._lines(), len(body), body)
        )

    def _recount(self, body: bytes, usage: Usage) -> None:
        """The engine counted its first choice only: count the others, and tell the client the sum."""
        others = answers.texts_of(body)[1:]
        path = self._target.adapter.tokenize_path
        if not others or path is None:
            total = usage if not others else _plus(usage, answers.estimate(0, others))
            self._answer(answers.with_usage(body, total), total)
            return
        recount = Recount(
            self._place.pool, self._target, path, others, usage,
            lambda total: self._answer(answers.with_usage(body, total), total),
        )  # fmt: skip
        self._upstream = recount
        recount.start()

    def _relay(self, out: bytes) -> None:
        connection = self._connection
        if not connection.http10:
            out = b"%x\r\n%b\r\n" % (len(out), out)
        if self._started:
            connection.write(out)
            return
        self._started = True
        if connection.http10:
            connection.close_after()
        connection.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
            b"x-accel-buffering: no\r\n%b%b\r\n%b"
            % (self._lines(), b"" if connection.http10 else b"transfer-encoding: chunked\r\n", out)
        )

    def _stream_done(self, events: EventStream) -> None:
        if not events.done:
            self._attempt_failed(ApiError(502, "engine_failed", "The engine broke off its answer; try again."))
            return
        self._phase = _OVER
        self._end(_COMPLETED, events.usage or events.counted(self._request.tokens_in), 200)
        self._last(events.ending())

    def _last(self, out: bytes) -> None:
        """The last event of a stream."""
        connection = self._connection
        if not self._started:
            self._relay(out)
            connection.finish(b"" if connection.http10 else _LAST_CHUNK)
        elif connection.http10:
            connection.finish(out)
        else:
            connection.finish(b"%x\r\n%b\r\n0\r\n\r\n" % (len(out), out))

    def _attempt_failed(self, error: ApiError, *, retry: bool = False, outcome: Outcome = Outcome.FAILED) -> None:
        """The attempt is over without a whole answer; the client hears of it now, or after the last attempt."""
        self._error = error
        self._body.clear()
        if self._started:
            events = self._events
            usage = events.counted(self._request.tokens_in) if events is not None else Usage()
            self._phase = _OVER
            self._end(outcome, usage, 200)
            self._last(b"data: %b\n\n" % error.body())
            return
        self._events = None
        self._phase = _WAITING if retry else _OVER
        self._end(outcome, Usage(), error.status, retry=retry)
        if not retry:
            self._fail(error)

    def _fail(self, error: ApiError) -> None:
        self._phase = _OVER
        self._connection.fail(error, self._request.id, self._place.limits(self._request.tenant))

    def _end(self, outcome: Outcome, usage: Usage, status: int, *, retry: bool = False) -> None:
        """Report the attempt; when this returns its record is durable."""
        event = Ended(self._request.id, self._attempt, outcome, usage, status, self._first_token_at, retry)
        try:
            self._place.desk.ended(event)
        except Exception:
            self._connection.cut()  # nothing is answered that may not be recorded
            raise

    def _lines(self) -> bytes:
        """The header lines that every answer from an engine carries."""
        waited = _WAITED_NOT
        if self._wait_ns >= NS_PER_MS:
            waited = b"x-commonpool-wait: %d.%03ds\r\n" % divmod(self._wait_ns // NS_PER_MS, 1000)
        request = self._request
        place = self._place
        return b"x-request-id: %b\r\n%b%b%b%b" % (
            request.id.encode(), place.pulse.date, waited, place.limits(request.tenant), self._connection.persistence(),
        )  # fmt: skip

    # -- the client's connection -----------------------------------------------------------------------------------

    def gone(self) -> None:
        phase = self._phase
        self._phase = _OVER
        if phase is _WAITING:
            self._place.desk.cancel(self._request.id)
        elif phase is _RUNNING:
            self._upstream.abort()
            self._end(Outcome.CANCELLED, self._produced(), STATUS_GONE)

    def pause(self) -> None:
        if self._events is not None and isinstance(self._upstream, UpstreamConnection):
            self._upstream.pause()

    def resume(self) -> None:
        if self._events is not None and isinstance(self._upstream, UpstreamConnection):
            self._upstream.resume()

    def cut(self) -> None:
        """The gateway stops and its deadline is over."""
        error = ApiError(503, "stopping", "The gateway is stopping; try again.", close=True)
        self._connection.close_after()
        if self._phase is _WAITING:
            self._place.desk.cancel(self._request.id)
            self._fail(error)
        elif self._phase is _RUNNING:
            self._upstream.abort()
            self._attempt_failed(error, outcome=Outcome.CANCELLED)

    def _produced(self) -> Usage:
        """What an answer that nobody waits for any more has used, as far as it can be known."""
        tokens_in = self._request.tokens_in
        if self._events is not None:
            return self._events.counted(tokens_in)
        if isinstance(self._upstream, Recount):
            return self._upstream.usage
        return Usage(tokens_in, 0, 0, TokenSource.ESTIMATED)


def _plus(usage: Usage, more: Usage) -> Usage:
    return Usage(usage.tokens_in, usage.tokens_cached, usage.tokens_out + more.tokens_out, more.source)
