"""Figures of small simulations that can be counted by hand, and sums against the slowest way to get them."""

from itertools import combinations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.core.model import Loan, LoanEnd, Outcome, Policy, Reason, Tier, UsageRecord
from commonpool.simulator.demand import Demand
from commonpool.simulator.figures import Outcomes, Spread, ppm, spread
from commonpool.simulator.measures import PARTS, Measures, Use
from commonpool.simulator.policies import POLICIES
from commonpool.simulator.sweeps import Turns, fragmentation, service_gap
from commonpool.simulator.workload import Arrival, Workload, workload
from tests.core.worlds import S, policy, tenant
from tests.simulator.worlds import job, request
from tests.store.records import usage_record

RULES = policy(tenant("a", 1000, max_wait_ns=5 * S), tenant("b", 3000, max_wait_ns=5 * S))


class Told:
    """Tells an observer of what becomes of a workload, in the tests' own words."""

    def __init__(self, work: Workload, rules: Policy = RULES) -> None:
        self._arrivals = {arrival.task.id: arrival for arrival in work.arrivals}
        self._started: dict[str, int] = {}
        self.measures = Measures(work, rules, Demand(work, rules, _service))

    def start(self, name: str, at: int) -> None:
        arrival = self._arrivals[name]
        self._started[name] = at
        self.measures.started(arrival, at, at - arrival.at_ns)

    def end(self, name: str, at: int, outcome: Outcome = Outcome.COMPLETED, loans: tuple[Loan, ...] = ()) -> None:
        arrival = self._arrivals[name]
        run_ns = at - self._started[name]
        milli_gpu = 500 if arrival.tokens_in else arrival.task.milli_gpu  # type: ignore[union-attr]
        record = self._record(name, outcome, run_ns, milli_gpu, loans)
        self.measures.ended(arrival, record, at)

    def refuse(self, name: str, at: int) -> None:
        self.measures.refused(self._arrivals[name], Reason.PROMISE, at)

    def kill(self, name: str, at: int, lost: int) -> None:
        self.measures.preempted(self._arrivals[name], at, lost)

    def outcomes(self) -> Outcomes:
        return self.measures.outcomes(POLICIES["commonpool"])

    def _record(self, name: str, outcome: Outcome, run_ns: int, milli_gpu: int, loans: tuple[Loan, ...]) -> UsageRecord:
        return usage_record(
            name,
            tenant=self._arrivals[name].task.tenant,
            outcome=outcome,
            run_ns=run_ns,
            milli_gpu=milli_gpu,
            milli_gpu_ns=milli_gpu * run_ns,
            tokens_out=self._arrivals[name].tokens_out,
            loans=loans,
        )


def _service(arrival: Arrival) -> int:
    return arrival.duration_ns or 10 * S


def test_waits_and_violations_are_counted_apart_within_and_beyond_the_guarantee() -> None:
    # Given a, guaranteed two requests at once and promised 2 s, who sends four in an instant, and one much later,
    rules = msgspec.structs.replace(RULES, tiers={"interactive": Tier("interactive", 2 * S), "batch": Tier("batch")})
    work = workload("w", [*(request(f"r{n}", n) for n in range(4)), request("last", 20 * S)])
    told = Told(work, rules)
    told.start("r0", 0)
    told.start("r1", 3 * S + 1)  # later than the target
    told.refuse("r2", 2)
    told.start("r3", 9 * S + 3)  # later than max_wait
    told.start("last", 20 * S)
    for name in ("r0", "r1", "r3", "last"):
        told.end(name, 30 * S)
    total = told.outcomes().total
    # then those of demand at most the guarantee are within it, and each violation is where its task is.
    assert (total.within.arrivals, total.beyond.arrivals, total.all.arrivals) == (3, 2, 5)
    assert (total.within.violations, total.beyond.violations, total.all.violations) == (1, 2, 3)
    assert (total.all.served, total.all.refused, total.beyond.refused, total.late) == (4, 1, 1, 1)
    assert total.within.wait == spread([0, 3 * S, 0])
    assert total.beyond.wait == Spread(9 * S, 9 * S, 9 * S, 9 * S, 9 * S)
    assert told.outcomes().refusals == {"promise": 1}


def test_a_refusal_after_the_arrival_is_late_and_a_job_never_is() -> None:
    work = workload("w", [request("r", 0), job("j", 0, 1000, S)])
    told = Told(work)
    told.refuse("r", 6 * S)
    told.start("j", 99 * S)
    told.end("j", 100 * S)
    assert told.outcomes().total.late == 1


def test_use_counts_what_was_served_between_the_first_and_the_last_arrival() -> None:
    # Given four GPUs for 10 s, of which one job has 2 for 5 s, and one has 1 from 8 s until long after,
    work = workload("w", [job("j0", 0, 2000, 5 * S), job("j1", S, 1000, 99 * S, "b"), job("j2", 10 * S, 500, S)])
    told = Told(work)
    told.start("j0", 0)
    told.end("j0", 5 * S)
    told.start("j1", 8 * S)
    told.end("j1", 107 * S)
    told.start("j2", 10 * S)
    told.end("j2", 11 * S)
    outcomes = told.outcomes()
    # then 12 of 40 GPU-seconds are in use, and the plot shows 2 GPUs, then none, then 1.
    assert outcomes.utilisation_ppm == 300_000
    assert outcomes.total.used_milli_gpu_ns == 12_000 * S
    assert {f.tenant: f.used_milli_gpu_ns for f in outcomes.tenants} == {"a": 10_000 * S, "b": 2000 * S}
    assert (outcomes.use_milli_gpu[0], outcomes.use_milli_gpu[PARTS * 6 // 10], outcomes.use_milli_gpu[-1]) == (
        2000,
        0,
        1000,
    )


def test_killed_and_failed_work_is_lost_and_the_last_start_counts() -> None:
    work = workload("w", [job("j0", 0, 1000, 50 * S), job("j1", 2 * S, 1000, S, "b")])
    told = Told(work)
    told.start("j0", 0)
    told.kill("j0", 2 * S, 2000 * S)
    told.start("j0", 3 * S)
    told.end("j0", 53 * S)
    told.start("j1", 2 * S)
    told.end("j1", 3 * S, Outcome.FAILED)
    total = told.outcomes().total
    assert (total.preemptions, total.lost_milli_gpu_ns) == (1, 3000 * S)
    assert (total.all.served, total.all.failed, total.all.violations) == (1, 1, 1)
    assert total.all.wait.max_ns == 3 * S


def test_loans_are_counted_for_both_parties_and_not_from_nobody() -> None:
    work = workload("w", [job("j0", 0, 3000, S), job("j1", S, 1000, S, "b")])
    told = Told(work)
    told.start("j0", 0)
    loans = (
        Loan("b", "a", "j0", 1000, 0, 2 * S, LoanEnd.REPLACED),
        Loan("b", "a", "j0", 500, 2 * S, 6 * S, LoanEnd.TASK_DONE),
        Loan("", "a", "j0", 500, 2 * S, 9 * S, LoanEnd.TASK_DONE),
    )
    told.end("j0", 9 * S, loans=loans)
    outcomes = told.outcomes()
    lender, borrower = outcomes.tenants[1], outcomes.tenants[0]
    assert (borrower.loans.count, borrower.loans.milli_gpu_ns, lender.lent_milli_gpu_ns) == (2, 4000 * S, 4000 * S)
    assert (borrower.loans.length.p50_ns, borrower.loans.length.max_ns) == (2 * S, 4 * S)
    assert outcomes.total.loans == borrower.loans
    assert (lender.loans.count, borrower.lent_milli_gpu_ns) == (0, 0)


@given(values=st.lists(st.integers(0, 10**15), min_size=1, max_size=60))
def test_percentiles_are_values_that_so_many_do_not_exceed(values: list[int]) -> None:
    seen = spread(values)
    for percent, value in ((50, seen.p50_ns), (90, seen.p90_ns), (99, seen.p99_ns)):
        assert value in values
        assert 100 * sum(each <= value for each in values) >= percent * len(values)
        assert 100 * sum(each < value for each in values) < percent * len(values)
    assert (seen.max_ns, seen.mean_ns) == (max(values), sum(values) // len(values))


def test_parts_of_nothing_are_nothing() -> None:
    assert (spread([]), ppm(0, 0), ppm(1, 3), ppm(2, 3)) == (Spread(), 0, 333_333, 666_667)


spans = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000), st.integers(1, 9)), max_size=20)


@settings(max_examples=100)
@given(spans=spans, start=st.integers(0, 500), length=st.integers(1, 2500))
def test_use_over_time_adds_up_to_what_was_used(spans: list[tuple[int, int, int]], start: int, length: int) -> None:
    end = start + length
    use = Use(start, end)
    counted = sum(use.add(min(a, b), max(a, b), level) for a, b, level in spans)
    levels = [sum(level for a, b, level in spans if min(a, b) <= t < max(a, b)) for t in range(start, end)]
    assert counted == sum(levels)
    part = -(-length // PARTS)
    slices = [levels[at * part : (at + 1) * part] for at in range(PARTS)]
    assert list(use.means()) == [sum(each) // len(each) if each else 0 for each in slices]


@st.composite
def turns(draw: st.DrawFn) -> Turns:
    """Requests of three tenants, nothing at the same time as anything else."""
    count = draw(st.integers(1, 12))
    times = draw(st.lists(st.integers(0, 60), min_size=3 * count, max_size=3 * count, unique=True))
    rows = []
    for at in range(count):
        came, start, end = sorted(times[3 * at : 3 * at + 3])
        start, end = draw(st.sampled_from([(start, end), (start, end), (came, end), (-1, -1)]))
        rows.append((draw(st.integers(0, 2)), came, start, end, draw(st.integers(1, 9)), draw(st.integers(0, 9))))
    columns = list(zip(*sorted(rows, key=lambda row: row[1]), strict=True))
    return Turns(*columns)


@settings(max_examples=300)
@given(turns=turns(), weights=st.tuples(*[st.integers(1, 3)] * 3))
def test_the_service_gap_is_the_largest_over_any_time_in_which_both_wait(
    turns: Turns, weights: tuple[int, int, int]
) -> None:
    # By the definition, instant by instant: who waits just before it, and all service until then, over six (the lcm).
    rows = list(zip(*turns, strict=True))
    end = max(max(row[1:4]) for row in rows) + 1

    def waiting(who: int, time: int) -> bool:
        """Just after an instant."""
        return any(w == who and came <= time and (start < 0 or start > time) for w, came, start, *_ in rows)

    def served(who: int, time: int) -> int:
        given = sum(i for w, _, start, _, i, _ in rows if w == who and 0 <= start <= time)
        given += sum(o for w, _, start, stop, _, o in rows if w == who and start >= 0 and stop <= time)
        return int(given * 6 // weights[who])

    worst = 0
    for one, other in combinations(range(3), 2):
        for since in range(end):
            if not (waiting(one, since) and waiting(other, since)):
                continue
            before = served(one, since) - served(other, since)
            for time in range(since, end):
                # What is served at the instant at which one of them stops to wait still counts.
                worst = max(worst, abs(served(one, time) - served(other, time) - before))
                if not (waiting(one, time) and waiting(other, time)):
                    break
    then = [served(who, end) for who in range(3) if waiting(who, end)]
    assert service_gap(turns, weights, end) == (worst // 6, (max(then) - min(then)) // 6 if then else 0)


def test_the_service_gap_by_hand() -> None:
    # Given two tenants who both wait from 0 on, of whom the first is served twice and the second once, with weight 2,
    ones = Turns([0, 0, 0, 1, 1], [0] * 5, [1, 2, -1, 3, -1], [5, 6, -1, 7, -1], [10, 10, 10, 10, 10], [4, 4, 4, 4, 4])
    # then at 6 the first is 28 ahead of 10 / 2, and at 7 of 14 / 2; before it was 20 ahead of nothing.
    assert service_gap(ones, [1, 2], 100) == (23, 21)
    assert service_gap(ones, [1, 2], 2) == (23, 20)
    # Who never waits is in no contest.
    assert service_gap(Turns([0, 1], [0, 0], [0, 0], [5, 5], [9, 1], [9, 1]), [1, 1], 9) == (0, 0)


def test_fragmentation_by_hand() -> None:
    # Given 4 GPUs, 3 of them taken for 6 of 10 s, and tasks of 1, 2, 2 and 4 GPUs,
    shapes = [1000, 2000, 2000, 4000]
    unusable, free = fragmentation([(0, 6 * S, 3000)], 4000, shapes, 0, 10 * S)
    # then of 1 free GPU three in four could use nothing, and of 4 free ones everybody could use all.
    assert (unusable, free) == (750 * 6 * S, 1000 * 6 * S + 4000 * 4 * S)


@pytest.mark.parametrize(("held", "expected"), [([], 0), ([(0, 20, 4000)], 0)])
def test_nothing_free_and_everything_free_are_not_fragmented(held: list[tuple[int, int, int]], expected: int) -> None:
    assert fragmentation(held, 4000, [1000, 4000], 0, 10)[0] == expected
