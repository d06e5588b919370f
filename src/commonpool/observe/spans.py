"""Requests that are over as spans, in OpenTelemetry's protobuf; names of attributes by its GenAI conventions.

A request is one span, with a child for each attempt's wait (`queue`) and one for its run at the engine, never one for a
chunk. They are children and no events, so that an engine which is traced itself has a parent that says which attempt it
was, and so that waiting and running can be searched for and summed up apart. What people wrote is in none of them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from commonpool import __version__
from commonpool.core.keys import redact
from commonpool.core.model import NS_PER_S, Outcome, Request, Wait
from commonpool.observe.traces import Attempt, Ended, engine_span, queue_span

PROVIDER: Final = "commonpool"
_OPERATIONS: Final = {"chat": "chat", "completions": "text_completion", "embeddings": "embeddings"}
_FAILED_FROM: Final = 500  # what a client did wrong is no error of the server's span
_UNSERVED_NS: Final = NS_PER_S // 1000  # what was refused sooner did not wait

Value = str | int


def payload(spans: list[Span], resource: Mapping[str, str]) -> bytes:
    """What is posted to a collector."""
    scope = ScopeSpans(scope=InstrumentationScope(name="commonpool", version=__version__), spans=spans)
    about = Resource(attributes=_pairs({"service.version": __version__, **resource}))
    whole = ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=about, scope_spans=[scope])])
    encoded: bytes = whole.SerializeToString()
    return encoded


def spans(ended: Ended) -> Iterator[Span]:
    """The spans of a request, its own first."""
    request, attempts = ended.request, ended.attempts
    last = attempts[-1] if attempts else None
    answered = last is not None and not ended.error
    yield _span(
        ended,
        ended.span_id,
        ended.parent_id,
        f"{_OPERATIONS[request.endpoint]} {request.model}",
        Span.SPAN_KIND_SERVER,
        (ended.arrived_ns, ended.ended_ns),
        {
            **_asked(request),
            "http.request.method": "POST",
            "http.response.status_code": ended.status,
            "commonpool.wait_ns": _waited_ns(ended),
            "commonpool.attempts": len(attempts),
            **({"commonpool.cache": "hit"} if ended.recalled else {}),
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


def _queue(ended: Ended, attempt: int, times: tuple[int, int], waits: tuple[Wait, ...]) -> Span:
    """What it waited for is said, and not because of whom: that may be another tenant."""
    attributes: dict[str, Value] = {"commonpool.attempt": attempt}
    causes = dict.fromkeys((f"commonpool.wait.{wait.cause}_ns" for wait in waits), 0)
    for wait in waits:
        causes[f"commonpool.wait.{wait.cause}_ns"] += wait.ns
    attributes.update(causes)
    return _span(
        ended, queue_span(ended.span_id, attempt), ended.span_id, "queue", Span.SPAN_KIND_INTERNAL, times, attributes
    )


def _engine(ended: Ended, attempt: Attempt) -> Span:
    request = ended.request
    span = _span(
        ended,
        engine_span(ended.span_id, attempt.number),
        ended.span_id,
        f"{_OPERATIONS[request.endpoint]} {attempt.model}",
        Span.SPAN_KIND_CLIENT,
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
    )
    if attempt.first_token_ns:
        span.events.add(time_unix_nano=attempt.first_token_ns, name="first_token")
    return span


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
    kind: "Span.SpanKind.ValueType",
    times: tuple[int, int],
    attributes: Mapping[str, Value],
    error: str = "",
    *,
    failed: bool = False,
) -> Span:
    start, end = times
    return Span(
        trace_id=ended.trace_id.to_bytes(16, "big"),
        span_id=span_id.to_bytes(8, "big"),
        parent_span_id=parent_id.to_bytes(8, "big") if parent_id else b"",
        trace_state=redact(ended.state.decode("ascii")) if ended.state else "",
        name=name,
        kind=kind,
        start_time_unix_nano=start,
        end_time_unix_nano=max(start, end),
        attributes=_pairs({**attributes, "error.type": error} if error else attributes),
        status=Status(code=Status.STATUS_CODE_ERROR) if failed else None,
    )


def _pairs(attributes: Mapping[str, Value]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: Value) -> AnyValue:
    return AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value)
