"""The journal: where a usage record is durable before the last byte of its answer is sent.

`append` is one write to an append-only segment file, made on the event loop; the page cache keeps it whatever happens
to the process. The writer (`store.writer`) reads segments back, commits their records to the store and deletes them:
the files are the queue, so memory is bounded and there is one path for live and for recovered records.

A record is MessagePack, or JSON where one of its numbers is over 64 bits, as the GPU time of a long job can be.

A segment is named by its number. The one with the largest number takes appends; the others are closed for ever.
"""

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from commonpool.core.model import UsageRecord
from commonpool.store.frames import frame

SEGMENT_BYTES = 4 * 1024 * 1024  # about 20,000 records: read whole, and replayed in less than a second
BALLAST_BYTES = 1024 * 1024  # about 4,000 records: more than run at once
SUFFIX = ".journal"


class JournalError(Exception):
    """A record could not be kept: what failed, where, and what to do."""


class RecordError(JournalError):
    """A record that can never be kept, such as one that is far too long; the journal stays as it was."""


def decoder() -> Callable[[bytes], UsageRecord]:
    """Makes what reads the payload of a frame. It raises msgspec.DecodeError."""
    packed = msgspec.msgpack.Decoder(UsageRecord).decode
    text = msgspec.json.Decoder(UsageRecord).decode

    def decode(payload: bytes) -> UsageRecord:
        return text(payload) if payload[:1] == b"[" else packed(payload)

    return decode


class Journal:
    """Appends usage records to the segments in one folder; the store's folder lock keeps other processes away.

    `healthy` is False from the first failure until `probe` succeeds: meanwhile nothing new may be taken in, since it
    could not be metered. A ballast file is given up when the disk is full, so that what runs can still be recorded.
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
        self.healthy = True
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
    def tail(self) -> tuple[int, int]:
        """The segment that takes appends and how many of its bytes are whole frames. Safe to read from any thread."""
        return self._tail

    def segments(self) -> list[int]:
        """The numbers of the segments that exist, oldest first."""
        return sorted(_numbers(self.folder.glob(f"*{SUFFIX}")))

    def path(self, segment: int) -> Path:
        """The file of a segment."""
        return self.folder / f"{segment:012}{SUFFIX}"

    def append(self, record: UsageRecord) -> None:
        """Keeps the record: it survives the end of this process once this returns. Call it on one thread only.

        JournalError where it could not be kept, RecordError where trying again is vain; nothing of it is left behind.
        """
        try:
            data = frame(self._payload(record))
        except ValueError as error:
            raise RecordError(f"The usage record {record.request_id!r} cannot be written: {error}") from error
        try:
            self._write(data)
        except OSError as error:
            self.healthy = False
            if error.errno not in {errno.ENOSPC, errno.EDQUOT} or not self._drop_ballast():
                raise self._failure(error) from error
            try:
                self._write(data)
            except OSError as again:
                raise self._failure(again) from again
        self.appended += 1

    def probe(self) -> bool:
        """Whether appends work again, tried out on the disk; `healthy` afterwards. Call it on the appending thread."""
        if not self.healthy:
            try:
                self._hold_ballast()
                self._try_out()
            except OSError:
                return False
            self.healthy = True
        return True

    def close(self) -> None:
        """No more appends. The writer may treat every segment as closed afterwards."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._tail = (self._tail[0] + 1, 0)

    def _payload(self, record: UsageRecord) -> bytes:
        try:
            return self._encode(record)
        except OverflowError:
            return msgspec.json.encode(record)

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
