"""What tenants would use if everything started at once, and the guarantees that follow from it."""

import pytest

from commonpool.core.model import Job
from commonpool.simulator.demand import WINDOW_NS, Asks, Demand, by_demand
from commonpool.simulator.workload import Arrival, Workload, workload
from tests.core.worlds import S, policy, tenant
from tests.simulator.worlds import job, request


def demand_of(work: Workload, window_ns: int = WINDOW_NS) -> Demand:
    return Demand(work, policy(tenant("a"), tenant("b")), lambda arrival: arrival.duration_ns, window_ns)


def test_demand_rises_with_arrivals_and_falls_with_ends() -> None:
    # Given 1 GPU for ten seconds, and 2 GPUs for four, two seconds later; the last arrival ends the time that counts.
    work = workload("w", [job("j0", 0, 1000, 10 * S), job("j1", 2 * S, 2000, 4 * S), job("j2", 12 * S, 500, S)])
    demand = demand_of(work)
    assert list(demand.asks) == [1000, 2000, 500]
    assert list(demand.at_arrival) == [1000, 3000, 500]
    assert demand.mean("a") == 1500
    assert (demand.percentile("b", 60), demand.mean("b")) == (0, 0)


def test_percentiles_are_of_means_over_windows_not_of_instants() -> None:
    # Given the same demand, 1 GPU for 2 s, 3 for 4 s, 1 for 4 s and none for 2 s, in windows of 5 s:
    work = workload("w", [job("j0", 0, 1000, 10 * S), job("j1", 2 * S, 2000, 4 * S), job("j2", 12 * S, 500, S)])
    demand = demand_of(work, 5 * S)
    # the third is cut at the last arrival, and counts as one all the same.
    assert demand.windows == {"a": [2200, 1400, 0]}
    assert [demand.percentile("a", percent) for percent in (1, 33, 34, 66, 67, 100)] == [0, 0, 1400, 1400, 2200, 2200]
    assert demand.mean("a") == 1500


def test_a_tenant_that_sends_short_bursts_has_demand_although_it_mostly_asks_for_nothing() -> None:
    bursts = [job(f"j{n}", n * 10 * S, 1000, S) for n in range(13)]
    assert demand_of(workload("w", bursts), S).percentile("a", 60) == 0
    assert demand_of(workload("w", bursts), 20 * S).percentile("a", 60) == 100


def test_what_ends_at_an_instant_makes_room_for_what_arrives_then() -> None:
    demand = demand_of(workload("w", [job("j0", 0, 1000, 5 * S), job("j1", 5 * S, 1000, S)]))
    assert list(demand.at_arrival) == [1000, 1000]


def test_within_counts_the_task_itself_and_each_tenant_alone() -> None:
    work = workload("w", [job("a0", 0, 1000, 9 * S), job("b0", S, 1000, 9 * S, "b"), job("a1", 2 * S, 1000, S)])
    rules = policy(tenant("a", 1000), tenant("b", 1000))
    assert list(demand_of(work).within(work, rules)) == [1, 1, 0]
    # Nobody who is unknown has a guarantee.
    assert list(demand_of(work).within(work, policy(tenant("a", 2000)))) == [1, 0, 1]


def test_a_request_asks_for_its_dominant_share() -> None:
    asks = Asks(policy(tenant("a")))
    assert asks.milli_gpu(request("r", 0).task) == 500  # a slot of four on two GPUs
    assert asks.milli_gpu(job("j", 0, 700, S).task) == 700
    assert Asks(policy(tenant("a"), deployments={})).milli_gpu(request("r", 0).task) == 0


def test_guarantees_follow_demand_and_fill_the_pool() -> None:
    # Given a that asks for 3 GPUs and b that asks for 1, both all the time,
    work = workload("w", [job("a0", 0, 3000, 99 * S), job("b0", 0, 1000, 99 * S, "b"), job("b1", 50 * S, 1, S, "b")])
    rules = policy(tenant("a", 10), tenant("b", 20, reserved=20), tenant("c", 30), milli_gpu=10_001)
    given = by_demand(rules, demand_of(work), work)
    # then the pool is theirs in that proportion to the last thousandth, each may have twice that, and c is not there.
    assert {t.name: (t.guaranteed, t.elastic_cap, t.hard_cap, t.reserved) for t in given.tenants.values()} == {
        "a": (7501, 10_001, 10_001, 0),
        "b": (2500, 5000, 5000, 0),
    }


def test_an_idle_tenants_guarantee_holds_its_usual_task() -> None:
    # Given b, whose demand is zero for more than 60 % of the time,
    work = workload("w", [job("a0", 0, 3000, 100 * S), job("b0", 0, 1000, S, "b"), job("a1", 100 * S, 1, S)])
    given = by_demand(policy(tenant("a"), tenant("b")), demand_of(work), work)
    assert {t.name: t.guaranteed for t in given.tenants.values()} == {"a": 3000, "b": 1000}


@pytest.mark.parametrize("arrivals", [[], [job("only", 5 * S, 1000, S)]])
def test_no_time_is_no_demand(arrivals: list[Arrival]) -> None:
    demand = demand_of(workload("w", arrivals))
    assert (demand.percentile("a", 60), demand.mean("a")) == (0, 0)
    assert all(isinstance(arrival.task, Job) for arrival in arrivals)
