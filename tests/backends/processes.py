"""What the operating system says about processes."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

WITHIN_S = 120


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and was not collected does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children(pid: int) -> list[int]:
    """The living children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid and alive(int(entry.name)):
                found.append(int(entry.name))
    return found


@contextlib.contextmanager
def none_left_by_a_failure() -> Iterator[None]:
    """What fails here leaves no child of its own: uvloop waits for its children when it closes, and would for ever."""
    before = children(os.getpid())
    try:
        yield
    except BaseException:
        for pid in set(children(os.getpid())) - set(before):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise


def ended(pid: int) -> bool:
    """Whether it ends within a generous time."""
    deadline = time.monotonic() + WITHIN_S
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
