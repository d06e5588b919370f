"""What whole days of the books come to, kept while readers ask for it again: only the end of an open month moves.

What is in the books never changes, and what more days come to is the sum of theirs. What it follows from beside the
books, such as the shared costs, is in the configuration: with another one all is forgotten.
The last hours of a pool that was taken out of the configuration may be closed later than others of their time; so each
sum remembers how many hours were closed before its end, and counts as long as those are all.
"""

import threading
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from commonpool.config import Config

SUMS_MAX: Final = 48
LINES_MAX: Final = 50_000  # of all of them together: some hundred megabytes at most

T = TypeVar("T")


class WholeDays(Generic[T]):
    """Sums of whole days by when they begin and what they are of; for several threads.

    `add` makes one of two that follow each other, `lines` has how many lines there are in one.
    """

    def __init__(self, add: Callable[[T, T], T], lines: Callable[[T], int]) -> None:
        self._add = add
        self._lines = lines
        self._lock = threading.Lock()
        self._config: Config | None = None
        self._sums: dict[tuple[int, Hashable], tuple[int, int, T]] = {}

    def get(
        self,
        config: Config,
        start_ns: int,
        end_ns: int,
        of: Hashable,
        make: Callable[[int, int], T],
        closed: Callable[[int], int],
    ) -> T:
        """The sum of the whole days from `start_ns` to `end_ns`.

        `make` has that of a part of them, `closed` how many hours before a moment are closed, of those that may differ.
        """
        key = (start_ns, of)
        with self._lock:
            if self._config is not config:
                self._config = config
                self._sums.clear()
            known = self._sums.get(key)
        if known is not None and closed(known[0]) != known[1]:
            known = None
        if known is not None and known[0] == end_ns:
            return known[2]
        if known is not None and known[0] > end_ns:  # less is asked for than is known
            return make(start_ns, end_ns)
        hours = closed(end_ns)
        found = make(start_ns, end_ns) if known is None else self._add(known[2], make(known[0], end_ns))
        with self._lock:
            if self._config is config:
                self._keep(key, (end_ns, hours, found))
        return found

    def _keep(self, key: tuple[int, Hashable], found: tuple[int, int, T]) -> None:
        self._sums.pop(key, None)
        self._sums[key] = found
        while len(self._sums) > SUMS_MAX or sum(self._lines(each) for *_, each in self._sums.values()) > LINES_MAX:
            del self._sums[next(iter(self._sums))]
