"""What a benchmark stands on: processes on one core, the CPU time that they take, and wrk as the load.

The proxy that is measured has a core of its own; the engine, the load and everything else share another one. Raises
`RigError`, a sentence for people.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar

import msgspec

HERE = Path(__file__).resolve().parent
PROXY_CORE, OTHER_CORE = 0, 1
START_S = 30.0
STOP_S = 40.0
REST_S = 0.2  # what a run leaves behind, such as connections that broke, is not paid by the next one
SAID_BYTES_MAX = 64 * 1024
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

T = TypeVar("T")


class RigError(Exception):
    """The benchmark cannot run or its figures cannot be trusted: what is wrong, and what to do."""


class Load(msgspec.Struct, frozen=True):
    """How wrk asks: `think_ms` is the mean pause of a connection before each request, 0 for none."""

    connections: int
    think_ms: int = 0
    threads: int = 2


class Sample(msgspec.Struct, frozen=True):
    """One run. `cpu_us` is CPU time of the proxy for each request, `others` the share of its core that others took."""

    requests: int
    per_s: float
    cpu_us: float
    p50_ms: float
    p99_ms: float
    others: float


class _Result(msgspec.Struct, frozen=True):
    """The line that wrk.lua prints."""

    requests: int
    duration_us: int
    p50_us: int
    p99_us: int
    refused: int
    broken: int


def settle() -> None:
    """Move this process, and so all that it starts, to the core that is not measured."""
    try:
        os.sched_setaffinity(0, {OTHER_CORE})
    except OSError:
        raise RigError("This benchmark needs two CPU cores that it may use: 0 for the proxy, 1 for the rest.") from None
    if shutil.which("wrk") is None:
        raise RigError("This benchmark needs the load generator wrk; install it (Debian: apt install wrk).")


def free_port() -> int:
    """A port of the loopback interface that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """A process that was started. What it prints goes into a file, so that it never waits for a reader."""

    def __init__(self, popen: subprocess.Popen[bytes], output: IO[bytes], name: str) -> None:
        self.pid = popen.pid
        self._popen = popen
        self._output = output
        self._name = name

    def line(self, start: str) -> str:
        """The first line it prints that begins with `start`."""

        def found() -> str | None:
            whole = self._said().splitlines(keepends=True)
            return next((text for text in whole if text.startswith(start) and text.endswith("\n")), None)

        return self._wait(found, f"print a line that begins with {start!r}")

    def listens(self, port: int) -> None:
        """Wait until it takes connections."""

        def reached() -> bool | None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                return True
            return None

        self._wait(reached, f"listen on port {port}")

    def _said(self) -> str:
        # The process writes where this descriptor stands, so it must not be moved.
        return os.pread(self._output.fileno(), SAID_BYTES_MAX, 0).decode(errors="replace")

    def _wait(self, ask: Callable[[], T | None], what: str) -> T:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            answer = ask()
            if answer is not None:
                return answer
            if self._popen.poll() is not None:
                raise RigError(f"{self._name} ended before it would {what}; it said: {self._said().strip()}")
            time.sleep(0.05)
        raise RigError(f"{self._name} did not {what} within {START_S:.0f} s; run it alone to see why.")


@contextlib.contextmanager
def running(
    command: Sequence[str], *, measured: bool = False, environment: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """A process that is stopped again in the end; a measured one has the proxy's core to itself.

    `environment` is added to that of this process.
    """
    settings = {**os.environ, **(environment or {})}
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=settings) as popen,
    ):
        try:
            if measured:
                os.sched_setaffinity(popen.pid, {PROXY_CORE})
            yield Process(popen, output, " ".join(command[:3]))
        finally:
            popen.terminate()
            try:
                popen.wait(STOP_S)
            except subprocess.TimeoutExpired:
                popen.kill()


@contextlib.contextmanager
def engine(interval_ms: float) -> Iterator[int]:
    """The mock engine; its port."""
    command = [sys.executable, str(HERE / "mock_engine.py"), "--port", "0", "--interval-ms", str(interval_ms)]
    with running(command) as process:
        yield int(process.line(""))


def measure(pid: int, url: str, load: Load, seconds: int, requests: Sequence[Path]) -> Sample:
    """Have wrk send `requests` to the proxy that runs as `pid` (0: to no proxy), each thread one of them."""
    command = ["wrk", f"-t{load.threads}", f"-c{load.connections}", f"-d{seconds}s"]
    command += ["--timeout", "30s", "-s", str(HERE / "wrk.lua"), url, "--", str(load.think_ms), *map(str, requests)]
    cpu, busy = _cpu_s(pid), _busy_s(PROXY_CORE)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    cpu, busy = _cpu_s(pid) - cpu, _busy_s(PROXY_CORE) - busy
    found = [text for text in done.stdout.splitlines() if text.startswith("{")]
    if done.returncode or not found:
        raise RigError(f"wrk failed against {url}: {(done.stderr or done.stdout).strip()}")
    result = msgspec.json.decode(found[-1], type=_Result)
    if result.refused or result.broken or not result.requests:
        raise RigError(
            f"{url} answered {result.requests} requests, {result.refused} of them with an error, and "
            f"{result.broken} connections broke; figures of a run with errors say nothing."
        )
    time.sleep(REST_S)
    run_s = result.duration_us / 1e6
    return Sample(
        requests=result.requests,
        per_s=result.requests / run_s,
        cpu_us=cpu * 1e6 / result.requests,
        p50_ms=result.p50_us / 1e3,
        p99_ms=result.p99_us / 1e3,
        others=max(0.0, busy - cpu) / run_s,
    )


def request(path: str, body: dict[str, object], key: str) -> bytes:
    """One whole HTTP request, as a client of this product sends it."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nUser-Agent: benchmark\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def _cpu_s(pid: int) -> float:
    """CPU time of a process and its children so far, in user and kernel mode."""
    if not pid:
        return 0.0
    total = _ticks(pid)
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += sum(_ticks(int(child)) for child in (task / "children").read_text().split())
    return total / TICKS_PER_S


def _ticks(pid: int) -> int:
    """See proc(5): the name, in parentheses, may hold anything; utime and stime are fields 14 and 15."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _busy_s(core: int) -> float:
    """Time that a core has worked so far, for whomever."""
    for row in Path("/proc/stat").read_text().splitlines():
        name, *fields = row.split()
        if name == f"cpu{core}":
            user, nice, system, _idle, _wait, interrupts, soft, *_ = map(int, fields)
            return (user + nice + system + interrupts + soft) / TICKS_PER_S
    raise RigError(f"/proc/stat tells nothing of core {core}; this benchmark needs Linux.")
