"""What SQLite and PostgreSQL do alike: what survives, what is refused, and what questions see."""

import threading
from contextlib import closing
from typing import Any

import pytest

from commonpool.store.contract import ConfigRevision, Key, RecordRefusedError, StoreError
from commonpool.store.sql.base import SqlStore
from tests.store.places import Place
from tests.store.records import T0, loan, usage_record

KEY = Key("k1", b"salt", b"digest", "data", "a", "chat", created_ns=5)


def test_what_was_kept_is_there_when_it_is_opened_again(place: Place) -> None:
    config = ConfigRevision(1, 10, {"commonpool.yaml": "pools: {}"})
    record = usage_record("r1", loans=(loan("b"),))
    with closing(place.open()) as store:
        store.add_usage([record])
        store.add_key(KEY)
        store.add_config(config)
    with closing(place.open()) as store:
        assert (store.record("r1"), store.list_keys(), store.configs()) == ((record,), (KEY,), (config,))


@pytest.mark.parametrize("changes", [{"tokens_in": 2**63}, {"app": "\ud800"}, {"loans": (loan("b", length_ns=2**63),)}])
def test_a_record_that_cannot_be_kept_is_refused_with_its_batch(sql_store: SqlStore, changes: dict[str, Any]) -> None:
    with pytest.raises(RecordRefusedError, match="does not fit the store"):
        sql_store.add_usage([usage_record("r1"), usage_record("r2", **changes)])
    assert sql_store.record("r1") == ()
    sql_store.add_usage([usage_record("r1")])
    assert len(sql_store.record("r1")) == 1


def test_an_error_while_records_are_read_keeps_none(sql_store: SqlStore) -> None:
    # more than are written at once come before the error
    with pytest.raises(ZeroDivisionError):
        sql_store.add_usage(usage_record(f"r{n // (1500 - n)}-{n}") for n in range(2000))
    assert sql_store.usage([], T0, T0 + 1).total.attempts == 0


def test_more_records_than_are_written_at_once(sql_store: SqlStore) -> None:
    made = [usage_record(f"r{n}", loans=(loan("b"),)) for n in range(2500)]
    assert sql_store.add_usage(made[:1200]) == ()
    assert sql_store.add_usage(iter(made)) == ()
    total = sql_store.usage([], T0, T0 + 1).total
    assert (total.attempts, total.borrowed_milli_gpu_ns) == (2500, 2500 * 5000)
    assert len(sql_store.records(T0, T0 + 1, None, 40_000)) == 2500


def test_a_closed_store_refuses_to_be_written(place: Place) -> None:
    store = place.open()
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.add_usage([usage_record("r1")])


def test_readers_see_whole_batches_while_the_writer_writes(sql_store: SqlStore) -> None:
    seen: list[int] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            table = sql_store.usage(["tenant"], T0, T0 + 1)
            seen.append(table.total.attempts)
            assert table.total.borrowed_milli_gpu_ns == 5000 * table.total.attempts

    reader = threading.Thread(target=read)
    reader.start()
    for batch in range(10):
        sql_store.add_usage(usage_record(f"r{batch}-{n}", loans=(loan("b"),)) for n in range(20))
    done.set()
    reader.join()
    assert sql_store.usage([], T0, T0 + 1).total.attempts == 200
    assert all(count % 20 == 0 for count in seen)
    assert seen == sorted(seen)
