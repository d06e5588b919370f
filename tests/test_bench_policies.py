"""Given small worlds, then the figures of the comparison are what they say; given the traces, a part of it works."""

import os
from pathlib import Path

import msgspec
import pytest
from benchmarks import policy_runs, policy_setups, vtc_setups
from benchmarks.policy_goals import (
    LATE,
    NEIGHBOURS,
    USE_FIFO,
    USE_STATIC,
    VIOLATIONS_FIFO,
    VIOLATIONS_STATIC,
    WAIT_FIFO,
    goals,
    why,
)
from benchmarks.policy_page import All, Speed, page
from benchmarks.policy_runs import COMMONPOOL, FIFO, LIFTED, STATIC, Found, Neighbours, Owner, Run, Share, measured

from commonpool.core.model import Policy
from commonpool.simulator.cluster import Cluster
from commonpool.simulator.figures import Figures, Lending, Outcomes, Part, Spread
from commonpool.simulator.policies import POLICIES
from commonpool.simulator.scenario import Scenario, scenario
from commonpool.simulator.workload import Arrival, workload
from tests.core.worlds import S, policy, tenant
from tests.simulator.worlds import job

TRACES = Path(os.environ.get("COMMONPOOL_TRACES") or Path(__file__).parents[2] / "shared" / "traces")


def shared(arrivals: list[Arrival], rules: Policy, window_ns: int = 10 * S) -> Scenario:
    return scenario(rules, workload("w", arrivals), Cluster(), window_ns=window_ns)


# -- set-ups -----------------------------------------------------------------------------------------------------------


def test_the_fluid_bound_holds_back_what_caps_and_the_pool_hold_back() -> None:
    # Given a that asks for 4 GPUs for 10 s and b for 2 GPUs for 20 s, until the end at 20 s, on 4 GPUs:
    arrivals = [job("a0", 0, 4000, 10 * S), job("b0", 0, 2000, 20 * S, "b"), job("b1", 20 * S, 1000, S, "b")]
    free = policy(tenant("a", 2000, elastic_cap=4000), tenant("b", 2000, elastic_cap=4000), milli_gpu=4000)
    # 80 GPU-seconds are asked for and 80 are there, as much at any time as is asked for until then;
    assert policy_setups.fluid_ppm(shared(arrivals, free)) == 1_000_000
    # where a may use 1 GPU it gets 20 of its 40, so 60 of 80 are the most.
    capped = policy(tenant("a", 1000, elastic_cap=1000), tenant("b", 2000, elastic_cap=4000), milli_gpu=4000)
    assert policy_setups.fluid_ppm(shared(arrivals, capped)) == 750_000


def test_lifted_caps_are_those_of_the_pool_and_nothing_else_changes() -> None:
    before = shared([job("a0", 0, 500, S)], policy(tenant("a", 1000, elastic_cap=2000), milli_gpu=4000))
    after = policy_setups.lifted(before).policy.tenants["a"]
    assert (after.guaranteed, after.elastic_cap, after.hard_cap) == (1000, 4000, 4000)
    assert before.policy.tenants["a"].elastic_cap == 2000


def test_the_burstiest_send_three_times_as_much_and_guarantees_stay() -> None:
    # Given a that asks for the same all the time, and b and c in bursts,
    steady = [job(f"a{n}", n * 10 * S, 1000, 10 * S) for n in range(10)]
    bursts = [job("b0", 0, 1000, S, "b"), job("b1", 50 * S, 4000, 10 * S, "b"), job("c0", 30 * S, 3000, 5 * S, "c")]
    calm = shared(steady + bursts, policy(tenant("a", 1000), tenant("b", 1000), tenant("c", 1000)))
    noisy = policy_setups.burstiest(calm.demand)
    assert noisy == ("b", "c")
    # then each of their jobs comes three times, at its time.
    loud = policy_setups.loaded(calm, noisy)
    ids = [arrival.task.id for arrival in loud.workload.arrivals]
    assert [name for name in ids if name.startswith("a")] == [f"a{n}" for n in range(10)]
    assert [name for name in ids if name[0] in "bc"] == [
        f"{name}{more}" for name in ("b0", "c0", "b1") for more in ("", "+1", "+2")
    ]
    assert loud.policy is calm.policy
    assert loud.demand.mean("a") == calm.demand.mean("a")


# -- runs --------------------------------------------------------------------------------------------------------------


def test_what_comes_while_nothing_of_its_tenant_waits_is_counted_apart() -> None:
    # Given one GPU and jobs of ten seconds whose target is 5 s: the first runs, the others wait.
    rules = policy(tenant("a", 1000), tenant("b", 0), milli_gpu=1000)
    tiers = {name: msgspec.structs.replace(tier, queue_target_ns=5 * S) for name, tier in rules.tiers.items()}
    rules = msgspec.structs.replace(rules, tiers=tiers)
    arrivals = [job("a0", 0, 1000, 10 * S), job("a1", S, 1000, 10 * S), job("a2", 2 * S, 1000, 10 * S)]
    run = measured(shared(arrivals, rules), FIFO)
    # Then the first two found nothing waiting, and of these the second waited too long; only the first is within.
    assert run.outcomes.total.all.violations == 2
    assert (run.first, run.first_within) == (Share(2, 1), Share(1, 0))


# -- goals -------------------------------------------------------------------------------------------------------------


def outcomes(use_ppm: int, violations: int, mean_ns: int, *, late: int = 0, p99_ns: int = S) -> Outcomes:
    part = Part(100, 100, 0, 0, violations, Spread(p99_ns=p99_ns, mean_ns=mean_ns))
    lending = Lending(0, 0, Spread())
    total = Figures("", 1000, part, part, part, 0, 0, 0, late, lending, 0)
    each = msgspec.structs.replace(total, tenant="a")
    return Outcomes("any", "", total, (each,), 1000, use_ppm, (), 0, 0, 0, {})


def found(own: Outcomes, *, tripled_p99_ns: int) -> Found:
    every = dict.fromkeys(POLICIES, outcomes(790_000, 50, 40 * S))
    every |= {STATIC: outcomes(400_000, 60, 9 * S), COMMONPOOL: own, LIFTED: own}
    after = outcomes(900_000, 1, S, p99_ns=tripled_p99_ns)
    return Found(
        "requests",
        100,
        S,
        1000,
        800_000,
        (Owner("a", "batch", 500, 1000, 1000),),
        {name: Run(each, Share(9, 1), Share(7, 1)) for name, each in every.items()},
        {COMMONPOOL: 750_000, LIFTED: 800_000},
        900,
        Neighbours(("b",), {COMMONPOOL: own, LIFTED: own}, {COMMONPOOL: after, LIFTED: after}),
    )


def test_every_goal_can_be_met() -> None:
    judged = goals(found(outcomes(770_000, 10, 10 * S), tripled_p99_ns=S + S // 10))
    assert [goal.words for goal in judged if not goal.met] == []
    assert list(why("day", found(outcomes(770_000, 10, 10 * S), tripled_p99_ns=S), judged)) == []


def test_every_goal_can_be_missed_and_the_page_says_why() -> None:
    case = found(outcomes(699_999, 11, 11 * S, late=1), tripled_p99_ns=2 * S)
    judged = [goal for goal in goals(case) if goal.label == COMMONPOOL]
    assert [goal.words for goal in judged if not goal.met] == [
        USE_FIFO,
        USE_STATIC,
        VIOLATIONS_FIFO,
        WAIT_FIFO,
        LATE,
        NEIGHBOURS,
    ]
    worse = found(outcomes(699_999, 13, 11 * S), tripled_p99_ns=S)
    assert VIOLATIONS_STATIC in {goal.words for goal in goals(worse) if not goal.met}
    reasons = list(why("day", case, goals(case)))
    assert [reason.split("**")[1] for reason in reasons] == [
        "day, use",
        "day, caps lifted, use",
        "day, within guarantee",
        "day, two tenants tripled",
    ]
    assert "No schedule" in reasons[0]
    assert "75.0 %" in reasons[0]


# -- the traces --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces are not here")
def test_a_small_part_of_the_comparison_fills_the_page() -> None:
    said: list[str] = []
    day = policy_runs.day(TRACES, 300, said.append)
    # A few jobs take months to end, and half a minute to simulate: the same requests stand for them.
    jobs = msgspec.structs.replace(day, tasks="jobs", neighbours=None, patient=day.runs[COMMONPOOL])
    rows = vtc_setups.rows([msgspec.structs.replace(setup, seconds=5) for setup in vtc_setups.SETUPS])
    text = page(All(day, jobs, tuple(rows), {"compiled": Speed(60_000, 120_000, 8.0)}), "Made here.")

    assert list(day.runs) == [*POLICIES, LIFTED]
    assert said[0] == "fifo, replicas: 1"
    assert day.arrivals == 300
    assert sum(owner.guaranteed for owner in day.owners) == day.pool_milli_gpu
    assert all(run.outcomes.total.all.arrivals == 300 for run in day.runs.values())
    # Work within guarantees fits, and no bound is above what is asked for.
    assert day.within_peak <= day.pool_milli_gpu
    assert day.bounds_ppm[COMMONPOOL] <= day.bounds_ppm[LIFTED] <= day.demand_ppm + 1
    assert "| compiled | 60,000 | met | 120,000 | 50.0 % |" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 120


@pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces are not here")
def test_the_pool_of_the_jobs_is_a_fifth_above_their_mean_demand_and_all_guaranteed() -> None:
    some = policy_setups.jobs(TRACES, most=300)
    pool = some.policy.pools["main"].milli_gpu
    mean = sum(map(some.demand.mean, some.policy.tenants))
    assert abs(pool - mean * 12 // 10) <= 500
    assert pool % 1000 == 0
    assert sum(tenant.guaranteed for tenant in some.policy.tenants.values()) == pool
