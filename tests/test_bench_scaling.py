"""Given small worlds, the figures of the scaling page are what they say; given the traces, a part of it works."""

import os
from pathlib import Path
from typing import Any

import pytest
from benchmarks import scaling_runs
from benchmarks.scaling_page import page
from benchmarks.scaling_runs import FIXED, NAIVE, OURS, PARTS, PRESET, Burst, ByQueueLength, Day, Firsts, Side, tenfold

from commonpool.core.machine import Machine
from commonpool.core.model import Scaling
from commonpool.core.scaling import Load
from commonpool.simulator.figures import Figures, Lending, Outcomes, Part, Spread
from commonpool.simulator.run import run
from commonpool.simulator.workload import workload
from tests.core.worlds import S, policy, tenant
from tests.simulator.worlds import cluster, request

TRACES = Path(os.environ.get("COMMONPOOL_TRACES") or Path(__file__).parents[2] / "shared" / "traces")


def seen(now_s: int, **more: Any) -> Load:
    return Load(now=now_s * S, slots=8, milli_gpu=1000, **more)


def test_by_queue_length_counts_nothing_that_starts_and_looks_every_15_seconds() -> None:
    scaler, scaling = ByQueueLength(), Scaling(1, 20)
    assert scaler.decide(scaling, seen(0, ready=1, running=8, waiting=20)).replicas == 4
    assert scaler.decide(scaling, seen(14, ready=1, starting=3, running=8, waiting=90)).replicas == 4
    assert scaler.decide(scaling, seen(15, ready=1, starting=3, running=8, waiting=20)).replicas == 7
    assert scaler.decide(scaling, seen(30, ready=7, running=48)).replicas == 6
    assert scaler.decide(scaling, seen(45, ready=6, running=48)).replicas == 6


def test_first_tokens_are_those_of_the_burst_and_what_never_came_is_late() -> None:
    work = tenfold()
    counts = {name: sum(a.task.tenant == name for a in work.arrivals) for name in work.tenants}
    assert 10_000 < counts["bursting"] - counts["steady"] < 11_500
    firsts = Firsts()
    small = [request("r0", S), request("r1", S, "nobody")]
    run(workload("w", small), Machine(policy(tenant("a", 2000))), cluster(), firsts)
    assert firsts.after_ns["r0"] > 0
    assert firsts.after_ns["r1"] == -1


def day(held: int, starts: int, short: int) -> Day:
    wait = Spread(0, 0, S, 0, 2 * S)
    part = Part(100, 98, 1, 1, 2, wait)
    figures = Figures("a", 1000, part, part, part, 0, 0, 0, 0, Lending(0, 0, Spread()), 0)
    outcomes = Outcomes("any", "", figures, (figures,), 1000, 0, (), 0, 0, 0, {})
    return Day(outcomes, 24 * 3600 * S, 5, held * 3600 * S * 1000, starts, starts, short, (1500,) * PARTS)


def test_the_page_says_what_was_found() -> None:
    side = Side(10, Spread(S, S, S, S, 3 * S), 4)
    bursts = {name: Burst(side, side, 6, 0, 7, 0) for name in (OURS, NAIVE, FIXED)}
    text = page({OURS: day(25, 9, 0), NAIVE: day(40, 90, 31), FIXED: day(100, 5, 0)}, bursts)
    words = " ".join(text.split())
    assert "25.0 GPU hours where a fixed fleet of the peak size holds 100.0 (75.0 % less)" in words
    assert "0 of 9 replicas were stopped" in words
    assert "by queue length 31 of 90" in words
    assert "| stopped within their start-up time | 0 | 31 | 0 |" in text
    assert "| 23:00 | 1.5 | 1.5 | 1.5 |" in text
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("|"))


def test_the_day_is_on_replicas_that_follow_demand_or_on_a_fixed_number() -> None:
    work = workload("w", tenfold().arrivals[:50])
    following, fixed = scaling_runs.day_of(work), scaling_runs.day_of(work, 3)
    assert following.cluster.engines
    assert not following.cluster.replicas
    assert len(fixed.cluster.replicas) == 3
    assert fixed.policy.tenants == following.policy.tenants


@pytest.mark.skipif(not TRACES.exists(), reason="COMMONPOOL_TRACES names no folder of traces")
@pytest.mark.parametrize("name", [OURS, NAIVE])
def test_a_part_of_the_day_is_served(name: str) -> None:
    found = scaling_runs.day(TRACES, name, most=1500)
    assert found.outcomes.total.all.served == 1500
    assert 1 <= found.starts - found.stops <= found.most
    assert found.held_milli_gpu_ns >= PRESET.milli_gpu * found.length_ns
