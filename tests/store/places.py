"""Where stores over SQL are: opened as the product does it, and looked at from outside."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from commonpool.store.postgres import PostgresStore, translated
from commonpool.store.sqlite import FILE, SqliteStore
from tests.store.server import PostgresServer


class SqlitePlace:
    """A folder for a SQLite file."""

    url = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> SqliteStore:
        return SqliteStore(self.folder)

    def run(self, script: str) -> None:
        """Statements in SQLite's words."""
        self.folder.mkdir(exist_ok=True)
        with closing(sqlite3.connect(self.folder / FILE)) as connection:
            connection.executescript(script)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / FILE)) as connection:
            return connection.execute(sql).fetchall()

    def columns(self, table: str) -> list[str]:
        return [row[1] for row in self.rows(f"PRAGMA table_info({table})")]

    def tables(self) -> set[str]:
        return {row[0] for row in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}


class PostgresPlace:
    """A schema of the server's, and a folder for the journal."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self._schema = server.create()
        self.url = server.url(self._schema)

    def open(self, busy_s: float = 60) -> PostgresStore:
        return PostgresStore(self.url, self.folder, busy_s=busy_s)

    def run(self, script: str) -> None:
        """Statements in SQLite's words."""
        self.server.run(translated(script).replace("X'", r"'\x"), self._schema)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.server.rows(sql, self._schema)

    def columns(self, table: str) -> list[str]:
        """Of a table, in order."""
        sql = f"SELECT column_name FROM information_schema.columns WHERE {self._here} AND table_name = '{table}'"
        return [row[0] for row in self.rows(f"{sql} ORDER BY ordinal_position")]

    def tables(self) -> set[str]:
        return {row[0] for row in self.rows(f"SELECT table_name FROM information_schema.tables WHERE {self._here}")}

    def cut_off(self) -> None:
        """Ends the sessions of all stores, as a network or an administrator does."""
        self.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'commonpool,%'")

    def close(self) -> None:
        self.server.drop(self._schema)

    @property
    def _here(self) -> str:
        return f"table_schema = '{self._schema}'"


Place = SqlitePlace | PostgresPlace
