"""Replicas that follow demand in a simulation: started, drained, stopped and replaced by the machine of production."""

import os
import random
from pathlib import Path

import msgspec
import pytest

from commonpool.core.machine import Machine
from commonpool.core.model import Deployment, Outcome, Policy, Residency, Scaling, Tier
from commonpool.simulator.checkers import Checked
from commonpool.simulator.cluster import Cluster, Engine, Failures
from commonpool.simulator.fleet import Fleet
from commonpool.simulator.run import run
from commonpool.simulator.traces import Target, read
from commonpool.simulator.workload import Arrival, Workload, workload
from tests.core.worlds import CONTEXT, SLOTS, S, policy, tenant
from tests.simulator.worlds import MS, SPEED, Watched, Witness, crowd, request

TRACES = Path(os.environ.get("COMMONPOOL_TRACES") or Path(__file__).parents[3] / "shared" / "traces")
ENGINES = {"m": Engine(SPEED, CONTEXT)}
BEGIN = 1000 * S


def following(rules: Policy, least: int = 1, most: int = 4, residency: Residency = "resident", **more: int) -> Policy:
    """The policy with replicas of one GPU that follow demand."""
    scaling = Scaling(least, most, residency, **more)
    deployment = Deployment("m", "v1", "main", 1000, SLOTS, SLOTS * CONTEXT, CONTEXT, scaling=scaling)
    tiers = {"interactive": Tier("interactive", 5 * S, 10 * S), "batch": Tier("batch", 600 * S)}
    return msgspec.structs.replace(rules, deployments={"m": deployment}, tiers=tiers)


def later(work: Workload, ns: int = BEGIN) -> Workload:
    return workload(work.name, [msgspec.structs.replace(a, at_ns=a.at_ns + ns) for a in work.arrivals])


def simulate(
    work: Workload, rules: Policy, failures: Failures | None = None, *, warm: bool = True, seed: int = 0
) -> tuple[Witness, Fleet, Watched]:
    witness, machine = Witness(), Machine(rules)
    checked = Checked(machine, machine, 7)
    watched = Watched(checked)
    fleet = Fleet(watched)
    end = run(work, fleet, Cluster((), failures, warm, ENGINES), witness, seed=seed)
    checked.finish(end)
    fleet.finish(end)
    return witness, fleet, watched


def test_the_minimum_is_there_before_the_first_arrival_or_loads_after_it() -> None:
    work = workload("one", [request("r", BEGIN)])
    witness, fleet, _ = simulate(work, following(policy(tenant("a", 4000)), least=2))
    assert witness.told[0] == ("started", "r", BEGIN, 0)
    assert [(life.started, life.ready) for life in fleet.lives] == [(BEGIN - SPEED.load_ns, BEGIN)] * 2
    witness, fleet, _ = simulate(work, following(policy(tenant("a", 4000))), warm=False)
    assert witness.told[0] == ("started", "r", BEGIN + SPEED.load_ns, SPEED.load_ns)
    assert len(fleet.lives) == 1


def test_a_model_that_sleeps_wakes_for_the_first_request_and_sleeps_again() -> None:
    work = workload("two", [request("r0", BEGIN), request("r1", BEGIN + 1000 * S)])
    rules = following(policy(tenant("a", 4000)), 0, residency="on_demand", idle_ns=200 * S)
    witness, fleet, watched = simulate(work, rules)
    assert [told[:2] for told in witness.told if told[0] == "started"] == [("started", "r0"), ("started", "r1")]
    assert [life.started for life in fleet.lives] == [BEGIN, BEGIN + 1000 * S]
    assert fleet.lives[0].ready == BEGIN + SPEED.load_ns
    slept = fleet.lives[0].stopped - fleet.lives[0].ready
    assert 200 * S <= slept <= 262 * S  # an idle pool is looked at once a minute
    assert fleet.lives[0].ended == fleet.lives[0].stopped
    assert watched.kinds().count("Ticked") < 120


def test_replicas_come_with_the_load_and_go_after_it_and_nobody_notices_their_going() -> None:
    many = later(crowd(1, 2000, "a", 60 * MS))  # two minutes, 17 a second
    few = later(crowd(2, 300, "a", 4 * S), BEGIN + 130 * S)
    few = workload("few", [msgspec.structs.replace(a, task=_named(a.task, "f")) for a in few.arrivals])
    work = workload("both", many.arrivals + few.arrivals)
    witness, fleet, _ = simulate(work, following(policy(tenant("a", 8000), milli_gpu=8000), most=8))
    assert sorted(witness.of("ended")) == sorted(a.task.id for a in work.arrivals)
    assert {record.outcome for record in witness.records.values()} == {Outcome.COMPLETED}
    assert {record.attempt for record in witness.records.values()} == {1}
    assert fleet.most() >= 5
    counts = [count for _, count in fleet.changes()]
    assert min(counts[counts.index(fleet.most()) : -1]) <= 2
    assert not fleet.short_lives(SPEED.load_ns)


def _named(task: object, prefix: str) -> object:
    return msgspec.structs.replace(task, id=prefix + task.id)  # type: ignore[attr-defined,type-var]


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_that_breaks_is_replaced_and_its_requests_run_again(seed: int) -> None:
    rules = following(policy(tenant("a", 4000), tenant("b", 1000)), 2)
    work = later(crowd(seed, 600, "ab", 200 * MS))
    witness, fleet, watched = simulate(work, rules, Failures(mtbf_ns=60 * S, repair_ns=S), seed=seed)
    assert len(witness.of("ended")) + len(witness.of("refused")) == 600
    assert len(fleet.lives) > 2
    assert len({life.replica.id for life in fleet.lives}) == len(fleet.lives)
    assert "ReplicaLost" in watched.kinds()
    assert set(watched.taken.values()) == {0}


def test_the_same_seed_gives_the_same_bytes() -> None:
    rules = following(policy(tenant("a", 4000), tenant("b", 1000)))
    runs = [simulate(later(crowd(5, 500, "ab", 60 * MS)), rules) for _ in range(2)]
    assert runs[0][0].bytes() == runs[1][0].bytes()
    assert runs[0][1].changes() == runs[1][1].changes()


def test_what_replicas_hold_is_counted_from_their_start_to_their_end() -> None:
    rules = following(policy(tenant("a", 4000)), 0, residency="on_demand", idle_ns=100 * S)
    _, fleet, _ = simulate(workload("one", [request("r", BEGIN), request("s", BEGIN + 900 * S)]), rules)
    one, two = fleet.lives
    assert fleet.held_milli_gpu_ns(0, 10**18) == 1000 * (one.ended - one.started + two.ended - two.started)
    assert fleet.held_milli_gpu_ns(one.started + S, one.started + 3 * S) == 2000 * S
    assert fleet.changes() == [(one.started, 1), (one.ended, 0), (two.started, 1), (two.ended, 0)]


def test_a_tenfold_burst_does_not_keep_those_within_their_guarantee_from_their_first_token() -> None:
    chance = random.Random(4)
    arrivals: list[Arrival] = []
    for name, gap_s, begin, end in (("a", 1.0, 0, 900), ("b", 1.0, 0, 900), ("b", 1 / 9, 300, 600)):
        at = chance.expovariate(1) * gap_s + begin
        while at < end:
            number = f"{name}{len(arrivals)}"
            arrivals.append(request(number, BEGIN + int(at * S), name, 100, chance.randint(20, 100)))
            at += chance.expovariate(1) * gap_s
    rules = following(policy(tenant("a", 2000), tenant("b", 1000), milli_gpu=12_000), most=12)
    witness, fleet, _ = simulate(workload("burst", arrivals), rules)
    promised = rules.tiers["interactive"].first_token_target_ns
    assert promised is not None
    late = [r for r in witness.records.values() if r.tenant == "a" and r.first_token_ns > promised]
    assert not late
    assert not witness.of("refused")
    assert fleet.most() > 2
    assert not fleet.short_lives(SPEED.load_ns)


@pytest.mark.skipif(not TRACES.exists(), reason="COMMONPOOL_TRACES names no folder of traces")
def test_the_busiest_hours_of_a_day_make_nothing_oscillate() -> None:
    day = read(TRACES / "servegen_tenants_1day.csv.gz", Target("m", "main", "interactive"))
    begin = day.arrivals[0].at_ns + 9 * 3600 * S
    arrivals = [a for a in day.arrivals if begin <= a.at_ns < begin + 3600 * S][:12_000]
    # What does not fit the small context of this model is cut.
    arrivals = [
        msgspec.structs.replace(
            a, task=msgspec.structs.replace(a.task, tokens_in=min(a.tokens_in, 500)), tokens_in=min(a.tokens_in, 500)
        )
        for a in arrivals
    ]
    work = workload("hour", arrivals)
    rules = following(policy(*(tenant(name, 2000) for name in work.tenants), milli_gpu=16_000), most=16)
    witness, fleet, _ = simulate(work, rules)
    assert len(witness.of("ended")) + len(witness.of("refused")) == len(arrivals)
    assert len(fleet.lives) > 3
    assert not fleet.short_lives(SPEED.load_ns)
