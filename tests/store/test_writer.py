"""The writer: every acknowledged record is in the store exactly once, whatever fails on the way."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from commonpool.core.ledger import Phase, Span, Standing
from commonpool.core.model import NS_PER_HOUR, Cause, Outcome, UsageRecord, Wait
from commonpool.store.contract import StoreError
from commonpool.store.frames import frame, frames
from commonpool.store.journal import Journal, decoder
from commonpool.store.memory import MemoryStore
from commonpool.store.sqlite import SqliteStore
from commonpool.store.writer import AWAY_NS_MAX, Writer
from tests.store.records import DAY, T0, loan, usage_record


class FlakyStore(MemoryStore):
    """A store that cannot be written while `down`, nor at its call number `fails_at`; `calls` is what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.fails_at = 0
        self.calls: list[str] = []

    def add_usage(self, records: Iterable[UsageRecord]) -> tuple[UsageRecord, ...]:
        records = list(records)
        self.calls.append(f"add {len(records)}")
        if self.down or len(self.calls) == self.fails_at:
            raise StoreError("The store is full.")
        return super().add_usage(records)

    def sync(self) -> None:
        self.calls.append("sync")


def stored(store: MemoryStore | SqliteStore) -> list[str]:
    return [f"r{n}" for n in range(100) if store.record(f"r{n}")]


def fill(folder: Path, count: int, segment_bytes: int = 10_000) -> list[Path]:
    """What a process that was killed leaves behind: `count` records in segments."""
    journal = Journal(folder, ballast_bytes=0, segment_bytes=segment_bytes)
    for number in range(count):
        journal.append(usage_record(f"r{number}"))
    journal.close()
    return [journal.path(number) for number in journal.segments()]


@pytest.fixture
def open_writer(tmp_path: Path) -> Iterator[Callable[..., Writer]]:
    opened: list[Journal] = []

    def make(store: MemoryStore | SqliteStore, heard: list[str], **options: Any) -> Writer:
        journal = Journal(tmp_path, ballast_bytes=0, segment_bytes=options.pop("segment_bytes", 10_000))
        opened.append(journal)
        return Writer(journal, store, report=heard.append, **options)

    yield make
    for journal in opened:
        journal.close()


Open = Callable[..., Writer]


def test_a_frame_from_before_waits_were_recorded_is_a_record_without_any(tmp_path: Path, open_writer: Open) -> None:
    # given what an earlier version left behind: a frame that ends before the field `waits`
    waited = usage_record("r1", waits=(Wait(Cause.TURN, "", 5),))
    fields = msgspec.json.decode(msgspec.json.encode(usage_record("r2", loans=(loan("b"),))))
    written = [
        msgspec.msgpack.encode(waited),
        msgspec.msgpack.encode(fields[: UsageRecord.__struct_fields__.index("waits")]),
    ]
    (tmp_path / "000000000001.journal").write_bytes(b"".join(map(frame, written)))
    store = MemoryStore()
    heard: list[str] = []
    open_writer(store, heard).drain()
    assert store.record("r1") == (waited,)
    assert store.record("r2") == (usage_record("r2", loans=(loan("b"),)),)
    assert heard == []


def test_records_are_committed_in_batches_and_a_closed_segment_goes_after_a_sync(
    tmp_path: Path, open_writer: Open
) -> None:
    fill(tmp_path, 5)
    store = FlakyStore()
    heard: list[str] = []
    writer = open_writer(store, heard, batch_records=2)
    writer.drain()
    assert store.calls == ["add 2", "add 2", "add 1", "sync"]
    assert (stored(store), writer.committed, heard) == (["r0", "r1", "r2", "r3", "r4"], 5, [])
    assert [path.name for path in tmp_path.iterdir()] == ["000000000002.journal"]


def test_the_segment_in_use_is_read_as_it_grows(open_writer: Open) -> None:
    store = FlakyStore()
    heard: list[str] = []
    writer = open_writer(store, heard)
    for number in range(3):
        writer._journal.append(usage_record(f"r{number}"))
        assert writer.backlog_bytes > 0
        writer.drain()
        assert (len(stored(store)), writer.backlog_bytes) == (number + 1, 0)
    store.calls.clear()
    writer.drain()
    assert (store.calls, heard) == ([], [])


def test_a_store_that_cannot_be_written_loses_nothing(tmp_path: Path, open_writer: Open) -> None:
    segments = fill(tmp_path, 12, segment_bytes=500)
    store = FlakyStore()
    writer = open_writer(store, [], batch_records=2)
    store.down = True
    for _ in range(3):
        with pytest.raises(StoreError):
            writer.drain()
    assert all(path.exists() for path in segments)
    assert writer.backlog_bytes == sum(path.stat().st_size for path in segments)
    store.down = False
    writer.drain()
    assert (len(stored(store)), writer.backlog_bytes) == (12, 0)
    assert not any(path.exists() for path in segments)


def test_what_was_committed_before_a_failure_is_not_read_again(tmp_path: Path, open_writer: Open) -> None:
    fill(tmp_path, 6)
    store = FlakyStore()
    writer = open_writer(store, [], batch_records=2)
    store.fails_at = 3
    with pytest.raises(StoreError):
        writer.drain()
    assert len(stored(store)) == 4
    writer.drain()
    assert store.calls == ["add 2", "add 2", "add 2", "add 2", "sync"]
    assert len(stored(store)) == 6


def test_the_backlog_is_what_is_left_after_a_failure_between_segments(tmp_path: Path, open_writer: Open) -> None:
    _, *left = fill(tmp_path, 12, segment_bytes=500)
    sizes = sum(path.stat().st_size for path in left)
    store = FlakyStore()
    writer = open_writer(store, [])
    store.fails_at = 3  # after an add and a sync for the first segment
    with pytest.raises(StoreError):
        writer.drain()
    assert (writer.backlog_bytes, [path for path in left if not path.exists()]) == (sizes, [])


def test_replaying_twice_counts_once(tmp_path: Path, open_writer: Open) -> None:
    copies = [(path, path.read_bytes()) for path in fill(tmp_path, 4)]
    store = MemoryStore()
    open_writer(store, []).drain()
    for path, data in copies:
        path.write_bytes(data)
    open_writer(store, []).drain()
    assert store.usage([], T0, T0 + 1).total.attempts == 4


def test_a_torn_last_record_is_dropped_at_every_byte(tmp_path: Path) -> None:
    (segment,) = fill(tmp_path / "whole", 3)
    data = segment.read_bytes()
    last = [each.start for each in frames(data)][-1]
    for cut in range(last, len(data)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / segment.name).write_bytes(data[:cut])
        journal = Journal(folder, ballast_bytes=0)
        store, heard = MemoryStore(), list[str]()
        Writer(journal, store, report=heard.append).drain()
        journal.close()
        assert stored(store) == ["r0", "r1"]
        assert len(list(folder.iterdir())) == 1
        assert heard == ([] if cut == last else [heard[0]])
        assert all(f"The last {cut - last} bytes" in sentence for sentence in heard)


def test_damage_before_the_tail_keeps_the_file_aside_and_all_whole_records(tmp_path: Path) -> None:
    (segment,) = fill(tmp_path / "whole", 3)
    data = segment.read_bytes()
    start, stop = [(each.start, each.stop) for each in frames(data)][1]
    for place in range(start, stop, 7):
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / segment.name).write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        journal = Journal(folder, ballast_bytes=0)
        store, heard = MemoryStore(), list[str]()
        Writer(journal, store, report=heard.append).drain()
        journal.close()
        assert stored(store) == ["r0", "r2"]
        aside = segment.with_suffix(".damaged").name
        assert sorted(path.name for path in folder.iterdir()) == [aside, "000000000002.journal"]
        (sentence,) = heard
        assert "damaged" in sentence
        assert aside in sentence


def test_damage_at_the_end_of_a_segment_of_this_process_is_not_taken_for_a_torn_record(
    tmp_path: Path, open_writer: Open
) -> None:
    store = MemoryStore()
    heard: list[str] = []
    writer = open_writer(store, heard)
    writer._journal.append(usage_record("r0"))
    writer._journal.append(usage_record("r1"))
    path = writer._journal.path(1)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    writer._journal.close()
    writer.drain()
    assert stored(store) == ["r0"]
    assert [each.name for each in tmp_path.iterdir()] == ["000000000001.damaged"]
    assert len(heard) == 1


def test_a_record_that_the_store_can_never_take_is_kept_aside(tmp_path: Path, open_writer: Open) -> None:
    with closing(SqliteStore(tmp_path / "state")) as store:
        heard: list[str] = []
        writer = open_writer(store, heard)
        for number in range(5):
            writer._journal.append(usage_record(f"r{number}", tokens_out=2**63 if number == 2 else 1))
        writer.drain()
        assert stored(store) == ["r0", "r1", "r3", "r4"]
        assert len(list(frames((tmp_path / "refused.frames").read_bytes()))) == 1
        assert len(heard) == 1
        assert "refused.frames" in heard[0]


def test_a_record_over_64_bits_reaches_the_store(tmp_path: Path, open_writer: Open) -> None:
    with closing(SqliteStore(tmp_path / "state")) as store:
        heard: list[str] = []
        writer = open_writer(store, heard)
        given = usage_record("r1", milli_gpu_ns=8000 * 30 * DAY)
        writer._journal.append(given)
        writer.drain()
        assert (store.record("r1"), heard) == ((given,), [])


def test_the_thread_drains_on_close_and_leaves_an_empty_journal(tmp_path: Path, open_writer: Open) -> None:
    fill(tmp_path, 3)
    store = MemoryStore()
    heard: list[str] = []
    writer = open_writer(store, heard, segment_bytes=500)
    writer.start()
    for number in range(3, 40):
        writer._journal.append(usage_record(f"r{number}"))
    assert writer.close()
    assert (len(stored(store)), writer.backlog_bytes, writer.alarm, heard) == (40, 0, None, [])
    assert list(tmp_path.iterdir()) == []


def test_flush_returns_when_what_was_appended_is_stored(open_writer: Open) -> None:
    store = MemoryStore()
    writer = open_writer(store, [])
    writer.start()
    for number in range(5):
        writer._journal.append(usage_record(f"r{number}"))
        assert writer.flush(180)
        assert len(stored(store)) == number + 1
    writer.close()


def test_an_alarm_stands_while_the_store_is_down_and_the_records_stay(tmp_path: Path, open_writer: Open) -> None:
    store = FlakyStore()
    store.down = True
    heard: list[str] = []
    writer = open_writer(store, heard, interval_s=0.001)
    writer._journal.append(usage_record("r0"))
    writer.start()
    assert not writer.flush(0.05)
    assert not writer.close()
    assert writer.alarm == f"Usage records wait in {tmp_path}: The store is full."
    assert heard == [writer.alarm]
    # when the next process starts and the store works again
    store.down = False
    again = open_writer(store, [])
    again.start()
    assert again.close()
    assert (stored(store), again.alarm) == (["r0"], None)


def test_the_end_of_an_alarm_is_told(open_writer: Open) -> None:
    store = FlakyStore()
    store.down = True
    heard: list[str] = []
    writer = open_writer(store, heard, interval_s=0.001)
    writer._journal.append(usage_record("r0"))
    writer.start()
    while writer.alarm is None:
        writer.flush(0.001)
    store.down = False
    assert writer.flush(180)
    assert writer.close()
    assert heard[-1] == "Usage records are written to the store again; none was lost."


def test_every_segment_is_synced_before_its_records_are_committed(tmp_path: Path, open_writer: Open) -> None:
    fill(tmp_path, 3)
    store = FlakyStore()

    def note(fd: int) -> None:
        store.calls.append(f"fsync {Path(f'/proc/self/fd/{fd}').readlink().name}")

    open_writer(store, [], fsync=note).drain()
    first, second, folder, add, *_ = store.calls
    assert (first, second) == ("fsync 000000000001.journal", "fsync 000000000002.journal")
    assert (folder, add) == (f"fsync {tmp_path.name}", "add 3")


def note(request_id: str, run_ns: int = 0, **changes: Any) -> UsageRecord:
    """A note of an attempt that runs, and was dispatched 5 ns after it arrived."""
    times = {"total_ns": 5 + run_ns, "run_ns": run_ns, "milli_gpu_ns": 250 * run_ns}
    return usage_record(request_id, outcome=Outcome.RUNNING, **times, **changes)


STANDING = Standing("main", T0, T0 + 60, 4000, {"tenant:a": 1000})
SPAN = Span("m-0.1", Phase.LOADING, "main", "m", "platform", 2000, T0, T0 + 60)


def running(store: MemoryStore) -> dict[str, int]:
    return {record.request_id: record.run_ns for record in store.running()}


def test_notes_are_no_rows_and_go_where_they_belong(open_writer: Open) -> None:
    store = MemoryStore()
    writer = open_writer(store, [])
    writer._journal.append(note("r1"), STANDING)
    writer._journal.append(SPAN, usage_record("r2"), note("r2"))
    writer._journal.append(note("r3"))
    writer._journal.append(usage_record("r3", milli_gpu_ns=2**70))
    writer.drain()
    assert stored(store) == ["r2", "r3"]
    assert [record.request_id for record in writer.running] == ["r1", "r2"]
    work = store.hour_work("main", T0 - T0 % NS_PER_HOUR)
    assert (work.standings, work.spans) == ((STANDING,), (SPAN,))
    # what runs is saved when a segment is finished, here the last one
    assert running(store) == {}
    writer._journal.close()
    writer.drain()
    assert running(store) == {"r1": 0, "r2": 0}


def test_what_runs_is_known_to_the_next_process_before_and_after_a_segment_is_finished(open_writer: Open) -> None:
    store = MemoryStore()
    first = open_writer(store, [], segment_bytes=500)
    first._journal.append(note("long"))
    for number in range(6):
        first._journal.append(note(f"r{number}"))
        first._journal.append(usage_record(f"r{number}"))
    first._journal.append(note("late"))
    first.drain()
    saved = set(running(store))
    assert "long" in saved
    assert "late" not in saved
    # the next process finds the rest in the segment that was not finished
    second = open_writer(store, [])
    assert {record.request_id for record in second.running} == saved
    second.drain()
    assert {record.request_id for record in second.running} == {"long", "late"}
    assert set(running(store)) == {"long", "late"}


def test_an_hour_that_was_noted_is_saved_at_once_and_never_goes_back(open_writer: Open) -> None:
    store = MemoryStore()
    writer = open_writer(store, [])
    writer._journal.append(note("r1"))
    writer._journal.append(note("r1", run_ns=3600))
    writer.drain()
    assert running(store) == {"r1": 3600}
    # when the segment is read again after a crash, the first note is older than what is known
    again = open_writer(store, [])
    again.drain()
    assert [record.run_ns for record in again.running] == [3600]
    assert running(store) == {"r1": 3600}


def test_a_second_record_that_says_something_else_is_reported_and_the_first_stays(
    tmp_path: Path, open_writer: Open
) -> None:
    store = MemoryStore()
    heard: list[str] = []
    writer = open_writer(store, heard)
    first = usage_record("r1", outcome=Outcome.FAILED, micro_per_gpu_hour=0)
    writer._journal.append(first)
    writer._journal.append(usage_record("r1", outcome=Outcome.FAILED, micro_per_gpu_hour=0, wait_ns=0, waits=()))
    writer.drain()
    assert heard == []  # told again by somebody who knows less of its beginning
    writer._journal.append(usage_record("r1"))
    writer.drain()
    assert store.record("r1") == (first,)
    (sentence,) = heard
    assert "attempt 1 at r1 has a record already (failed, 30 tokens out), and this one differs (completed," in sentence
    (kept,) = frames((tmp_path / "refused.frames").read_bytes())
    assert decoder()(kept.payload) == usage_record("r1")


def test_after_a_day_without_the_store_nothing_new_is_taken_in_until_it_is_back(open_writer: Open) -> None:
    now = [0]
    store = FlakyStore()
    store.down = True
    writer = open_writer(store, [], monotonic=lambda: now[0], interval_s=0.001)
    journal = writer._journal
    journal.append(usage_record("r1"))
    writer.start()
    _until(lambda: writer.alarm is not None)
    assert journal.overdue == ""
    now[0] = AWAY_NS_MAX - 1
    calls = len(store.calls)
    _until(lambda: len(store.calls) > calls + 1)
    assert journal.overdue == ""
    now[0] = AWAY_NS_MAX
    _until(lambda: journal.overdue != "")
    assert "for 24 hours nothing was stored" in journal.overdue
    store.down = False
    assert writer.flush(180)
    _until(lambda: journal.overdue == "")
    assert stored(store) == ["r1"]
    assert writer.close()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)
