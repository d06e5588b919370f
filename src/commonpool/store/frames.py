"""Frames: how records lie in a journal segment, so that a reader can tell a whole one from a torn or damaged one.

A frame is a marker of 4 bytes (which names the format's version), the payload's length and CRC-32 as little-endian
32-bit integers, then the payload. The marker lets a reader find the next frame behind a damaged one, and keeps a run of
zeros, which a file can have at its end after a power cut, from being read as frames of length 0.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

MARKER = b"\xc1CP1"  # 0xc1 is the one byte that MessagePack never uses as a type
PAYLOAD_BYTES_MAX = 1024 * 1024

_HEAD = struct.Struct("<4sII")
HEAD_BYTES = _HEAD.size


class Frame(NamedTuple):
    """A whole frame: it lies at data[start:stop]."""

    start: int
    stop: int
    payload: bytes


def frame(payload: bytes) -> bytes:
    """The payload as a frame. ValueError where it is over PAYLOAD_BYTES_MAX."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"A journal record has {len(payload)} bytes; at most {PAYLOAD_BYTES_MAX} are allowed.")
    return _HEAD.pack(MARKER, len(payload), zlib.crc32(payload)) + payload


def frames(data: bytes, start: int = 0) -> Iterator[Frame]:
    """The whole frames from `start` on, in order. Where one does not begin at the last one's end, what is between is
    damaged.

    Nothing is yielded for a torn frame at the end.
    """
    while (start := data.find(MARKER, start)) >= 0 and start + HEAD_BYTES <= len(data):
        _, length, crc = _HEAD.unpack_from(data, start)
        stop = start + HEAD_BYTES + length
        payload = data[start + HEAD_BYTES : stop] if length <= PAYLOAD_BYTES_MAX else b""
        if len(payload) == length and zlib.crc32(payload) == crc:
            yield Frame(start, stop, payload)
            start = stop
        else:
            start += 1
