"""What an engine in a child process and whoever started it say to each other.

The child reads one JSON line, its specification, from stdin; it prints one JSON line, a `Report`, to stdout. Its stdin
stays open as long as it is wanted: the child exits when it closes. Everything else that it prints belongs to its log.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading

import msgspec

_PR_SET_PDEATHSIG = 1


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """The child's one line: where it listens, or a sentence that says why it cannot."""

    host: str = ""
    port: int = 0
    error: str = ""


def bind_life_to_parent() -> None:
    """Make this process end when the one that started it does, however that ends.

    The kernel kills it when the parent's thread that started it is gone, which also holds while native code keeps the
    interpreter busy. Ctrl-C in a terminal is for the parent alone: it drains first.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def exit_when_stdin_closes() -> None:
    """Watch, in a thread, for the end of stdin: the parent closes it to stop the child, or is gone."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        os._exit(0)  # native threads are running; there is nothing to put in order

    threading.Thread(target=watch, name="stdin", daemon=True).start()


def take_stdout() -> int:
    """Keep stdout for the report alone: whatever else is printed goes to stderr, from native code too."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    return own


def tell(report: Report, stdout: int) -> None:
    """Send the one line and close stdout."""
    with contextlib.suppress(BrokenPipeError), os.fdopen(stdout, "wb") as out:
        out.write(msgspec.json.encode(report) + b"\n")


def read_line() -> bytes:
    """The first line of stdin, read without a buffer, so that the end of stdin is left to the watcher."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            break
        line += byte
    return bytes(line)
