"""Tables of whole days of the books, kept while readers ask for them again: only the end of an open month moves.

What is in the books never changes, and a table of more days is the sum of theirs (`core.statement.added`). What a table
follows from beside the books, such as the shared costs, is in the configuration: with another one all are forgotten.
The last hours of a pool that was taken out of the configuration may be closed later than others of their time; so each
table remembers how many hours were closed before its end, and counts as long as those are all.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from commonpool.config import Config
from commonpool.core.billing import Bill
from commonpool.core.statement import added

TABLES_MAX: Final = 48
LINES_MAX: Final = 50_000  # of all of them together: some hundred megabytes at most

Key = tuple[int, tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]


class BillDays:
    """The tables by when they begin, how they are split and what they keep; for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._config: Config | None = None
        self._tables: dict[Key, tuple[int, int, Bill]] = {}

    def table(
        self,
        config: Config,
        start_ns: int,
        end_ns: int,
        by: Sequence[str],
        filters: Mapping[str, Sequence[str]],
        make: Callable[[int, int], Bill],
        closed: Callable[[int], int],
    ) -> Bill:
        """The table of whole days from `start_ns` to `end_ns`.

        `make` has that of a part of them, `closed` how many hours before a moment are closed, of those that may differ.
        """
        key = (start_ns, tuple(by), tuple(sorted((name, tuple(sorted(values))) for name, values in filters.items())))
        with self._lock:
            if self._config is not config:
                self._config = config
                self._tables.clear()
            until_ns, hours, known = self._tables.get(key, (start_ns, 0, None))
        if known is not None and closed(until_ns) != hours:
            until_ns, known = start_ns, None
        if until_ns > end_ns:  # less is asked for than is known
            return make(start_ns, end_ns)
        if known is not None and until_ns == end_ns:
            return known
        hours = closed(end_ns)
        more = make(until_ns, end_ns)
        table = more if known is None else added((known, more), by)
        with self._lock:
            if self._config is config:
                self._keep(key, (end_ns, hours, table))
        return table

    def _keep(self, key: Key, table: tuple[int, int, Bill]) -> None:
        self._tables.pop(key, None)
        self._tables[key] = table
        while len(self._tables) > TABLES_MAX or sum(len(each.lines) for *_, each in self._tables.values()) > LINES_MAX:
            del self._tables[next(iter(self._tables))]
