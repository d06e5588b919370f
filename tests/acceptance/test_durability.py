"""`kill -9` under load: no request that a client saw finish is lost, and none counts twice."""

import http.client
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.acceptance.product import WITHIN_S, Product, running
from tests.leaks import MARK

ENGINE = Path(__file__).parents[2] / "benchmarks" / "mock_engine.py"
CONFIG = """
pools: {{main: {{gpus: 4_gpu}}}}
models:
  mock:
    version: "1"
    gpu: 4_gpu
    slots: 8
    context: 4096
    engine: {{kind: attached, adapter: openai, urls: ["http://127.0.0.1:{port}"]}}
prices: {{currency: EUR, gpu_hour: {{main: 1}}}}
tenants:
  support: {{tenant: {{guaranteed: 2_gpu}}}}
  research: {{tenant: {{guaranteed: 2_gpu}}}}
"""


@contextmanager
def engine(*options: str) -> Iterator[int]:
    command = [sys.executable, str(ENGINE), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def load(product: Product, tenant: str, finished: set[str], stop: threading.Event) -> None:
    """Asks until the product dies, streamed and not in turn; keeps the ids of answers that were complete."""
    stream = False
    while not stop.is_set():
        stream = not stream
        body = {"model": "mock", "messages": [{"role": "user", "content": MARK}], "stream": stream}
        request = urllib.request.Request(
            product.gateway + "/v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={"authorization": f"Bearer {product.keys[tenant]}", "content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
                data = answer.read()
                if not stream or data.rstrip().endswith(b"data: [DONE]"):
                    finished.add(answer.headers["x-request-id"])
        except (OSError, http.client.HTTPException):
            continue


def settled(product: Product, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """The records when they are enough, and no more come: those of what was lost with an earlier process come late."""
    deadline = time.monotonic() + WITHIN_S
    before: list[dict[str, Any]] = []
    while (records := product.records()) != before or not enough(records):
        assert time.monotonic() < deadline, records
        before = records
        time.sleep(2)
    return records


def completed(records: list[dict[str, Any]]) -> set[str]:
    return {record["request_id"] for record in records if record["outcome"] == "completed"}


def test_nothing_finished_is_lost_and_nothing_counts_twice(tmp_path: Path) -> None:
    finished: set[str] = set()
    with engine() as port, running(tmp_path, CONFIG.format(port=port)) as product:
        for _ in range(3):
            before = len(finished)
            stop = threading.Event()
            threads = [
                threading.Thread(target=load, args=(product, tenant, finished, stop))
                for tenant in ("support", "research") * 3
            ]
            for thread in threads:
                thread.start()
            try:
                deadline = time.monotonic() + WITHIN_S
                while len(finished) < before + 300:
                    assert time.monotonic() < deadline, len(finished)
                    time.sleep(0.01)
                product.interrupt(signal.SIGKILL)
                product.wait()
            finally:
                stop.set()
            for thread in threads:
                thread.join()
            product.start()
        records, seen = settled(product, lambda found: finished <= completed(found)), None
        while records != seen:  # what is added up is what is listed
            seen = records
            total = product.cli("usage", "--by", "tenant", "--since", "1h")["total"]
            records = product.records()
    kept = [(r["request_id"], r["attempt"]) for r in records]
    assert len(kept) == len(set(kept))
    assert finished <= completed(records)
    assert total["requests"] == len({r["request_id"] for r in records})
    assert {r["outcome"] for r in records if r["reason"] == "stopped"} <= {"failed"}


def test_what_ran_when_it_was_killed_is_not_charged_and_the_hours_of_before_are_closed(tmp_path: Path) -> None:
    config = CONFIG + "timeouts: {{stall: 1h}}\n"
    with engine("--interval-ms", "3600000") as port, running(tmp_path, config.format(port=port)) as product:
        stop = threading.Event()
        asking = threading.Thread(target=load, args=(product, "support", set(), stop))
        asking.start()
        try:
            while not product.get("/admin/v1/status")["replicas"][0]["running"]:
                time.sleep(0.05)
            product.get("/admin/v1/status")  # it is noted, and sent on, at the end of the turn in which it has its slot
        finally:
            stop.set()
        product.interrupt(signal.SIGKILL)
        product.wait()
        asking.join()
        # given a product that was last known to live two hours ago
        hour_ns = 3600 * 10**9
        began_ns = (time.time_ns() // hour_ns - 2) * hour_ns
        with closing(sqlite3.connect(tmp_path / "var" / "commonpool.db", isolation_level=None)) as database:
            standing = ("main", began_ns, began_ns + 60 * 10**9, 4000, '{"tenant:support": 2000}')
            database.execute("INSERT INTO standings VALUES (?, ?, ?, ?, ?)", standing)
        product.start()
        deadline = time.monotonic() + WITHIN_S
        hours: list[tuple[int, ...]] = []
        while len(hours) < 2 and time.monotonic() < deadline:
            time.sleep(0.2)
            with closing(sqlite3.connect(tmp_path / "var" / "commonpool.db")) as database:
                hours = database.execute("SELECT hour_ns FROM hours WHERE pool = 'main' ORDER BY hour_ns").fetchall()
        stopped = settled(product, lambda found: any(record["reason"] == "stopped" for record in found))
        lost = [record for record in stopped if record["reason"] == "stopped"]
    assert hours[:2] == [(began_ns,), (began_ns + hour_ns,)]
    assert {(r["tenant"], r["outcome"], r["status"], r["micro_per_gpu_hour"]) for r in lost} == {
        ("support", "failed", 500, 0)
    }


def test_apply_changes_a_running_product_without_dropping_a_request(tmp_path: Path) -> None:
    with engine() as port, running(tmp_path, CONFIG.format(port=port)) as product:
        failures: list[int] = []
        done: set[str] = set()
        stop = threading.Event()

        def keep_asking(tenant: str) -> None:
            while not stop.is_set():
                body = {"model": "mock", "messages": [{"role": "user", "content": MARK}]}
                try:
                    product.post("/v1/chat/completions", body, tenant)
                    done.add(tenant)
                except urllib.error.HTTPError as error:
                    failures.append(error.code)

        threads = [threading.Thread(target=keep_asking, args=(t,)) for t in ("support", "research") * 2]
        for thread in threads:
            thread.start()
        text = product.config.read_text()
        for guaranteed in ("1", "3", "2"):
            product.config.write_text(
                text.replace("support: {tenant: {guaranteed: 2", f"support: {{tenant: {{guaranteed: {guaranteed}")
            )
            assert product.cli("diff", str(product.config), code=1)["changes"]
            product.cli("apply", str(product.config))
        broken = text.replace("guaranteed: 2_gpu", "guaranteed: 2_cards")
        product.config.write_text(broken)
        revision = product.get("/admin/v1/status")["revision"]
        product.cli("apply", str(product.config), code=3)
        assert product.get("/admin/v1/status")["revision"] == revision == 4
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert done == {"support", "research"}
