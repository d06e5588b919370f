"""A command in a terminal of 80 columns and 24 rows, as somebody sits before it."""

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

WITHIN_S = 300.0
COLUMNS, ROWS = 80, 24
CONTROL = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>78])")


class Terminal:
    """Runs `commonpool` with these arguments. What it shows is text without what only terminals read."""

    def __init__(self, *args: str, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        clean = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "commonpool", *args],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env={**clean, "TERM": "xterm-256color", **(env or {})},
            start_new_session=True,
        )
        os.close(slave)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.raw = ""

    @property
    def text(self) -> str:
        return self._text(0)

    def shows(self, *wanted: str) -> str:
        """Read until all of these were shown since the last call; returns what was."""
        before = len(self.raw)
        deadline = time.monotonic() + WITHIN_S
        while missing := [each for each in wanted if each not in self._text(before)]:
            assert time.monotonic() < deadline, f"{missing} is not among {self._text(before)}"
            assert self._goes_on(), f"ended without {missing}: {self._text(before)}"
        return self._text(before)

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def ends(self) -> int:
        """Its exit status, once it has ended."""
        deadline = time.monotonic() + WITHIN_S
        while self._goes_on():
            assert time.monotonic() < deadline, self.text
        return self._process.wait(WITHIN_S)

    def _goes_on(self) -> bool:
        """Take what is there; False where it has ended, and all that it had shown before was taken."""
        ended = self._process.poll() is not None  # before what is read: what it shows last comes before its end
        return self._read() or not ended

    def _text(self, start: int) -> str:
        """What was shown from this place in `raw` on, for people."""
        return CONTROL.sub("", self.raw[start:])

    def _read(self) -> bool:
        """Take what is there, or comes within a moment; False where nothing did."""
        if not select.select([self._master], [], [], 0.1)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self.raw += self._decoder.decode(data)
        return bool(data)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(WITHIN_S)
        os.close(self._master)
