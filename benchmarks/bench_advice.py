"""Quotas advised from one week and tested on the next, on public traces: `make bench-advice`.

    python -m benchmarks.bench_advice [--quick] [TRACES]

TRACES is the folder of the traces, else COMMONPOOL_TRACES, else `shared/traces` beside the project. Everything is
simulated, so the figures do not depend on the machine. --quick is a small part of everything; it writes no page.
"""

import argparse
import gc
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks import advice_runs
from benchmarks.advice_page import page
from benchmarks.advice_runs import DEMAND, Week

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "advice.md"
QUICK = 6_000  # arrivals


def everything(traces: Path, *, quick: bool) -> tuple[list[Week], list[Week]]:
    """The tests on requests and on jobs, each in a process of its own."""
    most = QUICK if quick else None
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), initializer=gc.disable) as processes:
        requests = processes.submit(advice_runs.requests, traces, most=most)
        jobs = processes.submit(advice_runs.jobs, traces, most=most)
        return requests.result(), jobs.result()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("COMMONPOOL_TRACES") or ROOT.parent / "shared" / "traces"
    options.add_argument("traces", nargs="?", type=Path, default=default, metavar="TRACES", help="the traces' folder")
    options.add_argument("--quick", action="store_true", help="a small part of everything")
    given = options.parse_args()
    if not (given.traces / DEMAND).exists():
        raise SystemExit(f"{given.traces} has no {DEMAND}; name the folder of the traces (COMMONPOOL_TRACES).")
    text = page(*everything(given.traces, quick=given.quick))
    sys.stdout.write(text)
    if not given.quick:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
