"""A machine that is made anew takes over what ran before: replicas, requests, jobs. Nothing is cut or counted twice."""

from typing import Any

import msgspec

from commonpool.core import views
from commonpool.core.effects import Effect
from commonpool.core.events import JobResumed, ReplicaReady, Resumed
from commonpool.core.model import Hardware, Job, Outcome, Policy, Replica, Request, Usage
from tests.core.clusters import Cluster, deployment, held, node, over_committed, placed, rules, starts, stops
from tests.core.worlds import CONTEXT, S, dispatched, started, tenant

NOW = 1000 * S


def anew(policy: Policy) -> Cluster:
    """A machine that begins at second 1000."""
    here = Cluster(policy)
    here.now = NOW
    return here


def again(here: Cluster, replica_id: str = "m-0.1", engine: str = "one", **more: Any) -> list[Effect]:
    """A replica of an earlier run."""
    fields: dict[str, Any] = {"model": "m", "milli_gpu": 2000, "slots": 4, "kv_tokens": 4 * CONTEXT}
    replica = Replica(replica_id, **(fields | more))
    here.up[replica_id] = replica
    return here.send(ReplicaReady(replica, engine))


def request(name: str, tenant_name: str = "a", **more: Any) -> Request:
    return Request(name, tenant_name, "app", "m", "interactive", "chat", 10, 10, **more)


def resumed(here: Cluster, name: str, tenant_name: str = "a", on: str = "m-0.1", **more: Any) -> list[Effect]:
    """A request that arrived 100 s ago and was dispatched 90 s ago, for the second time."""
    here.attempts[name] = 2
    here.running.append(name)
    event = Resumed(request(name, tenant_name, **more), 2, here.now - 100 * S, here.now - 90 * S, on)
    return here.send(event)


def job_resumed(here: Cluster, name: str, tenant_name: str, milli_gpu: int, *on: str, **more: Any) -> list[Effect]:
    """A job that was submitted 100 s ago and started 90 s ago."""
    here.attempts[name] = 1
    here.running.append(name)
    job = Job(name, tenant_name, "app", "main", "batch", milli_gpu, **more)
    return here.send(JobResumed(job, 1, here.now - 100 * S, here.now - 90 * S, on))


# -- replicas ----------------------------------------------------------------------------------------------------------


def test_the_replicas_of_an_earlier_run_are_those_that_are_wanted() -> None:
    here = anew(rules(tenant("a", 4000), models=(deployment(replicas=2),)))
    assert again(here, "m-0.3") == []
    assert again(here, "m-1.7") == []  # and none was started for it meanwhile
    assert here.bare.free == 0
    assert here.tick() == []
    assert dispatched(here.arrive("r", "a")) == ["r"]
    here.goes("m-1.7", "It broke.")
    assert starts(here.later(0.5).tick()) == ["m-1.8"]  # an id that was never used


def test_what_waits_runs_on_a_replica_of_an_earlier_run_at_once() -> None:
    here = anew(rules(tenant("a", 4000), models=(deployment(replicas=0, most=1, residency="on_demand"),)))
    here.arrive("r", "a")
    assert dispatched(again(here, "m-5.2")) == ["r"]


def test_one_that_was_started_with_another_engine_is_replaced() -> None:
    here = anew(rules(tenant("a", 4000), models=(deployment(),), milli_gpu=8000))
    assert again(here, engine="older") == []
    assert starts(here.tick()) == ["m-0.2"]
    assert dispatched(here.arrive("r", "a")) == ["r"]  # it serves until then
    assert stops(here.comes("m-0.2")) == []
    assert stops(here.end("r")) == ["m-0.1"]


def test_one_that_is_to_be_replaced_where_there_is_no_room_finishes_what_ran_on_it() -> None:
    here = anew(rules(tenant("a", 2000), models=(deployment(),), milli_gpu=2000))
    again(here, engine="older")
    resumed(here, "r")
    assert here.tick() == []
    assert stops(here.later(1).end("r")) == ["m-0.1"]
    assert starts(here.goes("m-0.1")) == ["m-0.2"]


def test_those_that_are_too_many_drain_late() -> None:
    here = anew(rules(tenant("a", 4000), models=(deployment(replicas=1, most=2),)))
    again(here, "m-0.1")
    again(here, "m-1.1")
    assert here.tick() == []
    found = []
    for _ in range(1200):
        found += stops(here.later(1).tick())
    assert found == ["m-1.1"]


def test_its_devices_are_held_though_their_node_is_not_seen_yet() -> None:
    here = anew(placed(tenant("a", 4000), models=(deployment(),)))
    again(here, node="n1", devices=("n1/0", "n1/1"))
    here.see(node("n1"))
    here.see(node("n2"))
    here.submit("job", "a", 2000)
    assert held(here.machine, "job") == ("n2/0", "n2/1")
    here.goes("m-0.1", "It broke.")
    assert here.machine.state.inventories["main"].free == 2000


def test_one_whose_model_is_gone_is_none() -> None:
    here = anew(rules(tenant("a", 4000), models=(deployment(),)))
    assert again(here, "old-0.1", model="old") == []
    assert here.bare.free == 4000


# -- requests ----------------------------------------------------------------------------------------------------------


def test_a_request_that_still_runs_has_its_slot_quota_and_loans_and_ends_like_any_other() -> None:
    here = anew(rules(tenant("a", 1000), tenant("b", 1000), models=(deployment(),), milli_gpu=2000))
    again(here)
    for n in range(3):
        assert resumed(here, f"r{n}") == []
    a, b = views.tenants(here.machine.state)
    assert (a.in_use, a.borrowed, b.lent) == (1500, 500, 500)
    assert views.in_flight(here.machine.state, "m-0.1") == 3
    assert here.site().free_slots == 1
    assert [dispatched(here.arrive(f"b{n}", "b")) for n in range(2)] == [["b0"], []]
    assert dispatched(here.later(10).end("r0", usage=Usage(10, 0, 10))) == ["b1"]
    (record,) = here.records
    assert (record.attempt, record.arrived_ns, record.wait_ns, record.run_ns) == (2, NOW - 100 * S, 10 * S, 100 * S)
    assert record.waits == ()
    assert record.milli_gpu_ns == 500 * 100 * S
    for name in ("r1", "r2", "b0", "b1"):
        here.end(name)
    assert here.machine.state.quotas["main"].use == 0
    assert here.site().free_slots == 4
    assert views.loans(here.machine.state) == []


def test_more_than_fits_is_counted_as_it_is_and_nothing_new_comes_until_enough_has_ended() -> None:
    here = anew(rules(tenant("a", 1000, elastic_cap=1000), models=(deployment(),), milli_gpu=2000))
    again(here)
    for n in range(6):
        resumed(here, f"r{n}")
    assert here.machine.state.quotas["main"].use == 3000
    assert here.site().free_slots == 0
    assert dispatched(here.arrive("new", "a")) == []
    ended = [dispatched(here.end(f"r{n}")) for n in range(5)]
    assert ended == [[], [], [], [], ["new"]]  # two of its own within its cap
    assert here.machine.state.quotas["main"].use == 1000


def test_one_on_a_replica_that_is_not_known_counts_until_it_ends_and_takes_nobodys_slot() -> None:
    here = anew(rules(tenant("a", 4000), models=(deployment(),), milli_gpu=4000))
    again(here)
    assert resumed(here, "r", on="m-9.9") == []
    assert (here.site().free_slots, here.bare.free) == (4, 0)
    assert [dispatched(here.arrive(f"n{n}", "a")) for n in range(4)] == [[f"n{n}"] for n in range(4)]
    here.end("r", Outcome.FAILED, status=502)
    assert list(here.site().replicas) == ["m-0.1"]
    assert (here.site().free_slots, here.bare.free, here.machine.state.quotas["main"].use) == (0, 2000, 2000)


def test_one_on_a_replica_that_is_not_known_may_be_tried_again() -> None:
    here = anew(rules(tenant("a", 4000), models=(deployment(),), milli_gpu=4000))
    resumed(here, "r", on="m-9.9")
    here.end("r", Outcome.CANCELLED, retry=True)
    assert starts(here.tick()) == ["m-0.1"]
    assert dispatched(here.comes("m-0.1")) == ["r"]
    assert here.attempts["r"] == 3


def test_a_loss_of_a_replica_that_is_not_known_changes_nothing_until_the_end() -> None:
    here = anew(rules(tenant("a", 4000), models=(deployment(),), milli_gpu=4000))
    resumed(here, "r", on="m-9.9")
    assert here.goes("m-9.9", "It broke.") == []
    assert starts(here.tick()) == ["m-0.1"]
    assert (here.bare.free, here.site().crew.failures) == (0, 0)
    here.end("r", Outcome.FAILED)
    assert here.bare.free == 2000


def test_one_that_is_known_or_that_the_policy_does_not_know_does_nothing() -> None:
    here = anew(rules(tenant("a", 4000), models=(deployment(),)))
    again(here)
    resumed(here, "r")
    assert resumed(here, "r") == []
    assert resumed(here, "nobodys", "nobody") == []
    other = msgspec.structs.replace(request("elsewhere"), model="other")
    assert here.send(Resumed(other, 1, 0, 0, "m-0.1")) == []
    assert here.machine.state.quotas["main"].use == 500
    assert list(here.machine.tasks.entries) == ["r"]


def test_it_takes_nothing_of_the_limits_a_minute() -> None:
    limits = tenant("a", 4000).limits
    limits = msgspec.structs.replace(limits, requests_per_minute=1, tokens_per_minute=2000)
    here = anew(rules(tenant("a", 4000, limits=limits), models=(deployment(),)))
    again(here)
    resumed(here, "r")
    assert dispatched(here.arrive("new", "a")) == ["new"]
    here.end("r", usage=Usage(10, 0, 10))
    requests, tokens = views.rates(here.machine.state, "a", here.now)
    assert requests is not None
    assert tokens is not None
    assert requests.remaining == 0
    assert tokens.remaining <= 2000


# -- jobs --------------------------------------------------------------------------------------------------------------


def test_a_job_that_still_runs_holds_its_quota_its_devices_and_its_loans() -> None:
    here = anew(placed(tenant("a", 2000), tenant("b", 2000)))
    assert job_resumed(here, "job", "a", 3000, "n1/0", "n1/1", "n2/0") == []
    here.see(node("n1"))
    here.see(node("n2"))
    a, b = views.tenants(here.machine.state)
    assert (a.in_use, a.borrowed, b.lent) == (3000, 1000, 1000)
    inventory = here.machine.state.inventories["main"]
    assert [part.owner for part in inventory.holders("n2/0").values()] == ["a"]
    assert started(here.submit("b0", "b", 1000)) == ["b0"]
    assert held(here.machine, "b0") == ("n2/1",)
    assert started(here.submit("b1", "b", 1000)) == []
    assert started(here.later(10).finish("job")) == ["b1"]
    (record,) = here.records
    assert (record.wait_ns, record.run_ns, record.waits) == (10 * S, 100 * S, ())
    assert record.milli_gpu_ns == 3000 * 100 * S
    assert over_committed(here.machine) == []


def test_a_job_by_memory_holds_as_much_memory_as_it_asked_for() -> None:
    here = anew(placed(tenant("a", 2000), milli_gpu=2000))
    here.see(node("n1", tuple(msgspec.structs.replace(d, memory_mib=80_000) for d in node("n1").devices)))
    half = Hardware(milli_gpu=500, memory_mib=50_000)
    job_resumed(here, "job", "a", 0, "n1/0", hardware=half)
    (part,) = here.machine.state.inventories["main"].holders("n1/0").values()
    assert part.memory_mib == 50_000
    assert here.machine.state.quotas["main"].use == part.milli_gpu
    here.submit("next", "a", 0, hardware=half)
    assert held(here.machine, "next") == ("n1/1",)


def test_a_job_whose_pool_has_too_little_left_is_counted_as_it_is() -> None:
    here = anew(rules(tenant("a", 2000), milli_gpu=2000))
    job_resumed(here, "j1", "a", 2000)
    job_resumed(here, "j2", "a", 2000)
    assert (here.machine.state.quotas["main"].use, here.bare.free) == (4000, -2000)
    assert started(here.submit("j3", "a", 500)) == []
    assert started(here.finish("j1")) == []
    assert started(here.finish("j2")) == ["j3"]


def test_devices_that_are_gone_are_held_by_nobody_else_and_given_back_once() -> None:
    here = anew(placed(tenant("a", 4000)))
    here.see(node("n1"))
    job_resumed(here, "job", "a", 1000, "lost/0")
    inventory = here.machine.state.inventories["main"]
    assert (inventory.capacity, inventory.free) == (2000, 2000)
    here.finish("job", Outcome.FAILED)
    here.see(node("lost", 1))
    assert (inventory.capacity, inventory.free) == (3000, 3000)


def test_a_job_of_a_tenant_that_is_gone_is_none() -> None:
    here = anew(rules(tenant("a", 2000)))
    assert job_resumed(here, "job", "nobody", 1000) == []
    assert here.bare.free == 4000


def test_a_job_of_an_earlier_run_that_ends_with_retry_waits_again() -> None:
    here = anew(rules(tenant("a", 2000), milli_gpu=2000))
    job_resumed(here, "job", "a", 2000)
    assert started(here.later(1).finish("job", Outcome.FAILED, retry=True)) == ["job"]
    assert here.attempts["job"] == 2


def test_a_replica_with_more_than_its_slots_takes_nothing_from_the_others() -> None:
    here = anew(rules(tenant("a", 8000, elastic_cap=8000), models=(deployment(replicas=2),), milli_gpu=8000))
    again(here, "m-0.1")
    again(here, "m-1.1")
    for n in range(6):
        resumed(here, f"r{n}", on="m-1.1")
    for n in range(3):
        resumed(here, f"q{n}", on="m-0.1")
    assert dispatched(here.arrive("new", "a")) == ["new"]
    assert dispatched(here.arrive("next", "a")) == []
    here.end("r0")
    here.end("r1")
    assert here.site().free_slots == 0
    assert dispatched(here.end("r2")) == ["next"]
