"""What the clock makes of a workload: everything ends once, in order, by the machine of production."""

import random
from collections import Counter, deque
from collections.abc import Sequence

import pytest

from commonpool.app import product
from commonpool.core.effects import Dispatch, Effect, Fail, Refuse, Settle, Start
from commonpool.core.events import Arrived, Cancelled, Ended, Event, JobEnded, ReplicaReady, Submitted, Ticked
from commonpool.core.machine import Machine
from commonpool.core.model import Job, Outcome, Reason, TokenSource, UsageRecord
from commonpool.gateway import desk
from commonpool.simulator import recording
from commonpool.simulator.cluster import Cluster, Failures
from commonpool.simulator.run import Decides, Preempt, SimulationError, run
from commonpool.simulator.workload import Workload, workload
from tests.core.worlds import CONTEXT, SLOTS, S, policy, tenant
from tests.simulator.worlds import MS, SPEED, Watched, Witness, cluster, crowd, job, request, two_tenants


def simulate(work: Workload, machine: Decides, replicas: Cluster | None = None, **more: int) -> tuple[Witness, Watched]:
    witness, watched = Witness(), Watched(machine)
    run(work, watched, replicas or cluster(), witness, **more)  # type: ignore[arg-type]
    return witness, watched


def test_the_machine_is_the_one_of_production() -> None:
    machine = Machine(two_tenants())
    witness, _ = simulate(crowd(1, 20, "ab", S), machine)
    assert len(witness.of("ended")) == 20
    assert type(machine) is vars(desk)["Machine"] is vars(product)["Machine"] is vars(recording)["Machine"]
    assert type(machine).__module__ == "commonpool.core.machine"


def test_one_request_takes_its_prompt_and_its_tokens() -> None:
    witness, _ = simulate(workload("one", [request("r", S, tokens_in=100, tokens_out=50)]), Machine(two_tenants()))
    ends = S + 100 * SPEED.prefill_token_ns + 49 * (SPEED.step_ns + SPEED.step_sequence_ns)
    assert witness.told == [("started", "r", S, 0), ("ended", "r", ends, Outcome.COMPLETED)]
    record = witness.records["r"]
    assert (record.tokens_in, record.tokens_out, record.first_token_ns) == (100, 50, 100 * SPEED.prefill_token_ns)
    assert record.milli_gpu_ns == 500 * (ends - S)


def test_an_output_ends_at_the_clients_bound_and_at_the_context() -> None:
    arrivals = [request("bound", S, tokens_out=500), request("context", S, tokens_in=CONTEXT - 5, tokens_out=90)]
    witness, _ = simulate(workload("cut", arrivals), Machine(two_tenants()))
    assert [witness.records[name].tokens_out for name in ("bound", "context")] == [100, 5]


@pytest.mark.parametrize("seed", range(5))
def test_every_arrival_is_refused_or_ends_exactly_once(seed: int) -> None:
    rules = policy(tenant("a", 2000, max_wait_ns=2 * S), tenant("b", 1000), milli_gpu=4000)
    failures = Failures(mtbf_ns=40 * S, repair_ns=5 * S)
    work = crowd(seed, 600, "ab", 60 * MS)
    witness, watched = simulate(work, Machine(rules), cluster(2, failures), seed=seed)
    assert Counter(witness.of("ended") + witness.of("refused")) == Counter(x.task.id for x in work.arrivals)
    assert {record.outcome for record in witness.records.values()} >= {Outcome.COMPLETED}
    assert witness.of("refused")
    assert "ReplicaLost" in watched.kinds()
    assert watched.most_taken == SLOTS
    assert set(watched.taken.values()) == {0}


def test_the_same_seed_gives_the_same_bytes_and_another_other_failures() -> None:
    def outcome(seed: int) -> bytes:
        failures = Failures(mtbf_ns=60 * S, repair_ns=5 * S)
        witness, _ = simulate(crowd(3, 300, "ab", 100 * MS), Machine(two_tenants()), cluster(2, failures), seed=seed)
        return witness.bytes()

    assert outcome(1) == outcome(1)
    assert outcome(1) != outcome(2)


def test_a_cold_cluster_serves_when_it_has_loaded() -> None:
    witness, watched = simulate(workload("w", [request("r", S)]), Machine(two_tenants()), cluster(warm=False), seed=0)
    assert witness.told[0] == ("started", "r", S + SPEED.load_ns, SPEED.load_ns)
    assert watched.kinds().count("Ticked") in {29, 30}  # once a second while it waited


def test_a_lost_replica_fails_its_requests_which_run_again_elsewhere() -> None:
    work = workload("w", [request(f"r{n}", S, tokens_out=100) for n in range(4)])
    witness, watched = simulate(work, Machine(two_tenants()), cluster(2, Failures(mtbf_ns=S, repair_ns=S)), seed=4)
    kinds = watched.kinds()
    assert "ReplicaLost" in kinds
    assert Counter(witness.of("ended")) == Counter(f"r{n}" for n in range(4))
    assert max(record.attempt for record in witness.records.values()) == 2
    assert all(
        isinstance(event, Ended) and event.outcome is Outcome.FAILED and event.retry
        for (_, before), (_, event) in zip(watched.events, watched.events[1:], strict=False)
        if type(before).__name__ == "ReplicaLost" and isinstance(event, Ended)
    )


def test_clients_give_up_in_the_queue_and_before_the_first_token() -> None:
    long = [request(f"long{n}", S, tokens_out=100) for n in range(SLOTS)]
    work = workload("w", [*long, request("queued", S + 1)])
    witness, watched = simulate(work, Machine(two_tenants()), patience_ns=S // 2)
    assert witness.records["queued"].outcome is Outcome.CANCELLED
    assert sum(isinstance(event, Cancelled) for _, event in watched.events) == 1
    slow = workload("w", [request(f"r{n}", S, tokens_in=900, tokens_out=10) for n in range(3)])
    witness, _ = simulate(slow, Machine(two_tenants()), patience_ns=200 * MS)
    assert [witness.records[f"r{n}"].outcome.value for n in range(3)] == ["completed", "completed", "cancelled"]
    assert witness.records["r2"].run_ns == 200 * MS


def test_two_tasks_of_one_name_are_an_error() -> None:
    with pytest.raises(SimulationError, match="named r;"):
        simulate(workload("w", [request("r", S), request("r", S)]), Machine(two_tenants()))


def test_progress_is_told_and_reaches_the_end() -> None:
    told: list[tuple[int, int]] = []
    work = crowd(1, 6000, "a", 50 * MS)
    run(work, Machine(two_tenants()), cluster(2), Witness(), progress=lambda done, total: told.append((done, total)))
    assert 0 < told[0][0] < 6000
    assert told == sorted(told)
    assert told[-1] == (6000, 6000)


def test_nothing_comes_of_nothing() -> None:
    assert run(workload("w", []), Machine(two_tenants()), cluster(), Witness()) == 0


@pytest.mark.parametrize("seed", range(3))
def test_jobs_and_requests_share_the_pool_through_the_machine(seed: int) -> None:
    rules = policy(tenant("a", 3000), tenant("b", 3000), milli_gpu=6000)
    chance = random.Random(seed)
    jobs = [
        job(f"j{n}", S + n * S, 500 * chance.randint(1, 4), chance.randint(1, 20) * S, "ab"[n % 2]) for n in range(60)
    ]
    work = workload("mixed", jobs + crowd(seed, 200, "ab", 200 * MS).arrivals)
    witness, watched = simulate(work, Machine(rules), cluster(1))
    assert Counter(witness.of("ended") + witness.of("refused")) == Counter(x.task.id for x in work.arrivals)
    assert {x.task.id for x in jobs} <= set(witness.of("ended"))
    assert watched.kinds().count("JobEnded") == 60
    asks = {x.task.id: x.task.milli_gpu for x in jobs if isinstance(x.task, Job)}
    held = most = 0
    for what, name, _, _ in witness.told:
        held += {"started": 1, "ended": -1}[what] * asks.get(name, 0)
        most = max(most, held)
    assert 2000 < most <= 6000


class OneJob:
    """Runs one job at a time, first come first served; `urgent` makes it kill the one that runs."""

    def __init__(self) -> None:
        self.waiting: deque[str] = deque()
        self.running: tuple[str, int, int] | None = None  # job, attempt, since
        self.attempts: Counter[str] = Counter()

    def handle(self, event: Event, now: int) -> Sequence[Effect | Preempt]:
        effects: list[Effect | Preempt] = []
        if isinstance(event, Submitted):
            if event.job.id == "never":
                return [Refuse("never", Reason.NEVER_FITS, "", None)]
            if event.job.id == "urgent" and self.running:
                self.waiting.appendleft(event.job.id)
                return [Preempt(self.running[0])]
            self.waiting.append(event.job.id)
        elif isinstance(event, JobEnded):
            assert self.running is not None
            assert self.running[:2] == (event.job_id, event.attempt)
            effects.append(Settle(_record(event, now - self.running[2])))
            self.running = None
            if event.retry:
                self.waiting.append(event.job_id)
        if self.running is None and self.waiting:
            name = self.waiting.popleft()
            self.attempts[name] += 1
            self.running = (name, self.attempts[name], now)
            effects.append(Start(name, self.attempts[name], 0))
        return effects


def _record(event: JobEnded, run_ns: int) -> UsageRecord:
    return UsageRecord(
        request_id=event.job_id,
        attempt=event.attempt,
        tenant="a",
        app="app",
        cost_center="",
        model="",
        version="",
        tier="batch",
        endpoint="job",
        stream=False,
        pool="main",
        replica="",
        outcome=event.outcome,
        status=200,
        reason="",
        arrived_ns=0,
        wait_ns=0,
        first_token_ns=0,
        total_ns=0,
        run_ns=run_ns,
        tokens_in=0,
        tokens_cached=0,
        tokens_out=0,
        token_source=TokenSource.ENGINE,
        milli_gpu=1000,
        milli_gpu_ns=1000 * run_ns,
        micro_per_gpu_hour=0,
    )


def test_jobs_run_for_their_duration_one_after_the_other() -> None:
    work = workload("w", [job("one", S, 1000, 100 * S), job("two", 2 * S, 1000, 50 * S), job("never", 3 * S, 1, S)])
    witness, watched = simulate(work, OneJob())
    assert [(what, name, now // S) for what, name, now, _ in witness.told] == [
        ("started", "one", 1),
        ("refused", "never", 3),
        ("ended", "one", 101),
        ("started", "two", 101),
        ("ended", "two", 151),
    ]
    assert watched.kinds().count("Ticked") == 1  # once a minute, since no request waits


def test_a_preempted_job_loses_its_work_and_starts_again_from_the_beginning() -> None:
    work = workload("w", [job("one", S, 1000, 100 * S), job("urgent", 41 * S, 1000, 10 * S)])
    witness, _ = simulate(work, OneJob())
    assert [(what, name, now // S, more) for what, name, now, more in witness.told] == [
        ("started", "one", 1, 0),
        ("preempted", "one", 41, 1000 * 40 * S),
        ("started", "urgent", 41, 0),
        ("ended", "urgent", 51, Outcome.COMPLETED),
        ("started", "one", 51, 0),
        ("ended", "one", 151, Outcome.COMPLETED),
    ]


class Killing:
    """The machine of production, and one request killed when another comes."""

    def __init__(self) -> None:
        self._machine = Machine(two_tenants())

    def handle(self, event: Event, now: int) -> Sequence[Effect | Preempt]:
        effects: list[Effect | Preempt] = [*self._machine.handle(event, now)]
        if isinstance(event, Arrived) and event.request.id == "urgent":
            effects += [Preempt("victim"), Preempt("waits"), Preempt("unknown")]
        return effects


def test_a_preempted_request_is_told_with_the_work_it_loses() -> None:
    others = [request(f"r{n}", S, tokens_out=100) for n in range(SLOTS - 1)]
    more = [request("waits", S + MS), request("urgent", 2 * S - MS, tokens_out=10)]
    work = workload("w", [request("victim", S, tokens_out=100), *others, *more])
    witness, _ = simulate(work, Killing())
    assert [(name, now, lost) for what, name, now, lost in witness.told if what == "preempted"] == [
        ("victim", 2 * S - MS, 500 * (S - MS))
    ]
    assert Counter(witness.of("ended")) == Counter(x.task.id for x in work.arrivals)
    assert (witness.records["victim"].attempt, witness.records["victim"].tokens_out) == (2, 100)


class Deaf:
    """Takes everything and starts nothing; `fails` makes it give up on what has failed."""

    def handle(self, event: Event, now: int) -> Sequence[Effect | Preempt]:
        del now
        if isinstance(event, Arrived) and event.request.id == "x":
            return [Dispatch("x", 1, "m-0", 0)]
        if isinstance(event, Ended):
            return [Settle(_record(JobEnded(event.request_id, 1, event.outcome), 7)), Fail(event.request_id)]
        assert isinstance(event, Arrived | Ticked | ReplicaReady | Submitted) or type(event).__name__ == "ReplicaLost"
        return []


def test_what_can_never_run_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(SimulationError, match=r"1 tasks wait .* the first of them j"):
        simulate(workload("w", [job("j", S, 1000, S)]), Deaf())


def test_what_has_failed_for_the_last_time_ends_with_its_record() -> None:
    work = workload("w", [request("x", S, tokens_out=10_000)])
    witness, _ = simulate(work, Deaf(), cluster(1, Failures(mtbf_ns=MS, repair_ns=S)))
    assert [(what, more) for what, _, _, more in witness.told] == [("started", 0), ("ended", Outcome.FAILED)]
