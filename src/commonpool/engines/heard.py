"""An answer as it went over a client's connection, taken apart: its status, its body, and that in one piece."""

import re
from collections.abc import Iterator
from typing import Final

import httptools
import msgspec

from commonpool.engines.assemble import Assembly

_BOUNDARY: Final = re.compile(rb"\n\r?\n")
_EVENTS: Final = b"data:"


def answer_of(raw: bytes) -> tuple[int | None, bytes]:
    """The status of an HTTP answer and its body as far as it goes, without chunks; None where its head is not whole."""
    found = _Found()
    parser = httptools.HttpResponseParser(found)
    parser.feed_data(raw)
    return parser.get_status_code() if found.headed else None, b"".join(found.pieces)


def in_one_piece(body: bytes) -> bytes:
    """A streamed answer as it would be otherwise, where it can be put together; any other is as it is."""
    if not body.startswith(_EVENTS):
        return body
    assembly = Assembly()
    try:
        for payload in payloads(body):
            assembly.feed(payload)
    except (msgspec.DecodeError, RecursionError):
        return body
    return assembly.body()


def events(data: bytes) -> Iterator[bytes]:
    """The server-sent events of `data`, whole ones, each with its end."""
    start = 0
    for found in _BOUNDARY.finditer(data):
        yield data[start : found.end()]
        start = found.end()


def payload_of(event: bytes) -> bytes:
    """The data of an event: its `data:` lines, without the field name and one blank."""
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return lines[0].strip() if len(lines) == 1 else b"\n".join(lines)


def payloads(data: bytes) -> Iterator[bytes]:
    """What the events of `data`, whole ones, carry; comments carry nothing, and `[DONE]` is left out."""
    for event in events(data):
        payload = payload_of(event)
        if payload and payload != b"[DONE]":
            yield payload


class _Found:
    """What the parser calls back."""

    def __init__(self) -> None:
        self.headed = False
        self.pieces: list[bytes] = []

    def on_headers_complete(self) -> None:
        self.headed = True

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)
