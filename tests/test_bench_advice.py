"""Given small results, the figures of the advice page are what they say; given the traces, a part of it works."""

import os
from pathlib import Path

import msgspec
import pytest
from benchmarks import advice_runs
from benchmarks.advice_page import page
from benchmarks.advice_runs import Row, Week

from commonpool.core.advice import NEVER_NS, Verdict
from commonpool.simulator.backtest import ADVISED, P95

S = 1_000_000_000
TRACES = Path(os.environ.get("COMMONPOOL_TRACES") or Path(__file__).parents[2] / "shared" / "traces")


def verdict(tenant: str, p99: int) -> Verdict:
    return Verdict(tenant, 100, int(p99 == NEVER_NS), 0, p99, 3600 * 1000 * S, 0, 0)


def week(name: str, *waits: tuple[str, int, int]) -> Week:
    before = tuple(verdict(tenant, old) for tenant, old, _ in waits)
    after = tuple(verdict(tenant, new) for tenant, _, new in waits)
    longer = tuple(tenant for tenant, old, new in waits if new > old)
    return Week(
        name=name,
        tasks=100 * len(waits),
        static=9000,
        enough=5000,
        pool=6000,
        rows=tuple(Row(one.tenant, 100, 3000, 1000, 2000, one, two) for one, two in zip(before, after, strict=True)),
        others={P95: before, ADVISED: after},
        sizes={P95: 9000, ADVISED: 6000},
        worse={666_666: longer, 900_000: ()},
        crowded_ppm=0,
    )


def test_the_page_says_what_was_found() -> None:
    requests = [week("ServeGen", ("a", 10 * S, 15 * S), ("b", 20 * S, 5 * S))]
    jobs = [
        week("Philly, weeks 1 and 2", ("a", 0, 0), ("b", NEVER_NS, 0)),
        week("Philly, weeks 2 and 3", ("a", 0, 4 * S), ("b", 0, 0)),
    ]
    words = " ".join(page(requests, jobs).split())
    assert "at least 33.3 % fewer GPUs" in words
    assert (
        "of 2 tenants 1 wait longer: a 10.0 s to 15.0 s (+50.0 %); the others wait as long as before or less" in words
    )
    assert "in 1 of 2 tests nobody's 99th percentile of waits is longer" in words
    assert "| a | 100 | 3 | 1 | 2 | 0 s | 0 s | 10.0 s | 15.0 s **longer** |" in words
    assert "**Philly, weeks 2 and 3**: a 0 s to 4.00 s." in words
    assert "| 1 and 2 | 200 | 9 | 6 | 33.3 % | 5 | 0.0 % | 0 of 2 | 0 of 2 |" in words


def test_where_nobody_waits_longer_the_page_says_nowhere() -> None:
    fine = week("Philly, weeks 1 and 2", ("a", S, S))
    words = " ".join(page([msgspec.structs.replace(fine, name="ServeGen")], [fine]).split())
    assert "(ServeGen): nobody; the others" in words
    assert "## Where the goal is missed Nowhere." in words


@pytest.mark.skipif(not (TRACES / advice_runs.DEMAND).exists(), reason="the traces are not there")
def test_a_part_of_the_traces_works() -> None:
    (requests,) = advice_runs.requests(TRACES, most=1500)
    assert requests.tasks > 0
    assert requests.pool % 4000 == 0
    jobs = advice_runs.jobs(TRACES, most=40)
    assert jobs
    assert "# Advice" in page([requests], jobs)
