"""The few calls on a database that every store over SQL needs, inside a transaction that is open already.

The SQL is what SQLite and PostgreSQL both understand: `?` for values, no list of values without one (see `one_of`), an
alias for each subquery, a condition summed as CASE, no function that only one of them has. Text sorts by code point in
both; a sum comes back as an int.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

Row = tuple[Any, ...]


class Connection(Protocol):
    """A database inside a transaction. RecordRefusedError for a value that its column can never hold."""

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows of a SELECT, or of what ends in RETURNING."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Makes a change and says how many rows it changed; with ON CONFLICT DO NOTHING, 0 where one was there."""

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Inserts many new rows in the fastest way that the database has. None of them may be there already."""


def one_of(expression: str, values: Sequence[Any]) -> str:
    """A condition that holds where the expression is one of the values, which are to be bound; never with none."""
    return f"{expression} IN ({placeholders(values)})" if values else "1 = 0"


def placeholders(values: Collection[Any]) -> str:
    """A `?` for each of the values."""
    return ", ".join("?" * len(values))
