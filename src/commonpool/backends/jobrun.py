"""`python -m commonpool.backends.jobrun FOLDER ATTEMPT`: runs one attempt at a job, and outlives whoever started it.

It reads its `Spec` from stdin, holds FOLDER/ATTEMPT.lock, writes FOLDER/ATTEMPT.pid, starts the command in a session of
its own, and returns; a copy of it in the background keeps the log and writes FOLDER/ATTEMPT.exit at the end. As long as
it lives it writes into the lock what the command has taken (`measure.Taken`, JSON): that is known, whatever ends it.

SIGUSR1 asks the job to save itself, SIGUSR2 ends it: SIGTERM to its process group, SIGKILL after the grace. Whatever
ends the command, nothing that it started is left: what leaves its group becomes a child of the runner's, and where
control groups can be made the command has one of its own.

The command is confined (`engines.confinement`) and, where its tenant has a user of its own, runs as that one; the
runner stays the product's, so that the command can neither end it nor read what it keeps.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import IO, NoReturn

import msgspec

from commonpool.backends import cgroup, jobuser
from commonpool.backends.logfile import BoundedLog
from commonpool.backends.measure import Measure, Taken
from commonpool.engines import confinement

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SWEEP_S = 5.0  # for processes that the kernel does not let go at once
LOOK_NS = 1_000_000_000  # how often it looks at what the command takes, and says that it lives
CHUNK_BYTES = 65536
EXIT_REFUSED = 1


class Spec(msgspec.Struct, frozen=True):
    """What to run: the whole environment, how long after SIGTERM it is ended by force, and as whom.

    `user` None: as the product.
    """

    command: tuple[str, ...]
    cwd: str
    environment: dict[str, str]
    stop_grace_ns: int
    user: jobuser.User | None = None


class Exit(msgspec.Struct, frozen=True):
    """How an attempt ended, and when (nanoseconds since the epoch). `status` is negative for a signal.

    `asked` says that it had been asked to save itself, `stopped` that it was ended on request. `status` None: it is not
    known, and `reason`, a sentence, says why; `ran` then says that it ran until `ended_ns`, for all that is known, and
    that its node was not lost. `taken` is what its processes took of the machine, as far as is known.
    """

    status: int | None
    ended_ns: int
    asked: bool = False
    stopped: bool = False
    reason: str = ""
    ran: bool = False
    taken: Taken = Taken()


class Started(msgspec.Struct, frozen=True):
    """Who runs an attempt: the runner's process id, the boot of the machine, the command's control group ("": none)."""

    pid: int
    boot: str
    group: str = ""


def boot() -> str:
    """What names this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def keep(path: Path, value: Exit | Started) -> None:
    """Write it to `path`, all or nothing, so that it survives a power cut."""
    draft = path.with_name(path.name + ".new")
    with draft.open("wb") as file:
        file.write(msgspec.json.encode(value))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def main(folder: Path, attempt: str) -> int:
    """Start the runner; return when the command has been started, or say why not."""
    confinement.close_inherited()  # whoever started this waits for the end of its pipes
    confinement.keep_to_itself()
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=Spec)
    lock = os.open(folder / f"{attempt}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _refuse(f"attempt {attempt} runs already")
    if (folder / f"{attempt}.exit").exists():
        return _refuse(f"attempt {attempt} has ended already")
    reading, writing = os.pipe()
    if os.fork() == 0:  # the lock is held by both from here on
        os.close(reading)
        _run(folder, attempt, spec, writing, lock)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    return 0 if said == "started" else _refuse(said or "its runner was killed")


def _refuse(why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return EXIT_REFUSED


def _run(folder: Path, attempt: str, spec: Spec, writing: int, lock: int) -> NoReturn:
    """The runner: this process has no parent that waits for it, and never returns."""
    log = BoundedLog(folder / "log")
    try:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)  # whoever daemonizes comes to us
        _silence()
        if attempt != "1":
            log.write(f"--- attempt {attempt}\n".encode())
        said = "started"
        group = cgroup.make(f"commonpool-{folder.name}-{attempt}", processes=confinement.PROCESSES_MAX)
        pid = folder / f"{attempt}.pid"
        try:
            # First: the command may end this process as soon as it runs, and it is known then that it ran.
            keep(pid, Started(os.getpid(), boot(), str(group or "")))
            runner = Runner(spec, log, lock, group)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            pid.unlink(missing_ok=True)
            if group is not None:
                cgroup.end(group)
            said = f"{spec.command[0]!r} cannot be run: {getattr(error, 'strerror', None) or error}"
        os.write(writing, said.encode(errors="replace"))
        os.close(writing)
        if said == "started":
            keep(folder / f"{attempt}.exit", runner.run())
    except BaseException:  # noqa: BLE001 - nobody else hears of it
        log.write(traceback.format_exc().encode())
        os._exit(EXIT_REFUSED)
    os._exit(0)


def _silence() -> None:
    """Let go of whoever started this: nobody reads what is printed here."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)


class Runner:
    """One command from its start to its end, in a control group where there is one. The file `lock` says it lives."""

    def __init__(self, spec: Spec, log: BoundedLog, lock: int, group: Path | None) -> None:
        self._grace_ns = spec.stop_grace_ns
        self._log = log
        self._lock = lock
        self._group = group
        self._look_at_ns = 0  # when it looks and says so next
        self._measure = Measure(group, time.monotonic_ns)
        self._asked = self._stopped = False
        self._kill_at_ns: int | None = None
        self._got: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._wake, waker = socket.socketpair()
        for end in (self._wake, waker):
            end.setblocking(False)
        self._waker = waker
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for signum in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
            signal.signal(signum, lambda got, _: self._got.append(got))
        self._process = self._start(spec)
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        self._output: IO[bytes] | None = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._selector.register(self._output, selectors.EVENT_READ)

    def _start(self, spec: Spec) -> subprocess.Popen[bytes]:
        """Raises OSError, ValueError or SubprocessError where the command cannot be run."""
        why = mmap.mmap(-1, mmap.PAGESIZE)  # shared with the child: what keeps it from becoming the command

        def enter() -> None:
            try:
                self._enter(spec)
            except OSError as error:
                why.write(os.strerror(error.errno or errno.EPERM).encode())
                raise

        try:
            return subprocess.Popen(  # noqa: S603 - running what users ask for is what jobs are
                spec.command,
                env=spec.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
                preexec_fn=enter,  # noqa: PLW1509 - one thread runs here
            )
        except subprocess.SubprocessError:
            raise subprocess.SubprocessError(why[:].rstrip(b"\0").decode()) from None
        finally:
            why.close()

    def _enter(self, spec: Spec) -> None:
        """What the command's process does before it becomes the command."""
        if self._group is not None:
            with contextlib.suppress(OSError):
                (self._group / cgroup.MEMBERS).write_text("0")
        if spec.user is None:
            confinement.confine()
        else:
            confinement.confine(confinement.PROCESSES_MAX)
            jobuser.become(spec.user)
        os.chdir(spec.cwd)  # as whom it is now: a folder that is closed to it stays closed
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the last: the kernel forgets it with the user

    def run(self) -> Exit:
        """Returns when it has ended and nothing of it is left."""
        while not self._over():
            self._look()
            for key, _ in self._selector.select(self._timeout_s()):
                if key.fileobj is self._wake:
                    with contextlib.suppress(BlockingIOError):
                        self._wake.recv(4096)
                else:
                    self._keep_output()
            while self._got:
                self._obey(self._got.pop(0))
            if self._kill_at_ns is not None and time.monotonic_ns() >= self._kill_at_ns:
                self._kill_at_ns = None
                self._signal(signal.SIGKILL)
        ended_ns = time.time_ns()
        self._signal(signal.SIGKILL)  # what is left of its group; it is not collected yet, so the number is its own
        self._measure.look()  # before the group is gone
        status = self._process.wait()
        if self._group is not None:
            cgroup.end(self._group)
        self._sweep()
        self._measure.look()  # all have been waited for
        while self._keep_output():
            pass
        self._log.close()
        return Exit(status, ended_ns, self._asked, self._stopped, taken=self._measure.taken)

    def _over(self) -> bool:
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _look(self) -> None:
        """Now and then, see what the command takes, and say so."""
        now = time.monotonic_ns()
        if now >= self._look_at_ns:
            self._measure.look()
            with contextlib.suppress(OSError):  # it only grows, so what is written is all of it
                os.pwrite(self._lock, msgspec.json.encode(self._measure.taken), 0)
            self._look_at_ns = now + LOOK_NS

    def _timeout_s(self) -> float:
        next_ns = self._look_at_ns if self._kill_at_ns is None else min(self._look_at_ns, self._kill_at_ns)
        return max(0.0, (next_ns - time.monotonic_ns()) / 1e9)

    def _obey(self, signum: int) -> None:
        if signum == signal.SIGUSR1:
            self._asked = True
            self._signal(signal.SIGUSR1)
        elif signum in {signal.SIGUSR2, signal.SIGTERM}:
            self._stopped |= signum == signal.SIGUSR2
            self._signal(signal.SIGTERM)
            self._kill_at_ns = self._kill_at_ns or time.monotonic_ns() + self._grace_ns

    def _signal(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signum)

    def _keep_output(self) -> bool:
        """Move what is there to the log; whether there was something."""
        if self._output is None:
            return False
        try:
            data = os.read(self._output.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:  # all who could print have closed it
            self._selector.unregister(self._output)
            self._output.close()
            self._output = None
        self._log.write(data)
        return bool(data)

    def _sweep(self) -> None:
        """Kill and collect whatever has left the group; it has become a child of this process."""
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        deadline = time.monotonic() + SWEEP_S
        while time.monotonic() < deadline and (left := children.read_text().split()):
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
