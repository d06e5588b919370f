"""A running product for browser tests: nodes, an engine that takes its time, people with accounts, load."""

import contextlib
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.acceptance.product import KEY, Product

ENGINE = Path(__file__).parents[2] / "benchmarks" / "mock_engine.py"
PASSWORD = "correct horse battery"
PEOPLE = ("ann", "bo", "vera")  # of the platform, of tenant support, of nobody
CONFIG = """
nodes:
  node-1: {{gpus: 4, gpu_model: A100, gpu_memory: 80GiB, links: all}}
  node-2: {{gpus: 2, gpu_model: L40S, gpu_memory: 48GiB}}
pools: {{main: {{}}}}
models:
  chat:
    version: "1"
    gpu: 1_gpu
    slots: 4
    context: 4096
    engine:
      kind: attached
      urls: ["http://127.0.0.1:{engine}/a", "http://127.0.0.1:{engine}/b"]
      devices: [node-1/0, node-1/1]
prices: {{currency: EUR, gpu_hour: {{main: 2.50}}}}
costs:
  - {{name: machine room, layer: infrastructure, month: 4000, split: guaranteed}}
  - {{name: platform team, layer: operation, month: 6000, split: uniform}}
tiers:
  interactive: {{queue_target: 2s, first_token_target: 3s}}
  batch: {{queue_target: 120s}}
tenants:
  support:
    tenant: {{guaranteed: 4_gpu, elastic_cap: 6_gpu, borrowable: true}}
    queue: {{priority: {{interactive: 9, batch: 3}}}}
    apps: {{helpdesk: {{cost_center: CC-1}}}}
  research:
    tenant: {{guaranteed: 250 milli_gpu, elastic_cap: 6_gpu}}
    queue: {{priority: {{interactive: 9, batch: 3}}, max_wait: 600s}}
    apps: {{papers: {{}}}}
  ops:
    tenant: {{guaranteed: 1_gpu, elastic_cap: 1_gpu, borrowable: true}}
    queue: {{priority: {{interactive: 9, batch: 3}}}}
    limits: {{requests: 1/min}}
    apps: {{runbooks: {{}}}}
access:
  local: false
  roles:
    - {{role: platform-admin, account: ann}}
    - {{role: tenant-admin, tenant: support, account: bo}}
"""


class World:
    """The product, and how to make something happen in it. `admin` is the header of a platform-admin's key."""

    def __init__(self, product: Product) -> None:
        self.product = product
        keys = _shown(product)
        self.admin = {"authorization": f"Bearer {keys.pop('platform-admin')}"}
        self.keys = keys
        for name in PEOPLE:
            self.control("POST", "/admin/v1/accounts", {"name": name, "password": PASSWORD})

    @property
    def url(self) -> str:
        return self.product.control

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the admin API, as the platform-admin."""
        return _ask(self.product.control, method, path, body, self.admin)[1]

    def ask(self, tenant: str, **more: Any) -> int:
        """One request of a tenant, to its end; returns the status."""
        body = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20, "stream": True}
        headers = {"authorization": f"Bearer {self.keys[tenant]}"}
        return _ask(self.product.gateway, "POST", "/v1/chat/completions", {**body, **more}, headers)[0]

    @contextlib.contextmanager
    def load(self, tenant: str, clients: int) -> Iterator[None]:
        """So many clients of a tenant ask, one request after the other, meanwhile; all are answered at the end."""
        over = threading.Event()

        def client() -> None:
            while not over.is_set():
                self.ask(tenant)

        threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(120)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[World]:
    command = [sys.executable, str(ENGINE), "--port", "0", "--chunks", "10", "--interval-ms", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        product = Product(folder, CONFIG.format(engine=engine.stdout.readline().strip()))
        product.keys = {"": ""}  # none is made over the API, which lets nobody in without a credential
        try:
            product.start()
            yield World(product)
        finally:
            product.stop()
            engine.terminate()


def _shown(product: Product) -> dict[str, str]:
    """The keys that the first start shows, by whose they are; it serves a moment before it says so."""
    over = threading.Event()
    while "Ctrl-C stops" not in product.output.read_text():
        assert product.process is not None
        assert product.process.poll() is None
        over.wait(0.05)
    lines = [line.split() for line in product.output.read_text().splitlines() if line.startswith("  ")]
    return {line[0]: line[-1] for line in lines if line and KEY.fullmatch(line[-1])}


def _ask(base: str, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
    where = urlsplit(base)
    with contextlib.closing(http.client.HTTPConnection(str(where.hostname), where.port, timeout=120)) as connection:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        content = answer.read()
        try:
            return answer.status, json.loads(content)
        except ValueError:
            return answer.status, content.decode()
