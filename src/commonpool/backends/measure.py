"""What a job's processes take of the machine: CPU time, and how much main memory they have for how long.

Where the command has a control group of its own, the kernel counts for it; memory only where that controller is on for
it. Else the processes below this one are looked at: then pages that several of them share count for each of them. Only
what lives at a look is seen: what begins and ends between two has CPU time, and no memory.
"""

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from commonpool.backends import cgroup

_NS: Final = 1_000_000_000
_MIB_S: Final = 1024 * 1024 * _NS  # bytes × nanoseconds in a MiB × second
_TICK_NS: Final = _NS // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Taken(msgspec.Struct, frozen=True):
    """CPU time in nanoseconds, and memory in MiB × seconds."""

    cpu_ns: int = 0
    memory_mib_s: int = 0


class Measure:
    """Adds up what the processes below this one take, from one look to the next; `clock` is monotonic, nanoseconds.

    Memory is taken to be what it was at the last look until the next one.
    """

    def __init__(self, group: Path | None, clock: Callable[[], int], proc: Path = Path("/proc")) -> None:
        self._group = group
        self._clock = clock
        self._proc = proc
        self._cpu_ns = 0
        self._memory_bytes = 0
        self._resided = 0  # bytes × nanoseconds
        self._at = clock()

    @property
    def taken(self) -> Taken:
        """All of it, up to the last look."""
        return Taken(self._cpu_ns, self._resided // _MIB_S)

    def look(self) -> None:
        """Add what was taken since the last look."""
        now = self._clock()
        self._resided += self._memory_bytes * (now - self._at)
        self._at = now
        cpu_ns, memory_bytes = self._below()
        counted = None if self._group is None else cgroup.counted(self._group)
        if counted is not None:
            cpu_ns = max(cpu_ns, counted.cpu_ns)
            memory_bytes = memory_bytes if counted.memory_bytes is None else counted.memory_bytes
        # A process that was not waited for takes its figures with it.
        self._cpu_ns = max(self._cpu_ns, cpu_ns)
        self._memory_bytes = memory_bytes

    def _below(self) -> tuple[int, int]:
        """CPU time of all descendants of this process, ended ones included, and memory of those that live."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_ns = round((ended.ru_utime + ended.ru_stime) * 1_000_000) * 1000
        memory_bytes = 0
        left = list(self._children(os.getpid()))
        while left:
            pid = left.pop()
            with contextlib.suppress(OSError, ValueError):  # it has just ended
                # Behind the name, which may hold anything: state is field 3, and so on (proc_pid_stat(5)).
                fields = (self._proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
                cpu_ns += sum(map(int, fields[11:15])) * _TICK_NS  # its own, and of its children that it waited for
                memory_bytes += int(fields[21]) * _PAGE_BYTES
                left += self._children(pid)
        return cpu_ns, memory_bytes

    def _children(self, pid: int) -> Iterator[int]:
        with contextlib.suppress(OSError):
            for thread in (self._proc / str(pid) / "task").iterdir():
                with contextlib.suppress(OSError):
                    yield from map(int, (thread / "children").read_text().split())
