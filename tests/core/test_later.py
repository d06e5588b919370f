"""Work that was taken to be answered later: it waits behind all else, and nobody is refused or kept for it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.effects import Dispatch, Effect, Refuse
from commonpool.core.events import Arrived, Configured
from commonpool.core.model import Cause, Deployment, Limits, Outcome, Reason, Request, Scaling
from commonpool.core.scaling import Why
from tests.core.worlds import CONTEXT, SLOTS, S, World, dispatched, policy, refused, tenant


def request(name: str, who: str = "a", **more: Any) -> Request:
    fields: dict[str, Any] = {
        "endpoint": "chat",
        "app": "app",
        "model": "m",
        "tier": "interactive",
        "tokens_in": 10,
    } | more
    return Request(id=name, tenant=who, **fields)


def hand_in(
    world: World, name: str, who: str = "a", *, attempts: int = 0, arrived: int = 0, **more: Any
) -> list[Effect]:
    """Work comes again that was kept since `arrived`."""
    event = Arrived(request(name, who, endpoint="batch", **more), attempts, arrived or world.now)
    return world.send(event)


def busy(*, guaranteed: int = 2000, cap: int = 2000, **more: Any) -> World:
    """Each request takes five seconds, and as many of tenant a run as may."""
    world = World(policy(tenant("a", guaranteed, elastic_cap=cap, max_wait_ns=20 * S, **more), tenant("b", 2000)))
    world.arrive("first", "a")
    world.later(5).end("first")
    for n in range(SLOTS):
        world.arrive(f"run{n}", "a")
    return world


def admitted(world: World, most: int = 200) -> int:
    """How many requests are taken before the first is refused."""
    for n in range(most):
        if refused(world.arrive(f"i{n}", "a")):
            return n
    raise AssertionError(most)


def test_a_request_whose_client_waits_for_it_later_is_served_as_any_other_while_it_can_be() -> None:
    world = World(policy(tenant("a", 2000)))
    assert dispatched(world.send(Arrived(request("r", later=True)))) == ["r"]
    world.end("r")
    assert world.records[-1].endpoint == "chat"


def test_what_cannot_be_served_within_max_wait_is_handed_back_without_a_record() -> None:
    world = busy()
    admitted(world)
    before = len(world.records)
    (refusal,) = refused(world.send(Arrived(request("r", later=True))))
    assert (refusal.reason, refusal.later) == (Reason.PROMISE, True)
    assert len(world.records) == before
    (refusal,) = refused(world.send(Arrived(request("r"))))  # whoever cannot keep it asks again
    assert not refusal.later
    assert (world.records[-1].request_id, world.records[-1].outcome) == ("r", Outcome.REFUSED)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(queue_length=0), Reason.QUEUE_FULL),
        (Limits(requests_per_minute=5, queue_length=1000), Reason.REQUESTS_PER_MINUTE),
        (Limits(tokens_in_max=9, queue_length=1000), Reason.INPUT),
    ],
)
def test_other_refusals_are_for_good(limits: Limits, reason: Reason) -> None:
    world = busy()
    world.send(Configured(policy(tenant("a", 2000, elastic_cap=2000, limits=limits))))
    found = [each for n in range(10) for each in refused(world.send(Arrived(request(f"r{n}", later=True))))]
    assert {(each.reason, each.later) for each in found} == {(reason, False)}


def test_it_is_next_when_nothing_else_of_its_tenant_waits() -> None:
    world = busy()
    hand_in(world, "kept")
    world.arrive("now", "a", tier="batch")
    assert dispatched(world.later(1).end("run0")) == ["now"]
    assert dispatched(world.end("run1")) == ["kept"]
    world.later(2).end("kept")
    record = world.records[-1]
    assert (record.endpoint, record.outcome, record.attempt) == ("batch", Outcome.COMPLETED, 1)
    assert record.micro_per_gpu_hour > 0  # it is charged as any other


def test_it_never_becomes_urgent() -> None:
    world = busy()
    hand_in(world, "kept", arrived=1)
    world.later(3600).tick()
    world.arrive("now", "a")
    assert dispatched(world.end("run0")) == ["now"]
    assert not refused(world.effects)


def test_between_tenants_it_counts_as_any_other() -> None:
    """A tenant under its guarantee gets a slot before one that borrows, whatever it is for."""
    world = World(policy(tenant("a", 1000), tenant("b", 1000), milli_gpu=2000))
    for n in range(SLOTS):
        world.arrive(f"b{n}", "b")
    world.arrive("b more", "b")
    hand_in(world, "kept")
    assert dispatched(world.later(1).end("b0")) == ["kept"]


@given(kept=st.integers(0, 12), app_limit=st.booleans(), guaranteed=st.sampled_from([500, 1000, 2000]))
def test_nobody_is_refused_because_it_waits(kept: int, app_limit: bool, guaranteed: int) -> None:
    apps = {"app": Limits(concurrent_requests=SLOTS, queue_length=15)} if app_limit else {}

    def taken(n: int) -> int:
        world = busy(guaranteed=guaranteed, limits=Limits(queue_length=30), apps=apps)
        for each in range(n):
            assert not refused(hand_in(world, f"kept{each}"))
        return admitted(world)

    assert taken(kept) == taken(0)


@given(st.lists(st.sampled_from(["now", "kept", "end"]), max_size=60))
def test_none_starts_while_a_request_waits_that_could_start(events: list[str]) -> None:
    world = busy()
    waiting: list[str] = []
    running = [f"run{n}" for n in range(SLOTS)]
    for n, event in enumerate(events):
        world.later(1)
        if event == "now":
            effects = world.arrive(f"now{n}", "a")
            if not refused(effects):
                waiting.append(f"now{n}")
        elif event == "kept":
            effects = hand_in(world, f"kept{n}")
        elif running:
            effects = world.end(running.pop(0))
        else:
            continue
        for name in dispatched(effects):
            running.append(name)
            if name.startswith("kept"):
                assert not waiting
            else:
                waiting.remove(name)


def test_the_fallback_of_others_does_not_wait_for_it() -> None:
    deployments = {
        "m": Deployment("m", "1", "main", 2000, SLOTS, SLOTS * CONTEXT, CONTEXT, fallback="n"),
        "n": Deployment("n", "7", "main", 1000, 2, 2 * CONTEXT, CONTEXT),
    }
    both = tenant("a", 2000, max_wait_ns=10 * S), tenant("b", 0, elastic_cap=400)
    world = World(policy(*both, deployments=deployments, milli_gpu=4000))
    world.ready("n-0", "n", 2)
    world.arrive("first", "a")
    world.later(5).end("first")
    hand_in(world, "kept", "b", model="n", sequences=1)  # more than its tenant may have
    admitted_at = [where for n in range(40) for where in _replicas(world.arrive(f"r{n}", "a"))]
    assert "n-0" in admitted_at


def _replicas(effects: list[Effect]) -> list[str]:
    return [effect.replica_id for effect in effects if isinstance(effect, Dispatch)]


def test_what_was_kept_is_told_with_what_it_waited_for_and_goes_on_counting_its_attempts() -> None:
    world = busy()
    since = world.now
    world.later(100)
    for n in range(SLOTS):
        world.end(f"run{n}")
    hand_in(world, "kept", attempts=2, arrived=since)
    world.later(3).end("kept")
    record = world.records[-1]
    assert (record.attempt, record.arrived_ns, record.wait_ns) == (3, since, 100 * S)
    assert [(wait.cause, wait.ns) for wait in record.waits] == [(Cause.KEPT, 100 * S)]


def test_one_that_is_cancelled_or_refused_while_it_waits_makes_no_record_for_it_is_kept_elsewhere() -> None:
    world = busy()
    before = len(world.records)
    hand_in(world, "kept")
    world.cancel("kept")
    world.send(Configured(policy(tenant("b", 2000))))
    hand_in(world, "other")
    assert [effect.reason for effect in world.effects if isinstance(effect, Refuse)] == [Reason.UNKNOWN_TENANT]
    assert len(world.records) == before
    assert world.machine.state.accounts.get("a") is None or world.machine.state.accounts["a"].waiting == 0


def test_a_model_that_sleeps_is_woken_by_it_and_a_busy_one_gets_no_more_replicas_for_its_lateness() -> None:
    model = Deployment(
        "m", "1", "main", 1000, SLOTS, SLOTS * CONTEXT, CONTEXT, scaling=Scaling(0, 3, residency="on_demand")
    )
    world = World(policy(tenant("a", 4000, elastic_cap=4000), deployments={"m": model}), replicas=0)
    world.tick()
    world.later(5)
    hand_in(world, "kept", arrived=1)
    crew = world.machine.state.sites["m"].crew
    assert len(crew.starting) == 1
    world.later(1000).tick()
    assert crew.why is not Why.WAIT
