"""Crashes: a real `kill -9` at random points, a real full file, and every order of crashes that Hypothesis finds."""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from commonpool.core.model import UsageRecord
from commonpool.store.contract import StoreError
from commonpool.store.frames import frame
from commonpool.store.journal import Journal
from commonpool.store.memory import MemoryStore
from commonpool.store.sql.base import SqlStore
from commonpool.store.writer import Writer
from tests.store.places import Place
from tests.store.records import DAY, T0, usage_record

# Appends records with the ids PREFIX-0, PREFIX-1, ... for ever and acknowledges each on stdout, a byte for one.
CHILD = """
import os, sys
from pathlib import Path
from commonpool.store.journal import Journal
from commonpool.store.postgres import PostgresStore
from commonpool.store.sqlite import SqliteStore
from commonpool.store.writer import Writer
from tests.store.records import loan, usage_record

folder, url, prefix = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
store = PostgresStore(url, folder) if url else SqliteStore(folder)
journal = Journal(folder / "journal", segment_bytes=4000)
Writer(journal, store, report=print, batch_records=10, interval_s=0.001).start()
number = 0
while True:
    journal.append(usage_record(f"{prefix}-{number}", loans=(loan("b"),)))
    os.write(1, b".")
    number += 1
"""

# Appends records to a file that may not grow beyond 1000 bytes; says what happened.
FULL = """
import resource, sys
from pathlib import Path
from commonpool.store.journal import Journal, JournalError
from tests.store.records import usage_record

journal = Journal(Path(sys.argv[1]), ballast_bytes=0)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
kept = 0
try:
    while True:
        journal.append(usage_record(f"r{kept}"))
        kept += 1
except JournalError as error:
    print(kept, journal.healthy, journal.probe(), journal.path(1).stat().st_size == journal.tail[1], error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(journal.probe(), journal.healthy)
journal.append(usage_record("last"))
"""

ROOT = Path(__file__).parents[2]


def recover(place: Place) -> SqlStore:
    """The store as the next process finds it, with what the journal has left."""
    store = place.open()
    heard: list[str] = []
    writer = Writer(Journal(place.folder / "journal", ballast_bytes=0), store, report=heard.append)
    writer.start()
    assert writer.close()
    return store


def test_no_acknowledged_record_is_lost_or_counted_twice_by_kill_9(place: Place) -> None:
    # given a process that is killed while it appends, again and again, the next one replaying what the last one left
    chance = random.Random(20_240_101)
    acknowledged: dict[str, int] = {}
    for prefix in ("p0", "p1", "p2", "p3"):
        command = [sys.executable, "-c", CHILD, str(place.folder), place.url, prefix]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout is not None
            first = child.stdout.read(chance.randrange(1, 600))
            child.send_signal(signal.SIGKILL)
            rest, _ = child.communicate()
            assert child.returncode == -signal.SIGKILL
        acknowledged[prefix] = (first + rest).count(b".")
    # when the last one has been recovered
    with closing(recover(place)) as store:
        # then all that was acknowledged is there with its loans, and at most the one append that was under way besides
        stored = 0
        for prefix, count in acknowledged.items():
            last = count + bool(store.record(f"{prefix}-{count}"))
            records = [record for number in range(last) for record in store.record(f"{prefix}-{number}")]
            assert [record.request_id for record in records] == [f"{prefix}-{number}" for number in range(last)]
            stored += last
        total = store.usage([], T0, T0 + DAY).total
        assert total.attempts == total.requests == stored
        assert total.borrowed_milli_gpu_ns == 5000 * stored


def test_a_write_that_fits_in_part_is_cut_back(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], check=True, capture_output=True, text=True, cwd=ROOT
    )
    first, second = done.stdout.splitlines()
    kept, healthy, probed, cut, *sentence = first.split()
    assert (healthy, probed, cut, second) == ("False", "False", "True", "True True")
    assert " ".join(sentence).startswith(f"The usage journal in {tmp_path} cannot be written (only ")
    store = MemoryStore()
    journal = Journal(tmp_path, ballast_bytes=0)
    Writer(journal, store, report=pytest.fail).drain()
    journal.close()
    assert store.usage([], T0, T0 + 1).total.attempts == int(kept) + 1
    assert len(store.record("last")) == 1


class Store(MemoryStore):
    """A store that can be down, or fail after it has committed, as one does whose answer is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.mood = "well"

    def add_usage(self, records: Iterable[UsageRecord]) -> tuple[UsageRecord, ...]:
        kept = list(records)
        if self.mood == "down":
            raise StoreError("down")
        differing = super().add_usage(kept)
        if self.mood == "late":
            raise StoreError("late")
        return differing


class Crashes(RuleBasedStateMachine):
    """A journal, its writer and a store, through appends, drains, crashes, torn writes and failures of the store."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.store = Store()
        self.acknowledged = 0
        self.heard: list[str] = []
        self.start()

    def start(self) -> None:
        self.journal = Journal(self.folder, ballast_bytes=0, segment_bytes=400)
        self.writer = Writer(self.journal, self.store, report=self.heard.append, batch_records=2)

    @rule(count=st.integers(1, 6))
    def append(self, count: int) -> None:
        for _ in range(count):
            self.journal.append(usage_record(f"r{self.acknowledged}"))
            self.acknowledged += 1

    @precondition(lambda self: self.store.mood == "well")
    @rule()
    def drain(self) -> None:
        self.writer.drain()
        assert self.stored() == self.acknowledged
        assert self.writer.backlog_bytes == 0

    @precondition(lambda self: self.store.mood != "well")
    @rule()
    def drain_in_vain(self) -> None:
        try:
            self.writer.drain()
        except StoreError:
            assert self.writer.backlog_bytes > 0
        else:
            assert self.stored() == self.acknowledged

    @rule(mood=st.sampled_from(["well", "down", "late"]))
    def change_mood(self, mood: str) -> None:
        self.store.mood = mood

    @rule()
    def crash(self) -> None:
        os.close(self.journal._fd)
        self.start()

    @rule(data=st.data())
    def crash_in_the_middle_of_an_append(self, data: st.DataObject) -> None:
        whole = frame(self.journal._encode(usage_record("torn")))
        os.write(self.journal._fd, whole[: data.draw(st.integers(1, len(whole) - 1))])
        self.crash()

    @rule()
    def stop(self) -> None:
        self.writer.close()
        self.start()

    @invariant()
    def nothing_is_stored_that_was_not_acknowledged(self) -> None:
        assert self.store.usage([], T0, T0 + 1).total.attempts == self.stored()
        assert not any("damaged" in sentence for sentence in self.heard)

    def stored(self) -> int:
        return sum(bool(self.store.record(f"r{number}")) for number in range(self.acknowledged))

    def teardown(self) -> None:
        self.store.mood = "well"
        self.crash()
        self.writer.drain()
        kept = self.stored()
        self.journal.close()
        shutil.rmtree(self.folder)
        assert kept == self.acknowledged


def test_every_order_of_crashes_keeps_each_record_once() -> None:
    run_state_machine_as_test(Crashes, settings=settings(max_examples=60, stateful_step_count=30, deadline=None))
