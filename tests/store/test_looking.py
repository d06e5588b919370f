"""A state folder looked at beside a product that may be running."""

import os
from pathlib import Path

import pytest

from commonpool.store.contract import StoreError
from commonpool.store.keys import mint
from commonpool.store.looking import holder, live_keys, pending
from commonpool.store.sqlite import SqliteStore


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_who_holds_it_is_who_has_the_lock(state: Path) -> None:
    assert holder(state) is None
    store = SqliteStore(state)
    assert holder(state) == os.getpid()
    store.close()
    assert holder(state) is None  # the file still says who it was


def test_a_lock_on_another_file_or_of_another_kind_is_none(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("4242")
    inode = (tmp_path / "lock").stat().st_ino
    for line, held in (
        (f"1: FLOCK  ADVISORY  WRITE 4242 fe:00:{inode} 0 EOF", True),
        (f"1: FLOCK  ADVISORY  WRITE 4242 fe:00:{inode + 1} 0 EOF", False),
        (f"1: POSIX  ADVISORY  WRITE 4242 fe:00:{inode} 0 EOF", False),
        (f"1: FLOCK  ADVISORY  WRITE 4243 fe:00:{inode} 0 EOF", False),
        (f"1: -> FLOCK  ADVISORY  WRITE 4242 fe:00:{inode} 0 EOF", False),
        ("", False),
    ):
        (tmp_path / "locks").write_text(f"{line}\n")
        assert holder(tmp_path, tmp_path) == (4242 if held else None), line


def test_live_keys_are_those_that_open_something_now(state: Path) -> None:
    store = SqliteStore(state)
    keys = [
        mint(tenant="t", app="a", now_ns=at, expires_ns=expires).key for at, expires in ((1, None), (2, 50), (3, 9))
    ]
    for key in keys:
        store.add_key(key)
    revoked = mint(tenant="t", app="a", now_ns=4, note="gone").key
    store.add_key(revoked)
    store.revoke_key(revoked.key_id, 5)
    assert [key.key_id for key in live_keys(state, 20)] == [key.key_id for key in keys[:2]]  # while it is open
    store.close()
    assert [key.expires_ns for key in live_keys(state, 20)] == [None, 50]


def test_migrations_that_are_missing_and_those_that_nobody_knows(state: Path) -> None:
    store = SqliteStore(state)
    assert pending(state) == 0
    store._writer.execute("DELETE FROM schema_version WHERE version > 7")
    assert pending(state) > 0
    store._writer.execute("INSERT INTO schema_version VALUES (9999)")
    with pytest.raises(StoreError, match="has schema 9999"):
        pending(state)
    store.close()


def test_what_is_no_store(state: Path) -> None:
    for question in (pending, lambda folder: live_keys(folder, 1)):
        with pytest.raises(StoreError, match="cannot be read"):
            question(state)
    assert not state.exists()
