"""The SQLite file: schema, lock, what survives, and what a person is told when it cannot be used."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from commonpool.core.model import Cause, UsageRecord, Wait
from commonpool.store.contract import ConfigRevision, Key, RecordRefusedError, StoreError
from commonpool.store.sqlite import FILE, SqliteStore
from tests.store.records import T0, loan, usage_record

KEY = Key("k1", b"salt", b"digest", "data", "a", "chat", created_ns=5)


def raw(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / FILE, isolation_level=None, timeout=0)


def test_what_was_kept_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    config = ConfigRevision(1, 10, {"commonpool.yaml": "pools: {}"})
    record = usage_record("r1", loans=(loan("b"),))
    with closing(SqliteStore(tmp_path)) as store:
        store.add_usage([record])
        store.add_key(KEY)
        store.add_config(config)
    with closing(SqliteStore(tmp_path)) as store:
        assert (store.record("r1"), store.list_keys(), store.configs()) == ((record,), (KEY,), (config,))


def test_the_table_has_the_fields_of_a_record_in_order(tmp_path: Path) -> None:
    SqliteStore(tmp_path).close()
    with closing(raw(tmp_path)) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(usage)")]
    fields = [name for name in UsageRecord.__struct_fields__ if name != "loans"]
    assert columns == [*fields, "milli_gpu_ns_high"]  # GPU time is in two columns


def test_a_second_opener_is_told_who_uses_the_folder(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib, commonpool.store.sqlite as sqlite\n"
        "store = sqlite.SqliteStore(pathlib.Path(sys.argv[1]))\n"
        "print(flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(
            StoreError, match=rf"^The state folder {tmp_path} is already used by process {child.pid}: stop it"
        ):
            SqliteStore(tmp_path)
        child.send_signal(signal.SIGKILL)
        child.communicate()
    SqliteStore(tmp_path).close()


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path).close()
    with closing(raw(tmp_path)) as connection:
        connection.execute("INSERT INTO schema_version VALUES (99)")
    for _ in range(2):  # the refusal gives the lock back
        with pytest.raises(StoreError, match=r"has schema 99 and this version of commonpool knows 6 at most: use the"):
            SqliteStore(tmp_path)


def test_records_of_the_first_schema_are_kept_as_they_are(tmp_path: Path) -> None:
    # given a store of schema 1 with a record in it
    record = usage_record("r1", loans=(loan("b"),))
    with closing(SqliteStore(tmp_path)) as store:
        store.add_usage([record])
    with closing(raw(tmp_path)) as connection:
        connection.execute("UPDATE usage SET milli_gpu_ns = ?", (2**63 - 1,))
        for column in ("waits", "milli_gpu_ns_high"):
            connection.execute(f"ALTER TABLE usage DROP COLUMN {column}")
        for table in ("jobs", "job_attempts", "releases", "demand"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DELETE FROM schema_version WHERE version > 1")
    # when it is opened, then it has the record, without waits, and takes others
    waited = usage_record("r2", waits=(Wait(Cause.LOAN_DUE, "b", 5),), milli_gpu_ns=2**64)
    with closing(SqliteStore(tmp_path)) as store:
        store.add_usage([waited])
        kept = usage_record("r1", loans=(loan("b"),), milli_gpu_ns=2**63 - 1)
        assert store.record("r1") + store.record("r2") == (kept, waited)
        assert store.usage([], T0, T0 + 1).total.milli_gpu_ns == 2**63 - 1 + 2**64


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with closing(raw(tmp_path)) as connection:
        connection.execute("CREATE TABLE loans (mine)")
    with pytest.raises(StoreError, match="table loans already exists"):
        SqliteStore(tmp_path)
    with closing(raw(tmp_path)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert tables == {"loans", "schema_version"}
        assert connection.execute("SELECT * FROM schema_version").fetchall() == []


def test_a_file_that_is_no_database_is_told_so(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, " * 100)
    with pytest.raises(StoreError, match=r"commonpool.db cannot be opened \(file is not a database\)"):
        SqliteStore(tmp_path)


def test_a_folder_that_cannot_be_made_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"state folder .*file.state cannot be used \(Not a directory\)"):
        SqliteStore(tmp_path / "file" / "state")


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        with closing(SqliteStore(tmp_path / "state")) as store:
            store.add_key(KEY)
            modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()}
    finally:
        os.umask(umask)
    assert modes == dict.fromkeys(("lock", FILE, f"{FILE}-wal", f"{FILE}-shm"), 0o600)


def test_a_file_that_another_program_holds_is_an_error_and_nothing_is_lost(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path, busy_s=0.01)) as store, closing(raw(tmp_path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"cannot be written \(database is locked\): check that"):
            store.add_usage([usage_record("r1")])
        assert store.record("r1") == ()
        other.execute("ROLLBACK")
        store.add_usage([usage_record("r1")])
        assert len(store.record("r1")) == 1


def test_a_record_over_64_bits_is_refused_with_its_batch(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path)) as store:
        with pytest.raises(RecordRefusedError, match="does not fit the store"):
            store.add_usage([usage_record("r1"), usage_record("r2", tokens_in=2**63)])
        assert store.record("r1") == ()


def test_an_error_while_records_are_read_keeps_none(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path)) as store:
        with pytest.raises(ZeroDivisionError):
            store.add_usage(usage_record(f"r{1 // n}") for n in (1, 0))
        assert store.usage([], T0, T0 + 1).total.attempts == 0


def test_a_closed_store_refuses_to_be_written(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.add_usage([usage_record("r1")])


def test_readers_see_whole_batches_while_the_writer_writes(tmp_path: Path) -> None:
    seen: list[int] = []
    with closing(SqliteStore(tmp_path)) as store:
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                table = store.usage(["tenant"], T0, T0 + 1)
                seen.append(table.total.attempts)
                assert table.total.borrowed_milli_gpu_ns == 5000 * table.total.attempts

        reader = threading.Thread(target=read)
        reader.start()
        for batch in range(10):
            store.add_usage(usage_record(f"r{batch}-{n}", loans=(loan("b"),)) for n in range(20))
        done.set()
        reader.join()
        assert store.usage([], T0, T0 + 1).total.attempts == 200
    assert all(count % 20 == 0 for count in seen)
    assert seen == sorted(seen)
