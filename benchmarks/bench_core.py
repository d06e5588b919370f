"""The speed and the memory of the core alone: `make bench-core`.

    python -m benchmarks.bench_core [--quick] [--profile TENANTS]

A *pair* is one `Arrived`, which is queued, and one `Ended`, which lets the next one run: admission, queue, quota,
loans, dispatch, and the record of the one that ended. It is timed where every slot is taken and 1,000,000 requests
wait, of 10, 1,000 and 10,000 tenants; beside it, the same two events where nobody waits, and what a queued request
weighs. The compiled core is measured where `make compile` has made one.

Each round is a process of its own, timed by its CPU time: what else runs on the machine takes its caches, not its turn.
--profile prints where the time of the pairs goes in the pure core; `perf record` tells it of the compiled one.
--quick is a small load, to see that everything works; it writes no page.
"""

import argparse
import cProfile
import gc
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from benchmarks import machine
from benchmarks.core_load import REPLICAS, Load, Size

from commonpool.app import COLLECT_EVERY
from commonpool.core.events import Arrived

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "core.md"
CORES = {"pure Python": ROOT / "src", "compiled": ROOT / "build" / "compiled"}
FULL = tuple(Size(tenants) for tenants in (10, 1_000, 10_000))
QUICK = tuple(Size(tenants, queued=2_000, pairs=500, slots=10) for tenants in (10, 100))
ROUNDS = 3

PAIRS_PER_S_MIN = 100_000
SLOWER_MAX = 1.3
BYTES_MAX = 1024


class Round(msgspec.Struct, frozen=True):
    """One process: CPU nanoseconds for a pair, for one where nobody waits, to queue a request; and its bytes."""

    pair_ns: float
    light_ns: float
    enqueue_ns: float
    bytes_each: float


def measure(size: Size) -> Round:
    gc.set_threshold(COLLECT_EVERY)  # as the product does
    light = Load(size)
    light_ns = _timed(light.pairs, light.requests(size.pairs))
    del light

    load = Load(size)
    load.fill()
    before = _resident()
    parts = [_timed(load.arrive, load.requests(size.queued // 10)) for _ in range(10)]
    bytes_each = (_resident() - before) / size.queued
    load.pairs(load.requests(size.pairs // 4))
    running = len(load.running)
    pair_ns = _timed(load.pairs, load.requests(size.pairs))
    if len(load.running) != running:
        raise SystemExit(f"Each pair must dispatch one request; {len(load.running)} run where {running} did.")
    return Round(pair_ns, light_ns, statistics.mean(parts), bytes_each)


def _timed(work: Callable[[list[Arrived]], None], events: list[Arrived]) -> float:
    begun = time.process_time_ns()
    work(events)
    return (time.process_time_ns() - begun) / len(events)


def _resident() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def profile(size: Size) -> None:
    load = Load(size)
    load.fill()
    load.arrive(load.requests(size.queued))
    events = load.requests(size.pairs)
    watch = cProfile.Profile()
    watch.runcall(load.pairs, events)
    pstats.Stats(watch).sort_stats("tottime").print_stats(30)


def report(rounds: dict[str, dict[Size, list[Round]]]) -> str:
    """The table and what follows from it; keys are the core and the size, both in order."""
    middle = {core: {size: _median(each) for size, each in sizes.items()} for core, sizes in rounds.items()}
    lines = [
        "| core | tenants | pairs/s | µs a pair | µs, nobody waits | µs to queue | bytes queued |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for core, sizes in middle.items():
        lines += [
            f"| {core} | {size.tenants:,} | {1e9 / each.pair_ns:,.0f} | {each.pair_ns / 1e3:.1f}"
            f" | {each.light_ns / 1e3:.1f} | {each.enqueue_ns / 1e3:.1f} | {each.bytes_each:.0f} |"
            for size, each in sizes.items()
        ]
    found = [list(sizes.values()) for sizes in middle.values()]
    lines += ["", "| goal | " + " | ".join(middle) + " |", "|---|" + "--:|" * len(middle)]
    lines += [
        _goal(f"at least {PAIRS_PER_S_MIN:,} pairs/s", [min(1e9 / r.pair_ns for r in each) for each in found]),
        _goal(
            f"at most {SLOWER_MAX} times slower with most tenants",
            [each[-1].pair_ns / each[0].pair_ns for each in found],
        ),
        _goal(f"at most {BYTES_MAX:,} bytes queued", [max(r.bytes_each for r in each) for each in found]),
    ]
    if len(middle) > 1:
        pure, compiled = middle.values()
        gains = [pure[size].pair_ns / compiled[size].pair_ns for size in pure]
        light = [pure[size].light_ns / compiled[size].light_ns for size in pure]
        lines.append("")
        lines.append(f"Compiled it is {_range(gains)} times as fast; where nobody waits, {_range(light)} times.")
    return "\n".join(lines)


def _median(rounds: Sequence[Round]) -> Round:
    return Round(*(statistics.median(getattr(each, name) for each in rounds) for name in Round.__struct_fields__))


def _range(figures: list[float]) -> str:
    return f"{min(figures):.1f} to {max(figures):.1f}"


def _goal(words: str, figures: list[float]) -> str:
    return f"| {words} | " + " | ".join(f"{each:,.0f}" if each >= 10 else f"{each:.2f}" for each in figures) + " |"


def page(figures: str, sizes: Sequence[Size], rounds: int) -> str:
    most = sizes[-1]
    return f"""# The core's speed and memory

`make bench-core` writes this page. A pair is one request that arrives and is queued, and one that ends and lets the
next one run: admission, queue, quota, loans, dispatch, and the record of the one that ended. {most.queued:,} requests
wait for one deployment, whose {REPLICAS * most.slots:,} slots are all taken; five sixteenths of the pool belong to
tenants that are idle, and are lent. Bytes are the growth of the process, the request itself included. The garbage
collector is set as the product sets it.

{figures}

Medians of {rounds} rounds of {most.pairs:,} pairs, each in a process of its own, on one core, by its CPU time.
{datetime.now(UTC):%Y-%m-%d}, {machine.cores()}; {machine.python()}.
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="a small load")
    options.add_argument("--profile", type=int, metavar="TENANTS", help="print where the time goes")
    options.add_argument("--round", type=int, metavar="INDEX", help=argparse.SUPPRESS)  # in a process of its own
    given = options.parse_args()
    sizes, rounds = (QUICK, 1) if given.quick else (FULL, ROUNDS)
    if given.round is not None:
        sys.stdout.buffer.write(msgspec.json.encode(measure(sizes[given.round])))
    elif given.profile is not None:
        profile(msgspec.structs.replace(sizes[0], tenants=given.profile))
    else:
        figures = report({core: _rounds(path, sizes, rounds) for core, path in CORES.items() if path.exists()})
        print(figures)
        if not given.quick:
            PAGE.write_text(page(figures, sizes, rounds), encoding="utf-8")


def _rounds(core: Path, sizes: Sequence[Size], rounds: int) -> dict[Size, list[Round]]:
    command = [sys.executable, *sys.orig_argv[1:]]
    environment = os.environ | {"PYTHONPATH": str(core)}
    found: dict[Size, list[Round]] = {size: [] for size in sizes}
    for _ in range(rounds):
        for index, size in enumerate(sizes):
            said = subprocess.run(
                [*command, "--round", str(index)], cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE
            )
            found[size].append(msgspec.json.decode(said.stdout, type=Round))
    return found


if __name__ == "__main__":
    main()
