"""Who waited, who gave up and what was late is known after `kill -9`, and asked for as users do."""

import json
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.acceptance.product import Product, running
from tests.acceptance.test_durability import engine

LIMIT_S = 240  # promises are looked at once a minute
# One at a time, and nobody is to wait for a thousandth of a second.
CONFIG = """
pools: {{main: {{gpus: 4_gpu}}}}
models:
  mock:
    version: "1"
    gpu: 4_gpu
    slots: 1
    context: 4096
    engine: {{kind: attached, adapter: openai, urls: ["http://127.0.0.1:{port}"]}}
prices: {{currency: EUR, gpu_hour: {{main: 1}}}}
tiers: {{interactive: {{queue_target: 1ms, first_token_target: 60s}}}}
tenants:
  support: {{tenant: {{guaranteed: 2_gpu}}, limits: {{input: 50}}}}
  research: {{tenant: {{guaranteed: 2_gpu}}}}
timeouts: {{stall: 1h}}
"""


def opened(product: Product, tenant: str, text: str = "hello") -> socket.socket:
    """A connection on which a chat was asked for, whose answer nobody has read."""
    body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": text}], "stream": True})
    where = urlsplit(product.gateway)
    asked = socket.create_connection((where.hostname, where.port), timeout=LIMIT_S)
    asked.sendall(
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {where.netloc}\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {product.keys[tenant]}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
    )
    return asked


def status(product: Product, tenant: str) -> dict[str, Any]:
    tenants: list[dict[str, Any]] = product.get("/admin/v1/status")["tenants"]
    return next(each for each in tenants if each["name"] == tenant)


def until(product: Product, tenant: str, **expected: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while any(status(product, tenant)[name] != value for name, value in expected.items()):
        assert time.monotonic() < deadline, status(product, tenant)
        time.sleep(0.02)


def begun(asked: socket.socket) -> socket.socket:
    """Returns when its answer has begun."""
    answer = b""
    while b"lorem" not in answer:
        answer += asked.recv(65536)
    return asked


def test_waits_are_known_after_kill_9(tmp_path: Path) -> None:
    with (
        engine("--chunks", "2", "--interval-ms", "600000") as port,  # an answer goes on until its client leaves
        running(tmp_path, CONFIG.format(port=port)) as product,
    ):
        # given one that runs, one that waits for it, and one that leaves while it waits
        first = begun(opened(product, "support"))
        second = opened(product, "research")
        until(product, "research", waiting=1)
        third = opened(product, "research")
        until(product, "research", waiting=2)
        third.close()
        until(product, "research", waiting=1)
        first.close()
        begun(second).close()
        until(product, "research", running=0, waiting=0)
        with opened(product, "support", "word " * 500) as refused:
            assert refused.recv(65536).startswith(b"HTTP/1.1 400 ")
        assert product.process is not None
        # when the product is killed and started again
        product.process.kill()
        product.process.wait()
        product.start()
        # then all of them are counted, once, where they belong
        table = product.cli("waits", "--by", "tenant,tier")
        rows = {row["group"][0]: row for row in table["rows"]}
        support, research = rows["support"], rows["research"]
        assert (support["cancelled"], support["queue"], support["wait"]["count"]) == (1, {"promised": 1, "late": 0}, 1)
        assert support["refused"] == {"input": 1}
        assert (research["cancelled"], research["abandoned"], research["unserved"]["count"]) == (1, 1, 1)
        assert research["wait"]["max_ns"] > 1_000_000
        assert research["queue"]["late"] >= 1
        assert research["first_token_promise"] == {"promised": 1, "late": 0}
        assert table["total"]["cancelled"] == 2
        # and the promise that was not kept is seen to burn
        deadline = time.monotonic() + LIMIT_S
        found: list[dict[str, Any]] = []
        while not found:
            assert time.monotonic() < deadline
            answer = product.cli("waits", "--promises", "--tenant", "research")
            found = [each for each in answer["promises"] if each["name"] == "queue" and each["spread"]["count"]]
            time.sleep(0.1)
        assert found[0]["burning"]["severity"] == "page"
        with urllib.request.urlopen(f"{product.control}/admin/v1/waits?by=day", timeout=180) as said:
            assert json.loads(said.read())["total"]["abandoned"] == 1
