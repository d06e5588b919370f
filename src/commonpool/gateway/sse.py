"""Server-sent events of a completion: framing, the usage chunk, and what was produced so far.

Whole events are relayed as the bytes they came in; an event in pieces is held until it is whole, since a client can
make no use of less, and since a stream that breaks can then still end with a well-formed error. `[DONE]` is held back
for the end, because a request is settled before its last bytes are sent.
"""

import re
from typing import Final

from commonpool.core.model import TokenSource, Usage
from commonpool.engines.heard import events, payload_of
from commonpool.gateway.answers import chunk_of, event_error, usage_chunk, without_usage
from commonpool.gateway.errors import ApiError

EVENT_BYTES_MAX: Final = 1024 * 1024
DONE: Final = b"data: [DONE]\n\n"
_ENDS: Final = (b"\n\n", b"\n\r\n")
_PROGRESS: Final = b'"prompt_progress":'  # with its colon, so that no text looks like it
_usage_in = re.compile(rb'"usage"\s*:\s*\{').search
# One event carries one token for each of these that is not empty; a quote inside a string is escaped, so text that
# looks like JSON does not match.
_produced_in = re.compile(rb'"(?:content|text|reasoning_content|reasoning|arguments)":\s?"[^"]').findall


class EventTooLargeError(Exception):
    """An engine sent an event longer than any real one."""


class EventStream:
    """Reads the events of one answer.

    `include_usage`: the client wants the usage chunk. `choices`: where the engine reports the usage of each choice by
    itself, how many choices each prompt has; their usage is summed into one chunk. `tokens_out` counts what was
    relayed; `usage` is what the engine said, None until then; `error` is what it failed with.
    """

    __slots__ = ("_choices", "_include_usage", "_last_usage", "_sum", "_tail", "done", "error", "tokens_out", "usage")

    def __init__(self, *, include_usage: bool, choices: int | None = None) -> None:
        self._include_usage = include_usage
        self._choices = choices
        self._tail = bytearray()
        self._last_usage = b""
        self._sum = Usage()
        self.tokens_out = 0
        self.usage: Usage | None = None
        self.done = False
        self.error: ApiError | None = None

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
        if self._choices is not None and self._include_usage and self.usage is not None:
            return b"data: %b\n\n%b" % (usage_chunk(self._last_usage, self.usage), DONE)
        return DONE

    def counted(self, tokens_in: int) -> Usage:
        """What a stream that was cut, or never told its usage, has used; `tokens_in` is the prompt's estimate."""
        if self.usage is not None and self._choices is None:
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
        return b"".join([self._sifted(event) for event in events(data) if not self.done])

    def _sifted(self, event: bytes) -> bytes:
        """What the client gets of this event; notes what it says."""
        payload = payload_of(event)
        if payload == b"[DONE]":
            self.done = True
            return b""
        chunk = chunk_of(payload) if b'"error"' in event or _usage_in(event) else None
        if chunk is None:
            return event
        if chunk.failed:
            self.error = event_error(payload)  # the client hears of it in our own words
            return b""
        if chunk.usage is not None and self._choices is not None:
            self._last_usage = payload
            self._add(chunk.usage, self._choices)
            return b"data: %b\n\n" % without_usage(payload) if chunk.has_choices else b""
        self.usage = chunk.usage or self.usage
        return event if chunk.has_choices or chunk.usage is None or self._include_usage else b""

    def _add(self, one: Usage, choices: int) -> None:
        """The usage of one more choice. Each has its own output; those of one prompt share it, so it counts once."""
        before = self._sum
        self._sum = Usage(
            before.tokens_in + one.tokens_in,
            before.tokens_cached + one.tokens_cached,
            before.tokens_out + one.tokens_out,
        )
        self.usage = Usage(self._sum.tokens_in // choices, self._sum.tokens_cached // choices, self._sum.tokens_out)


class ProgressStream(EventStream):
    """The events of an engine that also tells how far it has read the prompt, which is not for clients."""

    __slots__ = ()

    def feed(self, data: bytes) -> bytes:
        out = self._sift(self._whole(data))
        self.tokens_out += len(_produced_in(out))
        return out

    def _sifted(self, event: bytes) -> bytes:
        return b"" if _PROGRESS in event else super()._sifted(event)
