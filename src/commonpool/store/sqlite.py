"""The store in one SQLite file: the default, for one process on one machine.

One connection writes, under a lock; each question opens a read-only connection of its own and sees one snapshot, so
questions never hold up the writer. WAL with synchronous=NORMAL: a commit survives the process at once and a power cut
after `sync`, until when the journal still has the records.
"""

import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from commonpool.core.model import UsageRecord
from commonpool.core.underuse import Demand
from commonpool.store import sqlite_jobs, sqlite_releases, sqlite_usage
from commonpool.store.contract import (
    NO_FILTERS,
    ConfigRevision,
    Filters,
    Key,
    KeyNotFoundError,
    LoanRow,
    Place,
    RecordRefusedError,
    StoreError,
    UsageTable,
)
from commonpool.store.jobs import JobAttempt, JobPlace, JobRecord, JobState
from commonpool.store.lock import FolderLock
from commonpool.store.releases import Release
from commonpool.store.summary import check_range, query

FILE = "commonpool.db"
BUSY_S = 2.0  # how long a write waits for another program that holds the file

_KEY_COLUMNS = ", ".join(Key.__struct_fields__)
_INSERT_USAGE = (
    f"INSERT INTO usage ({', '.join(sqlite_usage.COLUMNS)}) VALUES ({', '.join('?' * len(sqlite_usage.COLUMNS))})"  # noqa: S608 - names are ours
    " ON CONFLICT DO NOTHING"
)
_INSERT_LOAN = (
    "INSERT INTO loans (request_id, attempt, line, lender, borrower, milli_gpu, start_ns, end_ns, reason)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class SqliteStore:
    """A `contract.Store` in `folder`, which it locks against other processes."""

    def __init__(self, folder: Path, *, busy_s: float = BUSY_S) -> None:
        """Opens or creates the store and brings its schema up to date. StoreError says what stands in the way."""
        self._path = folder / FILE
        self._folder_lock = FolderLock(folder)
        self._write_lock = threading.Lock()
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

    def add_usage(self, records: Iterable[UsageRecord]) -> None:
        """See `UsageSink.add_usage`. Records are taken one by one while the transaction is open."""
        try:
            with self._transaction() as connection:
                cursor = connection.cursor()
                for record in records:
                    cursor.execute(_INSERT_USAGE, sqlite_usage.values(record))
                    if cursor.rowcount and record.loans:
                        cursor.executemany(_INSERT_LOAN, _loan_values(record))
        except (OverflowError, sqlite3.IntegrityError) as error:
            raise RecordRefusedError(f"A usage record does not fit the store: {error}.") from error

    def sync(self) -> None:
        """See `UsageSink.sync`. What has left the WAL was synced by SQLite's checkpoint, so the WAL is all there is."""
        with suppress(FileNotFoundError):
            fd = os.open(f"{self._path}-wal", os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def usage(self, by: Sequence[str], since_ns: int, until_ns: int, filters: Filters = NO_FILTERS) -> UsageTable:
        """See `Store.usage`."""
        question = query(by, since_ns, until_ns, filters)
        with self._snapshot() as connection:
            return sqlite_usage.usage(connection, question)

    def loans(self, since_ns: int, until_ns: int) -> tuple[LoanRow, ...]:
        """See `Store.loans`."""
        check_range(since_ns, until_ns)
        with self._snapshot() as connection:
            return sqlite_usage.loans(connection, since_ns, until_ns)

    def record(self, request_id: str) -> tuple[UsageRecord, ...]:
        """See `Store.record`."""
        with self._snapshot() as connection:
            return sqlite_usage.record(connection, request_id)

    def records(self, since_ns: int, until_ns: int, after: Place | None, limit: int) -> tuple[UsageRecord, ...]:
        """See `Store.records`."""
        with self._snapshot() as connection:
            return sqlite_usage.records(connection, since_ns, until_ns, after, limit)

    def add_key(self, key: Key) -> None:
        """See `Store.add_key`."""
        with self._transaction(durable=True) as connection:
            _insert_key(connection, key)

    def list_keys(self) -> tuple[Key, ...]:
        """See `Store.list_keys`."""
        with self._snapshot() as connection:
            rows = connection.execute(f"SELECT {_KEY_COLUMNS} FROM keys ORDER BY created_ns, key_id")  # noqa: S608 - names are ours
            return tuple(_key(row) for row in rows)

    def revoke_key(self, key_id: str, at_ns: int) -> Key:
        """See `Store.revoke_key`."""
        with self._transaction(durable=True) as connection:
            connection.execute("UPDATE keys SET revoked_ns = coalesce(revoked_ns, ?) WHERE key_id = ?", (at_ns, key_id))
            return _find_key(connection, key_id)

    def rotate_key(self, key_id: str, successor: Key, until_ns: int) -> Key:
        """See `Store.rotate_key`."""
        with self._transaction(durable=True) as connection:
            connection.execute(
                "UPDATE keys SET expires_ns = min(coalesce(expires_ns, ?), ?) WHERE key_id = ?",
                (until_ns, until_ns, key_id),
            )
            old = _find_key(connection, key_id)
            _insert_key(connection, successor)
            return old

    def add_config(self, config: ConfigRevision) -> None:
        """See `Store.add_config`."""
        sources = msgspec.json.encode(config.sources).decode()
        with self._transaction(durable=True) as connection:
            try:
                connection.execute(
                    "INSERT INTO config_history (revision, applied_ns, sources) VALUES (?, ?, ?)",
                    (config.revision, config.applied_ns, sources),
                )
            except sqlite3.IntegrityError as error:
                raise StoreError(f"Revision {config.revision} of the configuration is already kept.") from error

    def configs(self, limit: int = 100) -> tuple[ConfigRevision, ...]:
        """See `Store.configs`."""
        with self._snapshot() as connection:
            rows = connection.execute(
                "SELECT revision, applied_ns, sources FROM config_history ORDER BY revision DESC LIMIT ?", (limit,)
            )
            return tuple(
                ConfigRevision(revision, applied_ns, msgspec.json.decode(sources, type=dict[str, str]))
                for revision, applied_ns, sources in rows
            )

    def add_job(self, record: JobRecord) -> None:
        """See `JobStore.add_job`."""
        with self._transaction(durable=True) as connection:
            sqlite_jobs.add_job(connection, record)

    def save_job(self, record: JobRecord) -> None:
        """See `JobStore.save_job`."""
        with self._transaction(durable=True) as connection:
            sqlite_jobs.save_job(connection, record)

    def job(self, job_id: str) -> JobRecord | None:
        """See `JobStore.job`."""
        with self._snapshot() as connection:
            return sqlite_jobs.job(connection, job_id)

    def jobs(
        self, tenant: str | None, states: Sequence[JobState], after: JobPlace | None, limit: int
    ) -> tuple[JobRecord, ...]:
        """See `JobStore.jobs`."""
        with self._snapshot() as connection:
            return sqlite_jobs.jobs(connection, tenant, states, after, limit)

    def job_attempts(self, job_id: str, limit: int) -> tuple[JobAttempt, ...]:
        """See `JobStore.job_attempts`."""
        with self._snapshot() as connection:
            return sqlite_jobs.job_attempts(connection, job_id, limit)

    def forget_job(self, job_id: str) -> None:
        """See `JobStore.forget_job`."""
        with self._transaction(durable=True) as connection:
            sqlite_jobs.forget_job(connection, job_id)

    def ended_jobs_beyond(self, tenant: str, keep: int, limit: int) -> tuple[str, ...]:
        """See `JobStore.ended_jobs_beyond`."""
        with self._snapshot() as connection:
            return sqlite_jobs.ended_jobs_beyond(connection, tenant, keep, limit)

    def add_release(self, release: Release) -> Release:
        """See `ReleaseStore.add_release`."""
        with self._transaction(durable=True) as connection:
            return sqlite_releases.add_release(connection, release)

    def undo_releases(self, tenant: str, at_ns: int, by: str) -> tuple[Release, ...]:
        """See `ReleaseStore.undo_releases`."""
        with self._transaction(durable=True) as connection:
            return sqlite_releases.undo_releases(connection, tenant, at_ns, by)

    def releases(self, limit: int = 1000) -> tuple[Release, ...]:
        """See `ReleaseStore.releases`."""
        with self._snapshot() as connection:
            return sqlite_releases.releases(connection, limit)

    def released(self) -> dict[str, int]:
        """See `ReleaseStore.released`."""
        with self._snapshot() as connection:
            return sqlite_releases.released(connection)

    def save_demand(self, demands: Iterable[Demand]) -> None:
        """See `ReleaseStore.save_demand`."""
        with self._transaction(durable=True) as connection:
            sqlite_releases.save_demand(connection, demands)

    def demand(self) -> tuple[Demand, ...]:
        """See `ReleaseStore.demand`."""
        with self._snapshot() as connection:
            return sqlite_releases.demand(connection)

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
        migrations = _migrations()
        if version > max(migrations):
            raise StoreError(
                f"{self._path} has schema {version} and this version of commonpool knows {max(migrations)} at most: "
                "use the version that wrote it, or a newer one."
            )
        for number in range(version + 1, max(migrations) + 1):
            try:
                self._writer.executescript(
                    f"BEGIN IMMEDIATE; {migrations[number]}; INSERT INTO schema_version VALUES ({number}); COMMIT;"  # noqa: S608 - ours
                )
            except sqlite3.Error:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """All or nothing. StoreError where SQLite cannot write now; IntegrityError is the data's and passes through.

        What is in no journal is `durable`: a revoked key must not come back after a power cut.
        """
        with self._write_lock:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    yield self._writer
                    self._writer.execute("COMMIT")
                    if durable:
                        self.sync()
                except BaseException:
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")
                    raise
            except sqlite3.IntegrityError:
                raise
            except (sqlite3.Error, OSError) as error:
                raise self._failure("written", error) from error

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """A read-only connection that sees one state of the store."""
        try:
            with closing(
                sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            ) as connection:
                connection.execute("BEGIN")
                yield connection
        except sqlite3.Error as error:
            raise self._failure("read", error) from error

    def _failure(self, verb: str, error: Exception) -> StoreError:
        return StoreError(
            f"The store {self._path} cannot be {verb} ({error}): check that the disk has space, that the file is "
            "readable and writable, and that no other program holds it."
        )


def _migrations() -> dict[int, str]:
    """The SQL of each migration by its number, from the files beside this module."""
    folder = resources.files("commonpool.store").joinpath("migrations")
    found = ((re.fullmatch(r"(\d{4})_\w+\.sql", file.name), file) for file in folder.iterdir())
    return {int(name[1]): file.read_text(encoding="utf-8") for name, file in found if name}


def _loan_values(record: UsageRecord) -> list[tuple[Any, ...]]:
    """A row for each of the record's loans."""
    return [
        (
            record.request_id,
            record.attempt,
            line,
            loan.lender,
            loan.borrower,
            loan.milli_gpu,
            loan.start_ns,
            loan.end_ns,
            loan.reason,
        )
        for line, loan in enumerate(record.loans)
    ]


def _insert_key(connection: sqlite3.Connection, key: Key) -> None:
    values = msgspec.structs.asdict(key)
    values["models"] = None if key.models is None else msgspec.json.encode(key.models).decode()
    try:
        connection.execute(
            f"INSERT INTO keys ({_KEY_COLUMNS}) VALUES ({', '.join('?' * len(values))})",  # noqa: S608 - names are ours
            tuple(values.values()),
        )
    except sqlite3.IntegrityError as error:
        raise StoreError(
            f"A key with the id {key.key_id!r} exists already; create it again under another id."
        ) from error


def _find_key(connection: sqlite3.Connection, key_id: str) -> Key:
    row = connection.execute(f"SELECT {_KEY_COLUMNS} FROM keys WHERE key_id = ?", (key_id,)).fetchone()  # noqa: S608 - names are ours
    if row is None:
        raise KeyNotFoundError(f"There is no key with the id {key_id!r}; `commonpool keys list` shows those there are.")
    return _key(row)


def _key(row: tuple[Any, ...]) -> Key:
    values = dict(zip(Key.__struct_fields__, row, strict=True))
    if values["models"] is not None:
        values["models"] = msgspec.json.decode(values["models"], type=tuple[str, ...])
    return Key(**values)
