"""Bounds of the machine: limits are taken and given back exactly, and however much waits, nothing is kept or hidden."""

import gc
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from commonpool.core.entries import Entry
from commonpool.core.events import Produced
from commonpool.core.model import Limits, Outcome, Reason, Usage
from commonpool.core.queueing import COUNTER_SCALE
from tests.core.worlds import S, World, dispatched, policy, refused, tenant

PLENTY = 1_000_000


def limited(**limits: int) -> World:
    return World(policy(tenant("a", 500, elastic_cap=500, limits=Limits(**limits)), milli_gpu=2000))


def test_bandwidth_counts_bodies_both_ways_and_refuses_with_the_time_to_wait() -> None:
    world = limited(bytes_per_second=10)  # 600 at once
    world.arrive("a0", "a", bytes_in=200)
    world.end("a0", bytes_out=700)  # a debt of 300
    (refusal,) = refused(world.arrive("a1", "a", bytes_in=100))
    assert (refusal.reason, refusal.retry_after_ns) == (Reason.BYTES_PER_SECOND, 40 * S)
    assert "bandwidth of 10 bytes a second" in refusal.message
    assert (world.records[-1].status, world.records[-1].reason) == (429, "bytes_per_second")
    assert refused(world.later(39).arrive("a2", "a", bytes_in=100)) != []
    assert dispatched(world.later(1).arrive("a3", "a", bytes_in=100)) == ["a3"]


def test_what_is_withdrawn_from_the_queue_gives_its_bandwidth_back() -> None:
    world = limited(bytes_per_second=10)
    world.arrive("a0", "a", bytes_in=100)
    world.arrive("a1", "a", bytes_in=500)
    tight = tenant("a", 500, elastic_cap=500, priority={"batch": 3}, limits=Limits(bytes_per_second=10))
    assert [r.request_id for r in refused(world.configure(policy(tight, milli_gpu=2000)))] == ["a1"]
    assert refused(world.arrive("a2", "a", "batch", bytes_in=500)) == []


@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 1 << 32))
def test_what_is_taken_of_a_limit_is_what_was_used(seed: int) -> None:
    """Law: while no time passes, a limit has left what it had, less one a request that was served, and its tokens."""
    random = Random(seed)
    world = limited(requests_per_minute=PLENTY, tokens_per_minute=PLENTY, bytes_per_second=PLENTY)
    sent: dict[str, int] = {}
    answered = 0
    for n in range(120):
        match random.choice(["arrive", "arrive", "end", "cancel", "refused"]):
            case "arrive":
                sent[f"a{n}"] = random.randint(1, 99)
                world.arrive(f"a{n}", "a", random.choice(["interactive", "batch"]), bytes_in=sent[f"a{n}"])
            case "end" if world.running:
                outcome = random.choice(list(Outcome)[:3])
                answered += n
                usage = Usage(10, 0, random.randint(0, 20))
                retry = outcome is not Outcome.COMPLETED and random.random() < 0.5
                world.end(world.running[0], outcome, usage=usage, retry=retry, bytes_out=n)
            case "cancel" if sent:
                world.cancel(random.choice(list(sent)))
            case "refused":
                assert refused(world.arrive(f"x{n}", "a", sequences=5)) != []
            case _:
                pass
    limits = world.machine.state.policy.tenants["a"].limits
    only = tenant("a", 500, elastic_cap=500, priority={"batch": 3}, limits=limits)
    withdrawn = [r.request_id for r in refused(world.configure(policy(only, milli_gpu=2000)))]
    world.tick()  # a replica where an attempt failed is asked again
    while world.running:
        world.end(world.running[0], usage=Usage(10, 0, 7))
    account = world.machine.state.accounts["a"]
    assert account.requests is not None
    assert account.tokens is not None
    assert account.bytes is not None
    last = {record.request_id: record for record in world.records}
    used = sum(record.tokens_in + record.tokens_out for record in last.values())
    assert account.requests.now(0)[0] == PLENTY - (len(sent) - len(withdrawn))
    assert account.tokens.now(0)[0] == PLENTY - used
    carried = sum(length for name, length in sent.items() if name not in withdrawn) + answered
    assert account.bytes.now(0)[0] == PLENTY * 60 - carried


def test_ten_thousand_that_wait_and_are_cancelled_leave_nothing_behind() -> None:
    world = World(policy(tenant("a", 500, elastic_cap=500, limits=Limits(queue_length=20_000)), milli_gpu=2000))
    world.arrive("run", "a")
    names = [f"a{n}" for n in range(10_000)]
    for name in names:
        world.later(0.01).arrive(name, "a", "batch")
    line = world.machine.state.sites["m"].line
    (flow,) = line.flows.values()
    assert flow.length == 10_000
    Random(1).shuffle(names)
    for name in names:
        world.cancel(name)
    assert flow.length == flow.asked == flow.work == line.waiting == world.machine.state.accounts["a"].waiting == 0
    assert flow.waits(0, world.now) != ()
    gc.collect()
    assert [e.id for e in gc.get_objects() if isinstance(e, Entry) and e.id in {*names, "run"}] == ["run"]
    assert sum(len(each) for each in (line._under, line._contest, line._overdue)) < 200
    assert dispatched(world.end("run")) == []


@pytest.mark.parametrize("guaranteed", [0, 10])
def test_however_many_heads_do_not_fit_the_one_that_does_is_found(guaranteed: int) -> None:
    names = [f"t{n}" for n in range(150)]
    world = World(policy(*(tenant(n, guaranteed) for n in (*names, "run", "small")), milli_gpu=2000))
    world.arrive("run:0", "run", sequences=2)
    for name in names:
        assert dispatched(world.arrive(f"{name}:0", name, sequences=3)) == []
    assert dispatched(world.arrive("small:0", "small")) == ["small:0"]


def test_what_is_produced_beyond_what_was_expected_counts_before_the_end_and_once() -> None:
    """Both have the same; then one turns out to be long, and the other goes first until that is made up for."""
    world = World(policy(tenant("a"), tenant("b"), milli_gpu=2000))
    for name in ("a0", "a1", "b0", "b1"):
        world.arrive(name, name[0])
    for n in range(2, 30):
        world.arrive(f"a{n}", "a")
        world.arrive(f"b{n}", "b")
    flows = world.machine.state.sites["m"].line.flows
    before = flows["a"].counter
    assert world.send(Produced("a0", 100)) == []
    world.send(Produced("a0", 100))
    world.send(Produced("a0", 60))  # late news
    charged = (flows["a"].counter - before) // COUNTER_SCALE
    order = [name for _ in range(8) for name in dispatched(world.end(world.running[-1]))]
    assert [name[0] for name in order[:5]] == ["b"] * 5
    assert "a" in {name[0] for name in order}
    world.end("a0", usage=Usage(10, 0, 100))
    assert 170 <= charged <= 200  # 100 tokens out count 200, of which some were expected
    assert abs((flows["a"].counter - before) // COUNTER_SCALE - charged) <= 40
