"""What a process of ours may do at most. It says so itself, first thing: what it starts then inherits it.

An environment without secrets is up to whoever starts it.
"""

import ctypes
import os
import resource
from typing import Final

FILES_MAX: Final = 65_536  # open at once: more than data loaders use, and far fewer than would harm the machine
PROCESSES_MAX: Final = 16_384  # with their threads: more than training on a large node uses
OWN_FILES: Final = 0o077  # the mask of the rights of new files: nobody else's
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38


def close_inherited() -> None:
    """Close all but the standard descriptors, in a program that has opened none yet.

    uvloop does not for what it starts, and libraries and whoever started the product may have left some open.
    """
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def keep_to_itself() -> None:
    """Write no core dump, which would hold prompts and keys, and no file that others may read."""
    os.umask(OWN_FILES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def confine(processes: int | None = None) -> None:
    """All of that; gain no rights by what is run, as sudo does; open so many files, and start so many processes.

    The kernel counts processes by user, all of this machine together: a number is for one who has nothing else here.
    """
    keep_to_itself()
    _lower(resource.RLIMIT_NOFILE, FILES_MAX)
    if processes is not None:
        _lower(resource.RLIMIT_NPROC, processes)
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def hide() -> None:
    """Let no other process of the same user read the memory or the environment of this one, or trace it."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _lower(which: int, most: int) -> None:
    """Bound it for good, unless it is lower already."""
    _, hard = resource.getrlimit(which)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))
