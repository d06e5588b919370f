"""What a request pays for its gateway being elsewhere than the core: the product on Ray beside the one in one process.

    python -m benchmarks.bench_ray [--quick] [--rounds 5] [--seconds 4]

Both serve the same engine on this machine, and take turns in short runs; figures are medians. On Ray there is one node,
with its gateway and the core in processes of their own, between which every request is told twice by actor calls.
Without --quick the figures go into docs/results/ray.md.
"""

import argparse
import contextlib
import datetime as dt
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from benchmarks import machine, rig
from benchmarks.bench_gateway import PATH, Ready
from benchmarks.rig import Load, RigError, Sample

CONFIG = """
listen: {{gateway: "127.0.0.1:{gateway}", control: "127.0.0.1:{control}"}}
state: {state}
pools: {{main: {{gpus: 4_gpu}}}}
models:
  mock:
    version: "1"
    gpu: 4_gpu
    slots: 1024
    context: 8Ki
    engine: {{kind: attached, urls: ["http://127.0.0.1:{engine}"]}}
prices: {{currency: EUR, gpu_hour: {{main: 2.50}}}}
tenants:
  left:
    tenant: {{guaranteed: 4_gpu}}
    limits: {{queue_length: 10000, requests: 10M/min, tokens: 10000M/min}}
"""
LOCAL, RAY = "one process", "on Ray"
ALONE = "1, with pauses"
CASES = {
    ALONE: Load(1, think_ms=20, threads=1),
    "1": Load(1, threads=1),
    "8": Load(8),
    "64": Load(64),
    "256": Load(256),
}
START_S = 180.0
PAGE = Path(__file__).parents[1] / "docs" / "results" / "ray.md"


class System(msgspec.Struct, frozen=True):
    """A product that runs."""

    name: str
    url: str
    key: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round of each, to see that it works")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="of each run")
    args = parser.parse_args()
    rounds, seconds = (1, 1) if args.quick else (args.rounds, args.seconds)
    try:
        text = page(measured(rounds, seconds), rounds, seconds)
    except (RigError, KeyboardInterrupt) as error:
        sys.exit(f"bench-ray: {str(error) or 'stopped'}")
    print(text)
    if not args.quick:
        PAGE.write_text(text, encoding="utf-8")


def measured(rounds: int, seconds: int) -> dict[tuple[str, str], list[Sample]]:
    """Samples of each system at each number of connections."""
    samples: dict[tuple[str, str], list[Sample]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-ray-")))
        engine = stack.enter_context(rig.engine(0.0))
        systems = [stack.enter_context(product(folder, name, engine)) for name in (LOCAL, RAY)]
        for case, load in CASES.items():
            print(f"measuring: {case} connections", file=sys.stderr)
            for number, system in itertools.product(range(-1, rounds), systems):  # round -1 warms up
                file = folder / "request"
                prompt = [{"role": "user", "content": "lorem ipsum " * 75}]
                file.write_bytes(rig.request(PATH, {"model": "mock", "messages": prompt, "max_tokens": 20}, system.key))
                sample = rig.measure(0, system.url, load, seconds if number >= 0 else 1, [file])
                if number >= 0:
                    samples.setdefault((system.name, case), []).append(sample)
    return samples


@contextlib.contextmanager
def product(folder: Path, name: str, engine: int) -> Iterator[System]:
    """The product as an operator starts it; it is stopped in the end."""
    state = folder / name.replace(" ", "-")
    state.mkdir()
    file = state / "commonpool.yaml"
    ports = {"gateway": rig.free_port(), "control": rig.free_port()}
    file.write_text(CONFIG.format(state=state / "var", engine=engine, **ports))
    command = [sys.executable, "-m", "commonpool", "up", str(file), "--json"]
    command += ["--backend", "ray"] if name == RAY else []
    output = state / "output"
    with output.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as popen:
        try:
            ready = msgspec.json.decode(_first_line(output, popen), type=Ready)
            yield System(name, ready.gateway, ready.keys[0]["key"])
        finally:
            popen.terminate()
            popen.wait(rig.STOP_S)


def _first_line(output: Path, popen: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and popen.poll() is None:
        for line in output.read_text().splitlines(keepends=True):
            if line.startswith('{"gateway"') and line.endswith("\n"):
                return line
        time.sleep(0.1)
    raise RigError(f"the product did not start within {START_S:.0f} s; it said: {output.read_text().strip()}")


def page(samples: dict[tuple[str, str], list[Sample]], rounds: int, seconds: int) -> str:
    """The figures as a page."""
    rows = []
    for case in CASES:
        local, ray = (samples[name, case] for name in (LOCAL, RAY))
        figures = [f"{statistics.median(each.per_s for each in runs):,.0f}" for runs in (local, ray)]
        for figure in ("p50_ms", "p99_ms"):
            figures += [f"{statistics.median(getattr(each, figure) for each in runs):.2f}" for runs in (local, ray)]
        rows.append(f"| {case} | {' | '.join(figures)} |")
    added = statistics.median(each.p50_ms for each in samples[RAY, ALONE]) - statistics.median(
        each.p50_ms for each in samples[LOCAL, ALONE]
    )
    return "\n".join(
        [
            "# A gateway elsewhere than the core",
            "",
            "`make bench-ray` writes this page. Both products serve 1 KB answers of the same engine;",
            "on Ray the gateway and the core are actors of one node, and every request is told by actor calls, all of",
            "a loop's turn in one. The load, the engine and Ray's own processes share the cores with what is measured.",
            "",
            "| connections | requests/s: one process | Ray | p50 ms: one process | Ray | p99 ms: one process | Ray |",
            "|--:|--:|--:|--:|--:|--:|--:|",
            *rows,
            "",
            f"A request alone takes {added:.2f} ms longer: an actor call there and back. One that comes while the end",
            "of the last is being told waits for that call too. With the load the batches grow, and the calls do not.",
            "",
            f"Medians of {rounds} runs of {seconds} s. {dt.datetime.now(tz=dt.UTC):%Y-%m-%d}, {machine.cores()};",
            f"{machine.python()}.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
