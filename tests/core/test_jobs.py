"""Jobs draw on the same quota as requests: what they hold, borrow, wait for, and how they come back."""

import pytest

from commonpool.core import views
from commonpool.core.effects import Refuse, Start
from commonpool.core.events import DevicesChanged, Granted, Produced, ReplicaReady
from commonpool.core.model import Cause, Group, LoanEnd, Outcome, Reason, Replica, Share, Usage, Wait
from tests.core.worlds import S, World, dispatched, policy, refused, started, tenant

HOUR = 3600 * S


def world(*tenants: object, milli_gpu: int = 8000, **more: object) -> World:
    return World(policy(*tenants, milli_gpu=milli_gpu, **more), replicas=0)  # type: ignore[arg-type]


def two(**more: object) -> World:
    return world(tenant("a", 4000, elastic_cap=8000, **more), tenant("b", 4000, elastic_cap=8000))


def test_a_job_holds_what_it_asked_for_until_it_ends_and_is_recorded_with_its_loan() -> None:
    here = two()
    assert started(here.submit("a0", "a", 6000)) == ["a0"]
    a, b = views.tenants(here.machine.state)
    assert (a.in_use, a.borrowed, b.lent) == (6000, 2000, 2000)
    here.later(10).finish("a0")
    (record,) = here.records
    assert (record.endpoint, record.milli_gpu, record.run_ns) == ("job", 6000, 10 * S)
    assert (record.milli_gpu_ns, record.status) == (6000 * 10 * S, 200)
    (loan,) = record.loans
    assert (loan.lender, loan.milli_gpu, loan.reason) == ("b", 2000, LoanEnd.TASK_DONE)
    assert here.machine.state.quotas["main"].use == 0
    assert here.machine.state.devices["main"].free == 8000


def test_what_a_lender_needs_back_is_earmarked_and_nothing_running_is_cut() -> None:
    here = two()
    for n in range(4):
        assert started(here.submit(f"a{n}", "a", 2000)) == [f"a{n}"]
    assert started(here.later(1).submit("b0", "b", 4000)) == []
    here.submit("a4", "a", 2000)
    assert started(here.later(1).finish("a0")) == []  # 2 of the 4 that b waits for
    assert views.loans(here.machine.state)[0].due
    assert views.loans(here.machine.state)[0].job
    (effect,) = [e for e in here.later(3).finish("a1") if isinstance(e, Start)]
    assert (effect.job_id, effect.wait_ns) == ("b0", 4 * S)
    assert effect.waits == (Wait(Cause.LOAN_DUE, "a", 4 * S),)
    assert started(here.later(1).finish("a2")) == ["a4"]


def test_a_loan_to_a_job_is_expected_back_as_long_as_such_jobs_took() -> None:
    here = two()
    here.submit("a0", "a", 4000)
    here.submit("a1", "a", 2000)
    assert views.loans(here.machine.state)[0].return_ns is None  # none has ended, and nobody said
    here.later(60).finish("a1")
    here.later(1).submit("a2", "a", 2000)
    (loan,) = [each for each in views.loans(here.machine.state) if each.request_id == "a2"]
    assert loan.return_ns == here.now + 60 * S


def test_small_jobs_from_the_surplus_do_not_pass_an_overdue_large_one_for_ever() -> None:
    here = world(tenant("a", 0, elastic_cap=8000, max_wait_ns=60 * S), tenant("b", 0, elastic_cap=8000))
    for n in range(8):
        here.submit(f"b{n}", "b", 1000)
    here.submit("large", "a", 8000)
    submitted = ended = 8
    ended = 0
    for _ in range(100):
        here.later(20).submit(f"b{submitted}", "b", 1000)
        submitted += 1
        running = [job for job in here.running if job != "large"]
        if "large" in here.running or not running:
            break
        here.finish(running[0])
        ended += 1
    assert "large" in here.running or "large" in [r.request_id for r in here.records]
    assert ended < 40


def test_requests_and_jobs_share_one_quota() -> None:
    here = world(tenant("a", 2000, elastic_cap=8000), tenant("b", 2000, elastic_cap=8000), milli_gpu=4000)
    here.ready("m-0")  # holds 2 of the 4 GPUs
    assert started(here.submit("b0", "b", 2000)) == ["b0"]
    assert started(here.submit("b1", "b", 1000)) == []  # quota is left, devices are not
    assert dispatched(here.arrive("b2", "b")) == ["b2"]
    assert [dispatched(here.arrive(f"a{n}", "a")) for n in range(3)] == [["a0"], ["a1"], ["a2"]]
    assert here.machine.state.quotas["main"].use == 4000
    assert here.machine.waits_of("b1", here.now + S) == (Wait(Cause.DEVICES, "main", S),)


def test_a_job_runs_only_when_every_resource_is_there_and_takes_all_or_none() -> None:
    quotas = {
        "a": {"cpu_milli": Share(8000, 8000)},
        "b": {"cpu_milli": Share(8000)},
    }
    here = world(
        tenant("a", 4000, elastic_cap=8000, resources=quotas["a"]),
        tenant("b", 4000, elastic_cap=8000, resources=quotas["b"]),
        resources={"cpu_milli": 16_000},
    )
    cpu = here.machine.state.others["main"]["cpu_milli"]
    assert started(here.submit("a0", "a", 1000, resources={"cpu_milli": 6000})) == ["a0"]
    assert started(here.submit("a1", "a", 1000, resources={"cpu_milli": 4000})) == []
    assert (cpu.use, here.machine.state.quotas["main"].use) == (6000, 1000)
    (never,) = refused(here.submit("a2", "a", 1000, resources={"cpu_milli": 9000}))
    assert (never.reason, "9000 cpu_milli" in never.message) == (Reason.NEVER_FITS, True)
    assert started(here.finish("a0")) == ["a1"]
    here.finish("a1")
    assert cpu.use == 0


def test_the_dominant_share_decides_who_is_next_under_guarantee() -> None:
    here = world(
        tenant("a", 4000, elastic_cap=8000, resources={"cpu_milli": Share(1000)}),
        tenant("b", 4000, elastic_cap=8000, resources={"cpu_milli": Share(15_000)}),
        tenant("c", 0, elastic_cap=8000),
        resources={"cpu_milli": 16_000},
    )
    here.submit("c0", "c", 5000)
    here.submit("a0", "a", 1000, resources={"cpu_milli": 900})  # 1/4 of its GPUs, 9/10 of its cores
    here.submit("b0", "b", 2000, resources={"cpu_milli": 100})  # half of its GPUs
    here.submit("a1", "a", 1000)
    here.submit("b1", "b", 1000)
    assert started(here.finish("c0")) == ["b1", "a1"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tenant_name": "nobody"}, Reason.UNKNOWN_TENANT),
        ({"tier": "gold"}, Reason.UNKNOWN_TIER),
        ({"milli_gpu": 8001}, Reason.NEVER_FITS),
    ],
)
def test_what_can_never_run_is_refused_at_once(fields: dict[str, object], reason: Reason) -> None:
    effects = two().submit("x", **({"tenant_name": "a", "milli_gpu": 1000} | fields))  # type: ignore[arg-type]
    assert [effect.reason for effect in effects if isinstance(effect, Refuse)] == [reason]


def test_a_failed_job_may_be_put_back_and_a_waiting_one_cancelled() -> None:
    here = two()
    here.submit("a0", "a", 8000)
    here.submit("a1", "a", 8000)
    assert started(here.later(5).finish("a0", Outcome.FAILED, retry=True)) == ["a0"]
    here.cancel("a1")
    here.later(5).finish("a0")
    assert [(r.request_id, r.attempt, r.outcome.value) for r in here.records] == [
        ("a0", 1, "failed"),
        ("a1", 1, "cancelled"),
        ("a0", 2, "completed"),
    ]
    assert [r.micro_per_gpu_hour for r in here.records] == [0, 2_500_000, 2_500_000]


def test_a_grant_lifts_the_elastic_cap_for_a_while_and_never_the_hard_cap() -> None:
    here = world(tenant("a", 1000, elastic_cap=2000, hard_cap=5000), tenant("b", 1000))
    assert started(here.submit("a0", "a", 2000)) == ["a0"]
    here.submit("a1", "a", 1000)
    assert started(here.send(Granted("a", 8000, here.now + 60 * S))) == ["a1"]
    assert views.tenants(here.machine.state)[0].elastic_cap == 5000
    here.submit("a2", "a", 2000)
    here.submit("a3", "a", 1000)
    assert started(here.later(61).tick()) == []
    assert views.tenants(here.machine.state)[0].elastic_cap == 2000
    assert started(here.finish("a0")) == []  # 3000 run on, above the cap of now


def test_lost_devices_stop_new_work_and_scale_the_guarantees_until_they_are_back() -> None:
    here = two()
    here.submit("a0", "a", 4000)
    here.send(DevicesChanged("main", 4000))
    assert [t.guaranteed for t in views.tenants(here.machine.state)] == [2000, 2000]
    assert started(here.submit("b0", "b", 2000)) == []
    assert started(here.send(DevicesChanged("main", 8000))) == ["b0"]


def test_headroom_is_not_lent() -> None:
    here = world(tenant("a", 4000, elastic_cap=8000), tenant("b", 4000, elastic_cap=8000, headroom=1000))
    assert started(here.submit("a0", "a", 8000)) == []
    assert started(here.submit("a1", "a", 7000)) == ["a1"]
    assert started(here.submit("b0", "b", 1000)) == ["b0"]


def test_a_dedicated_replica_is_a_job_and_its_devices_are_taken_once() -> None:
    here = two()
    assert started(here.submit("rep", "a", 2000, kind="replica")) == ["rep"]
    assert here.machine.state.devices["main"].free == 6000
    here.later(1).finish("rep")
    assert here.records[0].endpoint == "replica"


def test_replicas_and_jobs_never_hold_the_same_device() -> None:
    here = world(tenant("a", 4000, elastic_cap=4000), milli_gpu=4000)
    here.send(ReplicaReady(Replica("m-0", "m", 2000, 4, 4000)))
    assert started(here.submit("a0", "a", 3000)) == []
    assert here.machine.state.devices["main"].free == 2000


def test_the_forecast_of_a_lender_bounds_what_a_long_job_may_borrow() -> None:
    here = two()
    for week in range(3):  # b uses all of its guarantee from the second hour on, every Thursday (the epoch's day)
        here.now = week * 168 * HOUR + HOUR + 60 * S
        here.submit(f"b{week}", "b", 4000)
        here.later(60).finish(f"b{week}")
    here.now = 3 * 168 * HOUR + 60 * S
    assert started(here.submit("long", "a", 6000, expected_ns=4 * HOUR)) == []
    assert here.machine.waits_of("long", here.now + S) == (Wait(Cause.FORECAST, "", S),)
    assert started(here.submit("short", "a", 1000, expected_ns=600 * S)) == ["short"]
    assert started(here.submit("own", "a", 3000, expected_ns=4 * HOUR)) == ["own"]


def test_lenders_who_wait_for_each_other_are_held_by_the_forecast_for_as_long_as_their_jobs_take_at_most() -> None:
    ever = 10**17
    here = world(
        tenant("a", 4000, elastic_cap=8000, max_wait_ns=ever), tenant("b", 4000, elastic_cap=8000, max_wait_ns=ever)
    )
    here.submit("all", "a", 8000)
    here.submit("a0", "a", 6000, expected_ns=4 * HOUR)
    here.submit("b0", "b", 6000, expected_ns=5 * HOUR)
    assert started(here.later(60).finish("all")) == []
    assert started(here.later(3 * 3600).tick()) == []
    assert started(here.later(3600).tick()) == ["a0"]
    assert started(here.later(3600).finish("a0")) == ["b0"]


def test_a_job_that_does_not_fit_is_passed_by_its_tenants_smaller_ones_until_it_is_overdue() -> None:
    here = world(tenant("a", 8000, elastic_cap=8000, max_wait_ns=60 * S))
    here.submit("a0", "a", 4000)
    assert started(here.submit("large", "a", 8000)) == []
    assert started(here.later(1).submit("small", "a", 1000)) == ["small"]
    assert started(here.later(60).submit("late", "a", 1000)) == []
    here.finish("small")
    assert started(here.finish("a0")) == ["large"]


def test_more_output_than_expected_counts_before_the_end() -> None:
    here = World(policy(tenant("a"), tenant("b"), milli_gpu=2000))
    for name in ("a0", "a1", "b0", "b1"):
        here.arrive(name, name[0])
    here.arrive("a2", "a", tokens_out_max=None)
    here.arrive("b2", "b", tokens_out_max=None)
    here.send(Produced("a0", 500))
    assert dispatched(here.later(1).end("b1", usage=Usage(10, 0, 10))) == ["b2"]


def test_a_smaller_job_goes_on_as_soon_as_its_group_has_room_though_the_head_is_above_its_tenants_cap() -> None:
    team = Group("team", elastic_cap=3000)
    here = world(tenant("a", elastic_cap=2000, group="team"), tenant("b", group="team"), groups=(team,))
    here.submit("a0", "a", 1000)
    here.submit("b0", "b", 1000)
    here.submit("b1", "b", 1000)
    here.submit("large", "a", 1500)
    assert started(here.submit("small", "a", 500)) == []
    assert started(here.finish("b0")) == ["small"]


def test_a_record_has_what_its_processes_took_and_the_gpu_memory_that_it_asked_for() -> None:
    world = World(policy(tenant("a", 4000), resources={"gpu_memory_mib": 1000}))
    world.submit("j", "a", 2000, resources={"gpu_memory_mib": 300})
    world.later(10).finish("j", cpu_ns=5, memory_mib_s=6)
    (record,) = world.records
    assert (record.cpu_ns, record.memory_mib_s, record.gpu_memory_mib_s) == (5, 6, 3000)
