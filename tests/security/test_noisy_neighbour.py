"""A noisy neighbour beside a quiet tenant within its guarantee, exactly: in the simulator, with the core of production.

Both tenants are guaranteed half of the pool, and what the quiet one leaves idle is lent. It asks once in a while; the
noisy one does its worst. How it goes live is in docs/results/neighbours.md (`make bench-neighbours`).
"""

import random

import pytest

from commonpool.core.machine import Machine
from commonpool.core.model import Limits, Outcome, Request, UsageRecord
from commonpool.simulator.run import run
from commonpool.simulator.workload import Arrival, workload
from tests.core.worlds import S, policy, tenant
from tests.simulator.worlds import MS, Witness, cluster

LENGTH_NS = 90 * S
WITHIN = 4  # requests at once that are within the quiet tenant's guarantee
SLACK_PERCENT = 110
NOISE = ("flood", "huge prompts", "slow reader", "reconnect storm", "retry storm")


def asks(name: str, tenant_name: str, tier: str, at: int, tokens_in: int, tokens_out: int) -> Arrival:
    most = 100 if tenant_name == "quiet" else 950
    request = Request(name, tenant_name, "app", "m", tier, "chat", tokens_in, most)
    return Arrival(at, request, tokens_in, tokens_out)


def quiet(seed: int) -> list[Arrival]:
    """A question about every two seconds, each of a second or less: less than half a GPU, of two."""
    chance = random.Random(seed)
    found: list[Arrival] = []
    at = S
    while (at := at + chance.randint(1500, 2500) * MS) < LENGTH_NS:
        tokens_in, tokens_out = chance.randint(50, 300), chance.randint(20, 80)
        found.append(asks(f"q{len(found)}", "quiet", "interactive", at, tokens_in, tokens_out))
    return found


def noisy(kind: str, seed: int) -> list[Arrival]:
    chance = random.Random(f"{kind} {seed}")
    gap_ns = {"flood": 20, "huge prompts": 50, "slow reader": 300, "reconnect storm": 10, "retry storm": 5}[kind] * MS
    found: list[Arrival] = []
    at = S
    while (at := at + int(chance.expovariate(1) * gap_ns)) < LENGTH_NS:
        tokens_in, tokens_out = chance.randint(50, 300), chance.randint(20, 80)
        patience_ns = None
        if kind == "huge prompts":
            tokens_in = chance.randint(800, 900)
        elif kind == "slow reader":  # what it holds, it holds for as long as the context lets it
            tokens_in, tokens_out = 50, chance.randint(300, 900)
        elif kind == "reconnect storm":  # its clients go away and come again
            patience_ns = chance.randint(1, 300) * MS
        arrival = asks(f"n{len(found)}", "noisy", "batch", at, tokens_in, tokens_out)
        found.append(Arrival(at, arrival.task, tokens_in, tokens_out, patience_ns=patience_ns))
    return found


def simulate(arrivals: list[Arrival], kind: str = "") -> tuple[Witness, list[UsageRecord], list[UsageRecord]]:
    """What was seen, and the records of the quiet and of the noisy tenant. In a retry storm most is refused."""
    limits = Limits(queue_length=3 if kind == "retry storm" else 1000)
    rules = policy(tenant("quiet", 2000), tenant("noisy", 2000, limits=limits), milli_gpu=4000)
    witness = Witness()
    run(workload(kind, arrivals), Machine(rules), cluster(2), witness)
    records = sorted(witness.records.values(), key=lambda record: record.arrived_ns)
    quiet, noisy = ([record for record in records if record.tenant == name] for name in ("quiet", "noisy"))
    return witness, quiet, noisy


def p99(values: list[int]) -> int:
    ordered = sorted(values)
    return ordered[(len(ordered) * 99 + 99) // 100 - 1]


def began(record: UsageRecord) -> int:
    return record.arrived_ns + record.wait_ns


def ended(record: UsageRecord) -> int:
    return record.arrived_ns + record.total_ns


def residual(record: UsageRecord, ran: list[UsageRecord]) -> int:
    """How long the first of what ran when it came still ran; 0 where a slot was free."""
    at = record.arrived_ns
    left = [ended(other) - at for other in ran if began(other) <= at < ended(other)]
    return min(left) if record.wait_ns else 0


def within(record: UsageRecord, quiet: list[UsageRecord]) -> bool:
    """Whether its tenant, with it, was within its guarantee, and it was the only one that waited."""
    at = record.arrived_ns
    others = [other for other in quiet if other is not record and other.arrived_ns <= at < ended(other)]
    return len(others) < WITHIN and all(began(other) <= at for other in others)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", NOISE)
def test_a_quiet_tenant_is_served_as_when_it_is_alone_but_for_one_residual_time(kind: str, seed: int) -> None:
    _, calm, _ = simulate(quiet(seed))
    witness, beside, noise = simulate(quiet(seed) + noisy(kind, seed), kind)
    assert len(beside) == len(calm)
    assert {record.outcome for record in calm + beside} == {Outcome.COMPLETED}
    # The noise is one: it takes what the quiet tenant lends, and much of it waits, leaves or is refused.
    served = sum(record.outcome is Outcome.COMPLETED for record in noise)
    assert any(record.loans for record in noise)
    assert sum(record.wait_ns > 0 for record in beside) > len(beside) // 2
    if kind == "retry storm":
        assert len(witness.of("refused")) > 5 * served

    # 1. Every single request: it takes the very next slot that frees, and nothing of the noisy tenant's starts before.
    ran = [record for record in beside + noise if record.run_ns]
    alone_in_line = [record for record in beside if within(record, beside)]
    assert len(alone_in_line) > len(beside) * 3 // 4
    for record in alone_in_line:
        assert record.wait_ns == residual(record, ran)
        assert not any(record.arrived_ns < began(other) < began(record) for other in noise if other.run_ns)

    # 2. What people see: the 99th percentiles.
    one = max(residual(record, ran) for record in beside)
    for what in ("wait_ns", "first_token_ns"):
        alone = p99([getattr(record, what) for record in calm])
        with_noise = p99([getattr(record, what) for record in beside])
        assert with_noise <= alone * SLACK_PERCENT // 100 + one, (what, alone, with_noise, one)
