"""The store in one SQLite file: the default, for one process on one machine.

One connection writes, under a lock; each question opens a read-only connection of its own and sees one snapshot, so
questions never hold up the writer. WAL with synchronous=NORMAL: a commit survives the process at once and a power cut
after `sync`, until when the journal still has the records.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from commonpool.store.contract import RecordRefusedError, StoreError
from commonpool.store.sql.base import SqlStore
from commonpool.store.sql.connection import Row, placeholders
from commonpool.store.sql.migrations import missing_migrations

FILE = "commonpool.db"
BUSY_S = 2.0  # how long a write waits for another program that holds the file

# What SQLite says of a value that its column can never hold.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)  # the low byte of its code, whatever more is said
_UNFIT = (OverflowError, UnicodeEncodeError, sqlite3.DataError, sqlite3.IntegrityError)


class _Connection:
    """A `sql.connection.Connection` over SQLite's own."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        return self._connection.execute(sql, values).rowcount

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({placeholders(columns)})"  # noqa: S608 - names are ours
        self._connection.executemany(sql, rows)


class SqliteStore(SqlStore):
    """A `contract.Store` in `folder`, which it locks against other processes."""

    def __init__(self, folder: Path, *, busy_s: float = BUSY_S) -> None:
        """Opens or creates the store and brings its schema up to date. StoreError says what stands in the way."""
        super().__init__(folder)
        self._path = folder / FILE
        try:
            os.close(
                os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            )  # SQLite's own files get its mode from this one
            self._writer = sqlite3.connect(self._path, timeout=busy_s, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._writer.close()
                raise
        except (sqlite3.Error, OSError) as error:
            self._folder_lock.release()
            raise self._failure("opened", error) from error
        except BaseException:
            self._folder_lock.release()
            raise

    def sync(self) -> None:
        """See `UsageSink.sync`. What has left the WAL was synced by SQLite's checkpoint, so the WAL is all there is."""
        with suppress(FileNotFoundError):
            fd = os.open(f"{self._path}-wal", os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def close(self) -> None:
        """See `Store.close`."""
        with self._write_lock:
            self._writer.close()
        self._folder_lock.release()

    def _prepare(self) -> None:
        (mode,) = self._writer.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(
                f"{self._path} cannot be kept there, since its file system has no shared memory: name a "
                "folder on a local disk in `state`."
            )
        self._writer.execute("PRAGMA synchronous = NORMAL")
        self._migrate()
        self.sync()

    def _migrate(self) -> None:
        """Applies the migrations that are missing, each in a transaction of its own together with its number."""
        self._writer.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL PRIMARY KEY)")
        (version,) = self._writer.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()
        for number, text in missing_migrations(version, str(self._path)):
            try:
                self._writer.executescript(
                    f"BEGIN IMMEDIATE; {text}; INSERT INTO schema_version VALUES ({number}); COMMIT;"  # noqa: S608 - ours
                )
            except sqlite3.Error:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[_Connection]:
        with self._write_lock:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    yield _Connection(self._writer)
                    self._writer.execute("COMMIT")
                    if durable:
                        self.sync()
                except BaseException:
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")
                    raise
            except _UNFIT as error:
                raise RecordRefusedError(f"A record does not fit the store: {error}.") from error
            except (sqlite3.Error, OSError) as error:
                raise self._failure("written", error) from error

    @contextmanager
    def _snapshot(self) -> Iterator[_Connection]:
        try:
            with closing(
                sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            ) as connection:
                connection.execute("BEGIN")
                yield _Connection(connection)
        except sqlite3.Error as error:
            raise self._failure("read", error) from error

    def _failure(self, verb: str, error: Exception) -> StoreError:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            return StoreError(
                f"The store {self._path} cannot be {verb}, since the file is damaged ({error}): stop the product and "
                "put a backup in its place."
            )
        return StoreError(
            f"The store {self._path} cannot be {verb} ({error}): check that the disk has space, that the file is "
            "readable and writable, and that no other program holds it."
        )
