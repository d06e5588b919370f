"""Every cause of a wait, reached through the machine: what waits says what it waits for, and for whom."""

from collections.abc import Callable

import pytest

from commonpool.core.events import Arrived
from commonpool.core.model import Cause, Limits, Request, Wait
from tests.core.worlds import SLOTS, S, World, dispatched, policy, tenant

HOUR = 3600 * S
Waits = tuple[Wait, ...] | None


def waits(world: World, name: str, seconds: int = 2) -> Waits:
    return world.later(seconds).machine.waits_of(name, world.now)


def own_queue() -> Waits:
    world = World(policy(tenant("a", 2000), milli_gpu=2000))
    for n in range(6):
        world.arrive(f"a{n}", "a")
    world.end("a0")
    return waits(world, "a5")


def no_replica() -> Waits:
    world = World(policy(tenant("a", 2000)), replicas=0)
    world.arrive("a0", "a")
    return waits(world, "a0")


def slots() -> Waits:
    world = World(policy(tenant("a", 4000), milli_gpu=4000))
    for n in range(5):
        world.arrive(f"a{n}", "a")
    return waits(world, "a4")


def devices() -> Waits:
    world = World(policy(tenant("a", 4000), milli_gpu=4000))
    world.submit("a0", "a", 4000)
    return waits(world, "a0")


def turn() -> Waits:
    """a has had much of the surplus at once, so the next are b's; at the second tick that is known."""
    world = World(policy(tenant("a", 0), tenant("b", 0), milli_gpu=2000))
    for n in range(12):
        world.arrive(f"b{n}", "b")
    world.arrive("a0", "a", tokens_in=900)
    world.arrive("a1", "a")
    while "a0" not in world.running:
        world.end(world.running[0])
    for _ in range(2):
        assert dispatched(world.end(world.running[0]))[0].startswith("b")
        world.tick()
    return waits(world, "a1")


def concurrency() -> Waits:
    world = World(policy(tenant("a", 2000, limits=Limits(concurrent_requests=1)), milli_gpu=2000))
    world.arrive("a0", "a")
    world.arrive("a1", "a")
    return waits(world, "a1")


def app_limit() -> Waits:
    world = World(policy(tenant("a", 2000, apps={"app": Limits(milli_gpu=1000)}), milli_gpu=2000), replicas=0)
    world.submit("a0", "a", 1000)
    world.submit("a1", "a", 1000)
    return waits(world, "a1")


def elastic_cap() -> Waits:
    world = World(policy(tenant("a", 500, elastic_cap=500), milli_gpu=2000))
    world.arrive("a0", "a")
    world.arrive("a1", "a")
    return waits(world, "a1")


def lent() -> World:
    """a has borrowed all of b's guarantee; b waits for it."""
    world = World(policy(tenant("a", 1000), tenant("b", 1000), tenant("c", 0), milli_gpu=2000), replicas=2)
    for n in range(4):
        world.arrive(f"a{n}", "a")
    world.later(1).arrive("b0", "b")
    return world


def loan_due() -> Waits:
    return waits(lent(), "b0")


def borrowing_denied() -> Waits:
    world = lent()
    world.arrive("c0", "c")
    return waits(world, "c0")


def pool_full() -> Waits:
    world = World(policy(tenant("a", 500), tenant("b", 1500, reserved=1500), milli_gpu=2000))
    world.arrive("a0", "a")
    world.arrive("a1", "a")
    return waits(world, "a1")


def kept() -> Waits:
    """It was taken for later, and comes when its tenant has time for it; then it waits for a slot, as any other."""
    world = World(policy(tenant("a", 2000)))
    for n in range(SLOTS):
        world.arrive(f"a{n}", "a")
    since = world.now
    later = Request("k", "a", "app", "m", "interactive", "batch", 10)
    world.later(3).send(Arrived(later, arrived=since + 1))
    found = waits(world, "k")
    return None if found is None else found[:1]


def forecast() -> Waits:
    """b uses all of its guarantee every hour, so none of it is lent for an hour."""
    world = World(policy(tenant("a", 0), tenant("b", 4000), milli_gpu=4000), replicas=0)
    world.submit("b0", "b", 4000)
    world.later(60).finish("b0")
    world.submit("a0", "a", 1000, expected_ns=HOUR)
    return waits(world, "a0")


@pytest.mark.parametrize(
    ("reach", "cause", "about"),
    [
        (own_queue, Cause.OWN_QUEUE, ""),
        (no_replica, Cause.NO_REPLICA, "m"),
        (slots, Cause.SLOTS, "m"),
        (devices, Cause.DEVICES, "main"),
        (turn, Cause.TURN, ""),
        (concurrency, Cause.CONCURRENCY, "a"),
        (app_limit, Cause.APP_LIMIT, "a/app"),
        (elastic_cap, Cause.ELASTIC_CAP, "a"),
        (loan_due, Cause.LOAN_DUE, "a"),
        (borrowing_denied, Cause.BORROWING_DENIED, "b"),
        (pool_full, Cause.POOL_FULL, ""),
        (kept, Cause.KEPT, ""),
        (forecast, Cause.FORECAST, ""),
    ],
)
def test_each_cause_is_told_with_whom_it_is_about(reach: Callable[[], Waits], cause: Cause, about: str) -> None:
    found = reach()
    assert found is not None
    assert (found[-1].cause, found[-1].name) == (cause, about)
    assert found[-1].ns >= 2 * S


def test_every_cause_is_reached() -> None:
    (mark,) = test_each_cause_is_told_with_whom_it_is_about.pytestmark  # type: ignore[attr-defined]
    assert {cause for _, cause, _ in mark.args[1]} == set(Cause)
