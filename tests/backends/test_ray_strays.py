"""Real runners on this machine, found and ended by what they have left in the jobs' folder."""

import asyncio
import os
from pathlib import Path

import msgspec

from commonpool.backends.jobrun import Exit, Started, boot
from commonpool.backends.jobs import LocalJobs
from commonpool.backends.ray import strays
from commonpool.core.model import Job
from commonpool.store.jobs import JobAttempt, Task
from tests.backends.processes import ended

WAITS = Task(("/bin/sh", "-c", "echo $$; exec sleep 600"), "/")
DEAF = Task(("/bin/sh", "-c", "trap '' TERM; echo $$; while :; do sleep 1; done"), "/")


def job(job_id: str) -> Job:
    return Job(job_id, "a", "default", "main", "batch", 1000)


def attempt(number: int) -> JobAttempt:
    return JobAttempt(number, "n0", ("n0/0",), 0)


async def pid_of(jobs: LocalJobs, job_id: str) -> int:
    async with asyncio.timeout(240):
        while not (text := jobs.log(job_id, "").text.rpartition("---")[2]).strip():  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.02)
    return int(text.split()[-1])


def test_what_runs_is_found_and_only_what_is_named_is_ended(tmp_path: Path) -> None:
    async def main() -> None:
        jobs = LocalJobs(tmp_path)
        stray = await jobs.start(job("j1"), WAITS, attempt(1))
        kept = await jobs.start(job("j2"), WAITS, attempt(3))
        over = await jobs.start(job("j3"), Task(("/bin/true",), "/"), attempt(1))
        await over.wait()
        assert strays.running(tmp_path) == [("j1", 1), ("j2", 3)]

        pid = await pid_of(jobs, "j1")
        await asyncio.to_thread(strays.end, tmp_path, [("j1", 1), ("j3", 1), ("never", 1)])
        assert ended(pid)
        assert (await stray.wait()).stopped
        assert strays.running(tmp_path) == [("j2", 3)]
        kept.stop()
        await kept.wait()

    asyncio.run(main())


def test_one_that_does_not_end_in_time_is_ended_by_force(tmp_path: Path) -> None:
    async def main() -> None:
        jobs = LocalJobs(tmp_path)
        handle = await jobs.start(job("j1"), DEAF, attempt(1))
        pid = await pid_of(jobs, "j1")
        await asyncio.to_thread(strays.end, tmp_path, [("j1", 1)], 0.2)
        assert (await handle.wait()).ran
        assert ended(pid)

    asyncio.run(main())


def test_a_process_that_is_no_runner_of_the_attempt_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "j1").mkdir()
    # The runner was another machine's, and this process happens to have its number here.
    (tmp_path / "j1" / "1.pid").write_bytes(msgspec.json.encode(Started(os.getpid(), boot())))
    (tmp_path / "j1" / "2.pid").write_bytes(b"{")
    assert strays.running(tmp_path) == []
    strays.end(tmp_path, [("j1", 1), ("j1", 2)])


def test_what_has_ended_is_not_looked_for(tmp_path: Path) -> None:
    (tmp_path / "j1").mkdir()
    (tmp_path / "j1" / "1.pid").write_bytes(msgspec.json.encode(Started(os.getpid(), boot())))
    (tmp_path / "j1" / "1.exit").write_bytes(msgspec.json.encode(Exit(0, 1)))
    assert strays.running(tmp_path) == []
