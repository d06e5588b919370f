"""The writer: one thread that moves records from the journal's segments into the store.

A segment is deleted only after all its records are committed and survive a power cut. Whatever fails (the store is
locked, the disk is full), the records stay in the journal and are tried again, later and later: nothing is lost, and
nothing counts twice, since the store keeps one row per (request, attempt).
"""

import os
import threading
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from commonpool.store.contract import RecordRefusedError, UsageSink
from commonpool.store.frames import frame, frames
from commonpool.store.journal import Journal, decoder

BATCH_RECORDS = 1000  # one transaction: long enough to be cheap, short enough to leave the store to others
INTERVAL_S = 0.1  # a record is in the store this long after it was appended, at most, when all is well
BACKOFF_S_MAX = 5.0  # between two tries while the store cannot be written


class Writer:
    """Reads the journal and writes the store; `report` gets a sentence for each thing a person should know.

    `alarm` is that sentence while the store cannot be written, else None. `committed` counts records handed to the
    store by this process.
    """

    def __init__(
        self,
        journal: Journal,
        store: UsageSink,
        *,
        report: Callable[[str], None],
        batch_records: int = BATCH_RECORDS,
        interval_s: float = INTERVAL_S,
        fsync: Callable[[int], None] = os.fsync,
    ) -> None:
        self.alarm: str | None = None
        self.committed = 0
        self._journal = journal
        self._store = store
        self._report = report
        self._batch_records = batch_records
        self._interval_s = interval_s
        self._fsync = fsync
        self._decode = decoder()
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
        self.alarm = alarm

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
            self._position = (number, start + whole)
            self.committed += batch.count
        if end is None:
            self._finish(number, torn_bytes=len(data) - whole)

    def _commit(self, data: bytes, start: int) -> "_Batch":
        """Commits the next records of `data`, of which there is one at least."""
        batch = _Batch(data, start, self._batch_records)
        try:
            self._store.add_usage(map(self._decode, batch))
        except (RecordRefusedError, msgspec.DecodeError):
            batch = _Batch(data, start, self._batch_records)
            for payload in batch:
                self._commit_alone(payload)
        return batch

    def _commit_alone(self, payload: bytes) -> None:
        """A record that the store can never take is kept aside, so that it does not hold up all behind it."""
        try:
            self._store.add_usage(map(self._decode, (payload,)))
        except (RecordRefusedError, msgspec.DecodeError) as error:
            aside = self._journal.folder / "refused.frames"
            with aside.open("ab") as file:
                file.write(frame(payload))
                file.flush()
                self._fsync(file.fileno())
            self._report(f"A usage record was not stored but kept in {aside}: {error}")

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
