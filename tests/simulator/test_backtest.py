"""Given a past in two parts, quotas learned from the first are tested on the second by the core that decides."""

import msgspec
import pytest

from commonpool.core.advice import NEVER_NS, Verdict
from commonpool.core.model import NS_PER_HOUR, Policy
from commonpool.simulator.backtest import (
    ADVISED,
    EQUAL,
    P95,
    PEAKS,
    TODAY,
    Setup,
    Trial,
    backtest,
    held,
    own,
    own_cards_needed,
    setups,
    trial,
    worse,
)
from commonpool.simulator.workload import Workload, workload
from tests.core.worlds import S, policy, tenant
from tests.simulator.worlds import job, request

HOUR = NS_PER_HOUR
MINUTE = 60 * S


def jobs_policy() -> Policy:
    return policy(tenant("a", 2000), tenant("b", 2000))


def past(work: Workload, rules: Policy | None = None) -> Trial:
    """Two hours to learn from, two to be tested."""
    return trial(work, rules or jobs_policy(), 0, 2 * HOUR, 4 * HOUR)


def alternating() -> Workload:
    """a works in even half hours, b in odd ones: one GPU for ten minutes, three at a time."""
    arrivals = [
        job(f"{half}-{n}", half * 30 * MINUTE, 1000, 10 * MINUTE, "ab"[half % 2]) for half in range(8) for n in range(3)
    ]
    return workload("alternating", arrivals)


def by_name(tested: tuple[Verdict, ...]) -> dict[str, Verdict]:
    return {each.tenant: each for each in tested}


def test_the_first_part_is_learned_and_the_second_tested() -> None:
    known = past(alternating())
    assert [each.tenant for each in known.series] == ["a", "b"]
    assert known.series[0].wanted == (3000, 0, 0, 0, 0, 0, 3000, 0, 0, 0, 0, 0)
    assert known.series[1].wanted == (0, 0, 0, 3000, 0, 0, 0, 0, 0, 3000, 0, 0)
    assert {each.task for each in known.series} == {1000}
    assert all(each.lasting for each in known.series)
    assert len(known.tested.arrivals) == 12
    assert known.after[0][:2] == (3000, 0)


def test_a_tenant_whose_job_runs_from_before_wants_what_lasts() -> None:
    arrivals = [job("old", 0, 3000, 3 * HOUR), job("next", 2 * HOUR, 1000, MINUTE, "b")]
    known = trial(workload("w", arrivals), jobs_policy(), HOUR, 2 * HOUR, 3 * HOUR).series[0]
    assert (known.tenant, set(known.wanted), known.task, known.lasting) == ("a", {3000}, 3000, True)


def test_what_still_runs_from_before_is_there_and_is_not_counted() -> None:
    long = job("long", HOUR, 1000, 2 * HOUR)
    known = past(workload("w", [long, job("next", 2 * HOUR + 1, 1000, MINUTE)]))
    assert [(each.task.id, each.duration_ns) for each in known.tested.arrivals] == [("long", HOUR), ("next", MINUTE)]
    (only, _) = backtest(
        msgspec.structs.replace(known, series=(*known.series, msgspec.structs.replace(known.series[0], tenant="b"))),
        own(P95, {"a": 1000, "b": 0}),
    )
    assert (only.tasks, only.used_milli_gpu_ns) == (1, 1000 * MINUTE)
    assert only.wait_ns_p99 == HOUR - 2  # the long one came a nanosecond before the second part


def test_sharing_serves_both_from_the_cards_of_one() -> None:
    known = past(alternating())
    shared = by_name(backtest(known, Setup("s", 3000, shared=True, quotas={"a": (1000, 3000), "b": (1000, 3000)})))
    apart = by_name(backtest(known, own("o", {"a": 1500, "b": 1500})))
    assert [each.wait_ns_p99 for each in shared.values()] == [0, 0]
    assert shared["a"].borrowed_milli_gpu_ns == shared["b"].lent_milli_gpu_ns > 0
    assert [each.wait_ns_p99 // MINUTE for each in apart.values()] == [20, 20]
    assert [each.borrowed_milli_gpu_ns for each in apart.values()] == [0, 0]
    assert [who for who, _, _ in worse(apart.values(), shared.values())] == ["a", "b"]
    assert not worse(shared.values(), apart.values())


def test_what_never_fits_waits_for_ever() -> None:
    found = by_name(backtest(past(alternating()), own("o", {"a": 500, "b": 3000})))
    assert (found["a"].refused, found["a"].wait_ns_p50, found["a"].wait_ns_p99) == (6, NEVER_NS, NEVER_NS)
    assert (found["b"].refused, found["b"].wait_ns_p99) == (0, 0)


def test_all_ways_are_set_up_and_the_same_every_time() -> None:
    known = past(alternating())
    advice, compared = setups(known, 4000, {"a": (2000, 4000), "b": (2000, 4000)})
    assert [each.name for each in compared] == [TODAY, PEAKS, P95, EQUAL, ADVISED]
    assert [each.shared for each in compared] == [True, False, False, False, True]
    assert (advice.capacity, advice.static) == (4000, 6000)
    assert [backtest(known, each) for each in compared] == [backtest(known, each) for each in compared]


def test_requests_keep_their_pace_whoever_else_runs() -> None:
    rules = policy(tenant("a", 4000))
    arrivals = [request(f"r{n}", 2 * HOUR + n) for n in range(4)]
    work = held(workload("w", arrivals), lambda _: 5 * S)
    (few,) = backtest(past(work, rules), own("o", {"a": 1000}))
    (many,) = backtest(past(work, rules), own("o", {"a": 2000}))
    assert many.wait_ns_p99 == 0
    assert few.wait_ns_p99 == pytest.approx(5 * S, abs=2_000_000)  # two at a time, then the other two
    for each in (few, many):
        assert each.used_milli_gpu_ns == pytest.approx(4 * 500 * 5 * S, rel=0.001)


def test_the_fewest_cards_of_its_own_are_found() -> None:
    known = past(alternating())
    shared = backtest(known, Setup("s", 3000, shared=True, quotas={"a": (1000, 3000), "b": (1000, 3000)}))
    assert own_cards_needed(known, shared, {"a": 8000, "b": 8000}, 1000) == {"a": 3000, "b": 3000}
