"""Traces of requests: whose trace a request belongs to, and what is kept of it until it is over.

A trace that a client began goes on (W3C Trace Context): its request is traced if the client says so. One that begins
here is traced in so many of a thousand cases. What is traced is told to the engine too, which may go on with it.

While a request waits and runs only a few numbers are kept; spans are made of them when it is over, on another thread
(`observe.spans`). Their ids follow from one number, so that the engine can be told the id of its parent at once.
"""

import os
import re
from collections.abc import Callable
from typing import Final

import msgspec

from commonpool.core.model import Outcome, Request, Usage, Wait

THOUSAND: Final = 1000
ATTEMPTS_MAX: Final = 8  # as many are kept of one request: the first ones
_ID_BYTES: Final = 24  # of a trace and of a span in it
_IDS_MASK: Final = (1 << 64) - 1
_TRACEPARENT: Final = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_TRACESTATE: Final = re.compile(rb"[\x20-\x7e\t]{1,512}")
_SAMPLED: Final = 1
_RATIO_BITS: Final = 64  # of the trace's id, the last: by these the SDKs of OpenTelemetry sample, too


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """An attempt that was dispatched and has ended. Times are nanoseconds since the epoch, 0 for what never came."""

    number: int
    adapter: str
    model: str
    replica: str
    host: str
    port: int
    waits: tuple[Wait, ...]
    dispatched_ns: int
    first_token_ns: int
    ended_ns: int
    outcome: Outcome
    status: int
    error: str
    usage: Usage


class Ended(msgspec.Struct, frozen=True, gc=False):
    """A request that is over. `error` is the code of what its client was told, "" where it was answered.

    Times are nanoseconds since the epoch. `parent_id` is the client's span, 0 where the trace began here. `later`: its
    client took its answer later.
    """

    request: Request
    trace_id: int
    span_id: int
    parent_id: int
    state: bytes
    arrived_ns: int
    ended_ns: int
    status: int
    error: str
    recalled: bool
    attempts: tuple[Attempt, ...]
    later: bool = False


class Track:
    """The trace of one request that waits or runs."""

    __slots__ = ("_over", "_taken_ns", "_traces", "arrived_ns", "attempts", "parent_id", "request", "span_id", "state",
                 "trace_id")  # fmt: skip

    def __init__(self, traces: "Traces", request: Request, context: tuple[int, int, int, bytes], taken_ns: int) -> None:
        self._traces = traces
        self._over = False
        self.request = request
        self.trace_id, self.span_id, self.parent_id, self.state = context
        self._taken_ns = taken_ns
        self.arrived_ns = taken_ns or traces.clock()
        self.attempts: list[Attempt] = []

    @property
    def name(self) -> str:
        """The trace's id, as others write it."""
        return f"{self.trace_id:032x}"

    def lines(self, attempt: int) -> bytes:
        """The header lines that tell an engine of its parent, which is this attempt's span."""
        return header(self.trace_id, engine_span(self.span_id, attempt), _SAMPLED, self.state)

    def ended(self, attempt: Attempt) -> None:
        """An attempt has ended."""
        if len(self.attempts) < ATTEMPTS_MAX:
            self.attempts.append(attempt)

    def leave(self) -> None:
        """It is not over, and goes on as another one: nothing is told of this."""
        self._over = True

    def over(self, status: int, error: str = "", *, recalled: bool = False) -> None:
        """The request is over. What is said of it after the first time counts for nothing."""
        if self._over:
            return
        self._over = True
        self._traces.offer(
            Ended(
                self.request,
                self.trace_id,
                self.span_id,
                self.parent_id,
                self.state,
                self.arrived_ns,
                self._traces.clock(),
                status,
                error,
                recalled,
                tuple(self.attempts),
                self._taken_ns > 0,
            )
        )


class Traces:
    """Begins the traces of requests. `offer` takes what is over; `sample_permille` of a thousand begin here.

    `clock` gives nanoseconds since the epoch, `ids` so many random bytes. `close` sends what is left, and blocks.
    """

    def __init__(
        self,
        offer: Callable[[Ended], None],
        sample_permille: int,
        clock: Callable[[], int],
        *,
        close: Callable[[], None] = lambda: None,
        ids: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.offer = offer
        self.close = close
        self.clock = clock
        self._bound = (sample_permille << _RATIO_BITS) // THOUSAND
        self._ids = ids

    def begin(self, request: Request, parent: bytes | None, state: bytes | None, taken_ns: int = 0) -> "Track | bytes":
        """The track of a request that is traced; of another one the header lines for its engine.

        `taken_ns` is when one came that is answered later, 0 for one that comes now.
        """
        number = int.from_bytes(self._ids(_ID_BYTES), "big") | 1  # no id is zero
        span_id, state = number & _IDS_MASK, state or b""
        found = None if parent is None else _TRACEPARENT.fullmatch(parent)
        if found is None:
            trace_id = number >> 64 or 1
            if trace_id & ((1 << _RATIO_BITS) - 1) >= self._bound:
                return header(trace_id, span_id, 0, b"")
            return Track(self, request, (trace_id, span_id, 0, b""), taken_ns)
        trace_id, parent_id, flags = (int(part, 16) for part in found.groups())
        if not flags & _SAMPLED:
            return passed_on(parent, state)
        return Track(self, request, (trace_id, span_id, parent_id, state), taken_ns)

    def resume(self, request: Request, lines: bytes, taken_ns: int) -> "Track | bytes":
        """The same of one that was kept with the header lines of its client's trace (`passed_on`), and is handed in."""
        found = dict(line.split(b": ", 1) for line in lines.split(b"\r\n") if line)
        return self.begin(request, found.get(b"traceparent"), found.get(b"tracestate"), taken_ns)


def passed_on(parent: bytes | None, state: bytes | None) -> bytes:
    """The header lines of a client's trace, for its engine, where nothing is added to it."""
    if parent is None:
        return b""
    return b"traceparent: %b\r\n%b" % (parent, b"tracestate: %b\r\n" % state if state else b"")


def header(trace_id: int, span_id: int, flags: int, state: bytes) -> bytes:
    """The header lines of a trace."""
    return passed_on(b"00-%032x-%016x-%02x" % (trace_id, span_id, flags), state)


def usable_state(value: bytes | None) -> bytes | None:
    """A client's `tracestate`, None where it is not one."""
    return value if value is not None and _TRACESTATE.fullmatch(value) else None


def queue_span(span_id: int, attempt: int) -> int:
    """The id of the span of an attempt's wait."""
    return _other(span_id, 2 * attempt - 1)


def engine_span(span_id: int, attempt: int) -> int:
    """The id of the span of an attempt's run."""
    return _other(span_id, 2 * attempt)


def _other(span_id: int, step: int) -> int:
    return (span_id + step) & _IDS_MASK or 1
