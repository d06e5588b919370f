"""What was taken once is not refused because of what is away, or full, a moment later; nor billed for another time."""

from typing import Any

from commonpool.core.effects import Refuse, Settle, Start
from commonpool.core.events import JobEnded, JobResumed, Submitted
from commonpool.core.model import Hardware, Job, Limits, Outcome, UsageRecord
from tests.core.clusters import Cluster, S, devices, held, node, placed
from tests.core.worlds import tenant

A100 = {"model": "A100", "memory_mib": 40_000}
WHOLE = Hardware(milli_gpu=2000)


def two(**more: Any) -> Cluster:
    rules = placed(tenant("a", 2000, **more), tenant("b", 2000))
    return Cluster(rules, node("n1", devices("n1", 2, **A100)), node("n2", devices("n2", 2, **A100)))


def job(name: str, hardware: Hardware, tenant_name: str = "a") -> Job:
    return Job(name, tenant_name, "app", "main", "batch", 0, hardware=hardware)


def records(here: Cluster, *events: Any) -> list[UsageRecord]:
    effects = [effect for event in events for effect in here.send(event)]
    return [effect.record for effect in effects if isinstance(effect, Settle)]


def test_a_job_whose_node_died_is_tried_again_when_the_node_is_back() -> None:
    h100 = Hardware(milli_gpu=1000, models=("H100",))
    here = two()
    here.see(node("n3", devices("n3", 1, model="H100")))
    here.submit("x", "a", 0, hardware=h100)
    here.lose("n3")
    assert [type(effect).__name__ for effect in here.finish("x", Outcome.FAILED, retry=True)] == ["Settle"]
    here.later(60).tick()
    effects = here.see(node("n3", devices("n3", 1, model="H100")))
    assert next(effect for effect in effects if isinstance(effect, Start)).devices == ("n3/0",)


def test_a_new_policy_does_not_refuse_what_waits_for_a_node_that_is_away() -> None:
    here = two()
    here.submit("first", "a", 0, hardware=WHOLE)
    here.submit("second", "b", 0, hardware=WHOLE)
    here.submit("waits", "b", 0, hardware=WHOLE)
    here.lose("n1")
    here.lose("n2")
    assert not [effect for effect in here.configure(here.machine.state.policy) if isinstance(effect, Refuse)]
    assert here.machine.knows("waits")


def test_after_a_restart_a_job_waits_for_the_node_that_is_not_back_yet() -> None:
    here = Cluster(placed(tenant("a", 2000), tenant("b", 2000)), node("n1", devices("n1", 1, **A100)))
    memory = Hardware(memory_mib=30_000, count=2)
    assert here.send(
        Submitted(job("new", memory))
    )  # one that was never taken is refused: it does not fit what is there
    assert not here.machine.knows("new")
    assert here.send(Submitted(job("old", memory), 3, again=True, arrived=1)) == []
    effects = here.see(node("n2", devices("n2", 2, **A100)))
    (start,) = [effect for effect in effects if isinstance(effect, Start)]
    assert start.attempt == 4
    assert start.devices == ("n2/0", "n2/1")
    assert start.milli_gpu == 750  # of each, by the memory that it asks for
    assert here.machine.state.quotas["main"].use == 1500


def test_a_full_queue_refuses_new_jobs_and_none_that_was_taken() -> None:
    here = two(limits=Limits(queue_length=1))
    here.submit("runs", "a", 2000)
    here.submit("b", "b", 2000)
    here.submit("waits", "a", 2000)
    here.submit("new", "a", 2000)
    assert not here.machine.knows("new")
    here.send(Submitted(job("old", WHOLE), again=True, arrived=1))
    assert here.machine.knows("old")


def test_a_job_that_was_taken_before_has_waited_since_it_came() -> None:
    here = two()
    here.submit("runs", "a", 2000)
    here.submit("b", "b", 2000)
    here.send(Submitted(job("old", WHOLE), again=True, arrived=here.now - 100 * S))
    (start,) = [effect for effect in here.later(20).finish("runs") if isinstance(effect, Start)]
    assert (start.job_id, start.wait_ns) == ("old", 120 * S)


def test_what_ran_on_is_billed_and_lent_for_the_time_that_it_ran() -> None:
    here = two()
    began, ended = here.now - 10 * S, here.now - 2 * S
    here.send(JobResumed(job("x", Hardware(milli_gpu=2000)), 1, began, began, ("n1/0", "n1/1"), 1000, 0))
    here.send(JobResumed(job("y", Hardware(milli_gpu=2000)), 1, began, began, ("n2/0", "n2/1"), 1000, 0))
    one, other = records(
        here,
        JobEnded("x", 1, Outcome.COMPLETED, ended=ended),
        JobEnded("y", 1, Outcome.COMPLETED, ended=ended),
    )
    assert one.run_ns == other.run_ns == 8 * S
    loans = [*one.loans, *other.loans]
    assert sum(loan.milli_gpu * (loan.end_ns - loan.start_ns) for loan in loans if loan.lender == "b") == 2000 * 8 * S
    assert all(began <= loan.start_ns <= loan.end_ns <= ended for loan in loans)


def test_a_resumed_job_holds_what_it_was_given_whatever_is_known_of_its_node() -> None:
    here = Cluster(placed(tenant("a", 2000), tenant("b", 2000)), node("n2", devices("n2", 2, **A100)))
    event = JobResumed(job("x", Hardware(memory_mib=20_000)), 1, 0, 0, ("n1/0",), 500, 20_000)
    here.send(event)
    assert here.machine.state.quotas["main"].use == 500
    here.see(node("n1", devices("n1", 1, **A100)))
    assert held(here.machine, "x") == ("n1/0",)
    assert here.machine.state.inventories["main"].free == 2500


def test_a_resumed_job_of_a_tier_that_is_gone_still_counts() -> None:
    here = two()
    gone = Job("x", "a", "app", "main", "gold", 1000)
    here.send(JobResumed(gone, 1, 0, 0, ("n1/0",), 1000))
    assert here.machine.state.quotas["main"].use == 1000
    (record,) = records(here, JobEnded("x", 1, Outcome.COMPLETED))
    assert record.milli_gpu == 1000


def test_a_resumed_job_of_a_tenant_that_is_gone_is_not_known() -> None:
    here = two()
    here.send(JobResumed(Job("x", "nobody", "app", "main", "batch", 1000), 1, 0, 0, ("n1/0",), 1000))
    assert not here.machine.knows("x")


def test_a_refused_job_leaves_no_trace_in_the_measure_of_fragmentation() -> None:
    here = two(limits=Limits(queue_length=1))
    here.submit("runs", "a", 2000)
    here.submit("b", "b", 2000)
    here.submit("waits", "a", 2000)
    before = here.bare.footprints.copy()
    here.submit("refused", "a", 0, hardware=Hardware(memory_mib=1234))
    assert here.bare.footprints == before
