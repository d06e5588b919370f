"""How many replicas: what each signal does, what bounds it, and the laws: no flapping, nothing stopped too soon."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.model import NS_PER_S, Residency, Scaling
from commonpool.core.scaling import COOL_DOWN_NS, START_NS_GUESS, Decision, Load, Scaler, Short, Why

S = NS_PER_S
T0 = 1_790_000_000 * S
SLOTS = 8
ANY = Scaling(replicas_min=0, replicas_max=40)


def seen(now_s: int, **more: Any) -> Load:
    """At this second, with what is usual unless it is said: starts of a minute, a queue target of half of that."""
    usual: dict[str, Any] = {"start_ns": 60 * S, "target_wait_ns": 30 * S, "service_ns": 10 * S}
    return Load(now=T0 + now_s * S, slots=SLOTS, milli_gpu=1000, **(usual | more))


def decide(load: Load, scaling: Scaling = ANY, scaler: Scaler | None = None) -> tuple[int, Why]:
    decision = (scaler or Scaler()).decide(scaling, load)
    return decision.replicas, decision.reason


class World:
    """A deployment whose replicas follow what is decided: each takes `start_s` to start, ends at once."""

    def __init__(self, scaling: Scaling, start_s: int = 60, ready: int = 0) -> None:
        self.scaling = scaling
        self.scaler = Scaler()
        self.start_s = start_s
        self.up = [-start_s] * ready  # when each was started, oldest first
        self.now_s = 0
        self.wanted: list[int] = []
        self.short_lived = 0

    def step(self, seconds: int = 1, **more: Any) -> Decision:
        self.now_s += seconds
        ready = sum(self.now_s - at >= self.start_s for at in self.up)
        load = seen(self.now_s, **({"start_ns": self.start_s * S} | more))
        load = msgspec.structs.replace(load, ready=ready, starting=len(self.up) - ready)
        decision = self.scaler.decide(self.scaling, load)
        while len(self.up) > decision.replicas:
            self.short_lived += self.now_s - self.up.pop() < 2 * self.start_s
        self.up += [self.now_s] * (decision.replicas - len(self.up))
        self.wanted.append(decision.replicas)
        return decision


# -- what each signal does ---------------------------------------------------------------------------------------------


def test_no_traffic_is_a_load_of_nothing() -> None:
    assert decide(seen(0)) == (0, Why.IDLE)
    assert decide(seen(0, service_ns=0, start_ns=0, target_wait_ns=0)) == (0, Why.IDLE)


def test_what_runs_has_room_for_chance_where_a_start_takes_longer_than_anybody_may_wait() -> None:
    assert decide(seen(0, ready=3, running=24)) == (4, Why.LOAD)
    assert decide(seen(0, ready=3, running=24, target_wait_ns=600 * S)) == (3, Why.LOAD)


def test_by_littles_law_arrivals_take_what_they_will_take() -> None:
    scaler = Scaler()
    for second in range(61):
        scaler.decide(ANY, seen(second, ready=1, running=SLOTS, arrivals=4, target_wait_ns=600 * S))
    # 4 a second for 10 s each are 40 at once, whatever one replica can run.
    assert decide(seen(61, ready=1, running=SLOTS, arrivals=4, target_wait_ns=600 * S), ANY, scaler) == (5, Why.LOAD)


def test_arrivals_that_nobody_asked_about_for_a_minute_came_evenly() -> None:
    scaler = Scaler()
    scaler.decide(ANY, seen(0, ready=1, target_wait_ns=600 * S))
    # 40 a minute for 10 s each are 7 at once, and no growth at all.
    assert decide(seen(60, ready=1, arrivals=40, target_wait_ns=600 * S), ANY, scaler) == (1, Why.LOAD)
    assert decide(seen(120, ready=1, arrivals=480, target_wait_ns=600 * S), ANY, scaler)[0] == 10


def test_what_waits_is_to_be_done_within_what_remains_of_its_promise() -> None:
    full = {"ready": 1, "running": SLOTS, "waiting": 48, "target_wait_ns": 120 * S}
    assert decide(seen(0, **full)) == (2, Why.WAIT)  # 48 × 10 s in 120 s: 4 slots
    assert decide(seen(0, **full, longest_wait_ns=60 * S)) == (2, Why.WAIT)  # in 60 s: 8
    # What is started needs 60 s to come, so that nothing can be done sooner.
    assert decide(seen(0, **full, longest_wait_ns=119 * S)) == (2, Why.WAIT)


def test_while_it_is_not_known_how_long_a_sequence_runs_each_that_waits_needs_a_slot() -> None:
    assert decide(seen(0, ready=1, running=SLOTS, waiting=48, service_ns=0, target_wait_ns=600 * S)) == (7, Why.WAIT)


def test_what_starts_counts() -> None:
    load = seen(0, ready=1, running=SLOTS, waiting=48, service_ns=0, target_wait_ns=600 * S)
    assert decide(load)[0] == decide(msgspec.structs.replace(load, starting=6))[0] == 7


def test_growth_is_seen_before_it_has_arrived_and_only_where_it_is_not_chance() -> None:
    def after(rates: list[int], target_s: int = 1) -> tuple[int, Why]:
        scaler = Scaler()
        for second, rate in enumerate(rates):
            scaler.decide(ANY, seen(second, ready=20, arrivals=rate, target_wait_ns=target_s * S))
        return decide(seen(len(rates), ready=20, target_wait_ns=target_s * S), ANY, scaler)

    flat, ramp = [8] * 60, [8] * 40 + [8 + n for n in range(20)]
    assert after(flat)[1] is Why.COOLING
    assert after(ramp)[1] is Why.GROWTH
    assert after(ramp, 600)[1] is not Why.GROWTH  # a start comes in time for it
    assert after([1] * 45 + [2] * 15)[1] is not Why.GROWTH  # 30 after 15 is chance


def test_kv_memory_fills_before_slots_do() -> None:
    assert decide(seen(0, ready=4, running=8, kv_used=800)) == (4, Why.KV_MEMORY)
    assert decide(seen(0, ready=4, running=8, kv_used=950)) == (5, Why.KV_MEMORY)
    # Eight more of the kind of those that run.
    assert decide(seen(0, ready=4, running=8, kv_used=950, waiting=8, service_ns=0)) == (9, Why.KV_MEMORY)


def test_the_tightest_promise_is_kept_in_mind_while_others_wait_or_nobody_does() -> None:
    scaler = Scaler()
    scaler.decide(ANY, seen(0, ready=3, running=24, target_wait_ns=5 * S))
    assert decide(seen(1, ready=3, running=24, target_wait_ns=3600 * S), ANY, scaler) == (4, Why.LOAD)
    assert decide(seen(2, ready=3, running=24, target_wait_ns=0), ANY, scaler) == (4, Why.LOAD)
    assert Scaler().decide(ANY, seen(3, ready=3, running=24, target_wait_ns=3600 * S)).replicas == 3


def test_the_forecast_counts_where_a_start_would_be_too_late() -> None:
    assert decide(seen(0, ready=1, running=4, forecast=40)) == (5, Why.FORECAST)
    assert decide(seen(0, ready=1, running=4, forecast=40, target_wait_ns=600 * S)) == (1, Why.LOAD)


def test_replicas_so_full_that_first_tokens_are_late_are_relieved_once_and_stay_relieved() -> None:
    world = World(ANY, ready=4)
    for _ in range(100):
        world.step(running=24, target_wait_ns=600 * S, arrivals=1)
    assert world.wanted[-1] == 4
    for _ in range(8):
        world.step(running=24, target_wait_ns=600 * S, arrivals=1, first_token_late=True)
    # Six on each were too many: five and a quarter are not.
    assert world.wanted[-1] == 5
    for _ in range(100):
        world.step(running=24, target_wait_ns=600 * S, arrivals=1, first_token_late=world.now_s < 160)
    assert world.wanted[-1] == 5
    for _ in range(40):
        world.step(60, running=24, target_wait_ns=600 * S, arrivals=1)
    assert world.wanted[-1] == 5
    for _ in range(40):
        world.step(60, running=24, target_wait_ns=600 * S, arrivals=1)
    assert world.wanted[-1] == 4


@pytest.mark.parametrize(
    "load", [{"running": 6}, {"running": 24, "host_short": Short.CPU}, {"running": 24, "waiting": 1}]
)
def test_late_first_tokens_have_other_causes_than_the_crowd(load: dict[str, Any]) -> None:
    world = World(ANY, ready=4)
    for _ in range(200):
        world.step(target_wait_ns=600 * S, arrivals=0, first_token_late=True, **load)
    assert world.wanted[-1] == 4


def test_a_missed_guarantee_outranks_averages() -> None:
    late = {"ready": 10, "running": 8, "waiting": 20, "longest_wait_ns": 31 * S, "service_ns": S // 10}
    assert decide(seen(0, **late))[0] == 10
    assert decide(seen(0, **late, waiting_within=9)) == (12, Why.WAIT)
    assert decide(seen(0, **late, waiting_within=9, starting=2)) == (12, Why.WAIT)
    assert decide(seen(0, **(late | {"longest_wait_ns": 29 * S}), waiting_within=9))[0] == 10


# -- what bounds it ----------------------------------------------------------------------------------------------------


def test_down_comes_late_and_only_as_far_as_was_enough_all_the_while() -> None:
    world = World(ANY, ready=5)
    start = world.now_s
    for _ in range(120):
        world.step(running=30)
    while world.wanted[-1] == 5:
        world.step(running=10)
    assert (world.now_s - start) * S > COOL_DOWN_NS
    assert world.wanted[-1] == 3  # 10 and 3 for chance, and a quarter, are 17
    assert world.step(running=10).reason is Why.LOAD
    assert world.step(running=0).reason is Why.COOLING


def test_one_moment_of_need_within_the_cool_down_holds_everything() -> None:
    world = World(ANY, ready=5)
    for minute in range(60):
        for second in range(60):
            world.step(running=30 if minute % 4 == second == 0 else 2)
    assert set(world.wanted) == {5}


def test_a_long_start_makes_the_cool_down_long() -> None:
    world = World(ANY, start_s=600, ready=2)
    for _ in range(1799):
        world.step(running=0)
    assert set(world.wanted) == {2}
    world.step(3)
    assert world.wanted[-1] == 0


def test_nothing_goes_down_while_something_starts_or_has_just_come_up() -> None:
    world = World(Scaling(0, 10, "on_demand", idle_ns=10 * S))
    world.step(waiting=1, arrivals=1)
    for _ in range(118):
        assert world.step().replicas == 1
    for _ in range(4):
        world.step()
    assert world.wanted[-1] == 0
    assert not world.short_lived


def test_bounds() -> None:
    assert decide(seen(0), Scaling(2, 4)) == (2, Why.MINIMUM)
    assert decide(seen(0, waiting=1000), Scaling(2, 4)) == (4, Why.MAXIMUM)
    # A maximum that was lowered is the operator's word, whatever has just come up.
    assert decide(seen(0, ready=5, starting=2, running=50), Scaling(2, 4)) == (4, Why.MAXIMUM)


@pytest.mark.parametrize("short", [Short.CPU, Short.MEMORY, Short.NETWORK])
def test_where_the_host_is_short_gpus_are_not_added(short: Short) -> None:
    load = seen(0, ready=2, running=16, waiting=100, host_short=short)
    assert decide(load) == (2, Why.HOST_SHORT)
    assert decide(load, Scaling(3, 40)) == (3, Why.HOST_SHORT)  # the minimum is the operator's word
    assert decide(msgspec.structs.replace(load, ready=0, starting=0, running=0))[0] > 0


# -- residency ---------------------------------------------------------------------------------------------------------


def test_on_demand_sleeps_until_somebody_asks_and_again_when_nobody_has_for_long() -> None:
    world = World(Scaling(0, 10, "on_demand", idle_ns=300 * S))
    assert world.step().reason is Why.IDLE
    assert world.step(forecast=80) == Decision(0, Why.IDLE)
    assert world.step(waiting=1, arrivals=1) == Decision(1, Why.WAKING)
    for _ in range(100):
        world.step(running=1)
    for _ in range(299):
        assert world.step().replicas == 1
    assert world.step().reason is Why.IDLE
    assert world.wanted[-1] == 0


def test_on_demand_that_nobody_waits_for_any_more_is_not_started_again() -> None:
    scaler = Scaler()
    scaling = Scaling(0, 10, "on_demand")
    assert decide(seen(0, waiting=1, arrivals=1), scaling, scaler) == (1, Why.WAKING)
    assert decide(seen(5), scaling, scaler) == (0, Why.IDLE)  # the start failed, and the client went away


def test_async_gathers_until_a_start_is_worth_it() -> None:
    scaling = Scaling(0, 10, "async")
    waits = {"target_wait_ns": 3600 * S, "service_ns": 10 * S}
    # A start of 60 s is worth 60 s of a whole replica: 48 sequences of 10 s.
    assert decide(seen(0, waiting=47, **waits), scaling) == (0, Why.GATHERING)
    assert decide(seen(0, waiting=48, **waits), scaling) == (1, Why.WAKING)
    assert decide(seen(0, waiting=7, **(waits | {"service_ns": 0})), scaling) == (0, Why.GATHERING)
    assert decide(seen(0, waiting=8, **(waits | {"service_ns": 0})), scaling) == (1, Why.WAKING)


def test_async_starts_when_the_longest_wait_is_half_of_what_is_promised() -> None:
    scaling = Scaling(0, 10, "async")
    waits = {"waiting": 1, "target_wait_ns": 3600 * S}
    assert decide(seen(0, longest_wait_ns=1799 * S, **waits), scaling) == (0, Why.GATHERING)
    assert decide(seen(0, longest_wait_ns=1800 * S, **waits), scaling) == (1, Why.WAKING)


def test_async_ends_when_it_was_idle_for_as_long_as_a_start_takes() -> None:
    world = World(Scaling(0, 10, "async"))
    world.step(waiting=50, target_wait_ns=3600 * S)
    for _ in range(200):
        world.step(running=2)
    for _ in range(59):
        assert world.step().replicas == 1
    assert world.step().replicas == 0


def test_what_serves_borrowers_is_given_up_for_a_claim_as_much_of_it_as_is_claimed() -> None:
    load = seen(200, ready=6, running=40, running_within=10, claimed=3000)

    def then(scaling: Scaling, load: Load) -> tuple[int, Why]:
        scaler = Scaler()
        scaler.decide(scaling, seen(0, ready=6, running=40))
        return decide(load, scaling, scaler)

    assert then(ANY, load) == (3, Why.CLAIMED)
    assert then(ANY, msgspec.structs.replace(load, claimed=10_000)) == (2, Why.CLAIMED)
    assert then(Scaling(4, 10), load) == (4, Why.CLAIMED)
    assert then(Scaling(4, 10, "standby"), load) == (3, Why.CLAIMED)
    # What drains is on its way back.
    assert then(ANY, msgspec.structs.replace(load, ready=3, draining=3)) == (3, Why.CLAIMED)


def test_standby_comes_back_when_nobody_has_claimed_for_long() -> None:
    world = World(Scaling(2, 10, "standby"), ready=2)
    for _ in range(100):
        world.step()
    world.step(claimed=1500)
    assert world.wanted[-1] == 0
    for _ in range(299):
        assert world.step().replicas == 0
    assert world.step() == Decision(2, Why.MINIMUM)


def test_a_claim_does_not_keep_those_within_their_guarantee_from_more() -> None:
    load = seen(0, ready=1, running=8, running_within=8, waiting=50, waiting_within=20, claimed=1000, service_ns=0)
    assert decide(load) == (4, Why.CLAIMED)


# -- laws --------------------------------------------------------------------------------------------------------------

residencies: list[Residency] = ["resident", "on_demand", "standby", "async"]


@st.composite
def scalings(draw: st.DrawFn) -> Scaling:
    least, residency = draw(st.integers(0, 4)), draw(st.sampled_from(residencies))
    return Scaling(least, least + draw(st.integers(1, 20)), residency, draw(st.integers(0, 600)) * S)


@st.composite
def loads(draw: st.DrawFn) -> dict[str, Any]:
    waiting, running = draw(st.integers(0, 200)), draw(st.integers(0, 200))
    return {
        "seconds": draw(st.integers(0, 120)),
        "running": running,
        "running_within": draw(st.integers(0, running)),
        "waiting": waiting,
        "waiting_within": draw(st.integers(0, waiting)),
        "longest_wait_ns": draw(st.integers(0, 100)) * S if waiting else 0,
        "arrivals": draw(st.integers(0, 500)),
        "kv_used": draw(st.integers(0, 1000)),
        "first_token_late": draw(st.booleans()),
        "forecast": draw(st.integers(0, 100)),
        "host_short": draw(st.sampled_from(Short)),
        "claimed": draw(st.sampled_from([0, 0, 0, 500, 5000])),
        "service_ns": draw(st.sampled_from([0, S, 20 * S])),
    }


@given(scalings(), st.lists(loads(), min_size=1, max_size=20), st.integers(0, 90))
def test_bounds_are_kept_and_the_same_load_gives_the_same_decisions(
    scaling: Scaling, history: list[dict[str, Any]], start_s: int
) -> None:
    worlds = [World(scaling, start_s), World(scaling, start_s)]
    for load in history:
        one, other = (world.step(**load) for world in worlds)
        assert one == other
        assert 0 <= one.replicas <= scaling.replicas_max
        if scaling.residency == "resident":
            assert one.replicas >= scaling.replicas_min


@given(scalings(), st.lists(loads(), min_size=1, max_size=30), st.integers(1, 90))
def test_nothing_is_stopped_within_its_start_up_time(
    scaling: Scaling, history: list[dict[str, Any]], start_s: int
) -> None:
    world = World(scaling, start_s)
    for load in history:
        world.step(**load)
    assert not world.short_lived


@given(
    st.integers(1, 300),
    st.integers(1, 90),
    st.lists(st.tuples(st.integers(-100, 100), st.integers(1, 40)), min_size=30, max_size=80),
    st.sampled_from([1, 600]),
    st.integers(0, 30),
)
def test_a_load_that_stays_within_a_tenth_of_itself_does_not_flap(
    mean: int, start_s: int, noise: list[tuple[int, int]], target_s: int, ready: int
) -> None:
    """Up as far as it must, down once what was there too much is not needed: never up again after that."""
    world = World(Scaling(0, 400), start_s, ready)
    for thousandths, seconds in noise:
        running = mean * (1000 + thousandths) // 1000
        world.step(seconds, running=running, kv_used=0, target_wait_ns=target_s * S)
    changes = [after - before for before, after in zip(world.wanted, world.wanted[1:], strict=False) if after != before]
    fell = next((at for at, change in enumerate(changes) if change < 0), len(changes))
    assert all(change < 0 for change in changes[fell:])


@given(
    st.lists(loads(), max_size=10),
    loads(),
    st.sampled_from(["waiting", "waiting_within", "longest_wait_ns", "arrivals", "kv_used", "forecast", "running"]),
    st.integers(0, 300),
    st.integers(0, 10),
)
def test_more_load_never_means_fewer_replicas(
    history: list[dict[str, Any]], last: dict[str, Any], figure: str, more: int, ready: int
) -> None:
    last = last | {"claimed": 0, "host_short": Short.NONE, "first_token_late": False}
    if figure == "running":
        last["kv_used"] = 0  # else each of those that run would have less of it
    worlds = [World(Scaling(0, 10**6), ready=ready), World(Scaling(0, 10**6), ready=ready)]
    for world in worlds:
        for load in history:
            world.step(**(load | {"claimed": 0}))
    heavier = last | {figure: last[figure] + (more * S if figure == "longest_wait_ns" else more)}
    if figure == "waiting_within":
        heavier["waiting"] = last["waiting"] + more
    assert worlds[1].step(**heavier).replicas >= worlds[0].step(**last).replicas


@given(st.integers(1, 300), st.integers(0, 300), st.integers(0, 40))
def test_pending_replicas_are_counted(running: int, waiting: int, starting: int) -> None:
    """What starts changes nothing about what is wanted, unless it is more than that."""
    load = seen(0, ready=2, running=running, waiting=waiting)
    wanted = decide(load, Scaling(0, 1000))[0]
    assert decide(msgspec.structs.replace(load, starting=starting), Scaling(0, 1000))[0] == max(wanted, 2 + starting)


def test_starts_of_unknown_length_are_taken_to_be_of_a_minute() -> None:
    unknown = [decide(seen(0, ready=1, running=8, waiting=n, start_ns=0)) for n in range(200)]
    assert unknown == [decide(seen(0, ready=1, running=8, waiting=n, start_ns=START_NS_GUESS)) for n in range(200)]
