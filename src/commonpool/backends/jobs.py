"""Where jobs run: the contract of every backend for them, and the one of this machine.

On this machine each attempt runs below a small process of its own, `backends.jobrun`, which outlives this one: what it
leaves in the job's folder says how the attempt ended, whoever was there to see it.

    FOLDER/JOB_ID/N.lock    held by the runner of attempt N for as long as it lives
    FOLDER/JOB_ID/N.pid     that runner's process id, once the command has been started
    FOLDER/JOB_ID/N.exit    how it ended (`Exit`, JSON)
    FOLDER/JOB_ID/log       what the job printed, bounded, and log.1 before it
    FOLDER/JOB_ID/checkpoint  the job's own, kept between attempts
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from commonpool.backends.base import BackendError
from commonpool.backends.joblog import LogPart, read_log
from commonpool.backends.jobrun import Exit, Spec, keep
from commonpool.backends.local import child_environment
from commonpool.core.model import NS_PER_S, Job
from commonpool.store.jobs import JobAttempt, Task

RUNNER: Final = (sys.executable, "-m", "commonpool.backends.jobrun")
START_S: Final = 30.0  # starting Python and the command on a busy machine
POLL_S: Final = 0.02  # while another process is between taking the lock and saying its pid
STOP_GRACE_NS: Final = 10 * NS_PER_S  # from SIGTERM to SIGKILL
LOST: Final = "It is not known how it ended: its runner was killed, or the machine went down."


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

    def check(self, task: Task) -> None:
        """Raise BackendError for what can be known before anything is started."""

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


class LocalJobs:
    """A `JobBackend` of this machine, with a folder for each job below `folder`.

    `cuda_name` says what CUDA calls a device, by its id, where that is not its index on the node: a MIG slice has a
    UUID. None where it is not known.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cuda_name: Callable[[str], str | None] = lambda _: None,
        stop_grace_ns: int = STOP_GRACE_NS,
    ) -> None:
        self._folder = folder
        self._cuda_name = cuda_name
        self._stop_grace_ns = stop_grace_ns

    def check(self, task: Task) -> None:
        _check_cwd(task.cwd)

    async def start(self, job: Job, task: Task, attempt: JobAttempt) -> "LocalJob":
        _check_cwd(task.cwd)
        folder = self._folder / job.id
        checkpoint = folder / "checkpoint"
        try:
            checkpoint.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BackendError(f"The folder {folder} of job {job.id} cannot be made: {error.strerror}.") from error
        environment = child_environment(os.environ) | task.env
        environment |= _said_of(job, attempt, checkpoint.absolute(), self._cuda_name)
        await self._launch(
            job.id, folder, attempt.attempt, Spec(task.command, task.cwd, environment, self._stop_grace_ns)
        )
        return await self.adopt(job, attempt)

    async def adopt(self, job: Job, attempt: JobAttempt) -> "LocalJob":
        here = Traces(self._folder / job.id, attempt.attempt, f"COMMONPOOL_JOB_ID={job.id}\0".encode())
        deadline = time.monotonic() + START_S
        while here.alive():
            pidfd = here.open()
            if pidfd is not None:
                return LocalJob(here, pidfd)
            if time.monotonic() > deadline:
                raise BackendError(f"The runner of job {job.id} does not say that it has started; see {here.folder}.")
            await asyncio.sleep(POLL_S)
        return LocalJob(here, None)

    def log(self, job_id: str, after: str) -> LogPart:
        return read_log(self._folder / job_id / "log", after)

    def forget(self, job_id: str) -> None:
        shutil.rmtree(self._folder / job_id, ignore_errors=True)

    async def _launch(self, job_id: str, folder: Path, attempt: int, spec: Spec) -> None:
        """Have a runner made; it has started the command when this returns."""
        try:
            process = await asyncio.create_subprocess_exec(
                *RUNNER,
                str(folder),
                str(attempt),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=child_environment(os.environ),
                start_new_session=True,
            )
        except OSError as error:
            raise BackendError(f"Job {job_id} cannot be started: {error.strerror or error}.") from error
        _, said = await process.communicate(msgspec.json.encode(spec))
        if process.returncode:
            last = said.decode(errors="replace").strip().rpartition("\n")[2]
            raise BackendError(f"Job {job_id} cannot be started: {last or f'status {process.returncode}'}")


class Traces:
    """The files that one attempt leaves. `mark` is what the environment of all its processes has."""

    def __init__(self, folder: Path, number: int, mark: bytes) -> None:
        self.folder = folder
        self._mark = mark
        self._lock = folder / f"{number}.lock"
        self._pid = folder / f"{number}.pid"
        self._exit = folder / f"{number}.exit"

    def alive(self) -> bool:
        """Whether its runner lives. Where it does not, what it left is the end: no runner will start it any more."""
        try:
            fd = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:  # not even a folder
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._exit.exists():
                self._sweep()
                keep(self._exit, Exit(None, time.time_ns(), reason=LOST))
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def open(self) -> int | None:
        """A descriptor of the runner's process; None where it has not said yet which one it is, or is gone."""
        try:
            pidfd = os.pidfd_open(int(self._pid.read_text()))
        except (FileNotFoundError, ProcessLookupError):
            return None
        if self.alive():  # still: so the number is the runner's
            return pidfd
        os.close(pidfd)
        return None

    def exit(self) -> Exit:
        """How it ended, once it has."""
        try:
            return msgspec.json.decode(self._exit.read_bytes(), type=Exit)
        except (FileNotFoundError, msgspec.DecodeError):
            return Exit(None, time.time_ns(), reason=LOST)

    def _sweep(self) -> None:
        """Kill what a runner that was killed has left: all processes that have this job in their environment."""
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(process.name)
                if self._mark in (process / "environ").read_bytes():
                    os.kill(pid, signal.SIGKILL)


class LocalJob:
    """A `JobHandle` of this machine, by its runner's process descriptor; None where that is gone already."""

    def __init__(self, traces: Traces, pidfd: int | None) -> None:
        self._traces = traces
        self._pidfd = pidfd

    async def wait(self) -> Exit:
        if self._pidfd is not None:
            try:
                await _readable(self._pidfd)
            finally:
                os.close(self._pidfd)
                self._pidfd = None
            self._traces.alive()  # settles the end of a runner that was killed
        return self._traces.exit()

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


def _check_cwd(cwd: str) -> None:
    if not Path(cwd).is_absolute() or not Path(cwd).is_dir():
        raise BackendError(f"The folder {cwd!r} is not there on this machine; name an absolute one that is as --cwd.")


def _said_of(
    job: Job, attempt: JobAttempt, checkpoint: Path, cuda_name: Callable[[str], str | None]
) -> Mapping[str, str]:
    """What a job's environment says of it."""
    said = {
        "COMMONPOOL_JOB_ID": job.id,
        "COMMONPOOL_ATTEMPT": str(attempt.attempt),
        "COMMONPOOL_DEVICES": ",".join(attempt.devices),
        "COMMONPOOL_CHECKPOINT_DIR": str(checkpoint),
    }
    if job.hardware is not None and job.hardware.memory_mib:
        said["COMMONPOOL_GPU_MEMORY_MIB"] = str(job.hardware.memory_mib)
    if attempt.devices:
        said["CUDA_VISIBLE_DEVICES"] = ",".join(
            cuda_name(device) or device.rpartition("/")[2] for device in attempt.devices
        )
        said["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # the order of the indexes, which CUDA's own default is not
    return said
