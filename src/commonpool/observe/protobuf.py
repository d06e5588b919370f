"""Protobuf's wire format, as far as traces need it (https://protobuf.dev/programming-guides/encoding).

Written here since the library's messages take 90 µs of the interpreter for a span, which requests are served by, too.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

_FIXED: Final = Struct("<Q").pack
_BYTE: Final = tuple(bytes((number,)) for number in range(128))
_LAST: Final = 128


def varint(number: int) -> bytes:
    """A number, not below zero."""
    if number < _LAST:
        return _BYTE[number]
    parts = bytearray()
    while number >= _LAST:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


@lru_cache(256)
def _tag(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


def length(field: int, content: bytes) -> bytes:
    """A field of bytes, a text, or another message."""
    return _tag(field, 2) + varint(len(content)) + content


def number(field: int, value: int) -> bytes:
    """A field of an integer or an enum."""
    return _tag(field, 0) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    """A field of 64 bits."""
    return _tag(field, 1) + _FIXED(value)
