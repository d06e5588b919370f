"""Jobs from submission to end, and over restarts: what is kept, run and billed is what happened, once."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from commonpool.backends.base import BackendError
from commonpool.core.effects import Checkpoint
from commonpool.core.ledger import Phase, Span
from commonpool.core.model import NS_PER_S, Device, Hardware, Node, Outcome
from commonpool.store.frames import frames
from commonpool.store.jobs import OPEN, JobAttempt, JobError, JobNotFoundError, JobState, Task
from commonpool.store.journal import decoder
from tests.control.job_fakes import START_NS, World, job, policy, task

Story = Callable[[World], Awaitable[None]]


def tell(folder: Path, story: Story) -> None:
    async def whole() -> None:
        world = World(folder)
        await world.start()
        try:
            await story(world)
        finally:
            await world.kill()

    asyncio.run(whole())


def test_a_job_runs_and_is_billed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        # given a job that fits
        record = await world.jobs.submit(job(), task("train", "--fast"))
        await world.settle()
        assert await world.state(record.job.id) == "running"
        # when it ends well an hour later
        world.now += 3600 * NS_PER_S
        world.backend.attempts[record.job.id, 1].end(0, world.now)
        await world.settle()
        # then that is what is kept of it
        kept, (attempt,) = await world.jobs.show(record.job.id)
        assert (kept.state, kept.ended_ns, kept.reason) == (JobState.DONE, world.now, "")
        assert (attempt.started_ns, attempt.ended_ns, attempt.exit_status) == (START_NS, world.now, 0)
        (billed,) = world.records()
        assert (billed.request_id, billed.endpoint, billed.outcome) == (record.job.id, "job", Outcome.COMPLETED)
        assert billed.milli_gpu_ns == 2000 * 3600 * NS_PER_S
        assert (billed.cpu_ns, billed.memory_mib_s) == (7, 9)  # as its backend measured them

    tell(tmp_path, story)


def test_what_its_runner_held_is_noted_until_the_end_that_the_runner_says(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(), task())
        await world.settle()
        ended = START_NS + 60 * NS_PER_S
        world.now = ended + 5 * NS_PER_S  # that is heard of later
        world.backend.attempts[record.job.id, 1].end(0, ended)
        await world.settle()
        (held,) = (span for span in spans(world) if span.phase is Phase.HELD)
        assert (held.id, held.pool, held.milli_gpu) == (record.job.id, "main", 2000)
        assert (held.start_ns, held.end_ns) == (START_NS, ended)
        (given,) = (span for span in spans(world) if span.phase is Phase.SERVING)
        assert (given.id, given.start_ns, given.end_ns) == (record.job.id, START_NS, world.now)

    tell(tmp_path, story)


def spans(world: World) -> list[Span]:
    """What the journal has of them."""
    decode = decoder()
    data = b"".join(world.journal.path(segment).read_bytes() for segment in world.journal.segments())
    return [note for each in frames(data) if isinstance(note := decode(each.payload), Span)]


def test_one_waits_behind_another_and_says_why(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        first = await world.jobs.submit(job("b"), task())
        second = await world.jobs.submit(job(), task())
        await world.settle()
        world.now += NS_PER_S
        assert [await world.state(each.job.id) for each in (first, second)] == ["running", "queued"]
        assert sum(wait.ns for wait in world.jobs.waits(second.job.id) or ()) == NS_PER_S
        assert world.jobs.waits(first.job.id) is None
        assert [(loan.lender, loan.milli_gpu) for loan in world.jobs.loans(first.job.id)] == [("a", 2000)]
        world.backend.attempts[first.job.id, 1].end(0, world.now)
        await world.settle()
        assert await world.state(second.job.id) == "running"
        listed = await world.jobs.list(None, tuple(JobState), after=None, limit=10)
        assert {record.job.tenant for record in listed} == {"a", "b"}
        assert await world.jobs.list("b", OPEN, after=None, limit=10) == ()

    tell(tmp_path, story)


def test_what_is_refused_leaves_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        with pytest.raises(JobError, match="3000 milli_gpu"):
            await world.jobs.submit(job(milli_gpu=3000), task())
        with pytest.raises(BackendError, match="is not there"):
            await world.jobs.submit(job(), Task(("true",), "/none"))
        with pytest.raises(JobError, match=r"have 7\d{4} bytes and at most 65536 are taken"):
            await world.jobs.submit(job(), task("x" * 70_000))
        assert await world.jobs.list(None, tuple(JobState), after=None, limit=10) == ()
        with pytest.raises(JobNotFoundError, match="there is no job 'job-1'"):
            await world.jobs.show("job-1")
        assert world.backend.started == []

    tell(tmp_path, story)


def test_it_is_durable_before_it_is_answered_for_and_before_it_runs(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(), task())
        assert world.store.job(record.job.id) is not None
        # when its state cannot be kept, then it is not started
        world.store.failing = 1_000_000
        await world.settle()
        assert world.backend.started == []

    tell(tmp_path, story)


def test_failures_are_retried_as_often_as_asked(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(), task(retries=1))
        for attempt in (1, 2):
            await world.settle()
            world.now += NS_PER_S
            world.backend.attempts[record.job.id, attempt].end(3 if attempt == 1 else -9, world.now)
        await world.settle()
        kept, attempts = await world.jobs.show(record.job.id)
        assert (kept.state, kept.failures) == (JobState.FAILED, 2)
        assert kept.reason == "Its command was ended by signal 9."
        assert [attempt.exit_status for attempt in attempts] == [3, -9]
        assert [(each.attempt, each.outcome) for each in world.records()] == [(1, "failed"), (2, "failed")]
        assert world.backend.started == [(record.job.id, 1), (record.job.id, 2)]

    tell(tmp_path, story)


def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.backend.broken = "Job cannot be started: no such program."
        record = await world.jobs.submit(job(), task())
        await world.settle()
        kept, _ = await world.jobs.show(record.job.id)
        assert (kept.state, kept.reason) == (JobState.FAILED, "Job cannot be started: no such program.")
        assert [each.outcome for each in world.records()] == [Outcome.FAILED]

    tell(tmp_path, story)


def test_cancelling_what_runs_waits_for_its_end(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(), task())
        await world.settle()
        cancelling = asyncio.ensure_future(world.jobs.cancel(record.job.id))
        await world.settle()
        attempt = world.backend.attempts[record.job.id, 1]
        assert attempt.asked == ["stop"]
        assert not cancelling.done()
        attempt.end(-15, world.now, stopped=True)
        assert (await cancelling).state is JobState.CANCELLED
        assert [each.outcome for each in world.records()] == [Outcome.CANCELLED]
        assert (await world.jobs.cancel(record.job.id)).state is JobState.CANCELLED  # again: nothing happens

    tell(tmp_path, story)


def test_cancelling_what_waits(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        first = await world.jobs.submit(job(), task())
        second = await world.jobs.submit(job(), task())
        await world.settle()
        assert (await world.jobs.cancel(second.job.id)).state is JobState.CANCELLED
        world.backend.attempts[first.job.id, 1].end(0, world.now)
        await world.settle()
        assert world.backend.started == [(first.job.id, 1)]
        assert len(world.records()) == 2

    tell(tmp_path, story)


def test_cancelling_while_it_is_being_started_runs_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        first = await world.jobs.submit(job(), task())
        second = await world.jobs.submit(job(), task())
        await world.settle()
        # when the first ends just as the second is cancelled
        cancelling = asyncio.ensure_future(world.jobs.cancel(second.job.id))
        await asyncio.sleep(0)
        world.backend.attempts[first.job.id, 1].end(0, world.now)
        assert (await cancelling).state is JobState.CANCELLED
        await world.settle()
        # then the second gives back what it was given
        assert world.backend.started == [(first.job.id, 1)]
        third = await world.jobs.submit(job(), task())
        await world.settle()
        assert await world.state(third.job.id) == "running"

    tell(tmp_path, story)


def test_a_job_that_saves_itself_waits_again_and_is_not_a_failure(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(reclaim="checkpoint"), task())
        await world.settle()
        keeper = world.jobs._open[record.job.id]
        keeper.checkpoint(Checkpoint(record.job.id, 1, 3 * NS_PER_S))
        await world.settle()
        attempt = world.backend.attempts[record.job.id, 1]
        assert attempt.asked == ["checkpoint"]
        assert await world.state(record.job.id) == "saving"
        world.now += NS_PER_S
        attempt.end(75, world.now, asked=True)
        await world.settle()
        kept, _ = await world.jobs.show(record.job.id)
        assert (kept.state, kept.failures, kept.queued_ns) == (JobState.RUNNING, 0, world.now)
        assert world.backend.started == [(record.job.id, 1), (record.job.id, 2)]
        assert [(each.attempt, each.outcome) for each in world.records()] == [(1, Outcome.CANCELLED)]

    tell(tmp_path, story)


def test_a_job_that_does_not_save_itself_goes_on(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(reclaim="checkpoint"), task())
        await world.settle()
        world.jobs._open[record.job.id].checkpoint(Checkpoint(record.job.id, 1, 1))
        await world.settle()
        assert await world.state(record.job.id) == "running"

    tell(tmp_path, story)


def test_status_75_without_having_been_asked_is_a_failure(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(), task())
        await world.settle()
        world.backend.attempts[record.job.id, 1].end(75, world.now)
        await world.settle()
        assert await world.state(record.job.id) == "failed"

    tell(tmp_path, story)


def test_a_store_that_fails_for_a_while_costs_time_and_nothing_else(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        pauses: list[float] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)

        world.jobs.sleep = pause
        record = await world.jobs.submit(job(), task())
        world.store.failing = 3
        await world.settle()
        assert (len(pauses), await world.state(record.job.id)) == (3, "running")

    tell(tmp_path, story)


# -- restarts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planned", [False, True])
def test_what_runs_is_adopted_and_what_waits_waits_again(tmp_path: Path, *, planned: bool) -> None:
    async def story(world: World) -> None:
        # given one that runs and two that wait
        first, second, third = [await world.jobs.submit(job(tenant), task()) for tenant in "aaa"]
        await world.settle()
        # when the product goes away and comes back
        if planned:
            await world.jobs.close()
            with pytest.raises(JobError, match="is stopping"):
                await world.jobs.submit(job(), task())
        await world.kill()
        assert world.backend.attempts[first.job.id, 1].asked == []
        world.now += 100 * NS_PER_S
        await world.start()
        await world.settle()
        # then the first still holds what it held, and the others wait in their order
        states = [await world.state(each.job.id) for each in (first, second, third)]
        assert states == ["running", "queued", "queued"]
        world.now += NS_PER_S
        world.backend.attempts[first.job.id, 1].end(0, world.now)
        await world.settle()
        world.backend.attempts[second.job.id, 1].end(0, world.now)
        await world.settle()
        assert world.backend.started == [(each.job.id, 1) for each in (first, second, third)]
        billed = world.records()
        assert [(each.request_id, each.attempt) for each in billed] == [(first.job.id, 1), (second.job.id, 1)]
        assert billed[0].milli_gpu_ns == 2000 * 101 * NS_PER_S  # from its own start
        assert billed[0].arrived_ns == START_NS

    tell(tmp_path, story)


def test_one_that_was_to_save_itself_runs_after_a_restart(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(reclaim="checkpoint"), task())
        await world.settle()
        world.jobs._open[record.job.id].checkpoint(Checkpoint(record.job.id, 1, 3600 * NS_PER_S))
        await world.settle()
        assert await world.state(record.job.id) == "saving"
        await world.kill()
        await world.start()
        await world.settle()
        assert await world.state(record.job.id) == "running"
        # when it does save itself after all
        world.backend.attempts[record.job.id, 1].end(75, world.now, asked=True)
        await world.settle()
        assert world.backend.started[-1] == (record.job.id, 2)

    tell(tmp_path, story)


def test_what_ended_meanwhile_is_settled_once(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(), task())
        await world.settle()
        await world.kill()
        world.now += 10 * NS_PER_S
        ended_ns = world.now
        world.backend.attempts[record.job.id, 1].end(0, ended_ns)
        for _ in range(2):
            await world.start()
            await world.settle()
            kept, _ = await world.jobs.show(record.job.id)
            assert (kept.state, kept.ended_ns) == (JobState.DONE, ended_ns)
            assert [(each.attempt, each.milli_gpu_ns) for each in world.records()] == [(1, 20_000 * NS_PER_S)]
            await world.kill()
            world.now += 10 * NS_PER_S
        await world.start()

    tell(tmp_path, story)


def test_an_end_that_was_billed_and_not_kept_is_billed_once(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        # given a job whose end is in the journal, and the product killed before the store had it
        record = await world.jobs.submit(job(), task(retries=1))
        await world.settle()
        world.store.failing = 1_000_000
        world.now += NS_PER_S
        world.backend.attempts[record.job.id, 1].end(1, world.now)
        await world.settle()
        await world.kill()
        world.store.failing = 0
        # when it is back, then the next attempt has a record of its own
        await world.start()
        await world.settle()
        world.now += NS_PER_S
        world.backend.attempts[record.job.id, 2].end(0, world.now)
        await world.settle()
        assert await world.state(record.job.id) == "done"
        assert [(each.attempt, each.outcome, each.run_ns) for each in world.records()] == [
            (1, Outcome.FAILED, NS_PER_S),
            (2, Outcome.COMPLETED, NS_PER_S),
        ]

    tell(tmp_path, story)


def test_attempts_are_counted_over_a_restart_while_it_waits(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        # given a job that saved itself for its lender's, which runs now
        first = await world.jobs.submit(job("b"), task())
        await world.settle()
        other = await world.jobs.submit(job(), task())
        world.now += NS_PER_S
        world.backend.attempts[first.job.id, 1].end(75, world.now, asked=True)
        await world.settle()
        assert [await world.state(each.job.id) for each in (first, other)] == ["queued", "running"]
        # when the product was away, and the other has ended
        await world.kill()
        await world.start()
        await world.settle()
        world.backend.attempts[other.job.id, 1].end(0, world.now)
        await world.settle()
        # then its second attempt is its second
        assert world.backend.started[-1] == (first.job.id, 2)
        world.now += 5 * NS_PER_S
        world.backend.attempts[first.job.id, 2].end(0, world.now)
        await world.settle()
        mine = [(each.attempt, each.run_ns) for each in world.records() if each.request_id == first.job.id]
        assert mine == [(1, NS_PER_S), (2, 5 * NS_PER_S)]

    tell(tmp_path, story)


def test_a_job_whose_tenant_is_gone_waits_no_more(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        # given a job that has run, and waits again
        first = await world.jobs.submit(job("b"), task())
        await world.settle()
        await world.jobs.submit(job(), task())
        world.backend.attempts[first.job.id, 1].end(75, world.now, asked=True)
        await world.settle()
        new = await world.jobs.submit(job("b"), task())
        await world.kill()
        # when its tenant is gone at the next start
        world.policy = policy(without="b")
        await world.start()
        await world.settle()
        for each in (first, new):
            assert await world.state(each.job.id) == "failed"
        assert "Tenant b does not exist any more" in (await world.jobs.show(new.job.id))[0].reason

    tell(tmp_path, story)


GONE = "Tenant b is not in the configuration any more, or not in pool main, so it was ended."


@pytest.mark.parametrize(("status", "state", "reason"), [(-15, "failed", GONE), (1, "failed", GONE), (0, "done", "")])
def test_a_job_whose_tenant_is_gone_is_ended(tmp_path: Path, status: int, state: str, reason: str) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job("b"), task(retries=1))
        await world.settle()
        await world.kill()
        world.policy = policy(without="b")
        await world.start()
        await world.settle()
        attempt = world.backend.attempts[record.job.id, 1]
        assert attempt.asked == ["stop"]
        attempt.end(status, world.now, stopped=status < 0)
        await world.settle()
        kept, _ = await world.jobs.show(record.job.id)
        assert (kept.state, kept.reason) == (state, reason)
        assert world.backend.started == [(record.job.id, 1)]

    tell(tmp_path, story)


# -- faults of ours ----------------------------------------------------------------------------------------------------

FAULT = "A fault of ours ended it; the product's log says which."


async def free(world: World) -> bool:
    """Whether nothing is held: a job that asks for all of it runs."""
    record = await world.jobs.submit(job(), task())
    await world.settle()
    return await world.state(record.job.id) == "running"


def test_a_fault_while_it_is_started_gives_back_what_it_held(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.backend.broken = OSError(28, "No space left on device")
        record = await world.jobs.submit(job(), task())
        await world.settle()
        kept, _ = await world.jobs.show(record.job.id)
        assert (kept.state, kept.reason) == (JobState.FAILED, FAULT)
        assert [(each.outcome, each.micro_per_gpu_hour) for each in world.records()] == [(Outcome.FAILED, 0)]
        world.backend.broken = ""
        assert await free(world)

    tell(tmp_path, story)


def test_a_fault_while_it_is_watched_ends_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(), task())
        await world.settle()
        world.now += NS_PER_S
        attempt = world.backend.attempts[record.job.id, 1]
        attempt.fault()
        await world.settle()
        kept, _ = await world.jobs.show(record.job.id)
        assert (kept.state, kept.reason, attempt.asked) == (JobState.FAILED, FAULT, ["stop"])
        assert [(each.run_ns, each.micro_per_gpu_hour > 0) for each in world.records()] == [(NS_PER_S, True)]
        assert await free(world)

    tell(tmp_path, story)


def test_a_fault_while_one_is_adopted_does_not_keep_the_product_from_starting(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(), task())
        await world.settle()
        await world.kill()
        world.backend.broken = PermissionError(13, "Permission denied")
        await world.start()
        await world.settle()
        assert (await world.jobs.show(record.job.id))[0].reason == FAULT
        world.backend.broken = ""
        assert await free(world)

    tell(tmp_path, story)


def test_a_fault_of_its_keeper_ends_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(reclaim="checkpoint"), task())
        await world.settle()
        attempt = world.backend.attempts[record.job.id, 1]
        world.store.fault = RuntimeError("a fault")
        world.jobs._open[record.job.id].checkpoint(Checkpoint(record.job.id, 1, NS_PER_S))
        await world.settle()
        kept, (shown,) = await world.jobs.show(record.job.id)
        assert (kept.state, kept.reason, shown.ended_ns) == (JobState.FAILED, FAULT, world.now)
        assert attempt.asked == ["checkpoint", "stop"]
        assert [each.outcome for each in world.records()] == [Outcome.FAILED]
        assert await free(world)

    tell(tmp_path, story)


@pytest.mark.parametrize(("ran", "price"), [(True, 1_000_000), (False, 0)])
def test_an_end_that_nobody_saw_is_charged_unless_its_node_was_lost(tmp_path: Path, *, ran: bool, price: int) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(), task())
        await world.settle()
        world.now += 5 * NS_PER_S
        world.backend.attempts[record.job.id, 1].lose(world.now - NS_PER_S, ran=ran)
        await world.settle()
        (billed,) = world.records()
        assert (billed.run_ns, billed.micro_per_gpu_hour) == (4 * NS_PER_S, price)

    tell(tmp_path, story)


def test_closing_does_not_wait_for_ever_for_one_that_is_being_started(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.jobs.close_s = 0.01
        world.backend.may_start.clear()
        record = await world.jobs.submit(job(), task())
        await world.settle()
        await world.jobs.close()
        await world.kill()
        # when it was started after all, then it is taken up
        world.backend.may_start.set()
        await world.backend.start(record.job, record.task, JobAttempt(1, "", (), world.now))
        await world.start()
        await world.settle()
        assert await world.state(record.job.id) == "running"

    tell(tmp_path, story)


def test_the_core_is_told_what_it_was_before_the_restart(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        # given one on known devices, and a queue that is as long as it may be
        world.policy = policy(queue_length=1)
        world.node = Node("n0", "main", tuple(Device(f"n0/{index}", memory_mib=80_000) for index in range(2)))
        await world.kill()
        await world.start()
        half = await world.jobs.submit(job(milli_gpu=500, hardware=Hardware(500)), task())
        whole = await world.jobs.submit(job(), task())
        await world.settle()
        (_, (attempt,)) = await world.jobs.show(half.job.id)
        assert (attempt.devices, attempt.milli_gpu, attempt.memory_mib) == (("n0/0",), 500, 40_000)
        # when the product comes back, with no room in the queue any more
        world.policy = policy(queue_length=0)
        await world.kill()
        world.now += NS_PER_S
        await world.start()
        await world.settle()
        # then the first holds what it held, and the second waits since it was submitted
        held = world.desk.machine.state.inventories["main"].held(half.job.id)
        assert held is not None
        assert (held.devices, held.milli_gpu, held.memory_mib) == (("n0/0",), (500,), (40_000,))
        assert await world.state(whole.job.id) == "queued"
        world.backend.attempts[half.job.id, 1].end(0, world.now)
        await world.settle()
        world.backend.attempts[whole.job.id, 1].end(0, world.now)
        await world.settle()
        assert {each.arrived_ns for each in world.records()} == {START_NS}

    tell(tmp_path, story)


def test_what_cannot_be_adopted_fails_with_a_reason(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = await world.jobs.submit(job(), task())
        await world.settle()
        await world.kill()
        world.backend.broken = "The runner of job job-1 does not say that it has started."
        await world.start()
        await world.settle()
        kept, _ = await world.jobs.show(record.job.id)
        assert (kept.state, kept.reason) == (JobState.FAILED, world.backend.broken)

    tell(tmp_path, story)


def test_only_so_many_ended_jobs_are_kept(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.jobs.ended_kept = 2
        for _ in range(4):
            record = await world.jobs.submit(job(), task())
            await world.settle()
            world.now += 1
            world.backend.attempts[record.job.id, 1].end(0, world.now)
            await world.settle()
        listed = await world.jobs.list(None, tuple(JobState), after=None, limit=10)
        assert [record.job.id for record in listed] == ["job-4", "job-3"]
        assert world.backend.forgotten == ["job-1", "job-2"]
        assert len(world.records()) == 4

    tell(tmp_path, story)


def test_logs_come_from_the_backend(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        assert (await world.jobs.logs("j", "7")).text == "log of j"

    tell(tmp_path, story)
