"""The comparison of ways to share on public traces: `make bench-policies`.

    python -m benchmarks.bench_policies [--quick] [TRACES]

TRACES is the folder of the traces, else COMMONPOOL_TRACES, else `shared/traces` beside the project. Each trace is
simulated in a process of its own; the figures do not depend on the machine, other than the simulator's speed, which is
taken when nothing else runs here. --quick is a small part of everything, to see that it works; it writes no page.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
from benchmarks import machine, policy_runs, policy_setups, vtc_setups
from benchmarks.policy_page import SPEED_REPLICAS, SPEED_ROUNDS, All, Speed, page

import commonpool.core.machine
from commonpool.core.effects import Effect
from commonpool.core.events import Event
from commonpool.core.machine import Machine
from commonpool.simulator.measures import Measures
from commonpool.simulator.policies import POLICIES, machine_for
from commonpool.simulator.run import run

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "policies.md"
CORES = {"compiled": ROOT / "build" / "compiled", "pure Python": ROOT / "src"}
QUICK = 2_000  # arrivals of each trace
QUICK_SECONDS = 20  # of each set-up of the token counters


def everything(traces: Path, *, quick: bool) -> All:
    """All figures but the speeds."""
    most = QUICK if quick else None
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
        day = processes.submit(policy_runs.day, traces, most, partial(_say, "day"))
        jobs = processes.submit(policy_runs.jobs, traces, most, partial(_say, "jobs"))
        tokens = processes.submit(_tokens, quick=quick)
        return All(day.result(), jobs.result(), tokens.result(), {})


def _say(name: str, doing: str) -> None:
    print(f"{name}: {doing}", file=sys.stderr, flush=True)


def _tokens(*, quick: bool) -> tuple[vtc_setups.Row, ...]:
    setups = [msgspec.structs.replace(setup, seconds=QUICK_SECONDS) if quick else setup for setup in vtc_setups.SETUPS]
    return tuple(vtc_setups.rows(setups))


def speed(traces: Path, *, quick: bool) -> Speed:
    """Of this process's core. Reading the trace and asking what its tenants demand is not part of it."""
    work = policy_setups.requests(traces, speed=1, from_hour=0, most=QUICK if quick else None)
    shared = policy_setups.lifted(policy_setups.day(work, SPEED_REPLICAS, speed=1))
    sharing = POLICIES[policy_runs.COMMONPOOL]
    begun = time.process_time()
    told = Told(machine_for(sharing, shared.policy))
    measures = Measures(work, shared.policy, shared.demand)
    run(work, told, shared.cluster, measures)
    outcomes = measures.outcomes(sharing)
    took = time.process_time() - begun
    handle = machine_for(sharing, shared.policy).handle
    begun = time.process_time()
    for event, now in told.events:
        handle(event, now)
    alone = time.process_time() - begun
    used = outcomes.total.used_milli_gpu_ns / max(1, shared.demand.end_ns - shared.demand.start_ns)
    slot = policy_setups.PRESET.milli_gpu / policy_setups.PRESET.slots
    return Speed(len(work.arrivals) / took, len(work.arrivals) / alone, used / slot)


class Told:
    """A machine, and what it was told."""

    def __init__(self, machine: Machine) -> None:
        self.events: list[tuple[Event, int]] = []
        self._machine = machine

    def handle(self, event: Event, now: int) -> list[Effect]:
        self.events.append((event, now))
        return self._machine.handle(event, now)


def _speeds(rounds: int) -> dict[str, Speed]:
    found = {}
    for core, path in CORES.items():
        if path.exists():
            _say("speed", core)
            each = [_speed(path) for _ in range(rounds)]
            found[core] = Speed(
                *(statistics.median(getattr(one, name) for one in each) for name in Speed.__struct_fields__)
            )
    return found


def _speed(core: Path) -> Speed:
    command = [sys.executable, *sys.orig_argv[1:], "--speed"]
    environment = os.environ | {"PYTHONPATH": str(core)}
    said = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(said.stdout, type=Speed)


def _made() -> str:
    compiled = Path(commonpool.core.machine.__file__).suffix != ".py"
    core = "the compiled core" if compiled else "the core in pure Python"
    return f"{datetime.now(UTC):%Y-%m-%d}, with {core}, on {machine.cores()}; {machine.python()}."


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("COMMONPOOL_TRACES") or ROOT.parent / "shared" / "traces"
    options.add_argument("traces", nargs="?", type=Path, default=default, metavar="TRACES", help="the traces' folder")
    options.add_argument("--quick", action="store_true", help="a small part of everything")
    options.add_argument("--speed", action="store_true", help=argparse.SUPPRESS)  # in a process of its own
    given = options.parse_args()
    for name in (policy_setups.REQUESTS, policy_setups.JOBS):
        if not (given.traces / name).exists():
            raise SystemExit(f"{given.traces} has no {name}; name the folder of the traces (COMMONPOOL_TRACES).")
    if given.speed:
        sys.stdout.buffer.write(msgspec.json.encode(speed(given.traces, quick=given.quick)))
        return
    found = everything(given.traces, quick=given.quick)
    found = msgspec.structs.replace(found, speeds=_speeds(1 if given.quick else SPEED_ROUNDS))
    text = page(found, _made())
    print(text)
    if not given.quick:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
