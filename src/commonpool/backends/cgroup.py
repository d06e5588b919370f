"""Control groups (v2): all processes that one of another has started can be ended by it, whatever they have done since.

A group is made below that of the caller, which may not be allowed to; then there is none. Reading and writing its files
does not block for long.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import Final

import msgspec

MEMBERS: Final = "cgroup.procs"  # written to it, 0 is the writer
_KILL: Final = "cgroup.kill"
_PROCESSES: Final = "pids.max"
_EVENTS: Final = "cgroup.events"
_GONE_S: Final = 5.0  # for processes that the kernel does not let go at once
_POLL_S: Final = 0.01


def make(name: str, proc: Path = Path("/proc/self"), processes: int | None = None) -> Path | None:
    """An empty group of this name below the one of this process; None where that cannot be, or not be ended at once.

    It has at most so many `processes`, threads included, where that controller is on for it.
    """
    try:
        group = own(proc) / name
        group.mkdir()
    except (OSError, ValueError):
        return None
    if (group / _KILL).exists():  # since Linux 5.14
        if processes is not None and (group / _PROCESSES).exists():
            with contextlib.suppress(OSError):
                (group / _PROCESSES).write_text(str(processes))
        return group
    group.rmdir()
    return None


def end(group: Path) -> None:
    """Kill all that is in it, and remove it. One that is gone is no error. Blocks until the processes are gone."""
    deadline = time.monotonic() + _GONE_S
    with contextlib.suppress(OSError):
        (group / _KILL).write_text("1")
        while "populated 1" in (group / _EVENTS).read_text() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    for below, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(below).rmdir()


class Counted(msgspec.Struct, frozen=True):
    """What the kernel counts of a group: CPU time, and memory that cannot be taken back; None where it does not."""

    cpu_ns: int
    memory_bytes: int | None


def counted(group: Path) -> Counted | None:
    """What has been taken in a group so far; None where there is none, or nothing is counted."""
    try:
        cpu = _numbers(group / "cpu.stat")["usage_usec"]
    except (OSError, KeyError):
        return None
    try:
        memory = _numbers(group / "memory.stat")  # with caches of files it would be whatever is free
        return Counted(cpu * 1000, memory["anon"] + memory["shmem"])
    except (OSError, KeyError):
        return Counted(cpu * 1000, None)


def _numbers(file: Path) -> dict[str, int]:
    return {name: int(number) for name, _, number in (line.partition(" ") for line in file.read_text().splitlines())}


def own(proc: Path) -> Path:
    """The folder of the group of this process. ValueError where there is none."""
    mounts = [line.partition(" - ") for line in (proc / "mountinfo").read_text().splitlines()]
    mounted = [mount.split()[3:5] for mount, _, kind in mounts if kind.startswith("cgroup2 ")]
    for line in (proc / "cgroup").read_text().splitlines():
        for root, folder in mounted:
            if line.startswith("0::"):
                return Path(folder) / Path(line.removeprefix("0::")).relative_to(root)
    raise ValueError("There is no control group of version 2.")
