"""Requests that are over as spans, in OpenTelemetry's protobuf; names of attributes by its GenAI conventions.

A request is one span, with a child for each attempt's wait (`queue`) and one for its run at the engine, never one for a
chunk. They are children and no events, so that an engine which is traced itself has a parent that says which attempt it
was, and so that waiting and running can be searched for and summed up apart. What people wrote is in none of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from commonpool import __version__
from commonpool.core.keys import redact
from commonpool.core.model import NS_PER_S, Outcome, Request, Wait
from commonpool.observe.protobuf import fixed64, length, number
from commonpool.observe.traces import Attempt, Ended, engine_span, queue_span

PROVIDER: Final = "commonpool"
_OPERATIONS: Final = {"chat": "chat", "completions": "text_completion", "embeddings": "embeddings"}
_FAILED_FROM: Final = 500  # what a client did wrong is no error of the server's span
_UNSERVED_NS: Final = NS_PER_S // 1000  # what was refused sooner did not wait

_INTERNAL, _SERVER, _CLIENT, _CONSUMER = 1, 2, 3, 5  # kinds of spans
_ERROR: Final = 2  # of a status

Value = str | int


def payload(found: Iterable[bytes], resource: Mapping[str, str]) -> bytes:
    """What is posted to a collector: an ExportTraceServiceRequest of these spans."""
    scope = length(1, b"commonpool") + length(2, __version__.encode())
    about = b"".join(_attribute(1, key, value) for key, value in {"service.version": __version__, **resource}.items())
    scoped = length(1, scope) + b"".join([length(2, span) for span in found])
    return length(1, length(1, about) + length(2, scoped))


def spans(ended: Ended) -> Iterator[bytes]:
    """The spans of a request, its own first."""
    request, attempts = ended.request, ended.attempts
    last = attempts[-1] if attempts else None
    answered = last is not None and not ended.error
    yield _span(
        ended,
        ended.span_id,
        ended.parent_id,
        f"{_OPERATIONS[request.endpoint]} {request.model}",
        _CONSUMER if ended.later else _SERVER,
        (ended.arrived_ns, ended.ended_ns),
        {
            **_asked(request),
            "http.request.method": "POST",
            "http.response.status_code": ended.status,
            "commonpool.wait_ns": _waited_ns(ended),
            "commonpool.attempts": len(attempts),
            **({"commonpool.cache": "hit"} if ended.recalled else {}),
            **({"commonpool.later": "answered"} if ended.later else {}),
            **(_used(last) if answered and last is not None else {}),
        },
        ended.error,
        failed=ended.status >= _FAILED_FROM,
    )
    since = ended.arrived_ns
    for attempt in attempts:
        yield _queue(ended, attempt.number, (since, attempt.dispatched_ns), attempt.waits)
        yield _engine(ended, attempt)
        since = attempt.ended_ns
    unserved = not ended.recalled and (last is None or last.outcome is Outcome.FAILED)
    if unserved and ended.ended_ns - since > _UNSERVED_NS:
        yield _queue(ended, last.number + 1 if last else 1, (since, ended.ended_ns), ())


def _queue(ended: Ended, attempt: int, times: tuple[int, int], waits: tuple[Wait, ...]) -> bytes:
    """What it waited for is said, and not because of whom: that may be another tenant."""
    attributes: dict[str, Value] = {"commonpool.attempt": attempt}
    causes = dict.fromkeys((f"commonpool.wait.{wait.cause}_ns" for wait in waits), 0)
    for wait in waits:
        causes[f"commonpool.wait.{wait.cause}_ns"] += wait.ns
    attributes.update(causes)
    return _span(ended, queue_span(ended.span_id, attempt), ended.span_id, "queue", _INTERNAL, times, attributes)


def _engine(ended: Ended, attempt: Attempt) -> bytes:
    request = ended.request
    return _span(
        ended,
        engine_span(ended.span_id, attempt.number),
        ended.span_id,
        f"{_OPERATIONS[request.endpoint]} {attempt.model}",
        _CLIENT,
        (attempt.dispatched_ns, attempt.ended_ns),
        {
            **_asked(request),
            **_used(attempt),
            "gen_ai.provider.name": attempt.adapter,
            "server.address": attempt.host,
            "server.port": attempt.port,
            "http.response.status_code": attempt.status,
            "commonpool.replica": attempt.replica,
            "commonpool.attempt": attempt.number,
            "commonpool.outcome": attempt.outcome.value,
        },
        attempt.error or ("" if attempt.outcome is Outcome.COMPLETED else attempt.outcome.value),
        failed=attempt.outcome is Outcome.FAILED,
        first_token_ns=attempt.first_token_ns,
    )


def _asked(request: Request) -> dict[str, Value]:
    """What every span of a request says of it."""
    said: dict[str, Value] = {
        "gen_ai.operation.name": _OPERATIONS[request.endpoint],
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": request.model,
        "commonpool.request_id": request.id,
        "commonpool.tenant": request.tenant,
        "commonpool.app": request.app,
        "commonpool.tier": request.tier,
    }
    if request.tokens_out_max is not None:
        said["gen_ai.request.max_tokens"] = request.tokens_out_max
    if request.cost_center:
        said["commonpool.cost_center"] = request.cost_center
    return said


def _used(attempt: Attempt) -> dict[str, Value]:
    usage = attempt.usage
    return {
        "gen_ai.response.model": attempt.model,
        "gen_ai.usage.input_tokens": usage.tokens_in,
        "gen_ai.usage.output_tokens": usage.tokens_out,
        "gen_ai.usage.cache_read.input_tokens": usage.tokens_cached,
    }


def _waited_ns(ended: Ended) -> int:
    """From arrival to the last dispatch, or to the end of what was never dispatched."""
    if ended.recalled:
        return 0
    return (ended.attempts[-1].dispatched_ns if ended.attempts else ended.ended_ns) - ended.arrived_ns


def _span(
    ended: Ended,
    span_id: int,
    parent_id: int,
    name: str,
    kind: int,
    times: tuple[int, int],
    attributes: Mapping[str, Value],
    error: str = "",
    *,
    failed: bool = False,
    first_token_ns: int = 0,
) -> bytes:
    """A Span, field by field of OpenTelemetry's trace.proto."""
    start, end = times
    parts = [length(1, ended.trace_id.to_bytes(16, "big")), length(2, span_id.to_bytes(8, "big"))]
    if ended.state:
        parts.append(length(3, redact(ended.state.decode("ascii")).encode()))
    if parent_id:
        parts.append(length(4, parent_id.to_bytes(8, "big")))
    parts += (length(5, name.encode()), number(6, kind), fixed64(7, start), fixed64(8, max(start, end)))
    parts += [_attribute(9, key, value) for key, value in attributes.items()]
    if error:
        parts.append(_attribute(9, "error.type", error))
    if first_token_ns:
        parts.append(length(11, fixed64(1, first_token_ns) + length(2, b"first_token")))
    if failed:
        parts.append(length(15, number(3, _ERROR)))
    return b"".join(parts)


def _attribute(field: int, key: str, value: Value) -> bytes:
    """A KeyValue."""
    if isinstance(value, str):
        return _text(field, key, value)
    return length(field, _key(key) + length(2, number(3, value)))


@lru_cache(4096)  # most are the same from request to request
def _text(field: int, key: str, value: str) -> bytes:
    return length(field, _key(key) + length(2, length(1, value.encode())))


@lru_cache(256)
def _key(name: str) -> bytes:
    return length(1, name.encode())
