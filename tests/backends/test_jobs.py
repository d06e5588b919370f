"""Jobs of this machine: real commands, each below a runner of its own, which outlives whoever started it."""

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import uvloop

from commonpool.backends import cgroup
from commonpool.backends.base import BackendError
from commonpool.backends.jobrun import Exit, Started
from commonpool.backends.jobs import LocalJob, LocalJobs
from commonpool.backends.measure import Taken
from commonpool.core.model import NS_PER_S, Hardware, Job
from commonpool.store.jobs import JobAttempt, Task

ALIVE_S = 120.0
JOB = Job("j1", "a", "default", "main", "batch", 2000, hardware=Hardware(2000, memory_mib=18_432))
ATTEMPT = JobAttempt(1, "n0", ("n0/3", "n0/4.1"), 0)

T = TypeVar("T")


@pytest.fixture
def jobs(tmp_path: Path) -> LocalJobs:
    return LocalJobs(tmp_path / "jobs", stop_grace_ns=NS_PER_S)


def run(work: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(work)


def shell(script: str, cwd: Path | None = None, **env: str) -> Task:
    return Task(("/bin/sh", "-c", script), str(cwd or Path("/")), env)


def python(script: str) -> Task:
    return Task((sys.executable, "-c", script), "/")


async def ended(jobs: LocalJobs, task: Task, attempt: JobAttempt = ATTEMPT) -> Exit:
    handle = await jobs.start(JOB, task, attempt)
    return await handle.wait()


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ALIVE_S
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def printed(jobs: LocalJobs) -> str:
    return jobs.log(JOB.id, "").text


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_job_runs_and_its_end_and_output_are_known(jobs: LocalJobs) -> None:
    before = time.time_ns()
    end = run(ended(jobs, shell("echo out; echo err >&2; exit 3")))
    assert (end.status, end.asked, end.stopped, end.reason) == (3, False, False, "")
    assert before <= end.ended_ns <= time.time_ns()
    assert printed(jobs) == "out\nerr\n"


def test_what_its_environment_says(jobs: LocalJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMONPOOL_ADMIN_TOKEN", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    task = shell("pwd; env", tmp_path, MINE="1 2", COMMONPOOL_JOB_ID="another")
    assert run(ended(jobs, task)).status == 0
    cwd, *said = printed(jobs).splitlines()
    assert cwd == str(tmp_path)
    environment = dict(line.split("=", 1) for line in said)
    checkpoint = tmp_path / "jobs" / "j1" / "checkpoint"
    assert checkpoint.is_dir()
    assert {
        "MINE": "1 2",
        "COMMONPOOL_JOB_ID": "j1",
        "COMMONPOOL_ATTEMPT": "1",
        "COMMONPOOL_DEVICES": "n0/3,n0/4.1",
        "COMMONPOOL_GPU_MEMORY_MIB": "18432",
        "COMMONPOOL_CHECKPOINT_DIR": str(checkpoint),
        "CUDA_VISIBLE_DEVICES": "3,4.1",
    }.items() <= environment.items()
    assert "COMMONPOOL_ADMIN_TOKEN" not in environment


def test_only_devices_of_its_own_node_are_visible(jobs: LocalJobs) -> None:
    attempt = JobAttempt(1, "n0", ("n0/3", "n1/0", "n1/5"), 0)
    run(ended(jobs, shell("echo $CUDA_VISIBLE_DEVICES"), attempt))
    assert printed(jobs) == "3\n"


def test_where_devices_are_not_known_nothing_is_said_of_them(jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    run(ended(jobs, shell("echo $CUDA_VISIBLE_DEVICES"), JobAttempt(1, "", (), 0)))
    assert printed(jobs) == "7\n"


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (Task(("/no/such/program",), "/"), "'/no/such/program' cannot be run: No such file or directory"),
        (Task(("/etc/passwd",), "/"), "'/etc/passwd' cannot be run: Permission denied"),
        (Task(("/bin/true",), "/no/such/folder"), "'/no/such/folder' is not there"),
        (Task(("/bin/true",), "."), "'.' is not there on this machine; give one that is, absolute"),
    ],
)
def test_what_cannot_run_is_told_in_a_sentence(jobs: LocalJobs, task: Task, says: str) -> None:
    with pytest.raises(BackendError, match=says):
        run(jobs.start(JOB, task, ATTEMPT))


def test_a_folder_that_is_not_there_is_known_beforehand(jobs: LocalJobs, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="is not there"):
        jobs.check(JOB, Task(("true",), str(tmp_path / "none")))
    jobs.check(JOB, Task(("true",), str(tmp_path)))
    alone = LocalJobs(tmp_path, refusal=lambda pool: f"Not in {pool}." if pool == JOB.pool else "")
    alone.check(msgspec.structs.replace(JOB, pool="other"), Task(("true",), "/"))
    with pytest.raises(BackendError, match=r"Not in main\."):
        alone.check(JOB, Task(("true",), "/"))
    with pytest.raises(BackendError, match=r"Not in main\."):
        run(alone.start(JOB, Task(("true",), "/"), ATTEMPT))


def test_stopping_ends_the_whole_group_gently(jobs: LocalJobs) -> None:
    async def story() -> tuple[Exit, int]:
        handle = await jobs.start(JOB, shell("trap 'echo bye; exit 4' TERM; sleep 1000 & echo $!; wait"), ATTEMPT)
        await until(lambda: printed(jobs).endswith("\n"))
        handle.stop()
        return await handle.wait(), int(printed(jobs).split()[0])

    end, child = run(story())
    assert (end.status, end.stopped) == (4, True)
    assert printed(jobs).endswith("bye\n")
    assert not alive(child)


def test_what_does_not_stop_is_killed(jobs: LocalJobs) -> None:
    async def story() -> Exit:
        handle = await jobs.start(JOB, shell("trap '' TERM; echo up; while :; do sleep 0.1; done"), ATTEMPT)
        await until(lambda: printed(jobs) == "up\n")
        handle.stop()
        handle.stop()
        return await handle.wait()

    assert run(story()).status == -signal.SIGKILL


def test_nothing_is_left_of_a_job_that_ends(jobs: LocalJobs) -> None:
    daemon = (
        "import os, sys, time\n"
        "if os.fork(): sys.exit(0)\n"
        "os.setsid()\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(1000)\n"
    )
    # It ends when the one that hides from it is there.
    starts = f"subprocess.Popen([sys.executable, '-c', {daemon!r}], stdout=subprocess.PIPE)"
    script = f"import subprocess, sys; print({starts}.stdout.readline().decode().strip(), flush=True)"
    end = run(ended(jobs, python(script)))
    assert end.status == 0
    assert not alive(int(printed(jobs)))


def test_a_job_that_saves_itself(jobs: LocalJobs) -> None:
    async def story() -> Exit:
        handle = await jobs.start(JOB, shell("trap 'exit 75' USR1; echo up; while :; do sleep 0.05; done"), ATTEMPT)
        await until(lambda: printed(jobs) == "up\n")
        handle.checkpoint()
        return await handle.wait()

    end = run(story())
    assert (end.status, end.asked, end.stopped) == (75, True, False)


def test_the_checkpoint_is_kept_between_attempts_and_the_log_goes_on(jobs: LocalJobs) -> None:
    run(ended(jobs, shell("echo 41 > $COMMONPOOL_CHECKPOINT_DIR/step; echo one")))
    again = JobAttempt(2, "n0", ("n0/0",), 0)
    run(ended(jobs, shell("cat $COMMONPOOL_CHECKPOINT_DIR/step; echo $COMMONPOOL_ATTEMPT"), again))
    assert printed(jobs) == "one\n--- attempt 2\n41\n2\n"
    jobs.forget(JOB.id)
    assert printed(jobs) == ""


def test_the_log_is_bounded(jobs: LocalJobs, tmp_path: Path) -> None:
    assert run(ended(jobs, python("for _ in range(5000): print('x' * 999)"))).status == 0
    files = {path.name: path.stat().st_size for path in (tmp_path / "jobs" / "j1").glob("log*")}
    assert files.keys() == {"log", "log.1"}
    assert max(files.values()) <= 1024 * 1024


# -- whoever started it is gone ----------------------------------------------------------------------------------------

STARTER = """
import asyncio, pathlib, sys, msgspec
from commonpool.backends.jobs import LocalJobs
from commonpool.core.model import Job
from commonpool.store.jobs import JobAttempt, Task
async def main():
    job = Job("j1", "a", "default", "main", "batch", 2000)
    jobs = LocalJobs(pathlib.Path(sys.argv[1]))
    await jobs.start(job, Task(("/bin/sh", "-c", sys.argv[2]), "/"), JobAttempt(1, "", (), 0))
    print("started", flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


async def orphan(folder: Path, script: str) -> None:
    """A job whose starter was killed."""
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STARTER, str(folder), script, stdout=asyncio.subprocess.PIPE
    )
    assert starter.stdout is not None
    assert await starter.stdout.readline() == b"started\n"
    starter.kill()
    await starter.wait()


def test_a_job_goes_on_without_its_starter_and_is_adopted(jobs: LocalJobs, tmp_path: Path) -> None:
    go = tmp_path / "go"

    async def story() -> Exit:
        await orphan(tmp_path / "jobs", f"while [ ! -e {go} ]; do sleep 0.05; done; echo done; exit 5")
        handle = await jobs.adopt(JOB, ATTEMPT)
        waiting = asyncio.ensure_future(handle.wait())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        go.touch()
        return await waiting

    assert run(story()).status == 5
    assert printed(jobs) == "done\n"


def test_a_job_that_ended_meanwhile_says_how_and_when(jobs: LocalJobs, tmp_path: Path) -> None:
    async def story() -> tuple[Exit, Exit]:
        await orphan(tmp_path / "jobs", "exit 6")
        await until((tmp_path / "jobs" / "j1" / "1.exit").exists)
        first = await (await jobs.adopt(JOB, ATTEMPT)).wait()
        return first, await (await jobs.adopt(JOB, ATTEMPT)).wait()

    first, second = run(story())
    assert first == second
    assert first.status == 6
    assert first.ended_ns < time.time_ns()


def test_an_adopted_job_can_be_stopped(jobs: LocalJobs, tmp_path: Path) -> None:
    async def story() -> Exit:
        await orphan(tmp_path / "jobs", "exec sleep 1000")
        handle = await jobs.adopt(JOB, ATTEMPT)
        handle.stop()
        return await handle.wait()

    end = run(story())
    assert (end.status, end.stopped) == (-signal.SIGTERM, True)


def test_a_runner_that_is_killed_takes_its_job_along(jobs: LocalJobs) -> None:
    async def story() -> tuple[Exit, list[int]]:
        handle = await jobs.start(JOB, shell("setsid sleep 1000 & echo $$ $!; wait"), ATTEMPT)
        await until(lambda: printed(jobs).endswith("\n"))
        os.kill(jobs.runners()[0], signal.SIGKILL)
        return await handle.wait(), [int(pid) for pid in printed(jobs).split()]

    end, pids = run(story())
    assert (end.status, end.ran) == (None, True)
    assert "its runner was killed" in end.reason
    assert not any(map(alive, pids))


def can_make_groups() -> bool:
    group = cgroup.make("commonpool-test-of-jobs")
    if group is not None:
        cgroup.end(group)
    return group is not None


@pytest.mark.skipif(not can_make_groups(), reason="control groups cannot be made here")
def test_what_hides_from_it_ends_with_a_runner_that_is_killed(jobs: LocalJobs) -> None:
    # given a command that kills its own runner, and a child that has left its session and its environment
    hidden = "setsid env -i /bin/sleep 1000 & echo $!; sleep 0.2; kill -9 $PPID; sleep 1000"
    end = run(ended(jobs, shell(hidden)))
    assert (end.status, end.ran) == (None, True)
    assert not alive(int(printed(jobs)))


def test_what_hides_ends_with_the_command(jobs: LocalJobs) -> None:
    assert run(ended(jobs, shell("setsid env -i /bin/sleep 1000 & echo $!; sleep 0.2"))).status == 0
    assert not alive(int(printed(jobs)))


def test_one_that_kills_its_runner_at_once_did_run(jobs: LocalJobs) -> None:
    end = run(ended(jobs, shell("kill -9 $PPID; sleep 1000")))
    assert (end.status, end.ran) == (None, True)


BUSY = """
import os, time
held = bytearray(os.urandom(1 << 20) * 128)
if os.fork() == 0:  # a child's time is the job's, too
    while time.process_time() < 0.3:
        pass
    os._exit(0)
os.wait()
print("ready", flush=True)
time.sleep({})
"""


def test_what_it_took_is_known_at_its_end(jobs: LocalJobs) -> None:
    taken = run(ended(jobs, python(BUSY.format(2.5)))).taken
    assert taken.cpu_ns >= 300_000_000
    assert taken.memory_mib_s >= 128  # it was seen for at least one of its seconds


def test_what_it_took_is_known_without_its_runner(jobs: LocalJobs, tmp_path: Path) -> None:
    async def story() -> Exit:
        handle = await jobs.start(JOB, python(BUSY.format(1000)), ATTEMPT)
        await until(lambda: "ready" in printed(jobs))
        await until(lambda: said_to_have_taken(tmp_path / "jobs" / "j1" / "1.lock") >= 128)
        os.kill(jobs.runners()[0], signal.SIGKILL)
        return await handle.wait()

    end = run(story())
    assert (end.status, end.ran) == (None, True)
    assert end.taken.cpu_ns >= 300_000_000
    assert end.taken.memory_mib_s >= 128


def said_to_have_taken(lock: Path) -> int:
    """MiB × seconds, by what its runner said last; 0 where that is read half written, as only a live one leaves it."""
    try:
        return msgspec.json.decode(lock.read_bytes(), type=Taken).memory_mib_s
    except msgspec.DecodeError:
        return 0


def test_an_end_that_nobody_saw_was_when_it_was_last_known_to_live(jobs: LocalJobs, tmp_path: Path) -> None:
    async def story() -> Exit:
        await orphan(tmp_path / "jobs", "exec sleep 1000")
        folder = tmp_path / "jobs" / "j1"
        runner = msgspec.json.decode((folder / "1.pid").read_bytes(), type=Started).pid
        os.kill(runner, signal.SIGKILL)
        await until(lambda: not alive(runner))
        os.utime(folder / "1.lock", ns=(7, 7))
        return await (await jobs.adopt(JOB, ATTEMPT)).wait()

    end = run(story())
    assert (end.status, end.ended_ns, end.ran) == (None, 7, True)


def test_a_machine_that_went_down_took_the_attempt_along(jobs: LocalJobs, tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "j1"
    folder.mkdir(parents=True)
    (folder / "1.lock").touch()
    (folder / "1.pid").write_bytes(msgspec.json.encode(Started(1, "another boot")))

    async def story() -> Exit:
        return await (await jobs.adopt(JOB, ATTEMPT)).wait()

    end = run(story())
    assert (end.status, end.ran) == (None, False)
    assert "the machine went down" in end.reason


def test_one_whose_files_are_gone_was_seen_to_run(jobs: LocalJobs, tmp_path: Path) -> None:
    async def story() -> Exit:
        handle = await jobs.start(JOB, shell("exec sleep 1000"), ATTEMPT)
        shutil.rmtree(tmp_path / "jobs" / "j1")
        os.kill(jobs.runners()[0], signal.SIGKILL)
        return await handle.wait()

    end = run(story())
    assert (end.status, end.ran) == (None, True)


def test_a_runner_that_does_not_get_on_is_ended(tmp_path: Path) -> None:
    jobs = LocalJobs(tmp_path / "jobs", start_s=0.0)
    with pytest.raises(BackendError, match="its runner has not started it within 0 s"):
        run(jobs.start(JOB, shell("echo never"), ATTEMPT))
    assert printed(jobs) == ""


def test_its_runners_are_known_while_they_live(jobs: LocalJobs) -> None:
    async def story() -> tuple[int, ...]:
        handle = await jobs.start(JOB, shell("echo $PPID; exec sleep 1000"), ATTEMPT)
        await until(lambda: printed(jobs) != "")
        assert jobs.runners() == (int(printed(jobs)),)
        handle.stop()
        await handle.wait()
        return jobs.runners()

    assert run(story()) == ()


def test_what_was_never_started_is_lost_and_can_not_start_any_more(jobs: LocalJobs, tmp_path: Path) -> None:
    (tmp_path / "jobs" / "j1").mkdir(parents=True)

    async def story() -> Exit:
        return await (await jobs.adopt(JOB, ATTEMPT)).wait()

    assert run(story()).status is None
    with pytest.raises(BackendError, match="attempt 1 has ended already"):
        run(jobs.start(JOB, shell("true"), ATTEMPT))


def test_an_attempt_runs_once(jobs: LocalJobs) -> None:
    async def story() -> LocalJob:
        handle = await jobs.start(JOB, shell("sleep 1000"), ATTEMPT)
        with pytest.raises(BackendError, match="attempt 1 runs already"):
            await jobs.start(JOB, shell("sleep 1000"), ATTEMPT)
        handle.stop()
        await handle.wait()
        return handle

    handle = run(story())
    handle.stop()  # nothing to stop any more
    handle.checkpoint()
