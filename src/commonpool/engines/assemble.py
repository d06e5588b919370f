"""Putting a streamed answer together as if it had not been streamed.

For engines that let go of a request whose client left only when it is a stream (`Adapter.frees_streams_only`).
"""

from typing import Any, Final, TypedDict

import msgspec
from msgspec import Raw

_ONCE: Final = frozenset({"role", "id", "type", "name", "finish_reason"})  # other texts come in pieces
_CHUNK: Final = Raw(b'"chat.completion.chunk"')
_ANSWER: Final = Raw(b'"chat.completion"')
_NONE: Final = Raw(b"null")


class _Piece(TypedDict, total=False):
    """What a chunk says of one choice."""

    index: int
    delta: dict[str, Any] | None
    text: str | None
    logprobs: dict[str, Any] | None
    finish_reason: str | None


_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_pieces = msgspec.json.Decoder(list[_Piece] | None).decode
_encode = msgspec.json.Encoder().encode


class Assembly:
    """Takes the payloads of a stream's events in order; `body` is the whole answer.

    What is said once (model, usage, timings) is as in the last chunk that said it.
    """

    def __init__(self) -> None:
        self._head: dict[str, Raw] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def feed(self, payload: bytes) -> None:
        """One event's data; not `[DONE]`. Raises msgspec.DecodeError where it is no chunk of an answer."""
        fields = _fields(payload)
        for piece in _pieces(fields.pop("choices", _NONE)) or ():
            index = piece.get("index", 0)
            _add(self._choices.setdefault(index, {"index": index, "finish_reason": None}), piece)
        self._head |= fields

    def body(self) -> bytes:
        """The answer as JSON."""
        head = self._head
        if head.get("object") == _CHUNK:
            head["object"] = _ANSWER
        choices = [_finished(choice) for _, choice in sorted(self._choices.items())]
        return _encode({**head, "choices": choices})


def _add(whole: dict[str, Any], piece: _Piece | dict[str, Any]) -> None:
    """`piece` onto what came before it: texts are appended, objects by field, lists by `index` or appended."""
    for name, new in piece.items():
        match whole.get(name), new:
            case None, _:
                whole[name] = new
            case str(old), str() if name not in _ONCE:
                whole[name] = old + new
            case dict(old), dict():
                _add(old, new)
            case list(old), list():
                _extend(old, new)


def _extend(whole: list[Any], items: list[Any]) -> None:
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        same = () if index is None else (old for old in whole if isinstance(old, dict) and old.get("index") == index)
        for old in same:
            _add(old, item)
            break
        else:
            whole.append(item)


def _finished(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice as it stands in a whole answer, where it has a message and tool calls have no index."""
    if "delta" not in choice:
        return choice
    message = {"role": "assistant", "content": None, **(choice.pop("delta") or {})}
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            call.pop("index", None)
    return {**choice, "message": message}
