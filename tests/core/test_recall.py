"""Requests whose answer is kept: they take nothing that others wait for, and count like any other."""

from typing import Any

import pytest

from commonpool.core import explain
from commonpool.core.effects import Effect, Recall
from commonpool.core.events import KeyRevoked, Recalled, Spent
from commonpool.core.model import RECALLED, Budget, Limits, Outcome, Reason, Request, Usage
from commonpool.core.settling import metered, parts
from tests.core.worlds import S, World, dispatched, policy, refused, tenant

USAGE = Usage(30, 30, 12)


def recall(world: World, name: str, tenant_name: str = "a", **more: Any) -> list[Effect]:
    fields: dict[str, Any] = {"app": "app", "model": "m", "tier": "interactive", "endpoint": "chat", "tokens_in": 10}
    request = Request(id=name, tenant=tenant_name, tokens_out_max=50, bytes_in=100, **(fields | more))
    return world.send(Recalled(request, USAGE, 400))


def test_it_is_recorded_as_served_by_nobody_for_nothing_but_its_tokens() -> None:
    world = World(policy(tenant("a", 1000)))
    world.later(3)
    assert recall(world, "r")[1:] == [Recall("r")]
    (record,) = world.records
    assert (record.outcome, record.status, record.attempt, record.replica) == (Outcome.COMPLETED, 200, 1, "")
    assert (record.tokens_in, record.tokens_cached, record.tokens_out) == (30, 30, 12)
    assert (record.milli_gpu, record.milli_gpu_ns, record.wait_ns, record.total_ns) == (0, 0, 0, 0)
    assert (record.pool, record.version, record.reason) == ("main", "1", RECALLED)
    assert parts(record, 0, 10 * S) is None
    assert metered(record) == {
        "million_tokens_cached": 30,
        "million_tokens_out": 12,
        "network_gb": 500,
        "request": 1,
    }
    assert explain.attempt(record) == "completed, with what its tenant was answered before; did not wait"


def test_what_waits_or_runs_does_not_notice() -> None:
    world = World(policy(tenant("a", 1000, elastic_cap=1000), tenant("b", 1000)))
    assert dispatched([*world.arrive("a0", "a"), *world.arrive("a1", "a"), *world.arrive("a2", "a")]) == ["a0", "a1"]
    assert recall(world, "kept")[1:] == [Recall("kept")]  # the cap of its tenant is reached, and others wait
    assert not world.machine.knows("kept")
    assert recall(world, "a2") == []  # one of that name waits
    assert dispatched(world.end("a0")) == ["a2"]


def test_it_needs_no_replica() -> None:
    world = World(policy(tenant("a", 1000)), replicas=0)
    assert recall(world, "r")[1:] == [Recall("r")]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(requests_per_minute=2), Reason.REQUESTS_PER_MINUTE),
        (Limits(tokens_per_minute=100), Reason.TOKENS_PER_MINUTE),
        (Limits(bytes_per_second=16), Reason.BYTES_PER_SECOND),
    ],
)
@pytest.mark.parametrize("whose", ["tenant", "app"])
def test_it_counts_for_the_limits_of_rate(limits: Limits, reason: Reason, whose: str) -> None:
    more: dict[str, Any] = {"limits": limits} if whose == "tenant" else {"apps": {"app": limits}}
    world = World(policy(tenant("a", 1000, **more)))
    for name in ("r0", "r1"):
        assert recall(world, name)[1:] == [Recall(name)]
    (refusal,) = refused(recall(world, "r2"))
    assert (refusal.reason, refusal.retry_after_ns is not None) == (reason, True)
    assert world.records[-1].outcome is Outcome.REFUSED
    (refusal,) = refused(world.arrive("r3", "a", bytes_in=100))  # what was answered so is used for all
    assert refusal.reason is reason


def test_it_has_to_be_within_the_limits_of_size() -> None:
    world = World(policy(tenant("a", 1000, limits=Limits(tokens_in_max=9))))
    (refusal,) = refused(recall(world, "r"))
    assert refusal.reason is Reason.INPUT


def test_no_queue_is_too_long_for_it() -> None:
    world = World(policy(tenant("a", 1000, limits=Limits(queue_length=1, concurrent_requests=1))))
    for name in ("r0", "r1"):
        world.arrive(name, "a")
    (refusal,) = refused(world.arrive("r2", "a"))
    assert refusal.reason is Reason.QUEUE_FULL
    assert recall(world, "r3")[1:] == [Recall("r3")]


def test_whoever_has_spent_all_gets_nothing() -> None:
    world = World(policy(tenant("a", 1000, budget=Budget(1_000_000))))
    world.send(Spent("a", 1_000_000, 0, 100 * S))
    (refusal,) = refused(recall(world, "r"))
    assert refusal.reason is Reason.BUDGET


def test_nobody_gets_what_is_not_open_to_them() -> None:
    world = World(policy(tenant("a", 1000)))
    world.send(KeyRevoked("k", "a"))
    for fields, reason in (
        ({"key": "k"}, Reason.KEY_REVOKED),
        ({"model": "n"}, Reason.UNKNOWN_MODEL),
        ({"tier": "other"}, Reason.UNKNOWN_TIER),
        ({"tenant_name": "b"}, Reason.UNKNOWN_TENANT),
    ):
        (refusal,) = refused(recall(world, "r", **fields))
        assert refusal.reason is reason
