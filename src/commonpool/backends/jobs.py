"""Where jobs run: the contract of every backend for them, and the one of this machine.

On this machine each attempt runs below a small process of its own, `backends.jobrun`, which outlives this one: what it
leaves in the job's folder says how the attempt ended, whoever was there to see it.

    FOLDER/JOB_ID/N.lock    held by the runner of attempt N for as long as it lives, and written every few seconds: what
                            its command has taken so far (`Taken`, JSON)
    FOLDER/JOB_ID/N.pid     which process that is (`Started`, JSON), just before the command is started
    FOLDER/JOB_ID/N.exit    how it ended (`Exit`, JSON)
    FOLDER/JOB_ID/log       what the job printed, bounded, and log.1 before it
    FOLDER/JOB_ID/checkpoint  the job's own, kept between attempts

A job that runs as a user of its tenant's cannot reach FOLDER: what is its own is FOLDERS/JOB_ID instead.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from commonpool.backends import cgroup, jobuser
from commonpool.backends.base import BackendError
from commonpool.backends.joblog import LogPart, read_log
from commonpool.backends.jobrun import Exit, Spec, Started, boot, keep
from commonpool.backends.local import child_environment, cuda_environment
from commonpool.backends.measure import Taken
from commonpool.core.model import NS_PER_S, Job
from commonpool.store.jobs import JobAttempt, Task

RUNNER: Final = (sys.executable, "-m", "commonpool.backends.jobrun")
START_S: Final = 30.0  # starting Python and the command on a busy machine
POLL_S: Final = 0.02  # while another process is between taking the lock and saying its pid
STOP_GRACE_NS: Final = 10 * NS_PER_S  # from SIGTERM to SIGKILL
LOST: Final = "It is not known how it ended: its runner was killed."
DOWN: Final = "It is not known how it ended: the machine went down."


class JobHandle(Protocol):
    """One attempt that was started."""

    async def wait(self) -> Exit:
        """Return when it has ended, with how and when; once. Cancelling this leaves the attempt alone."""

    def checkpoint(self) -> None:
        """Ask it to save its state and to exit with status 75 (EX_TEMPFAIL). One that has ended is no error."""

    def stop(self) -> None:
        """End it: SIGTERM, and by force after 10 s; `wait` returns then. One that has ended is no error."""


class JobBackend(Protocol):
    """A kind of place for jobs. It starts and watches; it decides nothing."""

    def check(self, job: Job, task: Task) -> None:
        """Raise BackendError for what can be known before anything is started. Blocks."""

    async def start(self, job: Job, task: Task, attempt: JobAttempt) -> JobHandle:
        """Start this attempt on its node and devices. Raises BackendError, and then nothing is left of it."""

    async def adopt(self, job: Job, attempt: JobAttempt) -> JobHandle:
        """An attempt that was to be started before this process was, whatever has become of it.

        One of which nothing is left ends at once, without a status.
        """

    def log(self, job_id: str, after: str) -> LogPart:
        """What the job printed behind the place `after` ("" for the beginning of what is kept). Blocks."""

    def forget(self, job_id: str) -> None:
        """Remove what is kept of a job that has ended. Blocks."""


class Users(msgspec.Struct, frozen=True):
    """As whom jobs run: the name of a user for each tenant, and where each of their jobs has a folder of its own.

    Without names they run as the product.
    """

    folders: Path = Path()
    names: dict[str, str] = {}

    def name(self, tenant: str) -> str | None:
        """None is the product's own. Raises BackendError where the tenant's jobs can run as nobody."""
        if self.names and tenant not in self.names:
            raise BackendError(f"Tenant {tenant} has no user in jobs.users, so none of its jobs can run; give it one.")
        return self.names.get(tenant)

    def of(self, tenant: str) -> jobuser.User | None:
        """The same, as this machine knows it. Raises BackendError where it does not."""
        name = self.name(tenant)
        return None if name is None else jobuser.find(name)


class LocalJobs:
    """A `JobBackend` of this machine, with a folder for each job below `folder`.

    `refusal` says why no job of a pool may run here, a sentence, or "".
    """

    def __init__(
        self,
        folder: Path,
        *,
        users: Users = Users(),  # noqa: B008 - it is frozen
        refusal: Callable[[str], str] = lambda _pool: "",
        start_s: float = START_S,
        stop_grace_ns: int = STOP_GRACE_NS,
    ) -> None:
        self._folder = folder
        self._users = users
        self._refusal = refusal
        self._start_s = start_s
        self._stop_grace_ns = stop_grace_ns
        self._runners: set[int] = set()

    def runners(self) -> tuple[int, ...]:
        """The process ids of the runners that are watched: every process of a job is below one. Any thread may ask."""
        return tuple(self._runners)

    def check(self, job: Job, task: Task) -> None:
        self._fit(job, task)

    async def start(self, job: Job, task: Task, attempt: JobAttempt) -> "LocalJob":
        spec = await asyncio.to_thread(self._prepare, job, task, attempt)
        here = self._traces(job.id, attempt.attempt)
        problem = await self._launch(here, spec)
        if problem and not (await asyncio.to_thread(here.settle)).ran:
            raise BackendError(f"Job {job.id} cannot be started: {problem}")
        return await self.adopt(job, attempt)

    async def adopt(self, job: Job, attempt: JobAttempt) -> "LocalJob":
        here = self._traces(job.id, attempt.attempt)
        deadline = time.monotonic() + self._start_s
        while await asyncio.to_thread(here.alive):
            runner = await asyncio.to_thread(here.open)
            if runner is not None:
                return LocalJob(here, runner, self._runners)
            if time.monotonic() > deadline:
                raise BackendError(f"The runner of job {job.id} does not say that it has started; see {here.folder}.")
            await asyncio.sleep(POLL_S)
        return LocalJob(here, None, self._runners)

    def log(self, job_id: str, after: str) -> LogPart:
        return read_log(self._folder / job_id / "log", after)

    def forget(self, job_id: str) -> None:
        shutil.rmtree(self._folder / job_id, ignore_errors=True)
        if self._users.names:
            shutil.rmtree(self._users.folders / job_id, ignore_errors=True)

    def _traces(self, job_id: str, number: int) -> "Traces":
        return Traces(self._folder / job_id, number, f"COMMONPOOL_JOB_ID={job_id}\0".encode())

    def _fit(self, job: Job, task: Task) -> jobuser.User | None:
        """As whom a job runs here. Raises BackendError where it cannot."""
        if why := self._refusal(job.pool):
            raise BackendError(why)
        user = self._users.of(job.tenant)
        _check_cwd(task.cwd, user)
        return user

    def _prepare(self, job: Job, task: Task, attempt: JobAttempt) -> Spec:
        user = self._fit(job, task)
        if user is None:
            own = self._folder / job.id / "checkpoint"
            environment = child_environment(os.environ)
        else:
            own = self._users.folders / job.id
            environment = child_environment(os.environ) | jobuser.environment(user)
        try:
            (self._folder / job.id).mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(own, user)
        except OSError as error:
            reason = error.strerror or error
            raise BackendError(f"The folder {own} of job {job.id} cannot be made: {reason}.") from error
        environment |= task.env | _said_of(job, attempt, own.absolute())
        return Spec(task.command, task.cwd, environment, self._stop_grace_ns, user)

    async def _launch(self, here: "Traces", spec: Spec) -> str:
        """Have a runner made; it has started the command when this returns "", and else why it has not."""
        try:
            process = await asyncio.create_subprocess_exec(
                *RUNNER,
                str(here.folder),
                str(here.number),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=child_environment(os.environ),
                start_new_session=True,
            )
        except OSError as error:
            return f"{error.strerror or error}"
        try:
            async with asyncio.timeout(self._start_s):
                _, said = await process.communicate(msgspec.json.encode(spec))
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the runner is in its group, and the command ends with it
            await process.wait()
            return f"its runner has not started it within {self._start_s:g} s"
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        return (last or f"status {process.returncode}") if process.returncode else ""


class Traces:
    """The files that one attempt leaves. `mark` is what the environment of all its processes has. All of it blocks."""

    def __init__(self, folder: Path, number: int, mark: bytes) -> None:
        self.folder = folder
        self.number = number
        self._mark = mark
        self._lock = folder / f"{number}.lock"
        self._pid = folder / f"{number}.pid"
        self._exit = folder / f"{number}.exit"

    def alive(self, *, watched: bool = False) -> bool:
        """Whether its runner lives. Where it does not, what it left is the end: no runner will start it any more.

        `watched`: the runner is known to have lived until now.
        """
        try:
            fd = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:  # not even a folder
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._exit.exists():
                end = self._lost(time.time_ns() if watched else os.fstat(fd).st_mtime_ns)
                keep(self._exit, msgspec.structs.replace(end, taken=_taken(fd)))
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def open(self) -> tuple[Started, int] | None:
        """The runner and a descriptor of its process; None where it has not said yet who it is, or is gone."""
        started = self._started()
        if started is None:
            return None
        try:
            pidfd = os.pidfd_open(started.pid)
        except ProcessLookupError:
            return None
        with contextlib.ExitStack() as opened:
            opened.callback(os.close, pidfd)
            if self.alive():  # still: so the number is the runner's
                opened.pop_all()
                return started, pidfd
        return None

    def settle(self) -> Exit:
        """How it ended, after its runner was seen to end."""
        self.alive(watched=True)
        try:
            return msgspec.json.decode(self._exit.read_bytes(), type=Exit)
        except (FileNotFoundError, msgspec.DecodeError):
            return Exit(None, time.time_ns(), reason=LOST)

    def _started(self) -> Started | None:
        try:
            return msgspec.json.decode(self._pid.read_bytes(), type=Started)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _lost(self, last_ns: int) -> Exit:
        """The end of a runner that has not said it, and was alive at `last_ns`. Nothing of its command is left then."""
        started = self._started()
        if started is None:
            return Exit(None, last_ns, reason=LOST)
        if started.boot != boot():
            return Exit(None, last_ns, reason=DOWN)
        if started.group:
            cgroup.end(Path(started.group))
        self._sweep()
        return Exit(None, last_ns, reason=LOST, ran=True)

    def _sweep(self) -> None:
        """Kill what a runner that was killed has left: all processes that have this job in their environment."""
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(process.name)
                if self._mark in (process / "environ").read_bytes():
                    os.kill(pid, signal.SIGKILL)


def _taken(lock: int) -> Taken:
    """What a runner has said last of what its command took."""
    try:
        return msgspec.json.decode(os.pread(lock, 4096, 0), type=Taken)
    except msgspec.DecodeError:  # it has said nothing yet
        return Taken()


class LocalJob:
    """A `JobHandle` of this machine. `runner` is with a descriptor of its process; None where it is gone already.

    It is one of `runners`, by its process id, until it is seen to have ended.
    """

    def __init__(self, traces: Traces, runner: tuple[Started, int] | None, runners: set[int]) -> None:
        self._traces = traces
        self._seen = None if runner is None else runner[0]
        self._pidfd = None if runner is None else runner[1]
        self._runners = runners
        if self._seen is not None:
            runners.add(self._seen.pid)

    async def wait(self) -> Exit:
        if self._pidfd is not None:
            try:
                await _readable(self._pidfd)
            except Exception:
                self.stop()  # nobody watches it any more
                raise
            finally:
                os.close(self._pidfd)
                self._pidfd = None
                if self._seen is not None:
                    self._runners.discard(self._seen.pid)
        return await asyncio.to_thread(self._settle)

    def _settle(self) -> Exit:
        end = self._traces.settle()
        if self._seen is None or end.status is not None:
            return end
        # Whatever has become of its files, it was seen to run.
        if self._seen.group:
            cgroup.end(Path(self._seen.group))
        return msgspec.structs.replace(end, ran=True)

    def checkpoint(self) -> None:
        self._signal(signal.SIGUSR1)

    def stop(self) -> None:
        self._signal(signal.SIGUSR2)

    def _signal(self, signum: int) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signum)


async def _readable(fd: int) -> None:
    """Return when the process of this descriptor has ended."""
    loop = asyncio.get_running_loop()
    gone = loop.create_future()

    def ended() -> None:
        loop.remove_reader(fd)
        gone.set_result(None)

    loop.add_reader(fd, ended)
    try:
        await gone
    finally:
        loop.remove_reader(fd)


def _make(folder: Path, user: jobuser.User | None) -> None:
    """A job's own folder; where it runs as another user, its parent is ours, so that nobody can put a link there."""
    if user is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    folder.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    folder.parent.chmod(0o711)  # whatever the mask of this process
    folder.mkdir(mode=0o700, exist_ok=True)
    os.chown(folder, user.uid, user.gid, follow_symlinks=False)


def _check_cwd(cwd: str, user: jobuser.User | None) -> None:
    """Another user may not hear which folders there are: the job says it, as that user."""
    if not Path(cwd).is_absolute() or (user is None and not Path(cwd).is_dir()):
        raise BackendError(f"The folder {cwd!r} is not there on this machine; give one that is, absolute, as cwd.")


def _said_of(job: Job, attempt: JobAttempt, checkpoint: Path) -> dict[str, str]:
    """What a job's environment says of it."""
    said = {
        "COMMONPOOL_JOB_ID": job.id,
        "COMMONPOOL_ATTEMPT": str(attempt.attempt),
        "COMMONPOOL_DEVICES": ",".join(attempt.devices),
        "COMMONPOOL_CHECKPOINT_DIR": str(checkpoint),
    }
    if job.hardware is not None and job.hardware.memory_mib:
        said["COMMONPOOL_GPU_MEMORY_MIB"] = str(job.hardware.memory_mib)
    return said | cuda_environment(attempt.node, attempt.devices)
