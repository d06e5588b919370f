"""Given a small cluster, then what the policies place adds up; given the trace, ours is better than the others."""

import os
from pathlib import Path

import pytest
from benchmarks import placement_runs
from benchmarks.placement_page import Found, page
from benchmarks.placement_runs import POLICIES, Run, arrivals

from commonpool.core.footprint import Footprint
from tests.core.sheds import node

TRACES = Path(os.environ.get("COMMONPOOL_TRACES") or Path(__file__).parents[2] / "shared" / "traces")


def test_pods_arrive_until_they_ask_for_130_percent_in_an_order_of_the_seeds() -> None:
    trace = [Footprint(1, 1000), Footprint(1, 300)]
    coming = arrivals(trace, 10_000, 1)
    asked = sum(pod.total_milli_gpu for pod in coming)
    assert 13_000 <= asked < 14_000
    assert coming == arrivals(trace, 10_000, 1)
    assert coming != arrivals(trace, 10_000, 2)


@pytest.mark.parametrize("policy", POLICIES)
def test_whole_gpus_fill_a_cluster_and_what_has_no_cpu_stays_out(policy: str) -> None:
    cluster = [node("n", 2, cpu_milli=4000), node("o", 1, cpu_milli=1000)]
    done = POLICIES[policy](cluster, [Footprint(1, 1000, cpu_milli=2000)], 0)
    assert (done.placed, done.allocated_milli_gpu, done.arrived) == (2, 2000, 4)
    assert done.allocated == pytest.approx(200 / 3)


def test_the_page_says_what_was_measured_and_whether_it_is_enough() -> None:
    runs = {"default": {"commonpool": [Run(1000, 960, 4800, 6000, 0.5), Run(1000, 950, 4800, 6000, 0.5)]}}
    said = page(Found(1, 1, runs, {"pure Python": runs["default"]["commonpool"]}), "Made now.")
    assert "| commonpool | 95.50 | 95.00 | 96.00 | 4,800 |" in said
    assert "| pure Python | 9,600 | 12,000 | 104 |" in said
    assert "95.50 | met |" in said
    assert "9,600 | missed |" in said


@pytest.mark.skipif(not (TRACES / placement_runs.NODES).exists(), reason="the traces are not here")
def test_a_tenth_of_openb_is_filled_better_than_by_best_fit() -> None:
    cluster = placement_runs.nodes(TRACES)[::10]
    trace = placement_runs.pods(TRACES, "default")[::10]
    allocated = {name: POLICIES[name](cluster, trace, 0).allocated for name in POLICIES}
    assert allocated["random fit"] < allocated["best fit"] < allocated["commonpool"]
