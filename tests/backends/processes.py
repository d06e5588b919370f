"""What the operating system says about processes."""

import time
from pathlib import Path


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


def ended(pid: int) -> bool:
    """Whether it ends within a generous time."""
    for _ in range(1000):
        if not alive(pid):
            return True
        time.sleep(0.02)
    return False
