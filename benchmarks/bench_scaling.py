"""Replicas that follow demand, over a day of requests: `make bench-scaling`.

    python -m benchmarks.bench_scaling [--quick] [TRACES]

TRACES is the folder of the traces, else COMMONPOOL_TRACES, else `shared/traces` beside the project. Everything is
simulated, so the figures do not depend on the machine. --quick is a small part of everything; it writes no page.
"""

import argparse
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.policy_setups import REQUESTS
from benchmarks.scaling_page import page
from benchmarks.scaling_runs import FIXED, NAIVE, OURS, Burst, Day, burst, day

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "scaling.md"
QUICK = 10_000  # arrivals


def everything(traces: Path, *, quick: bool) -> tuple[dict[str, Day], dict[str, Burst]]:
    """The day and the burst under each way to choose the number of replicas, and with a fixed number."""
    most = QUICK if quick else None
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
        days = {name: processes.submit(day, traces, name, most=most) for name in (OURS, NAIVE)}
        bursts = {name: processes.submit(burst, name) for name in (OURS, NAIVE)}
        # A fixed number that would do is the largest that was needed.
        days[FIXED] = processes.submit(day, traces, FIXED, fixed=days[OURS].result().most, most=most)
        bursts[FIXED] = processes.submit(burst, FIXED, fixed=bursts[OURS].result().most)
        return {name: run.result() for name, run in days.items()}, {name: run.result() for name, run in bursts.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("COMMONPOOL_TRACES") or ROOT.parent / "shared" / "traces"
    options.add_argument("traces", nargs="?", type=Path, default=default, metavar="TRACES", help="the traces' folder")
    options.add_argument("--quick", action="store_true", help="a small part of everything")
    given = options.parse_args()
    if not (given.traces / REQUESTS).exists():
        raise SystemExit(f"{given.traces} has no {REQUESTS}; name the folder of the traces (COMMONPOOL_TRACES).")
    days, bursts = everything(given.traces, quick=given.quick)
    text = page(days, bursts)
    sys.stdout.write(text)
    if not given.quick:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
