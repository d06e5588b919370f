"""The journal: where an attempt is noted before it is sent, and its record durable before its answer's last byte is.

`append` is one write to an append-only segment file, made on the event loop; the page cache keeps it whatever happens
to the process. The writer (`store.writer`) reads segments back, commits their records to the store and deletes them:
the files are the queue, so memory is bounded and there is one path for live and for recovered records.

A record is MessagePack, or JSON where one of its numbers is over 64 bits, as the GPU time of a long job can be. So are
the notes of attempts that run; `Standing` and `Span` are shorter arrays that begin with their names.

A segment is named by its number. The one with the largest number takes appends; the others are closed for ever.
"""

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from commonpool.core.ledger import Span, Standing
from commonpool.core.metering import Note
from commonpool.core.model import UsageRecord
from commonpool.store.frames import frame, frames

SEGMENT_BYTES = 4 * 1024 * 1024  # about 20,000 records: read whole, and replayed in less than a second
BALLAST_BYTES = 1024 * 1024  # about 4,000 records: more than run at once
SUFFIX = ".journal"
_LONG_ARRAY = b"\xdc"  # how MessagePack begins an array of 16 values or more


class JournalError(Exception):
    """A record could not be kept: what failed, where, and what to do."""


class RecordError(JournalError):
    """A record that can never be kept, such as one that is far too long; the journal stays as it was."""


def decoder() -> Callable[[bytes], Note]:
    """Makes what reads the payload of a frame. It raises msgspec.DecodeError."""
    packed = msgspec.msgpack.Decoder(UsageRecord).decode
    text = msgspec.json.Decoder(UsageRecord).decode
    meter = msgspec.msgpack.Decoder(Standing | Span).decode

    def decode(payload: bytes) -> Note:
        first = payload[:1]
        if first == _LONG_ARRAY:
            return packed(payload)
        return text(payload) if first == b"[" else meter(payload)

    return decode


class Journal:
    """Appends records and notes to the segments in one folder; the store's folder lock keeps other processes away.

    `trouble` says why from the first failure until `probe` succeeds, else "": meanwhile nothing new may be taken in,
    since it could not be metered. A ballast file is given up when the disk is full, so that what runs can still be
    recorded. `overdue` is a sentence while it has kept records for so long that nothing new may be taken in either,
    else "".
    """

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        ballast_bytes: int = BALLAST_BYTES,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        """Starts a new segment behind those that are left. JournalError where the folder cannot be written."""
        self.folder = folder
        self.trouble = ""
        self.overdue = ""
        self.appended = 0
        self._segment_bytes = segment_bytes
        self._ballast_bytes = ballast_bytes
        self._encode = msgspec.msgpack.Encoder().encode
        self._os_write = write
        self._fd = -1
        self._torn = False
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._hold_ballast()
            self._tail = (max(_numbers(folder.iterdir()), default=0), 0)
            self._start_segment()
        except OSError as error:
            raise self._failure(error) from error

    @property
    def healthy(self) -> bool:
        """Whether the last append or probe worked, without the ballast."""
        return not self.trouble

    @property
    def tail(self) -> tuple[int, int]:
        """The segment that takes appends and how many of its bytes are whole frames. Safe to read from any thread."""
        return self._tail

    def segments(self) -> list[int]:
        """The numbers of the segments that exist, oldest first."""
        return sorted(_numbers(self.folder.glob(f"*{SUFFIX}")))

    def path(self, segment: int) -> Path:
        """The file of a segment."""
        return self.folder / f"{segment:012}{SUFFIX}"

    def append(self, *notes: Note) -> None:
        """Keeps them, in order: they survive the end of this process once this returns. Call it on one thread only.

        JournalError where they could not be kept, RecordError where trying again is vain; nothing of them is left
        behind.
        """
        data = self._frame(notes[0]) if len(notes) == 1 else b"".join(map(self._frame, notes))
        try:
            self._write(data)
        except OSError as error:
            self.trouble = str(self._failure(error))
            if error.errno not in {errno.ENOSPC, errno.EDQUOT} or not self._drop_ballast():
                raise self._failure(error) from error
            try:
                self._write(data)
            except OSError as again:
                raise self._failure(again) from again
        self.appended += len(notes)

    def left_until(self) -> int:
        """The latest time in what an earlier process has left here, nanoseconds since the epoch; 0 where it is nothing.

        The newest segment that has anything tells.
        """
        decode = decoder()
        for segment in reversed(self.segments()):
            latest = 0
            for each in frames(self.path(segment).read_bytes()):
                with suppress(msgspec.DecodeError):
                    note = decode(each.payload)
                    ended = note.arrived_ns + note.total_ns if isinstance(note, UsageRecord) else note.end_ns
                    latest = max(latest, ended)
            if latest:
                return latest
        return 0

    def probe(self) -> bool:
        """Whether appends work, tried out on the disk where they did not. Call it on the appending thread."""
        if self.trouble:
            try:
                self._hold_ballast()
                self._try_out()
            except OSError:
                return False
            self.trouble = ""
        return True

    def close(self) -> None:
        """No more appends. The writer may treat every segment as closed afterwards."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._tail = (self._tail[0] + 1, 0)

    def _frame(self, note: Note) -> bytes:
        try:
            return frame(self._payload(note))
        except ValueError as error:
            name = note.request_id if isinstance(note, UsageRecord) else note.pool
            raise RecordError(f"The usage record {name!r} cannot be written: {error}") from error

    def _payload(self, note: Note) -> bytes:
        try:
            return self._encode(note)
        except OverflowError:
            return msgspec.json.encode(note)

    def _write(self, data: bytes) -> None:
        if self._torn:
            self._cut()
        segment, end = self._tail
        if end and end + len(data) > self._segment_bytes:
            with suppress(OSError):  # the size is a wish: better a long segment than a lost record
                self._start_segment()
            segment, end = self._tail
        self._torn = True
        written = self._os_write(self._fd, data)
        if written < len(data):
            with suppress(OSError):
                self._cut()
            raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes fitted")
        self._torn = False
        self._tail = (segment, end + written)

    def _cut(self) -> None:
        """Removes what an unfinished write left behind the last whole frame."""
        os.ftruncate(self._fd, self._tail[1])
        self._torn = False

    def _start_segment(self) -> None:
        segment = self._tail[0] + 1
        fd = os.open(self.path(segment), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self._tail = (segment, 0)

    def _try_out(self) -> None:
        size = 4096  # more than a record, so that it takes a block of its own
        if self._torn:
            self._cut()
        self._torn = True
        written = self._os_write(self._fd, bytes(size))
        self._cut()
        if written < size:
            raise OSError(errno.ENOSPC, f"only {written} of {size} bytes fitted")

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def _hold_ballast(self) -> None:
        if self._ballast_bytes == 0:
            return
        fd = os.open(self._ballast, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(fd, 0, self._ballast_bytes)
        finally:
            os.close(fd)

    def _drop_ballast(self) -> bool:
        try:
            self._ballast.unlink()
        except OSError:
            return False
        return True

    def _failure(self, error: OSError) -> JournalError:
        reason = error.strerror or str(error)
        return JournalError(
            f"The usage journal in {self.folder} cannot be written ({reason}): free some disk space or make the folder "
            "writable; new requests are refused until then."
        )


def _numbers(paths: Iterable[Path]) -> list[int]:
    return [int(path.stem) for path in paths if path.stem.isdigit()]
