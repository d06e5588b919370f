"""The waits in SQL: their rows on one connection, inside a transaction of the store's."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast

from commonpool.core.waits import Ended, Judged, Place, Row
from commonpool.store.hour import BATCH
from commonpool.store.sql.connection import Connection, one_of
from commonpool.store.wait_rows import Came, Filters, Made, Range
from commonpool.store.waits import Uncounted

_PLACE: Final = ("start_ns", "tenant", "model", "tier")
_JUDGED: Final = ("queue_promised", "queue_late", "first_token_promised", "first_token_late")
_ROW: Final = (
    *("completed", "failed", "cancelled", "abandoned"),
    *_JUDGED,
    *("refused", "wait", "first_token", "unserved"),
)
_RANGE: Final = "span_ns = ? AND start_ns >= ? AND start_ns < ?"
_READ: Final = f"SELECT {', '.join((*_PLACE, *_ROW))} FROM waits WHERE {_RANGE}"  # noqa: S608 - names are ours
_MADE: Final = ", ".join(Made.__struct_fields__)
_END: Final = "tenant, model, tier, replica, outcome, reason, arrived_ns + total_ns, wait_ns, first_token_ns, total_ns"
_SOME: Final = 500  # rows that are replaced at once


class SqlRows:
    """`wait_rows.Rows` of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def made(self) -> Made:
        """See `Rows.made`."""
        ((*values,),) = self._connection.query(f"SELECT {_MADE} FROM waits_made")  # noqa: S608 - names are ours
        return Made(*values)

    def make(self, made: Made) -> None:
        """See `Rows.make`."""
        columns = ", ".join(f"{name} = ?" for name in Made.__struct_fields__)
        self._connection.run(
            f"UPDATE waits_made SET {columns}",  # noqa: S608 - names are ours
            tuple(getattr(made, name) for name in Made.__struct_fields__),
        )

    def left(self, seq: int) -> Uncounted:
        """See `Rows.left`. Numbers may have gaps, so there may be fewer; to count them would read them all."""
        first = self._connection.query(
            "SELECT seq, arrived_ns + total_ns FROM usage WHERE seq > ? ORDER BY seq LIMIT 1", (seq,)
        )
        if not first:
            return Uncounted()
        ((number, since_ns),) = first
        ((last,),) = self._connection.query("SELECT max(seq) FROM usage")
        return Uncounted(last - number + 1, since_ns)

    def ends(self, seq: int, limit: int) -> Came:
        """See `Rows.ends`."""
        ((count, last),) = self._connection.query(
            "SELECT count(*), max(seq) FROM (SELECT seq FROM usage WHERE seq > ? ORDER BY seq LIMIT ?) AS u",
            (seq, limit),
        )
        if not count:
            return Came(0, seq, ())
        rows = self._connection.query(
            f"SELECT {_END} FROM usage WHERE seq > ? AND seq <= ? AND NOT {one_of('endpoint', BATCH)}",  # noqa: S608 - ours
            (seq, last, *BATCH),
        )
        return Came(count, last, cast("list[Ended]", rows))

    def read(self, of: Range, filters: Filters) -> Iterator[tuple[Place, Row]]:
        """See `Rows.read`."""
        conditions = "".join(f" AND {one_of(name, values)}" for name, values in filters.items())
        bound = [value for values in filters.values() for value in values]
        width = len(_PLACE)
        for row in self._connection.query(_READ + conditions, (*of, *bound)):
            yield row[:width], row[width:]

    def judged(self, of: Range) -> Iterator[tuple[str, str, Judged]]:
        """See `Rows.judged`."""
        sums = ", ".join(f"sum({name})" for name in _JUDGED)
        for tenant, tier, *counts in self._connection.query(
            f"SELECT tenant, tier, {sums} FROM waits WHERE {_RANGE} GROUP BY tenant, tier",  # noqa: S608 - names are ours
            of,
        ):
            yield tenant, tier, Judged(*counts)

    def replace(self, span_ns: int, rows: Mapping[Place, Row]) -> None:
        """See `Rows.replace`."""
        places = iter(rows)
        while some := list(islice(places, _SOME)):
            self._connection.run(
                "DELETE FROM waits WHERE span_ns = ? AND (start_ns, tenant, model, tier) IN"  # noqa: S608 - no value is in it
                f" (VALUES {', '.join(['(CAST(? AS BIGINT), ?, ?, ?)'] * len(some))})",
                (span_ns, *(value for place in some for value in place)),
            )
        self._connection.insert(
            "waits", ("span_ns", *_PLACE, *_ROW), ((span_ns, *place, *row) for place, row in rows.items())
        )

    def first(self, span_ns: int, since_ns: int) -> int | None:
        """See `Rows.first`."""
        return self._one("SELECT min(start_ns) FROM waits WHERE span_ns = ? AND start_ns >= ?", (span_ns, since_ns))

    def last(self, span_ns: int) -> int | None:
        """See `Rows.last`."""
        return self._one("SELECT max(start_ns) FROM waits WHERE span_ns = ?", (span_ns,))

    def forget(self, span_ns: int, before_ns: int) -> None:
        """See `Rows.forget`."""
        self._connection.run("DELETE FROM waits WHERE span_ns = ? AND start_ns < ?", (span_ns, before_ns))

    def _one(self, sql: str, values: tuple[Any, ...]) -> int | None:
        ((found,),) = self._connection.query(sql, values)
        return None if found is None else int(found)
