"""Server-sent events of a completion: framing, the usage chunk, and what was produced so far.

Whole events are relayed as the bytes they came in; an event in pieces is held until it is whole, since a client can
make no use of less, and since a stream that breaks can then still end with a well-formed error. `[DONE]` is held back
for the end, because a request is settled before its last bytes are sent.
"""

import re
from typing import Final

from commonpool.core.model import TokenSource, Usage
from commonpool.gateway.answers import chunk_of, with_usage

EVENT_BYTES_MAX: Final = 1024 * 1024
DONE: Final = b"data: [DONE]\n\n"
_ENDS: Final = (b"\n\n", b"\n\r\n")
_BOUNDARY: Final = re.compile(rb"\n\r?\n")
_usage_in = re.compile(rb'"usage"\s*:\s*\{').search
# One event carries one token for each of these that is not empty; a quote inside a string is escaped, so text that
# looks like JSON does not match.
_produced_in = re.compile(rb'"(?:content|text|reasoning_content|reasoning|arguments)":\s?"[^"]').findall


class EventTooLargeError(Exception):
    """An engine sent an event longer than any real one."""


class EventStream:
    """Reads the events of one answer.

    `include_usage`: the client wants the usage chunk. `per_choice`: the engine reports usage once for each choice, to
    be summed into one chunk. `tokens_out` counts what was relayed; `usage` is what the engine said, None until then.
    """

    __slots__ = ("_include_usage", "_last_usage", "_per_choice", "_tail", "done", "failed", "tokens_out", "usage")

    def __init__(self, *, include_usage: bool, per_choice: bool) -> None:
        self._include_usage = include_usage
        self._per_choice = per_choice
        self._tail = bytearray()
        self._last_usage: bytes | None = None
        self.tokens_out = 0
        self.usage: Usage | None = None
        self.done = False
        self.failed = False

    def feed(self, data: bytes) -> bytes:
        """The bytes to relay now. Raises EventTooLargeError."""
        if self._tail or not data.endswith(_ENDS):
            data = self._whole(data)
            if not data:
                return b""
        self.tokens_out += len(_produced_in(data))
        if b"[DONE]" in data or b'"error"' in data or (b'"usage"' in data and _usage_in(data)):
            return self._sift(data)
        return b"" if self.done else data

    def ending(self) -> bytes:
        """The last bytes of a stream that ended well: the merged usage chunk where one is owed, and `[DONE]`."""
        if self._per_choice and self._include_usage and self._last_usage is not None and self.usage is not None:
            return b"data: %b\n\n%b" % (with_usage(self._last_usage, self.usage), DONE)
        return DONE

    def counted(self, tokens_in: int) -> Usage:
        """What a stream that was cut, or never told its usage, has used; `tokens_in` is the prompt's estimate."""
        if self.usage is not None and not self._per_choice:
            return self.usage
        return Usage(tokens_in, 0, self.tokens_out, TokenSource.COUNTED)

    def _whole(self, data: bytes) -> bytes:
        """The whole events that `data` completes; what follows them is kept."""
        tail = self._tail
        start = max(0, len(tail) - 2)  # a boundary may have begun in what is kept
        tail += data
        end = max(tail.rfind(ending, start) + len(ending) if ending in tail[start:] else 0 for ending in _ENDS)
        whole = bytes(tail[:end])
        del tail[:end]
        if len(tail) > EVENT_BYTES_MAX:
            raise EventTooLargeError
        return whole

    def _sift(self, data: bytes) -> bytes:
        """`data`, whole events, without those the client is not to see."""
        kept = []
        start = 0
        for found in _BOUNDARY.finditer(data):
            event = data[start : found.end()]
            start = found.end()
            if not self.done and self._passes(event):
                kept.append(event)
        return b"".join(kept)

    def _passes(self, event: bytes) -> bool:
        """Whether the client gets this event; notes what it says."""
        payload = _payload(event)
        if payload == b"[DONE]":
            self.done = True
            return False
        chunk = chunk_of(payload) if b'"error"' in event or _usage_in(event) else None
        if chunk is None:
            return True
        if chunk.failed:
            self.failed = True  # the client hears of it in our own words
            return False
        if chunk.usage is not None and self._per_choice and not chunk.has_choices:
            self._last_usage = payload
            self.usage = chunk.usage if self.usage is None else _sum(self.usage, chunk.usage)
            return False
        self.usage = chunk.usage or self.usage
        return chunk.has_choices or chunk.usage is None or self._include_usage


def _payload(event: bytes) -> bytes:
    """The data of an event: its `data:` lines, without the field name and one blank."""
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return lines[0].strip() if len(lines) == 1 else b"\n".join(lines)


def _sum(all_before: Usage, one: Usage) -> Usage:
    """Choices share their prompt, which is counted once; each has its own output."""
    return Usage(
        max(all_before.tokens_in, one.tokens_in),
        max(all_before.tokens_cached, one.tokens_cached),
        all_before.tokens_out + one.tokens_out,
    )
