"""Given one workload and one policy of the operator, what each way of sharing makes the machine do."""

import heapq
import random
from collections.abc import Iterator

import msgspec
import pytest

from commonpool.core.machine import Machine
from commonpool.core.model import Outcome, Policy, Reason
from commonpool.simulator.checkers import Checked
from commonpool.simulator.cluster import Cluster
from commonpool.simulator.policies import POLICIES, machine_for, prepared
from commonpool.simulator.run import run
from commonpool.simulator.workload import Arrival, Workload, workload
from tests.core.worlds import S, policy, tenant
from tests.simulator.worlds import Witness, cluster, crowd, job, request, two_tenants

NO_REPLICAS = Cluster()
UNPROMISED = [name for name, sharing in POLICIES.items() if not sharing.promises]


def simulate(name: str, rules: Policy, work: Workload, where: Cluster = NO_REPLICAS) -> Witness:
    """The workload under a policy, every law checked with every event."""
    sharing = POLICIES[name]
    machine = machine_for(sharing, rules)
    checked = Checked(prepared(sharing, rules, machine), machine)
    witness = Witness()
    checked.finish(run(work, checked, where, witness))
    return witness


def starts(witness: Witness) -> dict[str, int]:
    """When each task started last."""
    return {name: at for told, name, at, _ in witness.told if told == "started"}


def jobs(seed: int, count: int) -> Workload:
    chance = random.Random(seed)
    at, arrivals = S, []
    for number in range(count):
        at += int(chance.expovariate(1) * 20 * S)
        arrivals.append(job(f"j{number}", at, 1000, int(chance.expovariate(1) * 90 * S) + 1, chance.choice("ab")))
    return workload("jobs", arrivals)


def queue_of(arrivals: list[Arrival], servers: int) -> Iterator[tuple[str, int]]:
    """The textbook: each takes the server that is free first, in order of arrival."""
    free = [0] * servers
    for arrival in arrivals:
        start = max(arrival.at_ns, heapq.heappop(free))
        heapq.heappush(free, start + arrival.duration_ns)
        yield arrival.task.id, start


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_drives_the_machine_of_production(name: str) -> None:
    assert type(machine_for(POLICIES[name], two_tenants())) is Machine


@pytest.mark.parametrize("seed", range(5))
def test_fifo_is_the_textbooks_queue(seed: int) -> None:
    work = jobs(seed, 200)
    assert starts(simulate("fifo", two_tenants(), work)) == dict(queue_of(work.arrivals, 4))


def test_priority_serves_the_urgent_of_all_tenants_first() -> None:
    # Given a pool that is full, two batch jobs that wait, and then an urgent one of another tenant,
    late = job("urgent", S + 3, 4000, 10 * S, "b")
    urgent = msgspec.structs.replace(late, task=msgspec.structs.replace(late.task, tier="interactive"))
    work = workload("w", [*(job(f"batch{n}", S + n, 4000, 10 * S) for n in range(3)), urgent])
    rules = policy(tenant("a", 2000), tenant("b", 2000))
    # then it is next by priority, whosever it is, and last by arrival.
    order = {name: list(starts(simulate(name, rules, work))) for name in ("priority", "fifo")}
    assert order == {
        "priority": ["batch0", "urgent", "batch1", "batch2"],
        "fifo": ["batch0", "batch1", "batch2", "urgent"],
    }


def test_static_lends_nothing() -> None:
    # Given an idle pool of four GPUs of which two are a's, when a asks for three jobs and one of three GPUs,
    work = workload("w", [job(f"j{n}", S, 1000, 10 * S) for n in range(3)] + [job("wide", S, 3000, S)])
    witness = simulate("static", two_tenants(), work)
    # then two run and the third waits for them, and the wide one never fits.
    assert starts(witness) == {"j0": S, "j1": S, "j2": 11 * S}
    assert ("refused", "wide", S, Reason.NEVER_FITS) in witness.told


def test_vtc_keeps_weights_whatever_is_guaranteed() -> None:
    # Given two tenants who both always wait, one guaranteed all but with a third of the weight,
    rules = policy(tenant("a", 3900, weight=1), tenant("b", 100, weight=2))
    work = workload("w", [request(f"{who}{n}", S + n, who) for n in range(300) for who in "ab"])
    begun = starts(simulate("vtc", rules, work, cluster(2)))
    # when half of all has been served, then b has been served twice as often as a.
    first = sorted(begun, key=begun.__getitem__)[:300]
    served = {who: sum(name.startswith(who) for name in first) for who in "ab"}
    assert served["b"] == pytest.approx(2 * served["a"], rel=0.05)


def test_preempt_kills_the_newest_borrowed_and_starts_them_again() -> None:
    # Given b on all four GPUs, two of them borrowed from a, when a asks for its two,
    borrowed = [job(f"b{n}", S + n, 1000, 100 * S, "b") for n in range(4)]
    work = workload("w", [*borrowed, job("a0", 11 * S, 2000, 10 * S)])
    witness = simulate("preempt", two_tenants(), work)
    # then the newest two are killed with ten seconds of work each, and run from the beginning when a is done.
    killed = [(name, lost) for told, name, _, lost in witness.told if told == "preempted"]
    assert killed == [("b3", 1000 * (10 * S - 3)), ("b2", 1000 * (10 * S - 2))]
    assert starts(witness) == {"b0": S, "b1": S + 1, "a0": 11 * S, "b2": 21 * S, "b3": 21 * S}
    assert sorted(witness.of("ended")) == ["a0", "b0", "b1", "b2", "b3"]
    assert witness.records["b3"].run_ns == 100 * S


def test_preempt_leaves_alone_what_is_not_borrowed() -> None:
    # Given a and b each within its guarantee, when a wants more than its own, nobody is killed for it.
    work = workload("w", [job("b0", S, 2000, 50 * S, "b"), *(job(f"a{n}", S + n, 1000, 50 * S) for n in range(3))])
    witness = simulate("preempt", two_tenants(), work)
    assert witness.of("preempted") == []
    assert starts(witness)["a2"] == 51 * S


def test_preempt_makes_room_for_requests_at_once() -> None:
    # Given b on all eight slots, when a, who is guaranteed half of them, asks for two,
    flood = [request(f"b{n}", S, "b", tokens_out=100) for n in range(12)]
    work = workload("w", [*flood, request("a0", 2 * S), request("a1", 2 * S)])
    witness = simulate("preempt", two_tenants(), work, cluster(2))
    # then both start at that instant, in the place of the two newest, which are served later.
    begun = starts(witness)
    assert (begun["a0"], begun["a1"]) == (2 * S, 2 * S)
    assert len(witness.of("preempted")) == 2
    assert sorted(witness.of("ended")) == sorted(a.task.id for a in work.arrivals)


@pytest.mark.parametrize("name", UNPROMISED)
def test_who_promises_nothing_refuses_nothing_that_fits(name: str) -> None:
    work = crowd(3, 400, "ab", S // 200)
    rules = policy(tenant("a", 1000, max_wait_ns=S), tenant("b", 3000, max_wait_ns=S))
    witness = simulate(name, rules, work, cluster(2))
    assert witness.of("refused") == []
    assert {record.outcome for record in witness.records.values()} == {Outcome.COMPLETED}
    assert len(witness.records) == 400


def test_commonpool_refuses_at_once_what_would_be_late() -> None:
    work = crowd(3, 400, "ab", S // 200)
    rules = policy(tenant("a", 1000, max_wait_ns=S), tenant("b", 3000, max_wait_ns=S))
    assert POLICIES["commonpool"].rules(rules) is rules
    sharing = POLICIES["commonpool"]
    machine = machine_for(sharing, rules)
    assert prepared(sharing, rules, machine) is machine
    witness = simulate("commonpool", rules, work, cluster(2))
    assert len(witness.of("refused")) > 100
    assert len(witness.of("refused")) + len(witness.of("ended")) == 400
