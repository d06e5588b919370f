"""What a state folder holds, looked at beside a product that may be running: nothing is locked and nothing changed."""

import contextlib
import sqlite3
from pathlib import Path

import msgspec

from commonpool.store.contract import StoreError
from commonpool.store.sql.connection import Row
from commonpool.store.sql.migrations import missing_migrations
from commonpool.store.sqlite import FILE


class SeenKey(msgspec.Struct, frozen=True):
    """A live key, as far as every schema knows it."""

    key_id: str
    scope: str
    tenant: str
    expires_ns: int | None
    note: str


def holder(folder: Path, proc: Path = Path("/proc")) -> int | None:
    """The process that holds a state folder: the one it says, if the kernel lists that lock. None where nobody does."""
    try:
        inode = (folder / "lock").stat().st_ino
        pid = (folder / "lock").read_text()
        locks = (proc / "locks").read_text().splitlines()
    except OSError:
        return None
    # As in proc_locks(5): number, kind, mode, type, process, device and inode.
    found = any(
        words[1:2] == ["FLOCK"] and words[4] == pid and words[5].endswith(f":{inode}")
        for words in map(str.split, locks)
    )
    return int(pid) if found else None


def live_keys(folder: Path, now_ns: int) -> list[SeenKey]:
    """The keys of a SQLite store that are neither revoked nor expired. Raises StoreError."""
    rows = _asked(
        folder,
        "SELECT key_id, scope, tenant, expires_ns, note FROM keys WHERE revoked_ns IS NULL"
        " AND (expires_ns IS NULL OR expires_ns > ?) ORDER BY created_ns, key_id",
        (now_ns,),
    )
    return [SeenKey(*row) for row in rows]


def pending(folder: Path) -> int:
    """How many migrations a SQLite store lacks. Raises StoreError, also where it has one that is not known here."""
    ((version,),) = _asked(folder, "SELECT coalesce(max(version), 0) FROM schema_version", ())
    return len(list(missing_migrations(version, str(folder / FILE))))


def _asked(folder: Path, sql: str, values: tuple[int, ...]) -> list[Row]:
    file = folder / FILE
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(sql, values).fetchall()
    except sqlite3.Error as error:
        raise StoreError(f"The store {file} cannot be read ({error}).") from error
