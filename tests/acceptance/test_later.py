"""At a peak a request is taken for later and answered when there is time, whatever happens to the product meanwhile."""

import contextlib
import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import msgspec

from tests.acceptance.product import Product, running
from tests.acceptance.test_life import MODEL
from tests.leaks import MARK, in_files

LIMIT_S = 120.0
CONFIG = f"""
pools: {{main: {{gpus: 1_gpu}}}}
models:
  smollm2: {{version: "1", gpu: 1_gpu, replicas: 1, slots: 1, context: 1024, {MODEL}}}
prices: {{currency: EUR, gpu_hour: {{main: 100}}}}
tenants:
  support:
    tenant: {{guaranteed: 1_gpu}}
    queue: {{max_wait: 100ms, later: true}}
timeouts: {{drain: 60s}}
secrets: {{master_key: "file:master.key"}}
"""


class Answer(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def call(
    product: Product, path: str, body: dict[str, Any] | None = None, method: str = "GET", **headers: str
) -> Answer:
    headers |= {"authorization": f"Bearer {product.keys['support']}", "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(product.gateway + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=180) as answer:
            return Answer(answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, {name.lower(): value for name, value in error.headers.items()}, error.read())


def ask(product: Product, tokens: int = 5, **headers: str) -> Answer:
    body = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": MARK}],
        "max_tokens": tokens,
        "ignore_eos": True,
    }
    return call(product, "/v1/chat/completions", body, "POST", **headers)


def taken(product: Product, tokens: int = 5) -> str:
    """The place of a request that came while the only slot was taken."""
    answer = ask(product, tokens, prefer="respond-async")
    assert answer.status == 202, answer
    assert answer.headers["preference-applied"] == "respond-async"
    return answer.headers["location"]


@contextlib.contextmanager
def occupied(product: Product, tokens: int) -> Iterator[HTTPResponse]:
    """A streamed answer that has begun, so that the only slot is taken until it has so many tokens."""
    body = {"model": "smollm2", "prompt": "Once", "max_tokens": tokens, "stream": True, "ignore_eos": True}
    headers = {"authorization": f"Bearer {product.keys['support']}", "content-type": "application/json"}
    request = urllib.request.Request(product.gateway + "/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=180) as answer:
        answer.readline()
        yield answer


def answered(product: Product, place: str) -> Answer:
    return until(product, place, lambda answer: answer.status != 202)


def until(product: Product, place: str, so_far: Callable[[Answer], bool]) -> Answer:
    deadline = time.monotonic() + LIMIT_S
    while not so_far(answer := call(product, place)):
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)
    return answer


def test_at_a_peak_it_is_taken_and_answered_later_and_kill_9_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "master.key").write_text("11" * 32)
    (tmp_path / "master.key").chmod(0o600)
    with running(tmp_path, CONFIG) as product:
        assert ask(product, prefer="respond-async").status == 200  # there is time, so it is answered at once

        # 1. The only slot is taken for a while: those who can wait find their answers later, others are refused.
        with occupied(product, tokens=400) as stream:
            first = taken(product)
            assert ask(product).status == 429
            assert b"data: [DONE]" in stream.read()
        found = answered(product, first)
        assert (found.status, found.headers["x-commonpool-later"]) == (200, "answered")
        assert found.json["usage"]["completion_tokens"] > 0

        # 2. One that is taken and not answered yet outlives the product, and so does an answer.
        with occupied(product, tokens=900):
            second = taken(product)
            assert call(product, second).status == 202
            product.interrupt(signal.SIGKILL)
            product.wait()
        product.start()
        assert call(product, first).body == found.body
        assert answered(product, second).status == 200

        # 3. So does one that runs: it is tried again.
        with occupied(product, tokens=100) as stream:
            third = taken(product, tokens=600)
            stream.read()
        until(product, third, lambda answer: answer.json.get("status") == "running")
        product.interrupt(signal.SIGKILL)
        product.wait()
        product.start()
        assert answered(product, third).json["usage"]["completion_tokens"] == 600

        # 4. Each was answered once and charged once, as a batch.
        records = [record for record in product.records() if record["endpoint"] == "batch"]
        records.sort(key=lambda record: (record["arrived_ns"], record["attempt"]))
        names = {place.rsplit("/", 1)[1]: n for n, place in enumerate((first, second, third), 1)}
        assert [(names[each["request_id"]], each["attempt"], each["outcome"], each["reason"]) for each in records] == [
            (1, 1, "completed", ""),
            (2, 1, "completed", ""),
            (3, 1, "failed", "stopped"),
            (3, 2, "completed", ""),
        ]
        charged = [each["micro_per_gpu_hour"] > 0 and each["milli_gpu_ns"] > 0 for each in records]
        assert charged == [True, True, False, True]

        # 5. Nothing of what was asked can be read where it is kept.
        assert in_files(tmp_path) == []
        assert call(product, first, method="DELETE").json["deleted"]
        assert call(product, first).status == 404
