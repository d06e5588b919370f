"""What commonpool is to reach beside the other policies: a verdict on each goal, and where it is missed, why."""

from collections.abc import Iterator

import msgspec
from benchmarks import policy_setups as setups
from benchmarks.policy_runs import COMMONPOOL, FIFO, LIFTED, STATIC, Found, Neighbours

from commonpool.simulator.figures import PPM, ppm
from commonpool.simulator.report import duration, gpus, percent

BELOW_FIFO_PPM = 20_000
ABOVE_STATIC_PPM = 300_000
STATIC_POOR_PPM = 500_000
VIOLATIONS_PART = 5
WAIT_PART = 4
NEIGHBOURS_PERCENT = 10

USE_FIFO = "use within 2 points of fifo's"
USE_STATIC = "use at least 30 points above static's, where that is under 50 %"
VIOLATIONS_STATIC = "violations within at most 1/5 of static's"
VIOLATIONS_FIFO = "violations within at most 1/5 of fifo's"
WAIT_FIFO = "mean wait within at most 1/4 of fifo's"
PREEMPTIONS = "no preemption"
LATE = "no late request"
NEIGHBOURS = "two tenants tripled: no other's p99 more than 10 % longer"


class Goal(msgspec.Struct, frozen=True):
    """A goal on one trace, with the caps of one label; `told` are the figures that decide."""

    words: str
    label: str
    met: bool
    told: str

    @property
    def verdict(self) -> str:
        """As it stands in a table."""
        return f"{'met' if self.met else '**missed**'}: {self.told}"


def goals(found: Found) -> list[Goal]:
    """The verdicts on one trace, with both caps."""
    return [goal for label in (COMMONPOOL, LIFTED) for goal in _goals(found, label)]


def _goals(found: Found, label: str) -> Iterator[Goal]:
    own, fifo, static = (found.runs[name].outcomes for name in (label, FIFO, STATIC))
    use, use_fifo, use_static = (each.utilisation_ppm for each in (own, fifo, static))
    yield Goal(USE_FIFO, label, use >= use_fifo - BELOW_FIFO_PPM, f"{percent(use)}, {_points(use - use_fifo)}")
    if use_static < STATIC_POOR_PPM:
        yield Goal(USE_STATIC, label, use >= use_static + ABOVE_STATIC_PPM, _points(use - use_static))
    else:
        yield Goal(USE_STATIC, label, met=True, told=f"static uses {percent(use_static)}")
    bad, bad_fifo, bad_static = (each.total.within.violations for each in (own, fifo, static))
    for words, other in ((VIOLATIONS_STATIC, bad_static), (VIOLATIONS_FIFO, bad_fifo)):
        yield Goal(words, label, VIOLATIONS_PART * bad <= other, f"{bad:,} of {other:,}{_times(bad, other)}")
    wait, wait_fifo = (each.total.within.wait.mean_ns for each in (own, fifo))
    told = f"{duration(wait)} of {duration(wait_fifo)}{_times(wait, wait_fifo)}"
    yield Goal(WAIT_FIFO, label, WAIT_PART * wait <= wait_fifo, told)
    yield Goal(PREEMPTIONS, label, not own.total.preemptions, f"{own.total.preemptions:,}")
    yield Goal(LATE, label, not own.total.late, f"{own.total.late:,}")
    if found.neighbours:
        yield _unmoved(found.neighbours, label)


def _unmoved(neighbours: Neighbours, label: str) -> Goal:
    """Every other tenant's p99, of all its tasks and of those within its guarantee."""
    moved = [
        f"{before.tenant}{words} {change:+.0f} %"
        for before, after in zip(neighbours.before[label].tenants, neighbours.after[label].tenants, strict=True)
        if before.tenant not in neighbours.loaded
        for words, change in (
            ("", growth(before.all.wait.p99_ns, after.all.wait.p99_ns)),
            (" within", growth(before.within.wait.p99_ns, after.within.wait.p99_ns)),
        )
        if change > NEIGHBOURS_PERCENT
    ]
    return Goal(NEIGHBOURS, label, not moved, ", ".join(moved) or "nobody's")


def growth(before_ns: int, after_ns: int) -> float:
    """In percent. From nothing to something is infinite."""
    if before_ns:
        return 100 * (after_ns - before_ns) / before_ns
    return float("inf") if after_ns else 0.0


def why(name: str, found: Found, judged: list[Goal]) -> Iterator[str]:
    """For each kind of goal that is missed: by how much, why, and what an omniscient schedule could have reached."""
    missed = {(goal.words, goal.label) for goal in judged if not goal.met}
    for label in (COMMONPOOL, LIFTED):
        if {(USE_FIFO, label), (USE_STATIC, label)} & missed:
            yield _why_use(name if label == COMMONPOOL else f"{name}, caps lifted", found, label)
    if any(words in {VIOLATIONS_STATIC, VIOLATIONS_FIFO, WAIT_FIFO} for words, _ in missed):
        yield _why_within(name, found)
    if any(words == NEIGHBOURS for words, _ in missed):
        yield _why_neighbours(name, found)


def _why_use(where: str, found: Found, label: str) -> str:
    own, fifo = found.runs[label].outcomes, found.runs[FIFO].outcomes
    short = [owner for owner in found.owners if label == COMMONPOOL and owner.demand_mean > owner.elastic_cap]
    lost = sum(owner.demand_mean - owner.elastic_cap for owner in short)
    names = ", ".join(
        f"{owner.name} asks for {gpus(owner.demand_mean)} GPUs on average and may use {gpus(owner.elastic_cap)}"
        for owner in short
    )
    caps = f" {names}: {percent(ppm(lost, found.pool_milli_gpu))} of the pool is out of their reach." if short else ""
    return f"""**{where}, use**: {percent(own.utilisation_ppm)}, fifo {percent(fifo.utilisation_ppm)}.{caps} No schedule
        can use more than {percent(found.bounds_ppm[label])} under these caps (demand as a fluid), and none more than
        {percent(found.bounds_ppm[LIFTED])} without them."""


def _why_within(name: str, found: Found) -> str:
    static = found.runs[STATIC].outcomes.total.within
    cases = []
    for label in (COMMONPOOL, LIFTED):
        run, caps = found.runs[label], "" if label == COMMONPOOL else " with caps lifted"
        bad, first = run.outcomes.total.within.violations, run.first_within
        cases.append(
            f"""{bad:,} violations{caps}, of which {bad - first.violations:,} came while earlier work of their own
            tenant still waited, and {first.violations:,} were among the {first.count:,} that found none waiting"""
        )
    busy = sum(owner.demand_mean >= owner.guaranteed for owner in found.owners)
    text = f"""**{name}, within guarantee**: {"; ".join(cases)}; static has {static.violations:,}. *Within* is by
        offered demand: a tenant that asks for more than its guarantee builds up a backlog, and what it sends later,
        when it asks for less, stands behind that, since order inside a tenant is by max_wait, priority and arrival.
        {busy} of {len(found.owners)} tenants ask on average for their guarantee or more. An omniscient schedule that
        lets work within guarantee pass its own tenant's backlog, and lends nothing that is not back in time, has no
        violation and no wait: all of it, started when it comes, never takes more than {gpus(found.within_peak)} of
        {gpus(found.pool_milli_gpu)} GPUs."""
    if found.patient:
        patient = found.patient.outcomes.total.within
        text += f""" A job that waits longer than max_wait holds back its tenant's others until it has its GPUs: with a
            max_wait of {duration(setups.JOB_PATIENCE_NS)} instead of {duration(setups.JOB_MAX_WAIT_NS)} there are
            {patient.violations:,} violations, and the mean wait is {duration(patient.wait.mean_ns)}."""
    return text


def _why_neighbours(name: str, found: Found) -> str:
    neighbours = found.neighbours
    if neighbours is None:
        return ""
    use = {label: percent(each.utilisation_ppm) for label, each in neighbours.after.items()}
    return f"""**{name}, two tenants tripled**: the pool is then {use[COMMONPOOL]} in use, {use[LIFTED]} with caps
        lifted, and what others had of an idle pool beyond their guarantee they now share; {_beyond(neighbours, LIFTED)}
        of their requests are beyond it. An omniscient schedule keeps free what is about to be claimed, so that nobody
        within its guarantee waits longer; beyond it, only by making the two wait instead."""


def _beyond(neighbours: Neighbours, label: str) -> str:
    others = [t for t in neighbours.before[label].tenants if t.tenant not in neighbours.loaded]
    return percent(ppm(sum(t.beyond.arrivals for t in others), sum(t.all.arrivals for t in others)))


def _points(difference_ppm: int) -> str:
    return f"{difference_ppm * 100 / PPM:+.1f} points"


def _times(part: int, whole: int) -> str:
    """How much of it: `, 1/12` or `, 0.61`."""
    if not part or not whole:
        return ""
    return f", 1/{whole / part:.0f}" if part * 2 < whole else f", {part / whole:.2f} times"
