"""What a job may see and do: as the product's user, and as a user of its tenant's own."""

import asyncio
import os
import pwd
import shutil
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from commonpool.backends import jobuser
from commonpool.backends.base import BackendError
from commonpool.backends.jobrun import Exit
from commonpool.backends.jobs import LocalJobs, Users
from commonpool.core.model import NS_PER_S, Job
from commonpool.store.jobs import JobAttempt, Task
from tests.backends.processes import alive

USER, OTHER = "nobody", "daemon"
JOB = Job("j1", "a", "default", "main", "batch", 1000)
THEIRS = Job("j2", "b", "default", "main", "batch", 1000)
ATTEMPT = JobAttempt(1, "", (), 0)
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may run jobs as other users")

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(work)


def shell(script: str, cwd: str = "/", **env: str) -> Task:
    return Task(("/bin/sh", "-c", script), cwd, env)


async def ended(jobs: LocalJobs, job: Job, task: Task, attempt: JobAttempt = ATTEMPT) -> Exit:
    return await (await jobs.start(job, task, attempt)).wait()


def printed(jobs: LocalJobs, job: Job = JOB) -> str:
    return jobs.log(job.id, "").text


async def said(jobs: LocalJobs) -> str:
    """What the job prints first."""
    while not printed(jobs):  # noqa: ASYNC110 - a process tells nobody
        await asyncio.sleep(0.02)
    return printed(jobs)


def refused(output: str) -> list[str]:
    """The lines of what was tried, each of which was refused."""
    lines = [line for line in output.splitlines() if line]
    assert all("denied" in line or "not permitted" in line for line in lines), lines
    return lines


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others can reach, as /var/lib is; a test's own is closed to them."""
    made = Path(tempfile.mkdtemp(prefix="commonpool-test-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def jobs(folder: Path) -> LocalJobs:
    """Those of a product whose state folder is as it makes it."""
    state = folder / "state"
    state.mkdir(mode=0o700)
    (state / "commonpool.db").write_text("everybody's")
    users = Users(folder / "state-jobs", {"a": USER, "b": OTHER})
    return LocalJobs(state / "jobs", users=users, stop_grace_ns=NS_PER_S)


def test_every_job_is_confined(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = LocalJobs(folder / "jobs")
    monkeypatch.setenv("COMMONPOOL_ADMIN_TOKEN", "secret")
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    open_file = os.open(folder, os.O_RDONLY)
    os.set_inheritable(open_file, True)
    try:
        limits = "umask; ulimit -Hc; ulimit -Hn; grep NoNewPrivs /proc/self/status; ls /proc/self/fd"
        assert run(ended(jobs, JOB, shell(f"{limits}; env; cat /proc/$PPID/environ"))).status == 0
    finally:
        os.close(open_file)
    umask, core, files, new_rights, *rest = printed(jobs).splitlines()
    assert (umask, core, new_rights.split()) == ("0077", "0", ["NoNewPrivs:", "1"])
    assert 0 < int(files) <= 65_536
    assert rest[:4] == ["0", "1", "2", "3"]  # the last is that of `ls`
    assert not rest[4].isdecimal()
    assert "secret" not in printed(jobs)


@ROOT
def test_it_is_its_tenants_user_and_nothing_of_the_products(jobs: LocalJobs, folder: Path) -> None:
    entry = pwd.getpwnam(USER)
    script = (
        "id -u; id -g; echo $HOME $USER $LOGNAME; echo kept > $COMMONPOOL_CHECKPOINT_DIR/step;"
        "cat $COMMONPOOL_CHECKPOINT_DIR/step; grep -c 'Max processes *16384 *16384' /proc/self/limits; umask;"
        "echo end of what it may;"
        f"cat {folder}/state/commonpool.db; ls {folder}/state; ls {folder}/state/jobs; ls {folder}/state-jobs;"
        "cat /proc/$PPID/environ; kill -9 $PPID; kill -9 1; touch /etc/x /var/tmp/../../root/x; ls /root"
    )
    end = run(ended(jobs, JOB, shell(script)))
    may, _, may_not = printed(jobs).partition("end of what it may\n")
    assert may.splitlines() == [
        str(entry.pw_uid),
        str(entry.pw_gid),
        f"{entry.pw_dir} {USER} {USER}",
        "kept",
        "1",
        "0077",
    ]
    assert len(refused(may_not)) == 10
    assert end.status not in (0, None)


@ROOT
def test_two_tenants_see_nothing_of_each_other(jobs: LocalJobs, folder: Path) -> None:
    async def story() -> None:
        script = "umask 0; echo mine > $COMMONPOOL_CHECKPOINT_DIR/step; echo $$; SECRET=of-a exec sleep 1000"
        handle = await jobs.start(JOB, shell(script, SECRET="of-a"), ATTEMPT)
        pid = int(await said(jobs))
        own, proc = f"{folder}/state-jobs/j1", f"/proc/{pid}"
        look = f"cat {own}/step; ls {own}; cat {proc}/environ; kill {pid}; ls {proc}/fd"
        await ended(jobs, THEIRS, shell(look))
        handle.stop()
        await handle.wait()

    run(story())
    assert len(refused(printed(jobs, THEIRS))) == 5
    assert "of-a" not in printed(jobs, THEIRS)


@ROOT
def test_what_it_saved_is_there_for_the_next_attempt_and_gone_with_the_job(jobs: LocalJobs, folder: Path) -> None:
    run(ended(jobs, JOB, shell("echo 41 > $COMMONPOOL_CHECKPOINT_DIR/step")))
    again = JobAttempt(2, "", (), 0)
    assert (
        run(ended(jobs, JOB, shell("cat $COMMONPOOL_CHECKPOINT_DIR/step; kill -USR2 $PPID || exit 7"), again)).status
        == 7
    )
    assert "41" in printed(jobs)
    assert (folder / "state-jobs" / "j1").stat().st_uid == pwd.getpwnam(USER).pw_uid
    # A link that it left is removed, not followed.
    (folder / "precious").mkdir()
    (folder / "state-jobs" / "j1" / "link").symlink_to(folder / "precious")
    jobs.forget(JOB.id)
    assert not (folder / "state-jobs" / "j1").exists()
    assert (folder / "precious").is_dir()


@ROOT
def test_a_folder_that_is_closed_to_its_user_stays_closed(jobs: LocalJobs, folder: Path) -> None:
    closed = folder / "closed"
    (closed / "open").mkdir(parents=True)
    closed.chmod(0o700)
    jobs.check(JOB, shell("pwd", str(closed / "open")))  # nobody hears what is there
    jobs.check(JOB, shell("pwd", str(closed / "none")))
    for cwd in (closed, closed / "open"):
        with pytest.raises(BackendError, match=r"'/bin/sh' cannot be run: Permission denied"):
            run(jobs.start(JOB, shell("pwd", str(cwd)), ATTEMPT))
        jobs.forget(JOB.id)


@ROOT
def test_stopping_it_ends_all_of_it(jobs: LocalJobs) -> None:
    async def story() -> tuple[Exit, int]:
        handle = await jobs.start(JOB, shell("trap '' TERM; sleep 1000 & echo $!; wait; sleep 1000"), ATTEMPT)
        child = int(await said(jobs))
        handle.stop()
        return await handle.wait(), child

    end, child = run(story())
    assert end.stopped
    assert not alive(child)


def test_a_tenant_without_a_user_runs_nothing() -> None:
    users = Users(Path("/nowhere"), {"a": USER})
    for question in (users.name, users.of):
        with pytest.raises(BackendError, match=r"Tenant b has no user in jobs\.users"):
            question("b")
    assert users.name("a") == USER
    assert Users().of("b") is None


def test_users_that_jobs_cannot_run_as() -> None:
    with pytest.raises(
        BackendError, match=r"this machine has no such user; make it, as with `useradd --system none-such`"
    ):
        jobuser.find("none-such")
    if os.geteuid() == 0:
        with pytest.raises(BackendError, match="which is root, and may do anything"):
            jobuser.find("root")
        assert jobuser.find(USER).uid == pwd.getpwnam(USER).pw_uid
    else:
        with pytest.raises(BackendError, match="which only root may do"):
            jobuser.find(USER)
