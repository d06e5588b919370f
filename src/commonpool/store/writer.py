"""The writer: one thread that moves records from the journal's segments into the store.

A segment is deleted only after all its records are committed and survive a power cut. Whatever fails (the store is
locked, the disk is full), the records stay in the journal and are tried again, later and later: nothing is lost, and
nothing counts twice, since the store keeps one row per (request, attempt).

Notes of attempts that run are no rows: which attempts run is kept here, and saved as a whole when a segment is
finished (so also at the end) and when an hour was noted. So what the store has saved and what the journal holds is
always all.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

import msgspec

from commonpool.core.ledger import Span, Standing
from commonpool.core.model import Outcome, UsageRecord
from commonpool.store.contract import RecordRefusedError, UsageSink
from commonpool.store.frames import frame, frames
from commonpool.store.journal import Journal, decoder
from commonpool.store.ledger import LedgerSink

BATCH_RECORDS = 1000  # one transaction: long enough to be cheap, short enough to leave the store to others
INTERVAL_S = 0.1  # a record is in the store this long after it was appended, at most, when all is well
BACKOFF_S_MAX = 5.0  # between two tries while the store cannot be written
# How long requests go on while the store cannot be written: somebody has had time to look, and a disk has room for it.
AWAY_NS_MAX = 24 * 3600 * 1_000_000_000
_RUNNING: Final = Outcome.RUNNING


class Sink(UsageSink, LedgerSink, Protocol):
    """What the writer needs of a store."""

    def running(self) -> tuple[UsageRecord, ...]:
        """What was saved last as running."""

    def record(self, request_id: str) -> tuple[UsageRecord, ...]:
        """All attempts at a request that are kept."""


class Writer:
    """Reads the journal and writes the store; `report` gets a sentence for each thing a person should know.

    `alarm` is that sentence while the store cannot be written, else None; after AWAY_NS_MAX of it the journal is
    overdue. `committed` counts the frames handed to the store by this process.
    """

    def __init__(
        self,
        journal: Journal,
        store: Sink,
        *,
        report: Callable[[str], None],
        batch_records: int = BATCH_RECORDS,
        interval_s: float = INTERVAL_S,
        fsync: Callable[[int], None] = os.fsync,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.alarm: str | None = None
        self.committed = 0
        self._journal = journal
        self._store = store
        self._report = report
        self._batch_records = batch_records
        self._interval_s = interval_s
        self._fsync = fsync
        self._monotonic = monotonic
        self._alarm_since = 0
        self._decode = decoder()
        self._open = {(note.request_id, note.attempt): note for note in store.running()}
        self._unsaved = False  # whether what runs is not what the store has saved
        self._noted_hour = False  # whether an hour was noted since that was saved
        self._position = (0, 0)  # all before this byte of this segment is committed
        self._synced = 0  # all segments before this one survive a power cut
        self._left_over = journal.tail[0]  # segments before this one were written by an earlier process
        self._damaged: set[int] = set()
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(
            target=self._run, name="usage-writer", daemon=True
        )  # the journal keeps the rest

    @property
    def backlog_bytes(self) -> int:
        """Bytes of the journal that are not yet in the store. For any thread."""
        segment, offset = self._position
        sizes = 0
        for number in self._journal.segments():
            try:
                sizes += self._journal.path(number).stat().st_size if number >= segment else 0
            except FileNotFoundError:  # committed and deleted meanwhile
                continue
        return max(0, sizes - offset)

    @property
    def running(self) -> tuple[UsageRecord, ...]:
        """The newest note of each attempt that runs, by what is in the store. For any thread."""
        return tuple(self._open.values())

    def start(self) -> None:
        """Starts the thread. What an earlier process left in the journal goes into the store first."""
        self._thread.start()

    def flush(self, timeout_s: float) -> bool:
        """Waits until all that was appended before the call is in the store; False where it was not in time."""
        target = self._journal.tail
        with self._changed:
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._position >= target, timeout_s)

    def close(self) -> bool:
        """Closes the journal, drains it into the store and stops the thread. Nothing may be appended meanwhile.

        Whether all is in the store; what is not stays in the journal for the next start, and `alarm` says why.
        """
        self._journal.close()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        return self._position >= self._journal.tail

    def drain(self) -> None:
        """Commits what was appended before the call. What it raises left the rest in the journal."""
        tail = self._journal.tail
        if self._position == tail:
            return
        segments = [number for number in self._journal.segments() if number <= tail[0]]
        self._sync(segments)
        for number in segments:
            self._commit_segment(number, tail[1] if number == tail[0] else None)
        self._synced = tail[0]
        with self._changed:
            self._position = max(self._position, (tail[0], 0))
            self._changed.notify_all()

    def _run(self) -> None:
        delay = self._interval_s
        while True:
            closing = self._closing  # read first: what was appended before it was set is then drained
            try:
                self.drain()
            except Exception as error:  # noqa: BLE001 - whatever fails, the records are safe and must be tried again
                delay = min(2 * delay, BACKOFF_S_MAX)
                self._raise_alarm(f"Usage records wait in {self._journal.folder}: {error}")
            else:
                delay = self._interval_s
                self._raise_alarm(None)
            if closing:
                return
            with self._changed:
                if not self._closing:
                    self._changed.wait(delay)

    def _raise_alarm(self, alarm: str | None) -> None:
        if alarm is not None and alarm != self.alarm:
            self._report(alarm)
        elif alarm is None and self.alarm is not None:
            self._report("Usage records are written to the store again; none was lost.")
        if self.alarm is None:
            self._alarm_since = self._monotonic()
        self.alarm = alarm
        away = alarm is not None and self._monotonic() - self._alarm_since >= AWAY_NS_MAX
        self._journal.overdue = f"for {AWAY_NS_MAX // (3600 * 10**9)} hours nothing was stored. {alarm}" if away else ""

    def _commit_segment(self, number: int, end: int | None) -> None:
        """Commits what is left of a segment: of the one that takes appends up to `end`, of a closed one (None) all."""
        start = self._position[1] if number == self._position[0] else 0
        with self._journal.path(number).open("rb") as file:
            file.seek(start)
            data = file.read() if end is None else file.read(end - start)
        whole = 0
        while next(frames(data, whole), None) is not None:
            batch = self._commit(data, whole)
            if batch.damaged:
                self._damaged.add(number)
            whole = batch.stop
            if self._noted_hour:
                self._save_running()
            self._position = (number, start + whole)
            self.committed += batch.count
        if end is None:
            self._finish(number, torn_bytes=len(data) - whole)

    def _commit(self, data: bytes, start: int) -> "_Batch":
        """Commits the next records of `data`, of which there is one at least."""
        batch = _Batch(data, start, self._batch_records)
        try:
            self._store_all(batch)
        except (RecordRefusedError, msgspec.DecodeError):
            batch = _Batch(data, start, self._batch_records)
            for payload in batch:
                self._commit_alone(payload)
        return batch

    def _commit_alone(self, payload: bytes) -> None:
        """A record that the store can never take is kept aside, so that it does not hold up all behind it."""
        try:
            self._store_all((payload,))
        except (RecordRefusedError, msgspec.DecodeError) as error:
            self._keep_aside(payload, str(error))

    def _keep_aside(self, payload: bytes, why: str) -> None:
        aside = self._journal.folder / "refused.frames"
        with aside.open("ab") as file:
            file.write(frame(payload))
            file.flush()
            self._fsync(file.fileno())
        self._report(f"A usage record was not stored but kept in {aside}: {why}")

    def _store_all(self, payloads: Iterable[bytes]) -> None:
        """Give each to its place. What is raised leaves nothing behind that giving them again would not mend."""
        meters: list[Standing | Span] = []
        differing = self._store.add_usage(self._records(payloads, meters))
        if meters:
            self._store.add_meters(meters)
        for record in differing:
            self._told_again(record)

    def _told_again(self, record: UsageRecord) -> None:
        """The first record of an attempt stays. A second one that says something else of money is kept aside.

        Its times alone may differ: after a restart an end can be told again by somebody who knows less of it.
        """
        kept = next(each for each in self._store.record(record.request_id) if each.attempt == record.attempt)
        if _said(kept) != _said(record):
            self._keep_aside(
                msgspec.json.encode(record),
                f"attempt {record.attempt} at {record.request_id} has a record already ({kept.outcome}, "
                f"{kept.tokens_out} tokens out), and this one differs ({record.outcome}, {record.tokens_out} tokens "
                "out); the first stays.",
            )

    def _records(self, payloads: Iterable[bytes], meters: list[Standing | Span]) -> Iterator[UsageRecord]:
        """The records of what ended; the rest is noted, here and in `meters`."""
        running = self._open
        for payload in payloads:
            note = self._decode(payload)
            if not isinstance(note, UsageRecord):
                meters.append(note)
                continue
            key = note.request_id, note.attempt
            if note.outcome is not _RUNNING:
                if running.pop(key, None) is not None:
                    self._unsaved = True
                yield note
                continue
            known = running.get(key)
            if known is None or known.arrived_ns + known.total_ns <= note.arrived_ns + note.total_ns:
                running[key] = note
                self._unsaved = True
                self._noted_hour = self._noted_hour or note.run_ns > 0

    def _save_running(self) -> None:
        if self._unsaved:
            self._store.save_running(tuple(self._open.values()))
        self._unsaved = self._noted_hour = False

    def _finish(self, number: int, torn_bytes: int) -> None:
        """All whole records of a closed segment are committed: delete it, or keep it where something is unreadable."""
        path = self._journal.path(number)
        if torn_bytes and number >= self._left_over:
            self._damaged.add(number)  # this process has written it to the end: it cannot be torn
        elif torn_bytes:
            self._report(
                f"The last {torn_bytes} bytes of {path.name} are a record that a crash cut short; it was never "
                "acknowledged and is dropped."
            )
        self._save_running()
        self._store.sync()
        if number in self._damaged:
            self._damaged.discard(number)
            aside = path.with_suffix(".damaged")
            path.rename(aside)
            self._report(
                f"The usage journal was damaged on disk: its whole records are stored, the rest is unreadable; {aside} "
                "is kept for inspection, check the disk."
            )
        else:
            path.unlink()
        self._position = (number + 1, 0)

    def _sync(self, segments: list[int]) -> None:
        """Makes all that was appended so far survive a power cut."""
        for path in (
            *(self._journal.path(number) for number in segments if number >= self._synced),
            self._journal.folder,
        ):
            fd = os.open(path, os.O_RDONLY)
            try:
                self._fsync(fd)
            finally:
                os.close(fd)


def _said(record: UsageRecord) -> tuple[Outcome, int, int, int, int]:
    """What a record says of money, but for how long it took."""
    tokens_in, tokens_cached, tokens_out = record.tokens_in, record.tokens_cached, record.tokens_out
    return record.outcome, tokens_in, tokens_cached, tokens_out, record.micro_per_gpu_hour


class _Batch:
    """The payloads of up to `limit` frames from `start` on, and what is known of them once they have been taken.

    They are found one by one as the store takes them, so that the event loop never waits for a whole batch of Python.
    """

    def __init__(self, data: bytes, start: int, limit: int) -> None:
        self.count = 0
        self.stop = start
        self.damaged = False
        self._frames = islice(frames(data, start), limit)

    def __iter__(self) -> Iterator[bytes]:
        for start, stop, payload in self._frames:
            self.damaged |= start != self.stop
            self.stop = stop
            self.count += 1
            yield payload
