"""Attempts at jobs that run on this machine, whoever has started them.

To the core a node that is cut off is lost, and its jobs are started again elsewhere. On the node itself they run on,
below runners that outlive Ray. So when it is back the core asks what runs there and has ended what is not its own.
"""

import contextlib
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import psutil

from commonpool.backends.jobrun import Started
from commonpool.backends.jobs import STOP_GRACE_NS
from commonpool.core.model import NS_PER_S

END_S: Final = STOP_GRACE_NS / NS_PER_S + 5  # the runner's own grace, and some

Attempt = tuple[str, int]  # the job's id and the attempt's number


def running(folder: Path) -> list[Attempt]:
    """The attempts below the jobs' folder whose runner lives here. Blocks."""
    files = sorted(folder.glob("*/*.pid"))
    return [(file.parent.name, int(file.stem)) for file in files if _runner(file) is not None]


def end(folder: Path, attempts: Iterable[Attempt], within_s: float = END_S) -> None:
    """End these as a job is ended on request, by force those that are not over in time. Blocks."""
    runners = [
        runner for job_id, number in attempts if (runner := _runner(folder / job_id / f"{number}.pid")) is not None
    ]
    for runner in runners:
        with contextlib.suppress(psutil.NoSuchProcess):
            runner.send_signal(signal.SIGUSR2)
    _, left = psutil.wait_procs(runners, within_s)
    for runner in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            runner.kill()  # its command ends with it


def _runner(file: Path) -> psutil.Process | None:
    """The process that the file names, if it is this attempt's runner: in a shared folder it may be of elsewhere."""
    if file.with_suffix(".exit").exists():
        return None
    try:
        process = psutil.Process(msgspec.json.decode(file.read_bytes(), type=Started).pid)
        said = process.cmdline()
    except (OSError, msgspec.DecodeError, psutil.Error):
        return None
    return process if said[-2:] == [str(file.parent), file.stem] else None
