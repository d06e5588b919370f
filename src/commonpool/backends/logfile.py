"""A child's log: a file of bounded size, and its last lines at hand for an error's sentence."""

from collections import deque
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

BYTES_MAX = 1024 * 1024  # two files of this size at most for each replica
TAIL_LINES = 20
LINE_BYTES_MAX = 1000


class BoundedLog:
    """Appends to `path`; when it has grown to `bytes_max` it becomes `path.1` and a new one begins.

    A disk that is full costs log lines, never the replica.
    """

    def __init__(self, path: Path, bytes_max: int = BYTES_MAX) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._partial = b""
        self._file: BinaryIO | None = None
        self._size = 0

    def write(self, data: bytes) -> None:
        """Append what a child printed."""
        self._remember(data)
        try:
            file = self._file or self._open()
            if self._size + len(data) > self._bytes_max and self._size:
                self.close()
                self.path.replace(self.path.with_name(self.path.name + ".1"))
                file = self._open()
            file.write(data[-self._bytes_max :])
            self._size += min(len(data), self._bytes_max)
        except OSError:
            return

    def tail(self, lines: int) -> list[str]:
        """The last lines, blank ones left out."""
        partial = [self._partial.decode(errors="replace")] if self._partial.strip() else []
        return [*self._tail, *partial][-lines:]

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> BinaryIO:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab", buffering=0)
        self._size = self._file.tell()
        return self._file

    def _remember(self, data: bytes) -> None:
        *whole, self._partial = (self._partial + data).split(b"\n")
        self._partial = self._partial[-LINE_BYTES_MAX:]
        self._tail.extend(line[-LINE_BYTES_MAX:].decode(errors="replace") for line in whole if line.strip())
