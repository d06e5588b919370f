"""What the scaling of replicas is measured on, and the runs: a day of ServeGen's tenants, and a tenfold burst.

The day goes at its own pace. Its tenants keep about two dozen sequences running on average, less than one replica of
the preset's batch, so a replica runs eight at once here: then a day needs between one replica and a dozen.
"""

import random
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
from benchmarks.policy_setups import BATCH, BATCH_TENANTS, CONTEXT_TOKENS, INTERACTIVE, requests

from commonpool.core.machine import Machine
from commonpool.core.model import (
    NS_PER_HOUR,
    NS_PER_S,
    Deployment,
    Limits,
    Outcome,
    Policy,
    Pool,
    Reason,
    Request,
    Scaling,
    Tenant,
    Tier,
    UsageRecord,
)
from commonpool.core.scaling import Decision, Load, Why
from commonpool.simulator.figures import Outcomes, Spread, spread
from commonpool.simulator.fleet import Fleet
from commonpool.simulator.measures import Measures
from commonpool.simulator.policies import POLICIES
from commonpool.simulator.presets import PRESETS, Preset
from commonpool.simulator.run import run
from commonpool.simulator.scenario import Scenario, cluster, following, scenario
from commonpool.simulator.traces import MONDAY_NS
from commonpool.simulator.workload import Arrival, Workload, workload

MODEL: Final = "qwen2.5-72b"
PRESET: Final = msgspec.structs.replace(PRESETS["72b-a100"], slots=8)
BURST_PRESET: Final = msgspec.structs.replace(PRESETS["7b-h100"], slots=16)
LEAST: Final = 1
MOST: Final = 24
PRIORITY: Final = {INTERACTIVE: 9, BATCH: 3}
TIERS: Final = {
    INTERACTIVE: Tier(INTERACTIVE, 5 * NS_PER_S, 10 * NS_PER_S),
    BATCH: Tier(BATCH, NS_PER_HOUR),
}
MAX_WAIT_NS: Final = {INTERACTIVE: 300 * NS_PER_S, BATCH: 14 * 24 * NS_PER_HOUR}
QUEUE_LENGTH: Final = 1_000_000  # only max_wait refuses here

OURS: Final = "commonpool"
NAIVE: Final = "queue length"
FIXED: Final = "fixed"

PARTS: Final = 24  # of the time that is shown


class ByQueueLength:
    """How not to do it, as an example: what is up, and a replica more for each that the queue would fill, every 15 s.

    What starts is not counted, and when nothing waits and a replica's worth of slots is free there is one less.
    """

    EVERY_NS: Final = 15 * NS_PER_S

    def __init__(self) -> None:
        self._next = 0
        self._wanted = 0

    def decide(self, scaling: Scaling, load: Load) -> Decision:
        """As `Scaler.decide`."""
        if load.now >= self._next:
            self._next = load.now + self.EVERY_NS
            there = load.ready + load.starting
            if load.waiting:
                self._wanted = there + -(-load.waiting // load.slots)
            elif load.running + load.slots <= load.ready * load.slots:
                self._wanted = there - 1
        self._wanted = min(max(self._wanted, scaling.replicas_min), scaling.replicas_max)
        return Decision(self._wanted, Why.LOAD)


class Day(msgspec.Struct, frozen=True):
    """What came of the day. `replicas` is the mean number in each of PARTS equal parts of it, in thousandths."""

    outcomes: Outcomes
    length_ns: int
    most: int
    held_milli_gpu_ns: int
    starts: int
    stops: int
    short_lives: int
    replicas: tuple[int, ...]


class Side(msgspec.Struct, frozen=True):
    """First tokens of one tenant during the burst."""

    requests: int
    first_token: Spread
    late: int  # after its tier's target, or never


class Burst(msgspec.Struct, frozen=True):
    """What came of the burst: of the tenant that stays within its guarantee, and of the one that sends the burst."""

    within: Side
    bursting: Side
    most: int
    held_milli_gpu_ns: int
    starts: int
    short_lives: int


def day(traces: Path, name: str, *, fixed: int = 0, most: int | None = None) -> Day:
    """The day, or its first `most` arrivals, under one way to choose the number of replicas.

    `fixed` is that number, where it stays what it is. Raises TraceError.
    """
    shared = day_of(requests(traces, speed=1, from_hour=0, most=most), fixed)
    measures = Measures(shared.workload, shared.policy, shared.demand)
    fleet, end = simulated(shared, measures, name)
    start, last = shared.demand.start_ns, shared.demand.end_ns
    return Day(
        measures.outcomes(POLICIES["commonpool"]),
        last - start,
        fleet.most(),
        fleet.held_milli_gpu_ns(start, last),
        len(fleet.lives),
        sum(0 <= life.stopped <= end for life in fleet.lives),
        len(fleet.short_lives(PRESET.speed.load_ns)),
        _means(fleet, start, last),
    )


def day_of(work: Workload, fixed: int = 0) -> Scenario:
    """The day on a pool of MOST replicas, `fixed` of which are up, or between one and all. Guarantees as by demand."""
    pool = Pool("main", MOST * PRESET.milli_gpu)
    tenants = {name: _tenant(name, pool, 0, BATCH if name in BATCH_TENANTS else INTERACTIVE) for name in work.tenants}
    policy = _policy(pool, PRESET, tenants, fixed)
    there = cluster(policy, PRESET, fixed) if fixed else following(policy, PRESET)
    return scenario(policy, work, there, p60=True)


def burst(name: str, *, fixed: int = 0) -> Burst:
    """An hour in which one tenant sends ten times as much for ten minutes, and another one what it always does."""
    pool = Pool("main", MOST * BURST_PRESET.milli_gpu)
    guaranteed = 2 * BURST_PRESET.milli_gpu
    steady, bursting = (_tenant(each, pool, guaranteed, INTERACTIVE) for each in ("steady", "bursting"))
    policy = _policy(pool, BURST_PRESET, {steady.name: steady, bursting.name: bursting}, fixed)
    work = tenfold()
    there = cluster(policy, BURST_PRESET, fixed) if fixed else following(policy, BURST_PRESET)
    firsts = Firsts()
    fleet, end = simulated(scenario(policy, work, there), firsts, name)
    return Burst(
        firsts.side(work, steady.name),
        firsts.side(work, bursting.name),
        fleet.most(),
        fleet.held_milli_gpu_ns(work.arrivals[0].at_ns, end),
        len(fleet.lives),
        len(fleet.short_lives(BURST_PRESET.speed.load_ns)),
    )


def tenfold(seed: int = 0) -> Workload:
    """Two tenants with two requests a second each for an hour; one of them sends 20 a second from 20:00 to 30:00."""
    chance = random.Random(seed)
    arrivals: list[Arrival] = []
    for tenant, rate, begin, end in (
        ("steady", 2, 0, 3600),
        ("bursting", 2, 0, 3600),
        ("bursting", 18, 1200, 1800),
    ):
        at = chance.expovariate(rate) + begin
        while at < end:
            task = Request(f"{tenant}-{len(arrivals)}", tenant, "app", MODEL, INTERACTIVE, "chat", 500, 1000)
            arrivals.append(Arrival(MONDAY_NS + int(at * NS_PER_S), task, 500, chance.randint(50, 700)))
            at += chance.expovariate(rate)
    return workload("tenfold", arrivals)


def simulated(shared: Scenario, observer: "Measures | Firsts", name: str) -> tuple[Fleet, int]:
    """Run a scenario with one way to choose the number of replicas; the fleet, and when it was over."""
    machine = Machine(shared.policy)
    if name == NAIVE:
        for site in machine.state.sites.values():
            site.crew.scaler = ByQueueLength()  # type: ignore[assignment]
    fleet = Fleet(machine)
    end = run(shared.workload, fleet, shared.cluster, observer)
    fleet.finish(end)
    return fleet, end


class Firsts:
    """An observer that keeps when each request got its first token; -1: never."""

    def __init__(self) -> None:
        self.after_ns: dict[str, int] = {}

    def started(self, arrival: Arrival, now: int, wait_ns: int) -> None:
        """Says nothing about the first token."""

    def refused(self, arrival: Arrival, reason: Reason, now: int) -> None:  # noqa: ARG002 - an observer's arguments
        """It never came."""
        self.after_ns[arrival.task.id] = -1

    def ended(self, arrival: Arrival, record: UsageRecord, now: int) -> None:  # noqa: ARG002 - as above
        """It came when the record says."""
        served = record.outcome is Outcome.COMPLETED
        self.after_ns[arrival.task.id] = record.first_token_ns if served else -1

    def preempted(self, arrival: Arrival, now: int, lost_milli_gpu_ns: int) -> None:
        """Nothing is preempted here."""

    def side(self, work: Workload, tenant: str) -> Side:
        """Of the requests that a tenant sent during the burst, and within five minutes of it."""
        begin = MONDAY_NS + 1200 * NS_PER_S
        asked = [a.task.id for a in work.arrivals if a.task.tenant == tenant and 0 <= a.at_ns - begin < 900 * NS_PER_S]
        after_ns = [self.after_ns[name] for name in asked]
        target_ns = TIERS[INTERACTIVE].first_token_target_ns or 0
        return Side(
            len(asked),
            spread([after for after in after_ns if after >= 0]),
            sum(after < 0 or after > target_ns for after in after_ns),
        )


def _policy(pool: Pool, preset: Preset, tenants: dict[str, Tenant], fixed: int) -> Policy:
    deployment = Deployment(
        MODEL,
        preset.name,
        pool.name,
        preset.milli_gpu,
        preset.slots,
        preset.kv_tokens,
        CONTEXT_TOKENS,
        scaling=None if fixed else Scaling(LEAST, MOST),
    )
    return Policy({pool.name: pool}, TIERS, {}, tenants, {MODEL: deployment}, {})


def _tenant(name: str, pool: Pool, guaranteed: int, tier: str) -> Tenant:
    whole = pool.milli_gpu
    limits = Limits(queue_length=QUEUE_LENGTH)
    return Tenant(name, pool.name, guaranteed, whole, whole, PRIORITY, MAX_WAIT_NS[tier], limits=limits)


def _means(fleet: Fleet, start: int, end: int) -> tuple[int, ...]:
    edges = [start + (end - start) * part // PARTS for part in range(PARTS + 1)]
    return tuple(
        fleet.held_milli_gpu_ns(since, until) // PRESET.milli_gpu * 1000 // max(1, until - since)
        for since, until in pairwise(edges)
    )
