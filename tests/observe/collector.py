"""A collector of traces: an HTTP server that takes what OpenTelemetry's exporters post, and decodes it."""

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.leaks import none_in


class Received:
    """A span, as a test asks of it: ids in hexadecimal digits, "" for none."""

    def __init__(self, span: Any, resource: dict[str, Any]) -> None:
        self.name: str = span.name
        self.kind: int = span.kind
        self.trace_id: str = span.trace_id.hex()
        self.span_id: str = span.span_id.hex()
        self.parent_id: str = span.parent_span_id.hex()
        self.state: str = span.trace_state
        self.times: tuple[int, int] = (span.start_time_unix_nano, span.end_time_unix_nano)
        self.failed: bool = span.status.code == 2
        self.events: dict[str, int] = {event.name: event.time_unix_nano for event in span.events}
        self.attributes = attributes(span.attributes)
        self.resource = resource


def attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def decoded(payload: bytes) -> list[Received]:
    """The spans of what was posted."""
    whole = ExportTraceServiceRequest.FromString(payload)
    return [
        Received(span, attributes(each.resource.attributes))
        for each in whole.resource_spans
        for scope in each.scope_spans
        for span in scope.spans
    ]


class Collector:
    """`statuses` are answered first, one a post, then 200. `headers` are those of each post."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Received] = []
        self.headers: list[dict[str, str]] = []
        self.statuses: list[int] = []
        self._came = threading.Condition()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        assert path == "/v1/traces"
        none_in(body, "a trace")
        with self._came:
            self.headers.append(headers)
            status = self.statuses.pop(0) if self.statuses else 200
            if status == 200:
                self.spans += decoded(body)
            self._came.notify_all()
        return status

    def wait_for(self, enough: Callable[[list[Received]], bool]) -> list[Received]:
        """The spans, as soon as they are enough."""
        with self._came:
            assert self._came.wait_for(lambda: enough(self.spans), timeout=120), [span.name for span in self.spans]
            return list(self.spans)


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """One that listens."""
    here = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status = here.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        here.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield here
        finally:
            server.shutdown()
            thread.join()
