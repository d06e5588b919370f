"""Placement on openb, a public trace of pods that share GPUs: `make bench-placement`.

    python -m benchmarks.bench_placement [--quick] [TRACES]

TRACES is the folder of the traces, else COMMONPOOL_TRACES, else `shared/traces` beside the project. What is allocated
does not depend on the machine; the speed is taken when nothing else runs here. --quick is one order of the pods; it
writes no page.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from benchmarks import machine, placement_runs
from benchmarks.placement_page import OURS, Found, page
from benchmarks.placement_runs import PODS, POLICIES, Run

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "placement.md"
CORES = {"pure Python": ROOT / "src", "compiled": ROOT / "build" / "compiled"}
SEEDS = 10
SPEED_ROUNDS = 3


def one(traces: Path, trace: str, policy: str, seed: int) -> Run:
    return POLICIES[policy](placement_runs.nodes(traces), placement_runs.pods(traces, trace), seed)


def everything(traces: Path, seeds: int) -> dict[str, dict[str, list[Run]]]:
    """All runs, by trace and policy."""
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
        coming = {
            trace: {
                policy: [processes.submit(one, traces, trace, policy, seed) for seed in range(seeds)]
                for policy in POLICIES
            }
            for trace in PODS
        }
        return {
            trace: {policy: [run.result() for run in runs] for policy, runs in policies.items()}
            for trace, policies in coming.items()
        }


def speeds(rounds: int) -> dict[str, list[Run]]:
    """By core, each round in a process of its own."""
    found = {}
    for core, path in CORES.items():
        if path.exists():
            print(f"speed: {core}", file=sys.stderr, flush=True)
            found[core] = [_speed(path) for _ in range(rounds)]
    return found


def _speed(core: Path) -> Run:
    command = [sys.executable, *sys.orig_argv[1:], "--speed"]
    environment = os.environ | {"PYTHONPATH": str(core)}
    said = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(said.stdout, type=Run)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("COMMONPOOL_TRACES") or ROOT.parent / "shared" / "traces"
    options.add_argument("traces", nargs="?", type=Path, default=default, metavar="TRACES", help="the traces' folder")
    options.add_argument("--quick", action="store_true", help="one order of the pods")
    options.add_argument("--speed", action="store_true", help=argparse.SUPPRESS)  # in a process of its own
    given = options.parse_args()
    for name in (placement_runs.NODES, *PODS.values()):
        if not (given.traces / name).exists():
            raise SystemExit(f"{given.traces} has no {name}; name the folder of the traces (COMMONPOOL_TRACES).")
    if given.speed:
        sys.stdout.buffer.write(msgspec.json.encode(one(given.traces, "default", OURS, 0)))
        return
    cluster = placement_runs.nodes(given.traces)
    gpus = sum(len(node.devices) for node in cluster)
    runs = everything(given.traces, 1 if given.quick else SEEDS)
    found = Found(len(cluster), gpus, runs, speeds(1 if given.quick else SPEED_ROUNDS))
    text = page(found, f"{datetime.now(UTC):%Y-%m-%d}, on {machine.cores()}; {machine.python()}.")
    print(text)
    if not given.quick:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
