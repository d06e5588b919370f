"""A chunked request body, decoded strictly: it ends exactly where it ends, and whatever is odd is an error.

Extensions and trailers are read and ignored, as RFC 9112 allows; both are bounded.
"""

import enum
import re
from typing import Final

from commonpool.gateway.errors import ApiError

CR: Final = 0x0D
LINE_BYTES_MAX: Final = 4096
FRAMING_BYTES_FREE: Final = 64 * 1024
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,12})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER_LINE: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")


class _Next(enum.Enum):
    """Which line of the framing comes next."""

    SIZE = enum.auto()
    CHUNK_END = enum.auto()
    TRAILER = enum.auto()


class ChunkedBody:
    """The body so far in `data`; `done` once its last line was read. `limit` bounds the data, in bytes."""

    __slots__ = ("_framing", "_left", "_limit", "_next", "_rest", "data", "done")

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self.done = False
        self._limit = limit
        self._left = 0  # bytes of the current chunk still to come
        self._framing = 0
        self._rest = b""
        self._next = _Next.SIZE

    def feed(self, data: bytes) -> bytes:
        """Read on; what comes back lies behind the body, and then `done` is true. Raises ApiError."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        at = 0
        while not self.done and at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                self.data += piece
                self._left -= len(piece)
                at += len(piece)
                continue
            if self._next is _Next.CHUNK_END and data[at] != CR:
                raise _malformed("a chunk is longer than its size says")
            end = data.find(b"\n", at, at + LINE_BYTES_MAX)
            if end < 0:
                if len(data) - at >= LINE_BYTES_MAX:
                    raise _malformed(f"a line of its framing is longer than {LINE_BYTES_MAX} bytes")
                self._rest = data[at:]
                return b""
            if end == at or data[end - 1] != CR:
                raise _malformed("a line of its framing does not end with CRLF")
            self._framing += end + 1 - at
            if self._framing > FRAMING_BYTES_FREE + len(self.data) // 16:
                raise _malformed("its framing outweighs its data")
            self._line(data[at : end - 1])
            at = end + 1
        return data[at:]

    def _line(self, line: bytes) -> None:
        """One line of the framing, without its end."""
        match self._next:
            case _Next.SIZE:
                found = _SIZE_LINE.fullmatch(line)
                if found is None:
                    raise _malformed("a chunk's size is not a hexadecimal number")
                self._left = int(found[1], 16)
                if len(self.data) + self._left > self._limit:
                    raise too_large(self._limit)
                self._next = _Next.CHUNK_END if self._left else _Next.TRAILER
            case _Next.CHUNK_END:
                if line:
                    raise _malformed("a chunk is longer than its size says")
                self._next = _Next.SIZE
            case _Next.TRAILER:
                if not line:
                    self.done = True
                elif _TRAILER_LINE.fullmatch(line) is None:
                    raise _malformed("a trailer is not a header line")


def too_large(limit: int) -> ApiError:
    """413 for a body over the configured limit."""
    return ApiError(
        413, "body_too_large", f"The body is larger than this gateway's limit of {limit} bytes.", close=True
    )


def _malformed(reason: str) -> ApiError:
    return ApiError(400, "malformed_body", f"The chunked body is malformed: {reason}.", close=True)
