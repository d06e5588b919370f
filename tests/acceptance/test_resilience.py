"""The real product before two engines, one of which fails for a while: its users do not notice."""

import contextlib
import http.server
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.acceptance.product import Product, free_ports, running
from tests.leaks import MARK

CONFIG = """
pools: {{main: {{gpus: 2_gpu}}}}
models:
  m:
    version: "1"
    gpu: 1_gpu
    slots: 4
    context: 4Ki
    engine: {{kind: attached, urls: ["http://127.0.0.1:{0}", "http://127.0.0.1:{1}"]}}
prices: {{currency: EUR, gpu_hour: {{main: 1}}}}
tenants:
  support: {{tenant: {{guaranteed: 1_gpu}}}}
"""
QUESTION: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": MARK}]}
SETTLE_S = 120.0  # each probe that fails makes the next come later


class Engine(http.server.BaseHTTPRequestHandler):
    """Answers its name, or, while it is ill, hangs up on every request that is not about its health."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": []})

    def do_POST(self) -> None:
        server: Any = self.server
        self.rfile.read(int(self.headers["content-length"]))
        server.asked += 1
        if server.ill:
            self.close_connection = True
            return
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        message = {"role": "assistant", "content": "hello"}
        self._answer({"choices": [{"index": 0, "message": message}], "usage": usage})

    def _answer(self, body: Any) -> None:
        raw = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def engine() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    server.ill, server.asked = False, 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_replica_that_fails_is_left_out_until_it_answers_again(tmp_path: Path) -> None:
    with (
        engine() as well,
        engine() as ill,
        running(tmp_path, CONFIG.format(well.server_port, ill.server_port)) as product,
    ):

        def ask() -> None:
            assert product.post("/v1/chat/completions", QUESTION, "support")["choices"]

        def states() -> list[str]:
            return [replica["state"] for replica in product.get("/admin/v1/replicas")["replicas"]]

        def ask_until(wanted: list[str]) -> None:
            deadline = time.monotonic() + SETTLE_S
            while states() != wanted:
                assert time.monotonic() < deadline, states()
                ask()

        ask_until(["ready", "ready"])
        ill.ill = True
        while not ill.asked or states() == ["ready", "ready"]:  # it is asked while nothing is known
            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            ask()
            for thread in threads:
                thread.join()
        assert states() == ["ready", "failing"]
        asked = ill.asked
        for _ in range(40):
            ask()
        assert ill.asked - asked <= 10  # one that was on its way, and now and then a probe: half would be 20
        ill.ill = False
        ask_until(["ready", "ready"])

        records = product.records()
        assert {record["status"] for record in records if record["outcome"] == "completed"} == {200}
        failed = [record for record in records if record["outcome"] == "failed"]
        assert failed
        again = {record["request_id"] for record in records if record["attempt"] == 2}
        assert {record["request_id"] for record in failed} == again
        assert all(record["micro_per_gpu_hour"] == 0 for record in failed)
        metrics = product.get("/metrics")
        told = re.findall(r'^commonpool_retries_total\{[^}]*tenant="support"[^}]*\} (\S+)$', metrics, re.MULTILINE)
        assert [float(count) for count in told] == [len(again)]


def test_a_model_whose_engine_is_away_holds_up_no_other(tmp_path: Path) -> None:
    dead = f"""  dead:
    version: "1"
    gpu: 1_gpu
    slots: 4
    context: 4Ki
    engine: {{kind: attached, urls: ["http://127.0.0.1:{free_ports(1)[0]}"]}}
"""
    with engine() as well, engine() as other:
        written = CONFIG.format(well.server_port, other.server_port)
        written = written.replace("2_gpu", "3_gpu").replace("prices:", f"{dead}prices:")
        product = Product(tmp_path, written)
        try:
            product.launch()  # it is never ready, since one model is away
            deadline = time.monotonic() + SETTLE_S
            while "Model dead cannot be served" not in product.output.read_text():
                assert time.monotonic() < deadline, product.output.read_text()
                time.sleep(0.05)
            product.take_keys()
            assert product.post("/v1/chat/completions", QUESTION, "support")["choices"]
            m, away = product.get("/admin/v1/status")["models"]
            assert (m["ready"], m["broken"], away["name"], away["ready"], away["broken"]) == (2, False, "dead", 0, True)
            assert away["error"]
        finally:
            product.stop()
