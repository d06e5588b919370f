"""Single keys from a terminal, without waiting for the end of a line."""

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator

Pressed = Callable[[float], str]
"""Wait for so many seconds at most; the key, "" where none came."""


@contextlib.contextmanager
def keys() -> Iterator[Pressed]:
    """Read keys while this lasts; where standard input is no terminal none ever comes."""
    if not sys.stdin.isatty():
        yield _none
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield lambda within_s: _pressed(terminal, within_s)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _pressed(terminal: int, within_s: float) -> str:
    ready, _, _ = select.select([terminal], [], [], within_s)
    return os.read(terminal, 1).decode("latin-1") if ready else ""


def _none(within_s: float) -> str:
    select.select([], [], [], within_s)
    return ""
