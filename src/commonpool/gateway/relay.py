"""The life of one request: it waits at the desk, is sent to a replica, and its answer is relayed and settled.

An exchange is the desk's waiter, the reader of the engine's answer, and what the client's connection knows of its
answer. Each attempt that is dispatched is reported to the desk as ended exactly once, before the last byte of the
answer is written.
"""

import enum
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

import msgspec

from commonpool.core import explain
from commonpool.core.effects import Refuse
from commonpool.core.events import Ended
from commonpool.core.model import Fault, Limits, Outcome, Reason, Request, TokenSource, Usage, Wait
from commonpool.core.records import STATUS_CLIENT_GONE
from commonpool.engines.assemble import Assembly
from commonpool.engines.base import Target
from commonpool.engines.heard import payloads
from commonpool.gateway import answers
from commonpool.gateway.caches import ALL, Part
from commonpool.gateway.desk import Attempts
from commonpool.gateway.errors import NS_PER_MS, RUN_TIME, ApiError, of_refusal
from commonpool.gateway.failures import Failures
from commonpool.gateway.http import Outlet, crowded
from commonpool.gateway.overheard import Heard, Overheard
from commonpool.gateway.pulse import Pulse
from commonpool.gateway.recall import KeptReply
from commonpool.gateway.sse import DONE, EventStream, EventTooLargeError, ProgressStream
from commonpool.gateway.upstream import Loss, Pool, UpstreamConnection
from commonpool.gateway.wire import Ask
from commonpool.observe.traces import Attempt, Track

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
PATHS: Final = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "embeddings": "/v1/embeddings"}
_LAST_CHUNK: Final = b"0\r\n\r\n"
_WAITED_NOT: Final = b"x-commonpool-wait: 0.000s\r\n"
_RECALLED: Final = b"x-commonpool-cache: hit\r\n"


class Place(Protocol):
    """What an exchange needs of the gateway. `clock` gives nanoseconds since the epoch."""

    pool: Pool
    pulse: Pulse
    clock: Callable[[], int]
    limits: Callable[[str, str, str], bytes]
    failures: Failures

    @property
    def desk(self) -> Attempts:
        """Who hears of its attempts."""

    def slow(self, error: ApiError, tenant: str, key: str, parts: Iterable[bytes]) -> None:
        """Have an error held back, where its client asks the same again and again; `parts` are the request."""


class _Phase(enum.Enum):
    WAITING = "waiting"  # at the desk
    RUNNING = "running"  # an attempt is dispatched and has not ended
    LEAVING = "leaving"  # as running, but that the client has left
    ENDING = "ending"  # reported; the end of the answer is written when that is durable
    OVER = "over"


# Bound once: an attribute of an Enum is slow.
_WAITING, _RUNNING, _LEAVING, _ENDING, _OVER = _Phase
_ENGINE, _UNCLEAR, _NOBODY = Fault
_COMPLETED: Final = Outcome.COMPLETED
_CANCELLED: Final = Outcome.CANCELLED
_ENDLESS: Final = 1 << 62
# An engine may say one token in two fields, and is asked for no more than there may be: only one that does not listen
# is cut.
COUNTED_TWICE: Final = 2


class Exchange:
    """One request and its answer, which is `reply` where one is kept.

    `served` says, when it was answered as a whole, by whom, and what it counts for.
    """

    __slots__ = ("_ask", "_assembly", "_attempt", "_body", "_bytes_out", "_connection", "_error", "_events",
                 "_first_token_at", "_flying", "_fresh", "_part", "_phase", "_place", "_size", "_sizes", "_started",
                 "_status", "_streamed", "_target", "_tokens_max", "_trace", "_track", "_until_ns", "_upstream",
                 "_wait_ns", "_waits", "reply", "request", "served")  # fmt: skip

    _target: Target
    _upstream: UpstreamConnection
    _streamed: bool  # a stream is what the engine was asked for

    def __init__(
        self, place: Place, connection: Outlet, request: Request, ask: Ask, trace: Track | bytes, sizes: Limits
    ) -> None:
        self._place = place
        self._connection = connection
        self.request = request
        self.reply: KeptReply | None = None
        self.served: tuple[Target, Usage] | None = None
        self._ask = ask
        self._track = trace if isinstance(trace, Track) else None
        self._trace = trace if isinstance(trace, bytes) else b""  # what an engine is told of a trace that is not ours
        self._sizes = sizes
        self._tokens_max = (sizes.tokens_out_max or _ENDLESS) * COUNTED_TWICE
        self._until_ns = _ENDLESS  # when this attempt has run for as long as it may, by the pulse's clock
        self._phase = _WAITING
        self._attempt = 0
        self._wait_ns = 0
        self._waits: tuple[Wait, ...] = ()
        self._status = 0
        self._first_token_at = 0
        self._events: EventStream | None = None
        self._assembly: Assembly | None = None  # gathers the stream for a client that wants its answer in one piece
        self._body: list[bytes] = []
        self._size = 0
        self._bytes_out = 0  # of the answer, as the client has got it so far
        self._started = False  # the head of a streamed answer is written
        self._fresh = False  # a kept connection was closed under this attempt already
        self._part = ALL
        self._flying = False  # whether the desk waits to hear that this attempt has landed
        self._error: ApiError | None = None  # that of the last attempt

    @property
    def first_token_at(self) -> int:
        """When the first token of this attempt's answer came, absolute; 0: not yet."""
        return self._first_token_at

    @property
    def runs(self) -> bool:
        """Whether an attempt is under way."""
        return self._phase is _RUNNING

    # -- Waiter ----------------------------------------------------------------------------------------------------

    def dispatched(self, target: Target, attempt: int, wait_ns: int, waits: tuple[Wait, ...], part: Part) -> None:
        self._target = target
        self._attempt = attempt
        self._wait_ns = wait_ns
        self._waits = waits
        self._part = part
        self._flying = part.tells != "nothing"
        if self._phase is _OVER:  # the client left in the moment of the decision
            self._landed(ran=False)
            self._end(Outcome.CANCELLED, Usage(), STATUS_CLIENT_GONE)
            return
        self._phase = _RUNNING
        self._first_token_at = 0
        self._fresh = False
        if self._sizes.run_ns_max is not None:
            self._until_ns = self._place.pulse.now_ns + self._sizes.run_ns_max
        self._send()

    def recalled(self) -> None:
        if self._phase is _OVER or self.reply is None:  # the client left in the meantime
            return
        self._phase = _OVER
        self._over(200, recalled=True)
        if self._ask.stream:
            self._last(self.reply.body)
        else:
            self._whole(self.reply.body)

    def refused(self, refusal: Refuse) -> None:
        self._fail(of_refusal(refusal))

    def failed(self) -> None:
        self._fail_recorded(
            self._error or ApiError(502, "engine_failed", "No engine could take the request; try again.")
        )

    def _send(self) -> None:
        target = self._target
        ask = self._ask
        self._status = 0
        self._size = 0
        self._body.clear()
        if target.adapter.frees_streams_only and ask.endpoint != "embeddings":
            self._streamed = True
            body = ask.streamed_body(target.served_model, target.adapter.progress_field, self._part.fields)
        else:
            self._streamed = ask.stream
            body = ask.body(target.served_model, self._part.fields)
        path = PATHS[ask.endpoint]
        trace = self._trace if self._track is None else self._track.lines(self._attempt)
        self._upstream = self._place.pool.send(target, path, body, self, extra=trace, fresh=self._fresh)

    def answer_with(self, reply: KeptReply) -> bool:
        """Have this as its answer; False where there is no room for it, and the client was told so."""
        if not self._connection.hold(len(reply.body)):
            self._fail_recorded(crowded())
            return False
        self.reply = reply
        return True

    def overhear(self, heard: Callable[[Heard], None], bytes_max: int) -> None:
        """Have `heard` get a copy of the answer at its end, of `bytes_max` at most. Before anything is answered."""
        self._connection = Overheard(self._connection, heard, bytes_max)

    # -- Reader ----------------------------------------------------------------------------------------------------

    def head(self, status: int, *, event_stream: bool) -> None:
        self._status = status
        if self._flying and self._part.tells == "head":
            self._landed(ran=status == 200)  # noqa: PLR2004 - OK
        if not event_stream or status != 200:  # noqa: PLR2004 - OK
            self._first_token_at = self._place.clock()
            return
        adapter = self._target.adapter
        ask = self._ask
        kind = EventStream if adapter.progress_field is None else ProgressStream
        choices = ask.choices if adapter.usage_per_choice and ask.sequences > 1 else None
        self._events = kind(include_usage=ask.include_usage or not ask.stream, choices=choices)
        self._assembly = None if ask.stream else Assembly()
        if self._connection.stalled:  # it did not even read what was sent before the answer
            self.pause()

    def data(self, piece: bytes) -> None:
        events = self._events
        error = None
        fault = _ENGINE
        try:
            if events is None:
                self._keep(piece)
                self._body.append(piece)
            else:
                out = events.feed(piece)
                if out:
                    self._relay(out)
                error = events.error
                if error is not None:
                    fault = _answered(error)
                elif events.tokens_out > self._tokens_max and not events.done:
                    self._enough(events, out)
                    return
        except EventTooLargeError:
            error = ApiError(502, "engine_failed", "The engine sent an event larger than any real one.")
        except msgspec.DecodeError:
            error = ApiError(502, "engine_failed", "The engine sent an event that is part of no answer.")
        except ApiError as unusable:
            error = unusable
            fault = _NOBODY
        if error is not None:
            self._give_up()
            self._attempt_failed(error, fault)

    def _keep(self, piece: bytes) -> None:
        """Account for a piece of an answer that is kept until it is whole. Raises ApiError where it is too large."""
        self._size += len(piece)
        if self._size > ANSWER_BYTES_MAX or not self._connection.hold(len(piece)):
            raise ApiError(502, "answer_too_large", "The engine's answer is too large to be kept.")

    def done(self) -> None:
        if self._flying:
            self._landed(ran=True)
        events = self._events
        if events is not None:
            self._stream_done(events)
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        if self._status != 200:  # noqa: PLR2004 - OK
            error = answers.engine_error(self._status, body)
            fault = _answered(error)
            self._attempt_failed(error, fault, retry=fault is _UNCLEAR)
            return
        usage = answers.usage_of(body)
        if usage is None:
            if not answers.is_object(body):
                error = ApiError(502, "engine_failed", "The engine's answer is not JSON; try again.")
                self._attempt_failed(error, _ENGINE)
                return
            usage = answers.estimate(self.request.tokens_in, answers.texts_of(body))
        self._answer(body, usage)

    def lost(self, loss: Loss) -> None:
        if loss is Loss.STALE and not self._fresh:
            self._fresh = True
            self._send()
            return
        if self._flying:
            self._give_up()
        match loss:
            case Loss.UNREACHED:
                error = ApiError(502, "engine_unreached", "The engine cannot be reached; try again.")
                self._attempt_failed(error, _ENGINE, retry=True)
            case Loss.STALE | Loss.BROKEN:
                error = ApiError(502, "engine_failed", "The engine closed the connection; try again.")
                self._attempt_failed(error, _ENGINE, retry=True)
            case Loss.CUT:
                error = ApiError(502, "engine_failed", "The engine broke off its answer; try again.")
                self._attempt_failed(error, _ENGINE, retry=self._events is not None and not self._started)
            case Loss.SILENT:
                error = ApiError(504, "engine_silent", "The engine was silent for too long; try again.")
                self._attempt_failed(error, _ENGINE)

    # -- answering -------------------------------------------------------------------------------------------------

    def _answer(self, body: bytes, usage: Usage) -> None:
        """Settle, then write a whole answer."""
        self._complete(usage, len(body), partial(self._whole, body))

    def _whole(self, body: bytes) -> None:
        self._connection.finish(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
            % (self._lines(), len(body), body)
        )

    def _relay(self, out: bytes) -> None:
        """Some whole events of a stream. Raises ApiError, or DecodeError, where they are gathered and cannot be."""
        connection = self._connection
        if self._started:
            self._bytes_out += len(out)
            connection.write(out if connection.http10 else b"%x\r\n%b\r\n" % (len(out), out))
            return
        self._first_token_at = self._first_token_at or self._place.clock()
        if self._assembly is not None:
            self._gather(self._assembly, out)
            return
        self._started = True
        self._bytes_out = len(out)
        framing = b""
        if connection.http10:
            connection.close_after()
        else:
            framing = b"transfer-encoding: chunked\r\n"
            out = b"%x\r\n%b\r\n" % (len(out), out)
        connection.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
            b"x-accel-buffering: no\r\n%b%b\r\n%b" % (self._lines(), framing, out)
        )

    def _gather(self, assembly: Assembly, out: bytes) -> None:
        self._keep(out)
        try:
            for payload in payloads(out):
                assembly.feed(payload)
        except RecursionError:
            raise msgspec.DecodeError from None

    def _stream_done(self, events: EventStream) -> None:
        if not events.done:
            error = ApiError(502, "engine_failed", "The engine broke off its answer; try again.")
            self._attempt_failed(error, _ENGINE)
            return
        usage = events.usage or events.counted(self.request.tokens_in)
        ending = events.ending()
        assembly = self._assembly
        if assembly is not None:
            for payload in payloads(ending):
                assembly.feed(payload)
            self._answer(assembly.body(), usage)
            return
        self._complete(usage, len(ending), partial(self._last, ending))

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

    def _enough(self, events: EventStream, out: bytes) -> None:
        """The engine goes on beyond what it was asked for: the answer ends here, as one that came to that length."""
        self._give_up()
        usage = events.counted(self.request.tokens_in)
        last = answers.cut_short(next(payloads(out), b"{}"), self._ask.sequences, usage)
        if self._assembly is not None:
            for payload in last:
                self._assembly.feed(payload)
            self._answer(self._assembly.body(), usage)
            return
        told = last if self._ask.include_usage else last[:1]
        ending = b"".join([b"data: %b\n\n" % payload for payload in told]) + DONE
        self._complete(usage, len(ending), partial(self._last, ending))

    def _run_out(self, run_ns: int) -> None:
        """It has run for as long as it may: the answer ends here, and what there is of it is paid for."""
        message = (
            f"The answer ends here: the request ran for {explain.duration(run_ns)}, all that it may (limits.run_time)."
        )
        error = ApiError(504, RUN_TIME, message)
        self._give_up()
        usage = self._produced()
        self._phase = _OVER
        if not self._started:
            self._end(_CANCELLED, usage, error.status, reason=Reason.RUN_TIME)
            self._fail_recorded(error)
            return
        event = b"data: %b\n\n" % error.body()
        self._end(_CANCELLED, usage, 200, last=len(event), reason=Reason.RUN_TIME)
        self._last(event)

    def _attempt_failed(self, error: ApiError, fault: Fault, *, retry: bool = False) -> None:
        """The attempt is over without a whole answer; the client hears of it now, or after the last attempt."""
        self._error = error
        self._body.clear()
        if self._started:
            events = self._events
            usage = events.counted(self.request.tokens_in) if events is not None else Usage()
            self._phase = _OVER
            event = b"data: %b\n\n" % error.body()
            self._complain(error)
            self._end(Outcome.FAILED, usage, 200, last=len(event), fault=fault)
            self._last(event)
            return
        self._events = self._assembly = None
        self._phase = _WAITING if retry else _OVER
        self._end(Outcome.FAILED, Usage(), error.status, retry=retry, fault=fault)
        if not retry:
            self._fail_recorded(error)

    def _fail_recorded(self, error: ApiError) -> None:
        """The same of a request that the core has taken, or has noted that it left."""
        error.recorded = True
        self._fail(error)

    def _fail(self, error: ApiError) -> None:
        self._phase = _OVER
        self._complain(error)
        self._over(error.status, error.code)
        request = self.request
        self._place.slow(error, request.tenant, request.key, self._ask.parts(request.model))
        self._connection.fail(error, request.id, self._place.limits(request.tenant, request.app, request.key))

    def _landed(self, *, ran: bool) -> None:
        if self._flying:
            self._flying = False
            self._place.desk.landed(self.request.id, self._attempt, ran=ran)

    def _give_up(self) -> None:
        """Nobody wants the answer any more. That the attempt has landed may be heard of later."""
        if self._flying:
            self._flying = False
            landed = partial(self._place.desk.landed, self.request.id, self._attempt, ran=False)
            self._upstream.leave(lambda closed: landed() if closed else None)
        else:
            self._upstream.abort()

    def _complete(self, usage: Usage, last: int, write: Callable[[], None]) -> None:
        """Report an answer that is whole, and have the `last` bytes of it written when its record is durable."""
        self._phase = _ENDING
        self.served = self._target, usage
        self._end(_COMPLETED, usage, 200, last=last, then=partial(self._ended, write))

    def _ended(self, write: Callable[[], None]) -> None:
        if self._phase is not _ENDING:  # its client is gone
            return
        self._phase = _OVER
        try:
            write()
        except Exception:
            self._connection.cut()  # else it would wait for the rest
            raise

    def _end(
        self,
        outcome: Outcome,
        usage: Usage,
        status: int,
        *,
        retry: bool = False,
        last: int = 0,
        fault: Fault = _NOBODY,
        reason: str = "",
        then: Callable[[], None] | None = None,
    ) -> None:
        """Report the attempt; its record is durable when `then` is called, without one when this returns.

        `last` is how much is still to be sent.
        """
        sent = self._bytes_out + last
        first = self._first_token_at
        event = Ended(self.request.id, self._attempt, outcome, usage, status, first, retry, sent, fault, reason)
        if self._track is not None:
            self._note(self._track, event)
        try:
            self._place.desk.ended(event, then)
        except Exception:
            self._connection.cut()  # nothing is answered that may not be recorded
            raise

    def _complain(self, error: ApiError) -> None:
        """Its client is told of this error, and so is the log."""
        self._place.failures.tell(self.request, error, self._track.name if self._track is not None else "")

    def _note(self, track: Track, event: Ended) -> None:
        """An attempt at what is traced has ended, and so has the request where it is not tried again."""
        target, error = self._target, event.reason
        if event.outcome is not _COMPLETED and not error:
            error = str(event.outcome) if event.outcome is _CANCELLED or self._error is None else self._error.code
        track.ended(
            Attempt(
                event.attempt,
                target.adapter.name,
                target.model or self.request.model,
                target.replica_id,
                target.host,
                target.port,
                self._waits,
                track.arrived_ns + self._wait_ns,
                event.first_token_at,
                self._place.clock(),
                event.outcome,
                event.status,
                error,
                event.usage,
            )
        )
        if not event.retry:
            self._over(event.status, error)

    def _over(self, status: int, error: str = "", *, recalled: bool = False) -> None:
        """Its client has heard the last of it, or soon has."""
        if self._track is not None:
            self._track.over(status, error, recalled=recalled)

    def _lines(self) -> bytes:
        """The header lines that every answer from an engine carries."""
        waited = _WAITED_NOT
        if self._wait_ns >= NS_PER_MS:
            waited = b"x-commonpool-wait: %b\r\n" % explain.header(self._wait_ns, self._waits).encode()
        request = self.request
        if self.reply is not None:
            waited += _RECALLED
        elif self._target.model not in ("", request.model):
            waited += b"x-commonpool-fallback: %b\r\n" % self._target.model.encode()
        place = self._place
        return b"x-request-id: %b\r\n%b%b%b%b" % (
            request.id.encode(),
            place.pulse.date,
            waited,
            place.limits(request.tenant, request.app, request.key),
            self._connection.persistence(),
        )

    # -- the client's connection -----------------------------------------------------------------------------------

    def gone(self) -> None:
        phase = self._phase
        self._phase = _OVER
        self._connection.left()
        if phase is _WAITING:
            self._over(STATUS_CLIENT_GONE, str(_CANCELLED))
            self._place.desk.cancel(self.request.id)
        elif phase is _RUNNING:
            usage = self._produced()
            if self._part.tells == "nothing":
                self._upstream.abort()
                self._end(Outcome.CANCELLED, usage, STATUS_CLIENT_GONE)
            else:
                self._phase = _LEAVING
                self._upstream.leave(partial(self._let_go, usage))

    def _let_go(self, usage: Usage, closed: bool) -> None:
        """The engine is through with what its client has left, or takes too long over it: its place is free.

        Not before: else clients that come and go would fill an engine with what nobody waits for.
        """
        if closed:
            self._landed(ran=False)
        if self._phase is _LEAVING:
            self._phase = _OVER
            self._end(Outcome.CANCELLED, usage, STATUS_CLIENT_GONE)

    def pause(self) -> None:
        if self._events is not None:
            self._upstream.pause()

    def resume(self) -> None:
        if self._events is not None:
            self._upstream.resume()

    def overdue(self, now_ns: int) -> None:
        """Once a beat: end what has run for as long as it may."""
        if now_ns >= self._until_ns and self._phase is _RUNNING:
            self._run_out(self._sizes.run_ns_max or 0)

    def cut(self) -> None:
        """The gateway stops and its deadline is over."""
        error = ApiError(503, "stopping", "The gateway is stopping; try again.", close=True)
        self._connection.close_after()
        if self._phase is _WAITING:
            self._place.desk.cancel(self.request.id)
            self._fail_recorded(error)
        elif self._phase is _RUNNING:
            self._give_up()
            self._attempt_failed(error, _NOBODY)

    def _produced(self) -> Usage:
        """What an answer that nobody waits for any more has used, as far as it can be known."""
        tokens_in = self.request.tokens_in
        if self._events is not None:
            return self._events.counted(tokens_in)
        # A stream has produced nothing before its first event; anything else may have produced its whole answer.
        return Usage(tokens_in, 0, 0, TokenSource.COUNTED if self._streamed else TokenSource.ESTIMATED)


def _answered(error: ApiError) -> Fault:
    """Whose fault it may be that an engine answered with this error."""
    return _UNCLEAR if error.status >= 500 else _NOBODY  # noqa: PLR2004
