"""What the machine decides, told as given / event / effects."""

from typing import Any

import msgspec

from commonpool.core import views
from commonpool.core.effects import Dispatch, Fail, Refuse
from commonpool.core.events import ReplicaDraining, ReplicaLost
from commonpool.core.model import (
    Cause,
    Deployment,
    Limits,
    LoanEnd,
    Outcome,
    Policy,
    Pool,
    Price,
    Reason,
    Tenant,
    TokenSource,
    Usage,
    UsageRecord,
    Wait,
)
from tests.core.worlds import CONTEXT, SLOTS, World, dispatched, policy, refused, tenant


def flood(world: World, name: str, count: int, tier: str = "batch") -> list[str]:
    ids = [f"{name}{n}" for n in range(count)]
    return [found for request_id in ids for found in dispatched(world.arrive(request_id, name, tier))]


def test_a_silent_tenants_guarantee_is_lent_whole() -> None:
    world = World(policy(tenant("a", 1000), tenant("b", 1000), milli_gpu=2000))
    assert flood(world, "a", 10) == ["a0", "a1", "a2", "a3"]
    a, b = views.tenants(world.machine.state)
    assert (a.in_use, a.borrowed, a.waiting, b.lent) == (2000, 1000, 6, 1000)


def test_the_lender_is_next_whenever_a_slot_frees_and_nothing_running_is_cut() -> None:
    world = World(policy(tenant("a", 1000), tenant("b", 1000), milli_gpu=2000))
    flood(world, "a", 10)
    assert dispatched(world.later(1).arrive("b0", "b")) == []
    assert views.tenants(world.machine.state)[1].due == 1000
    assert dispatched(world.later(1).end("a0")) == ["b0"]
    assert dispatched(world.later(1).end("b0")) == ["a4"]


def test_a_record_names_the_lender_and_the_length_of_the_loan() -> None:
    world = World(policy(tenant("a", 1000), tenant("b", 1000), milli_gpu=2000))
    flood(world, "a", 3)
    world.later(5).end("a2")
    (loan,) = world.records[-1].loans
    assert (loan.lender, loan.borrower, loan.milli_gpu, loan.end_ns - loan.start_ns) == ("b", "a", 500, 5_000_000_000)
    assert loan.reason is LoanEnd.TASK_DONE


def test_a_loan_is_covered_when_the_borrower_falls_back_within_its_guarantee() -> None:
    world = World(policy(tenant("a", 1000), tenant("b", 1000), milli_gpu=2000))
    flood(world, "a", 3)
    world.later(1).end("a0")
    assert views.loans(world.machine.state) == []
    world.later(1).end("a2")
    assert [loan.reason for loan in world.records[-1].loans] == [LoanEnd.COVERED]


def test_a_loan_moves_to_the_unowned_part_when_its_lender_comes_back() -> None:
    world = World(policy(tenant("a", 0), tenant("b", 1000), milli_gpu=2000))
    flood(world, "a", 2)
    assert [loan.lender for loan in views.loans(world.machine.state)] == ["b", "b"]
    world.later(1).arrive("b0", "b")
    world.arrive("b1", "b")
    assert [loan.lender for loan in views.loans(world.machine.state)] == ["", ""]


def test_what_is_reserved_is_never_lent() -> None:
    world = World(policy(tenant("a", 1000), tenant("b", 1000, reserved=1000), milli_gpu=2000))
    assert flood(world, "a", 4) == ["a0", "a1"]
    assert dispatched(world.arrive("b0", "b")) == ["b0"]


def test_the_smallest_share_of_its_guarantee_goes_first() -> None:
    world = World(policy(tenant("a", 1500), tenant("b", 500), milli_gpu=2000), replicas=0)
    flood(world, "a", 4)
    flood(world, "b", 2)
    assert dispatched(world.ready("m-0")) == ["a0", "b0", "a1", "a2"]


def test_no_tenant_and_no_group_goes_above_its_cap() -> None:
    world = World(policy(tenant("a", 0, elastic_cap=1000), milli_gpu=2000))
    assert flood(world, "a", 4) == ["a0", "a1"]
    assert dispatched(world.end("a0")) == ["a2"]


def test_concurrent_requests_wait_in_the_queue_and_are_not_refused() -> None:
    world = World(policy(tenant("a", 2000, limits=Limits(concurrent_requests=1)), milli_gpu=2000))
    assert flood(world, "a", 2) == ["a0"]
    assert dispatched(world.end("a0", Outcome.CANCELLED)) == ["a1"]


def test_interactive_goes_first_and_batch_at_the_latest_by_max_wait() -> None:
    rules = policy(tenant("a", 500, max_wait_ns=10_000_000_000, elastic_cap=500), milli_gpu=2000)
    world = World(rules)
    world.arrive("run", "a")
    world.arrive("b0", "a", "batch")
    order = []
    for n in range(12):
        world.arrive(f"i{n}", "a")
        done = world.running[0]
        order += dispatched(world.later(1).end(done))
    assert order.index("b0") == 9
    assert order[:9] == [f"i{n}" for n in range(9)]


def test_a_shared_deadline_makes_batch_urgent_early_enough_for_all_of_it() -> None:
    rules = policy(tenant("a", 500, max_wait_ns=20_000_000_000, elastic_cap=500), milli_gpu=2000)
    world = World(rules)
    world.arrive("learn", "a")
    world.later(1).end("learn")  # one request takes a second
    world.arrive("run", "a")
    for n in range(8):
        world.arrive(f"b{n}", "a", "batch")
    arrived = world.now
    started: dict[str, int] = {}
    for n in range(30):
        if len(views.tenants(world.machine.state)) and not refused(world.arrive(f"i{n}", "a")):
            pass
        for request_id in dispatched(world.later(1).end(world.running[0])):
            started[request_id] = world.now
    waits = [(started[f"b{n}"] - arrived) / 1e9 for n in range(8)]
    assert max(waits) <= 20 + 1


def test_no_borrower_passes_who_comes_to_the_head_while_the_former_head_is_above_its_cap() -> None:
    world = World(policy(tenant("x", 2000, elastic_cap=2000), tenant("y"), milli_gpu=4000), replicas=2)
    flood(world, "x", 4)
    flood(world, "y", 6)
    world.arrive("small", "x", "batch")
    world.later(1).arrive("large", "x", sequences=2)  # before it, and for more than its tenant's cap leaves
    assert dispatched(world.end("x0")) == ["y4"]
    assert dispatched(world.later(119).end("y0")) == ["small"]  # overdue now, and within its guarantee


def test_no_borrower_that_is_moved_to_a_fallback_passes_who_is_moved_after_it() -> None:
    m, n = (Deployment(name, "1", "main", 2000, SLOTS, SLOTS * CONTEXT, CONTEXT, fallback="n") for name in "mn")
    world = World(policy(tenant("x", 2000), tenant("y"), deployments={"m": m, "n": n}), replicas=0)
    world.ready("n-0", "n", slots=1)
    world.arrive("y0", "y")
    world.arrive("x0", "x")
    assert dispatched(world.later(120).tick()) == ["x0"]


def test_work_beyond_the_promise_is_refused_at_once_with_its_reason() -> None:
    world = World(policy(tenant("a", 500, max_wait_ns=3_000_000_000, elastic_cap=500), milli_gpu=2000))
    world.arrive("learn", "a")
    world.later(1).end("learn")
    effects = [world.arrive(f"r{n}", "a") for n in range(10)]
    refusals = [refusal for found in effects for refusal in refused(found)]
    assert dispatched(effects[0]) == ["r0"]
    assert len(refusals) == 10 - 1 - 3  # one runs, three wait: the fourth would start after 4 s
    assert refusals[0].reason is Reason.PROMISE
    assert refusals[0].retry_after_ns is not None
    assert "max_wait is 3 s" in refusals[0].message


def test_what_can_never_fit_is_refused_with_the_limit() -> None:
    world = World(policy(tenant("a", 0, elastic_cap=600), milli_gpu=2000))
    (many,) = refused(world.arrive("a0", "a", sequences=SLOTS + 1))
    assert (many.reason, many.retry_after_ns) == (Reason.NEVER_FITS, None)
    (capped,) = refused(world.arrive("a1", "a", sequences=2))
    assert "can never use more than 600" in capped.message


def test_refused_requests_consume_nothing() -> None:
    limits = Limits(requests_per_minute=3, tokens_per_minute=60)
    world = World(policy(tenant("a", 2000, limits=limits), milli_gpu=2000))
    assert dispatched(world.arrive("a0", "a")) == ["a0"]
    (refusal,) = refused(world.arrive("a1", "a", tokens_in=55))
    assert refusal.reason is Reason.TOKENS_PER_MINUTE
    requests, tokens = views.rates(world.machine.state, "a", world.now)
    assert requests is not None
    assert tokens is not None
    assert (requests.remaining, tokens.remaining) == (2, 40)


def test_without_max_tokens_a_small_token_limit_still_serves() -> None:
    world = World(policy(tenant("a", 2000, limits=Limits(tokens_per_minute=100)), milli_gpu=2000))
    assert dispatched(world.arrive("a0", "a", tokens_out_max=None)) == ["a0"]
    world.end("a0", usage=Usage(10, 0, 20))
    _, tokens = views.rates(world.machine.state, "a", world.now)
    assert tokens is not None
    assert tokens.remaining == 70


def test_a_limit_comes_back_after_its_minute() -> None:
    world = World(policy(tenant("a", 2000, limits=Limits(requests_per_minute=2)), milli_gpu=2000))
    world.arrive("a0", "a")
    world.arrive("a1", "a")
    (refusal,) = refused(world.arrive("a2", "a"))
    assert refusal.retry_after_ns == 30_000_000_000
    assert dispatched(world.later(30).arrive("a3", "a")) == ["a3"]


def test_a_record_has_the_bytes_of_the_attempt_that_ran() -> None:
    world = World(policy(tenant("a", 2000)), replicas=2)
    world.arrive("r", "a", bytes_in=200)
    world.later(1).end("r", Outcome.FAILED, retry=True)
    world.later(1).end("r", bytes_out=700)
    assert [(record.bytes_in, record.bytes_out) for record in world.records] == [(200, 0), (200, 700)]


def test_what_was_not_dispatched_took_nothing_beside() -> None:
    world = World(policy(tenant("a", 2000)), replicas=0)
    world.arrive("r", "a", bytes_in=200)
    world.later(1).cancel("r")
    (record,) = world.records
    taken = (record.bytes_in, record.bytes_out, record.cpu_ns, record.memory_mib_s, record.gpu_memory_mib_s)
    assert taken == (0, 0, 0, 0, 0)


def test_an_end_counts_once() -> None:
    world = World(policy(tenant("a", 2000), milli_gpu=2000))
    world.arrive("a0", "a")
    world.end("a0")
    world.end("a0")
    assert len(world.records) == 1
    assert views.tenants(world.machine.state)[0].in_use == 0


def test_a_failed_attempt_is_tried_again_elsewhere_and_then_fails() -> None:
    world = World(policy(tenant("a", 2000), milli_gpu=4000), replicas=2)
    world.arrive("a0", "a")
    first = world.effects[-1]
    again = world.end("a0", Outcome.FAILED, status=502, retry=True)
    assert dispatched(again) == ["a0"]
    assert {first.replica_id, again[-1].replica_id} == {"m-0", "m-1"}  # type: ignore[union-attr]
    last = world.end("a0", Outcome.FAILED, status=502, retry=True)
    assert dispatched(world.arrive("a1", "a")) == []  # both are in doubt until the next tick
    assert dispatched(world.later(1).tick()) == ["a1"]
    assert last[-1] == Fail("a0")
    assert [(r.attempt, r.tokens_in, r.tokens_out, r.micro_per_gpu_hour) for r in world.records] == [
        (1, 0, 0, 0),
        (2, 0, 0, 0),
    ]


def test_leaving_between_two_attempts_is_a_record_of_its_own() -> None:
    world = World(policy(tenant("a", 2000), milli_gpu=2000))
    world.arrive("a0", "a")
    world.send(ReplicaLost("m-0"))
    world.end("a0", Outcome.FAILED, status=502, retry=True)
    world.later(3).cancel("a0")
    assert [(r.attempt, r.outcome, r.replica, r.milli_gpu_ns > 0) for r in world.records] == [
        (1, Outcome.FAILED, "m-0", False),
        (2, Outcome.CANCELLED, "", False),
    ]
    assert world.records[1].wait_ns == 3_000_000_000


def test_a_dead_replica_does_not_eat_the_queue() -> None:
    world = World(policy(tenant("a", 4000), milli_gpu=4000), replicas=2)
    flood(world, "a", 14)
    first = [r.request_id for r in world.effects if isinstance(r, Dispatch) and r.replica_id == "m-0"]
    sent: list[Dispatch] = []
    for name in first:
        sent += [e for e in world.end(name, Outcome.FAILED, status=502, retry=True) if isinstance(e, Dispatch)]
    assert sent == []  # m-1 is full, and m-0 is not asked again at once
    assert views.tenants(world.machine.state)[0].waiting == 10
    other = [name for name in world.running if name not in first]
    done = [e for e in world.end(other[0]) if isinstance(e, Dispatch)]
    assert [(e.request_id, e.replica_id) for e in done] == [(first[0], "m-1")]
    again = [e for e in world.later(2).tick() if isinstance(e, Dispatch)]
    assert [e.replica_id for e in again] == ["m-0"]  # one, to see whether it answers


def test_a_request_cut_before_its_engine_told_is_estimated_by_its_time() -> None:
    world = World(policy(tenant("a", 2000), milli_gpu=2000))
    world.arrive("learn", "a", tokens_in=10)
    world.later(3).end("learn", usage=Usage(10, 0, 10))  # 30 units of service: 0.1 s each
    world.arrive("a0", "a", tokens_in=10)
    world.later(5).end("a0", Outcome.CANCELLED, usage=Usage(10, 0, 0, TokenSource.ESTIMATED), status=499)
    assert world.records[-1].tokens_out == 20


def test_cancelled_while_waiting_leaves_the_queue_and_a_record() -> None:
    world = World(policy(tenant("a", 500, elastic_cap=500), milli_gpu=2000))
    flood(world, "a", 3)
    world.later(2).cancel("a1")
    assert dispatched(world.end("a0")) == ["a2"]
    cancelled = world.records[0]
    assert (cancelled.request_id, cancelled.outcome, cancelled.wait_ns, cancelled.milli_gpu_ns) == (
        "a1",
        Outcome.CANCELLED,
        2_000_000_000,
        0,
    )


def test_a_draining_replica_gets_nothing_new_and_a_lost_one_gives_back_once() -> None:
    world = World(policy(tenant("a", 4000), milli_gpu=4000), replicas=1)
    world.arrive("a0", "a")
    world.send(ReplicaDraining("m-0"))
    assert dispatched(world.arrive("a1", "a")) == []
    world.send(ReplicaLost("m-0"))
    assert dispatched(world.ready("m-1")) == ["a1"]
    world.end("a0", Outcome.FAILED, status=502)
    world.end("a1")
    assert views.tenants(world.machine.state)[0].in_use == 0
    assert set(world.machine.state.sites["m"].replicas) == {"m-1"}


def test_without_a_replica_requests_are_kept_for_max_wait_and_then_refused() -> None:
    world = World(policy(tenant("a", 1000)), replicas=0)
    world.arrive("a0", "a")
    assert refused(world.later(119).tick()) == []
    (refusal,) = refused(world.later(2).tick())
    assert refusal.reason is Reason.NO_REPLICA
    assert world.records[-1].status == 503


def test_a_tenant_without_guarantee_is_refused_at_twice_max_wait() -> None:
    world = World(policy(tenant("a", 2000), tenant("b", 0), milli_gpu=2000))
    flood(world, "a", 4)
    world.arrive("b0", "b")
    assert refused(world.later(239).tick()) == []
    (refusal,) = refused(world.later(2).tick())
    assert (refusal.request_id, refusal.reason) == ("b0", Reason.PROMISE)


def test_overdue_heads_pass_at_most_a_fifth_of_the_surplus() -> None:
    names = [f"t{n}" for n in range(5)]
    world = World(
        policy(
            tenant("late", 0, weight=1, max_wait_ns=1_000_000_000),
            *(tenant(n, 0, weight=100) for n in names),
            milli_gpu=2000,
        )
    )
    for n in names:
        flood(world, n, 40)
    flood(world, "late", 40)
    world.later(2)
    order: list[str] = []
    while len(order) < 60:
        order += dispatched(world.end(world.running[0], usage=Usage(10, 0, 10)))
    passed = sum(name.startswith("late") for name in order)
    assert 60 // 6 <= passed <= 60 // 5 + 1


def test_the_surplus_follows_the_weights() -> None:
    world = World(policy(*(tenant(f"w{w}", 0, weight=w) for w in (1, 2, 3, 4)), milli_gpu=2000))
    for w in (1, 2, 3, 4):
        flood(world, f"w{w}", 400)
    order: list[str] = []
    while len(order) < 400:
        order += dispatched(world.end(world.running[0]))
    counts = [sum(name.startswith(f"w{w}") for name in order) for w in (1, 2, 3, 4)]
    assert [abs(count - 40 * w) <= 2 for w, count in zip((1, 2, 3, 4), counts, strict=True)] == [True] * 4


def test_idle_time_is_no_credit() -> None:
    world = World(policy(tenant("a", 0), tenant("b", 0), milli_gpu=2000))
    flood(world, "a", 100)
    for _ in range(50):
        world.end(world.running[0])
    flood(world, "b", 30)
    order: list[str] = []
    for _ in range(20):
        order += dispatched(world.end(world.running[0]))
    assert 9 <= sum(name.startswith("b") for name in order) <= 11


def test_a_new_policy_counts_what_runs_and_admits_nothing_for_the_removed() -> None:
    world = World(policy(tenant("a", 1000), tenant("b", 1000), milli_gpu=2000))
    flood(world, "a", 6)
    effects = world.configure(policy(tenant("b", 1000), milli_gpu=2000))
    assert {r.request_id for r in refused(effects)} == {"a4", "a5"}
    assert all(isinstance(e, Refuse) and e.reason is Reason.UNKNOWN_TENANT for e in effects if isinstance(e, Refuse))
    assert dispatched(world.arrive("b0", "b")) == []
    assert dispatched(world.end("a0")) == ["b0"]
    for request_id in ("a1", "a2", "a3", "b0"):
        world.end(request_id)
    assert world.machine.state.quotas["main"].use == 0


def test_a_cut_guarantee_is_over_quota_and_not_a_loan() -> None:
    world = World(policy(tenant("a", 2000), milli_gpu=2000))
    flood(world, "a", 4)
    world.configure(policy(tenant("a", 500, elastic_cap=500), milli_gpu=2000))
    (a,) = views.tenants(world.machine.state)
    assert (a.in_use, a.guaranteed, a.borrowed) == (2000, 500, 0)


def test_guarantees_above_the_capacity_are_scaled_pro_rata() -> None:
    world = World(policy(tenant("a", 3000), tenant("b", 1000), milli_gpu=2000))
    assert [v.guaranteed for v in views.tenants(world.machine.state)] == [1500, 500]
    assert views.pools(world.machine.state)[0].scaled


def test_in_a_guaranteed_pool_nobody_borrows() -> None:
    world = World(policy(tenant("a", 1000), tenant("b", 1000), milli_gpu=2000, rule="guaranteed"))
    assert flood(world, "a", 4) == ["a0", "a1"]


def test_a_request_with_many_kv_tokens_uses_its_dominant_share() -> None:
    shape = {"m": Deployment("m", "1", "main", 2000, SLOTS, 2 * CONTEXT, CONTEXT)}
    world = World(policy(tenant("a", 2000), milli_gpu=2000, deployments=shape))
    world.arrive("a0", "a", tokens_in=900, tokens_out_max=100)
    assert views.tenants(world.machine.state)[0].in_use == 1000


def test_a_record_says_all_of_it_each_in_its_place() -> None:
    world = World(policy(tenant("a", 500, elastic_cap=500), milli_gpu=2000))
    world.now = 100
    world.arrive("first", "a")
    world.now = 200
    world.arrive("r", "a", "batch", app="desk", cost_center="CC-7", endpoint="completions", stream=True)
    world.now = 1_000
    world.end("first")
    world.now = 1_700
    usage = Usage(11, 7, 13, TokenSource.COUNTED)
    world.end("r", Outcome.CANCELLED, usage=usage, status=499, first_token_at=1_300)
    assert world.records[-1] == UsageRecord(
        request_id="r",
        attempt=1,
        tenant="a",
        app="desk",
        cost_center="CC-7",
        model="m",
        version="1",
        tier="batch",
        endpoint="completions",
        stream=True,
        pool="main",
        replica="m-0",
        outcome=Outcome.CANCELLED,
        status=499,
        reason="",
        arrived_ns=200,
        wait_ns=800,
        first_token_ns=1_100,
        total_ns=1_500,
        run_ns=700,
        tokens_in=11,
        tokens_cached=7,
        tokens_out=13,
        token_source=TokenSource.COUNTED,
        milli_gpu=500,
        milli_gpu_ns=350_000,
        micro_per_gpu_hour=2_500_000,
        loans=(),
        waits=(Wait(Cause.ELASTIC_CAP, "a", 800),),
    )


def two_models(*tenants: Tenant, other_pool: str = "main", **more: Any) -> Policy:
    """Models m and n; n may be moved to another pool."""
    shapes = {
        name: Deployment(name, "1", pool, 2000, SLOTS, SLOTS * CONTEXT, CONTEXT)
        for name, pool in (("m", "main"), ("n", other_pool))
    }
    rules = policy(*tenants, deployments=shapes, **more)
    if other_pool == "main":
        return rules
    return msgspec.structs.replace(
        rules,
        pools=rules.pools | {other_pool: Pool(other_pool, 2000)},
        prices=rules.prices | {other_pool: Price(other_pool, 1)},
    )


def test_a_retried_request_waits_once_and_goes_once() -> None:
    world = World(policy(tenant("a", 500, elastic_cap=500), tenant("b", 500), milli_gpu=1000))
    world.arrive("q", "a", "batch")
    world.arrive("z", "a")
    world.end("q", Outcome.FAILED, status=502, retry=True)
    assert dispatched(world.later(1).tick()) == ["z"]
    effects = world.configure(policy(tenant("b", 500), milli_gpu=1000))
    assert [r.request_id for r in refused(effects)] == ["q"]
    world.end("z")
    assert world.machine.state.quotas["main"].use == 0
    assert set(world.machine.state.accounts) >= {"b"}


def test_a_retry_is_judged_by_the_policy_of_its_day() -> None:
    world = World(policy(tenant("a", 1000), milli_gpu=2000))
    world.arrive("a0", "a")
    two = two_models(tenant("a", 1000, pool="two"), other_pool="two")
    world.configure(two)
    world.end("a0", Outcome.FAILED, status=502, retry=True)
    assert world.effects[-1] == Fail("a0")
    assert {pool.pool: pool.in_use for pool in views.pools(world.machine.state)} == {"main": 0, "two": 0}


def test_who_is_under_its_guarantee_gets_the_pools_room_whatever_model_frees_it() -> None:
    world = World(
        two_models(tenant("a", 0), tenant("b", 1000), tenant("r", 2000, reserved=2000), milli_gpu=4000), replicas=1
    )
    world.ready("n-0", model="n")
    for n in range(8):
        world.arrive(f"a{n}", "a")
    assert dispatched(world.arrive("b0", "b", model="n")) == []
    assert views.tenants(world.machine.state)[1].due == 1000
    assert dispatched(world.end("a0")) == ["b0"]
    assert dispatched(world.arrive("b1", "b", model="n")) == []
    assert dispatched(world.arrive("a9", "a", model="n")) == []
    assert dispatched(world.end("a1")) == ["b1"]
    assert dispatched(world.end("a2")) == ["a4"]


def test_what_frees_is_kept_for_a_guarantee_that_needs_several_slots() -> None:
    world = World(policy(tenant("a", 0), tenant("b", 2000), milli_gpu=2000))
    flood(world, "a", 12)
    world.arrive("b0", "b", sequences=3)
    assert [dispatched(world.end(name)) for name in ("a0", "a1", "a2")] == [[], [], ["b0"]]
    assert dispatched(world.end("a3")) == ["a4"]


def test_slots_of_one_replica_are_kept_for_who_has_waited_its_max_wait_for_them() -> None:
    rules = policy(tenant("a", 0, elastic_cap=6000), tenant("b", 2000, max_wait_ns=10_000_000_000), milli_gpu=5500)
    world = World(rules)
    flood(world, "a", 12)
    world.arrive("b0", "b", sequences=3)
    assert dispatched(world.later(1).end("a0")) == ["a4"]
    world.later(10)
    assert [dispatched(world.end(name)) for name in ("a1", "a2", "a3")] == [[], [], ["b0"]]
    assert dispatched(world.end("a4")) == ["a5"]


def test_what_is_reserved_of_a_limit_comes_back_when_nothing_ran() -> None:
    limits = Limits(tokens_per_minute=100, requests_per_minute=10)
    world = World(policy(tenant("a", 500, elastic_cap=500, limits=limits), milli_gpu=2000))
    world.arrive("a0", "a")
    world.arrive("a1", "a")
    world.cancel("a1")
    _, tokens = views.rates(world.machine.state, "a", world.now)
    assert tokens is not None
    assert tokens.remaining == 80
    world.end("a0", Outcome.FAILED, status=502, retry=True)
    assert dispatched(world.later(0.001).tick()) == ["a0"]
    world.end("a0", usage=Usage(10, 0, 30))
    _, tokens = views.rates(world.machine.state, "a", world.now)
    assert tokens is not None
    assert tokens.remaining == 60


def test_a_cancelled_head_lets_those_behind_it_go() -> None:
    world = World(policy(tenant("a", 1000, elastic_cap=1000), milli_gpu=2000))
    world.arrive("a0", "a")
    world.arrive("big", "a", sequences=2)
    assert dispatched(world.arrive("small", "a")) == []
    assert dispatched(world.cancel("big")) == ["small"]


def test_a_model_that_moves_gives_its_slots_to_its_new_pool_at_once() -> None:
    world = World(two_models(tenant("a", 1000), tenant("b", 1000, pool="two"), other_pool="two", milli_gpu=2000))
    world.arrive("a0", "a")
    moved = two_models(tenant("a", 1000), tenant("b", 1000, pool="two"), other_pool="two", milli_gpu=2000)
    shapes = moved.deployments | {"m": msgspec.structs.replace(moved.deployments["m"], pool="two")}
    world.configure(msgspec.structs.replace(moved, deployments=shapes))
    for n in range(4):
        world.arrive(f"b{n}", "b")
    assert dispatched(world.end("a0")) == ["b3"]
    assert world.records[-1].pool == "main"


def test_what_is_gone_is_forgotten_once_nothing_of_it_runs() -> None:
    world = World(policy(tenant("a", 1000), tenant("b", 1000), milli_gpu=2000))
    world.arrive("a0", "a")
    world.configure(policy(tenant("b", 1000), milli_gpu=2000))
    assert set(world.machine.state.accounts) == {"a", "b"}
    world.end("a0")
    world.configure(policy(tenant("b", 1000), milli_gpu=2000))
    assert set(world.machine.state.accounts) == {"b"}
