"""What every store does with jobs."""

from contextlib import closing

import msgspec
import pytest

from commonpool.core.model import Hardware, Job
from commonpool.store.contract import StoreError
from commonpool.store.jobs import OPEN, JobAttempt, JobRecord, JobState, JobStore, Task, definition_bytes
from tests.store.places import Place


def job(job_id: str, tenant: str = "a", submitted_ns: int = 5, state: JobState = JobState.QUEUED) -> JobRecord:
    what = Job(job_id, tenant, "default", "main", "batch", 2000, hardware=Hardware(2000), expected_ns=9)
    task = Task(("train", "--fast", "grün"), "/home", {"A": "1"}, "a run", retries=2)
    return JobRecord(what, task, submitted_ns, submitted_ns, state)


def attempt(number: int) -> JobAttempt:
    return JobAttempt(number, "n0", ("n0/0", "n0/1.2"), started_ns=7, milli_gpu=500, memory_mib=10_240)


def ids(found: tuple[JobRecord, ...]) -> list[str]:
    return [record.job.id for record in found]


def test_a_job_comes_back_as_it_was(store: JobStore) -> None:
    record = job("j1")
    store.add_job(record)
    assert store.job("j1") == record
    assert store.job("j2") is None
    changed = msgspec.structs.replace(
        record, state=JobState.FAILED, queued_ns=8, failures=2, ended_ns=12, reason="why", attempt=attempt(1)
    )
    store.save_job(changed)
    assert store.job("j1") == changed


def test_an_id_is_taken_once(store: JobStore) -> None:
    store.add_job(job("j1"))
    with pytest.raises(StoreError, match="'j1' exists already"):
        store.add_job(job("j1", "b"))
    assert store.job("j1") == job("j1")


def test_attempts_are_kept_and_the_latest_is_the_jobs(store: JobStore) -> None:
    record = job("j1")
    store.add_job(record)
    assert store.job_attempts("j1", 10) == ()
    for number in range(1, 5):
        begun = attempt(number)
        ended = msgspec.structs.replace(begun, ended_ns=10 + number, exit_status=-9)
        for latest in (begun, ended):
            store.save_job(msgspec.structs.replace(record, attempt=latest))
    assert [each.attempt for each in store.job_attempts("j1", 3)] == [2, 3, 4]
    assert store.job_attempts("j1", 1) == (ended,)
    found = store.job("j1")
    assert found is not None
    assert found.attempt == ended


def test_jobs_come_newest_first_in_pages(store: JobStore) -> None:
    for job_id, tenant, submitted_ns in (("j2", "a", 1), ("j1", "a", 1), ("j3", "b", 2), ("j4", "a", 3)):
        store.add_job(job(job_id, tenant, submitted_ns))
    store.save_job(job("j4", "a", 3, JobState.DONE))
    every = tuple(JobState)
    assert ids(store.jobs(None, every, None, 10)) == ["j4", "j3", "j2", "j1"]
    assert ids(store.jobs(None, OPEN, None, 10)) == ["j3", "j2", "j1"]
    assert ids(store.jobs(["a"], every, None, 10)) == ["j4", "j2", "j1"]
    assert ids(store.jobs(["a"], every, (3, "j4"), 1)) == ["j2"]
    assert ids(store.jobs(["a"], every, (1, "j2"), 9)) == ["j1"]
    assert ids(store.jobs(["a", "b"], every, None, 2)) == ["j4", "j3"]
    assert store.jobs(["c"], every, None, 9) == ()
    assert store.jobs([], every, None, 9) == ()  # none is not all


def test_what_is_forgotten_does_not_come_back(store: JobStore) -> None:
    record = msgspec.structs.replace(job("j1"), attempt=attempt(1))
    store.add_job(record)
    store.forget_job("j1")
    store.forget_job("j1")
    store.save_job(record)
    assert store.job("j1") is None
    assert store.job_attempts("j1", 9) == ()


def test_the_oldest_ended_ones_are_found(store: JobStore) -> None:
    for number in range(6):
        store.add_job(job(f"j{number}", submitted_ns=number))
        if number != 1:
            store.save_job(job(f"j{number}", submitted_ns=number, state=JobState.CANCELLED))
    store.add_job(job("other", "b", 0))
    assert store.ended_jobs_beyond("a", 3, 10) == ("j2", "j0")
    assert store.ended_jobs_beyond("a", 3, 1) == ("j2",)
    assert store.ended_jobs_beyond("a", 5, 10) == ()


def test_jobs_survive_the_process(place: Place) -> None:
    record = msgspec.structs.replace(job("j1"), attempt=attempt(1), state=JobState.RUNNING)
    with closing(place.open()) as first:
        first.add_job(record)
    with closing(place.open()) as second:
        assert second.job("j1") == record


def test_a_definition_is_measured_as_it_is_kept() -> None:
    record = job("j1")
    longer = msgspec.structs.replace(record.task, cwd=record.task.cwd + "ü")
    assert definition_bytes(record.job, longer) == definition_bytes(record.job, record.task) + 2


def test_jobs_of_a_pool_are_found_however_many_others_there_are(store: JobStore) -> None:
    for number in range(9):
        record = job(f"j{number}", submitted_ns=number)
        pool = "side" if number % 4 == 0 else "main"
        store.add_job(msgspec.structs.replace(record, job=msgspec.structs.replace(record.job, pool=pool)))
    assert ids(store.jobs(None, OPEN, None, 2, ["side"])) == ["j8", "j4"]
    assert ids(store.jobs(None, OPEN, (4, "j4"), 2, ["side"])) == ["j0"]
    assert ids(store.jobs(None, OPEN, None, 9, ["none"])) == []
    assert ids(store.jobs(["b"], OPEN, None, 9, ["side", "main"])) == []
