"""The SQLite file: schema, lock, what survives, and what a person is told when it cannot be used."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from commonpool.store.contract import Key, StoreError
from commonpool.store.sqlite import FILE, SqliteStore
from tests.store.records import usage_record

KEY = Key("k1", b"salt", b"digest", "data", "a", "chat", created_ns=5)


def raw(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / FILE, isolation_level=None, timeout=0)


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


def test_a_file_that_is_no_database_is_told_so(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, " * 100)
    with pytest.raises(
        StoreError, match=r"opened, since the file is damaged \(file is not a database\): stop the product"
    ):
        SqliteStore(tmp_path)


def test_a_folder_that_cannot_be_made_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"state folder .*file.state is a file, or lies below one: name a folder"):
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


def test_a_state_that_is_a_file_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    for folder in (tmp_path / "state", tmp_path / "state" / "below"):
        with pytest.raises(StoreError, match=r"is a file, or lies below one: name a folder in `state`\."):
            SqliteStore(folder)
