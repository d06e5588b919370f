"""A request of the official client, and its trace at a collector: through the gateway and the queue to the engine."""

from pathlib import Path

import openai
import pytest

from tests.acceptance.product import running
from tests.acceptance.test_durability import engine
from tests.leaks import MARK
from tests.observe.collector import collector

CONFIG = """
pools: {{main: {{gpus: 4_gpu}}}}
models:
  mock:
    version: "1"
    gpu: 4_gpu
    slots: 8
    context: 4096
    engine: {{kind: attached, urls: ["http://127.0.0.1:{engine}"]}}
prices: {{currency: EUR, gpu_hour: {{main: 1}}}}
tenants:
  support: {{tenant: {{guaranteed: 2_gpu, elastic_cap: 4_gpu}}}}
observe: {{traces: {{endpoint: "{collector}", sample: 100%}}}}
"""
SPANS = 3
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_request_of_the_official_client_is_one_trace(tmp_path: Path) -> None:
    with collector() as watcher, engine() as port:
        config = CONFIG.format(engine=port, collector=watcher.url)
        with running(tmp_path, config) as product:
            product.stop()
            product.start(
                OTEL_SERVICE_NAME="pool", OTEL_RESOURCE_ATTRIBUTES="zone=b%20c", OTEL_EXPORTER_OTLP_HEADERS="x-key=k1"
            )
            base = product.gateway + "/v1"
            with openai.OpenAI(base_url=base, api_key=product.keys["support"], max_retries=0) as client:
                stream = client.chat.completions.create(
                    model="mock",
                    messages=[{"role": "user", "content": MARK}],
                    stream=True,
                    extra_headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"},
                )
                chunks = sum(1 for _ in stream)
                with pytest.raises(openai.NotFoundError):
                    client.chat.completions.create(model="none", messages=[{"role": "user", "content": MARK}])
            assert chunks > SPANS
            found = watcher.wait_for(lambda spans: len(spans) >= SPANS)
            (record,) = product.records()
            metrics = product.get("/metrics")
        root, queue, run = found
        assert [span.name for span in found] == ["chat mock", "queue", "chat mock"]
        assert {span.trace_id for span in found} == {TRACE}
        assert [span.parent_id for span in found] == [PARENT, root.span_id, root.span_id]
        assert root.attributes["commonpool.request_id"] == record["request_id"]
        assert root.attributes["commonpool.tenant"] == "support"
        assert root.attributes["gen_ai.request.model"] == root.attributes["gen_ai.response.model"] == "mock"
        assert root.attributes["gen_ai.usage.output_tokens"] == record["tokens_out"]
        assert root.attributes["gen_ai.usage.input_tokens"] == record["tokens_in"]
        assert run.attributes["server.port"] == port
        assert root.times[0] <= queue.times[0] <= queue.times[1] <= run.times[0]
        assert run.times[0] <= run.events["first_token"] <= run.times[1] <= root.times[1]
        assert root.resource["service.name"] == "pool"
        assert root.resource["zone"] == "b c"
        assert watcher.headers[0]["x-key"] == "k1"
        assert watcher.headers[0]["content-type"] == "application/x-protobuf"
        assert "commonpool_traces_exported_total 1\n" in metrics
