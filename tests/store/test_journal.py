"""The journal: an acknowledged record is in a file, a refused one leaves nothing, a full disk is survived."""

import errno
import os
from pathlib import Path

import pytest

from commonpool.core.ledger import Standing
from commonpool.store.frames import frames
from commonpool.store.journal import Journal, JournalError, RecordError, decoder
from tests.store.records import loan, usage_record


class Disk:
    """Stands in for `os.write` on a disk with `room` bytes left; the ballast, once given up, leaves its size."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.ballast: Path | None = None

    def write(self, fd: int, data: bytes) -> int:
        if self.ballast is not None and not self.ballast.exists():
            self.room, self.ballast = self.room + 1000, None
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = os.write(fd, data[: self.room])
        self.room -= written
        return written


def kept(journal: Journal) -> int:
    return sum(len(list(frames(journal.path(number).read_bytes()))) for number in journal.segments())


def size(journal: Journal) -> int:
    return journal.path(journal.tail[0]).stat().st_size


def test_an_appended_record_is_in_the_file_at_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append(usage_record("r1"))
    journal.append(usage_record("r2"))
    assert (kept(journal), journal.appended, journal.healthy) == (2, 2, True)
    assert journal.tail == (1, size(journal))
    journal.close()


def test_a_full_segment_is_followed_by_the_next(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=500)
    for number in range(20):
        journal.append(usage_record(f"r{number}"))
    assert len(journal.segments()) > 3
    assert kept(journal) == 20
    assert all(journal.path(number).stat().st_size <= 500 for number in journal.segments())
    journal.close()


def test_a_new_journal_leaves_old_segments_alone(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.append(usage_record("r1"))
    first.close()
    second = Journal(tmp_path)
    second.append(usage_record("r2"))
    assert (second.segments(), second.tail[0], kept(second)) == ([1, 2], 2, 2)
    second.close()


def test_a_number_is_not_used_again_while_a_damaged_segment_is_kept(tmp_path: Path) -> None:
    (tmp_path / "000000000007.damaged").touch()
    journal = Journal(tmp_path)
    assert journal.tail == (8, 0)
    journal.close()


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert journal.folder.stat().st_mode & 0o777 == 0o700
    assert journal.path(1).stat().st_mode & 0o777 == 0o600
    journal.close()


def test_the_ballast_carries_what_runs_over_a_full_disk(tmp_path: Path) -> None:
    # given a disk on which one record and a part of the next fit
    disk = Disk(0)
    journal = Journal(tmp_path, ballast_bytes=1000, write=disk.write)
    disk.ballast = tmp_path / "ballast"
    disk.room = 180
    journal.append(usage_record("r1"))
    # when the next is appended, the ballast makes room for it, and nothing new is welcome
    journal.append(usage_record("r2"))
    assert (kept(journal), journal.healthy, (tmp_path / "ballast").exists()) == (2, False, False)
    assert f"journal in {tmp_path} cannot be written" in journal.trouble
    # when the disk has room again, a probe brings the ballast back
    disk.room = 0
    assert not journal.probe()
    disk.room = 10_000
    assert journal.probe()
    assert (journal.trouble, (tmp_path / "ballast").stat().st_size) == ("", 1000)
    assert (kept(journal), journal.tail[1]) == (2, size(journal))
    journal.close()


def test_a_record_that_cannot_be_kept_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    disk = Disk(180)
    journal = Journal(tmp_path, ballast_bytes=0, write=disk.write)
    journal.append(usage_record("r1"))
    whole = size(journal)
    for request_id in ("r2", "r3"):
        with pytest.raises(
            JournalError, match=rf"journal in {tmp_path} cannot be written \(.*\): free some disk space"
        ):
            journal.append(usage_record(request_id))
        assert (journal.healthy, size(journal), journal.tail[1]) == (False, whole, whole)
    # when there is room again
    disk.room = 10_000
    journal.append(usage_record("r4"))
    assert [each.start for each in frames(journal.path(1).read_bytes())] == [0, whole]
    assert (journal.probe(), journal.healthy) == (True, True)
    journal.close()


def test_what_a_failed_write_left_is_cut_before_the_next(tmp_path: Path) -> None:
    faults = [OSError(errno.EIO, os.strerror(errno.EIO))]

    def write(fd: int, data: bytes) -> int:
        if faults:
            os.write(fd, data[:50])
            raise faults.pop()
        return os.write(fd, data)

    journal = Journal(tmp_path, ballast_bytes=0, write=write)
    with pytest.raises(JournalError, match="Input/output error"):
        journal.append(usage_record("r1"))
    journal.append(usage_record("r2"))
    assert [(each.start, each.stop) for each in frames(journal.path(1).read_bytes())] == [(0, size(journal))]
    journal.close()


def test_a_record_at_fault_is_refused_and_the_journal_stays_healthy(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for change in ({"app": "x" * 2_000_000}, {"app": "\ud800"}, {"app": "\ud800", "milli_gpu_ns": 2**64}):
        with pytest.raises(RecordError, match="usage record 'r1' cannot be written"):
            journal.append(usage_record("r1", **change))
    assert (journal.healthy, kept(journal)) == (True, 0)
    journal.close()


def test_a_record_over_64_bits_is_kept_as_it_is(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    given = [usage_record("r1"), usage_record("r2", milli_gpu_ns=2**70, loans=(loan("b"),)), usage_record("r3")]
    for record in given:
        journal.append(record)
    assert [decoder()(each.payload) for each in frames(journal.path(1).read_bytes())] == given
    journal.close()


def test_a_segment_that_cannot_be_started_keeps_records_in_the_last(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=200)
    journal.path(2).mkdir()
    for number in range(3):
        journal.append(usage_record(f"r{number}"))
    assert len(list(frames(journal.path(1).read_bytes()))) == 3
    journal.close()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        JournalError, match=r"^The usage journal in .*file.journal cannot be written \(Not a directory\):"
    ):
        Journal(tmp_path / "file" / "journal")


def test_nothing_is_appended_after_close(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.close()
    journal.close()
    with pytest.raises(JournalError):
        journal.append(usage_record("r1"))


def test_several_notes_are_one_write_and_all_or_none_of_them_are_kept(tmp_path: Path) -> None:
    writes: list[int] = []

    def write(fd: int, data: bytes) -> int:
        writes.append(len(data))
        return os.write(fd, data)

    journal = Journal(tmp_path, ballast_bytes=0, write=write)
    standing = Standing("main", 5, 9, 4000, {"tenant:a": 1000})
    journal.append(usage_record("r1"), standing, usage_record("r2"))
    assert (len(writes), kept(journal), journal.appended) == (1, 3, 3)
    with pytest.raises(RecordError, match="'r4'"):
        journal.append(usage_record("r3"), usage_record("r4", app="x" * 2_000_000))
    assert (kept(journal), journal.healthy) == (3, True)
    decode = decoder()
    notes = [decode(each.payload) for each in frames(journal.path(journal.tail[0]).read_bytes())]
    assert notes == [usage_record("r1"), standing, usage_record("r2")]
    journal.close()


def test_the_latest_time_of_an_earlier_process_is_known(tmp_path: Path) -> None:
    empty = Journal(tmp_path, ballast_bytes=0)
    assert empty.left_until() == 0
    empty.append(usage_record("r1", arrived_ns=1000, total_ns=5))
    empty.append(Standing("main", 900, 1100, 4000, {}))
    empty.append(usage_record("r2", arrived_ns=1001, total_ns=7))
    empty.close()
    # another one that was killed before it wrote anything
    Journal(tmp_path, ballast_bytes=0).close()
    last = Journal(tmp_path, ballast_bytes=0)
    assert last.left_until() == 1100
    last.close()
