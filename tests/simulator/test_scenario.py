"""Given a configuration and a workload, what is simulated: shapes, replicas, tenants, and what is refused as input."""

import msgspec
import pytest

from commonpool.config import Sources, parse_sources
from commonpool.core.model import Deployment
from commonpool.simulator import scenario
from commonpool.simulator.contract import SimulationError
from commonpool.simulator.policies import POLICIES
from commonpool.simulator.presets import PRESETS
from commonpool.simulator.workload import Workload, workload
from tests.api.fakes import sources
from tests.core.worlds import S
from tests.simulator.worlds import job, request

PRESET = PRESETS["7b-a100"]


def work(*tenants: str, jobs: int = 0, requests: int = 3) -> Workload:
    """Requests for the model of `sources`, and jobs for its pool, of each tenant."""
    arrivals = []
    for tenant in tenants:
        for number in range(requests):
            each = request(f"{tenant}{number}", number * S, tenant)
            arrivals.append(msgspec.structs.replace(each, task=msgspec.structs.replace(each.task, model="echo")))
        arrivals += [job(f"{tenant}-job{number}", number * S, 1000, S, tenant) for number in range(jobs)]
    return workload("work", arrivals)


def prepare(work: Workload, text: Sources | None = None, *, p60: bool = False) -> scenario.Scenario:
    return scenario.prepare(text or sources(), lambda policy, model: work, PRESET, p60=p60)  # noqa: ARG005


def test_the_model_has_the_presets_shape_and_fills_its_pool() -> None:
    shared = prepare(work("support", "research"))
    assert shared.policy.deployments == {
        "echo": Deployment("echo", "7b-a100", "main", 1000, PRESET.slots, PRESET.kv_tokens, PRESET.context_tokens)
    }
    assert [each.replica.id for each in shared.cluster.replicas] == ["echo-0", "echo-1", "echo-2", "echo-3"]
    assert {each.speed for each in shared.cluster.replicas} == {PRESET.speed}


@pytest.mark.parametrize(("jobs", "requests", "replicas"), [(0, 3, 4), (3, 3, 2), (3, 0, 0)])
def test_jobs_find_the_gpus_that_the_configuration_leaves_them(jobs: int, requests: int, replicas: int) -> None:
    assert len(prepare(work("support", jobs=jobs, requests=requests)).cluster.replicas) == replicas


def test_jobs_are_of_the_least_urgent_tier() -> None:
    shared = prepare(work("support", jobs=1))
    assert {arrival.task.tier for arrival in shared.workload.arrivals} == {"interactive", "batch"}
    assert {a.task.tier for a in shared.workload.arrivals if a.duration_ns} == {"batch"}


def test_a_request_costs_the_part_of_a_replica_that_it_keeps_from_others() -> None:
    # Given a full replica, whose others each end once and are followed by another prompt while a request runs,
    shared = prepare(work("support"))
    arrival = shared.workload.arrivals[0]
    batch = PRESET.slots
    speed = PRESET.speed
    length = scenario.service(shared.policy, shared.cluster)(arrival)
    # then a replica's time for it is its prompt, and its share of each of its steps.
    step = speed.step_ns + batch * speed.step_sequence_ns
    assert length == batch * arrival.tokens_in * speed.prefill_token_ns + (arrival.tokens_out - 1) * step


def test_tenants_of_the_workload_alone_have_default_settings() -> None:
    shared = prepare(work("support", "stranger"), p60=True)
    assert set(shared.policy.tenants) == {"support", "stranger"}
    stranger = shared.policy.tenants["stranger"]
    assert stranger.priority == {"interactive": 9, "batch": 3}
    assert sum(tenant.guaranteed for tenant in shared.policy.tenants.values()) == 4000


def test_what_cannot_be_simulated_is_said() -> None:
    with pytest.raises(SimulationError, match=r"lacks: t0, t1, t2, t3, t4 and 2 more\. Add them"):
        prepare(work(*(f"t{number}" for number in range(7))))
    with pytest.raises(SimulationError, match="work has no arrivals"):
        prepare(work())
    text = (
        sources()
        .files["commonpool.yaml"]
        .replace("tenant: {guaranteed: 1_gpu", "tenant: {models: [other], guaranteed: 1_gpu")
    )
    other = text.replace("prices:", "  other: {version: v1, gpu: 1_gpu, slots: 1, context: 8, engine: {kind: embedded,"
                         " file: x.gguf}}\nprices:")  # fmt: skip
    with pytest.raises(SimulationError, match="research may not use what work asks for"):
        prepare(work("support", "research"), sources(other.replace("gpus: 4_gpu", "gpus: 5_gpu")))


def test_generated_demand_is_of_the_configurations_tenants_and_repeats() -> None:
    policy = scenario.served(parse_sources(sources()), "echo", PRESET)
    cluster = scenario.cluster(policy, PRESET)
    one, again, other = (scenario.generated(policy, cluster, "echo", 60 * S, seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert one.tenants == ("research", "support")


@pytest.mark.parametrize("name", POLICIES)
def test_laws_hold_under_load(name: str) -> None:
    policy = scenario.served(parse_sources(sources()), "echo", PRESET)
    made = scenario.generated(policy, scenario.cluster(policy, PRESET), "echo", 30 * S, 3)
    crowded = Workload("crowded", [
        msgspec.structs.replace(a, at_ns=made.arrivals[0].at_ns + (a.at_ns - made.arrivals[0].at_ns) // 8)
        for a in made.arrivals[:600]
    ], made.tenants)  # fmt: skip
    outcomes = scenario.simulate(prepare(crowded), POLICIES[name], check_every=7)
    total = outcomes.total
    assert total.all.arrivals == total.all.served + total.all.refused == len(crowded.arrivals)
    assert total.within.arrivals + total.beyond.arrivals == total.all.arrivals
    assert total.loans.milli_gpu_ns == total.lent_milli_gpu_ns
    if POLICIES[name].promises:
        assert total.late == 0
    else:
        assert total.all.refused == 0
