"""Putting a streamed answer together as if it had not been streamed.

For engines that let go of a request whose client left only when it is a stream (`Adapter.frees_streams_only`).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_ONCE = frozenset({"role", "id", "type", "name"})  # sent once; other texts come in pieces
_COUNTS = ("prompt_tokens", "completion_tokens")


class Assembly:
    """Takes the payloads of a stream's events in order; `body` is the whole answer.

    Each usage chunk is that of one choice (`Adapter.usage_per_choice`) when `per_choice`, so their outputs are added.
    """

    def __init__(self, *, per_choice: bool) -> None:
        self._per_choice = per_choice
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] | None = None

    def feed(self, payload: bytes) -> None:
        """One event's data; not `[DONE]`. Raises msgspec.DecodeError where it is no JSON object."""
        chunk = _decode(payload)
        if "prompt_progress" in chunk:
            return
        for choice in chunk.pop("choices", None) or ():
            self._add(choice)
        self._count(chunk.pop("usage", None))
        self._head.update(chunk)

    def body(self) -> bytes:
        """The answer as JSON."""
        head = self._head
        if head.get("object") == "chat.completion.chunk":
            head["object"] = "chat.completion"
        choices = [_finished(index, choice) for index, choice in sorted(self._choices.items())]
        return msgspec.json.encode(
            {**head, "choices": choices} if self._usage is None else {**head, "choices": choices, "usage": self._usage}
        )

    def _add(self, piece: dict[str, Any]) -> None:
        choice = self._choices.setdefault(piece.get("index", 0), {"finish_reason": None, "logprobs": None})
        if piece.get("finish_reason") is not None:
            choice["finish_reason"] = piece["finish_reason"]
        if piece.get("logprobs"):
            choice["logprobs"] = _merged(choice["logprobs"], piece["logprobs"])
        if "delta" in piece:
            choice["message"] = _merged(choice.get("message"), piece["delta"])
        if "text" in piece:
            choice["text"] = choice.get("text", "") + (piece["text"] or "")

    def _count(self, usage: dict[str, Any] | None) -> None:
        if usage is None:
            return
        before = self._usage
        self._usage = usage
        if before is None or not self._per_choice:
            return
        usage["prompt_tokens"] = max(before["prompt_tokens"], usage["prompt_tokens"])
        usage["completion_tokens"] += before["completion_tokens"]
        usage["total_tokens"] = sum(usage[name] for name in _COUNTS)


def _merged(whole: Any, piece: Any, name: str = "") -> Any:
    """`piece` added to what came before it: texts are appended, objects by field, lists by `index` or appended."""
    match whole, piece:
        case _, None:
            return whole
        case None, dict() | list():
            return _merged(type(piece)(), piece)
        case str(), str() if name not in _ONCE:
            return whole + piece
        case dict(), dict():
            return {**whole, **{key: _merged(whole.get(key), value, key) for key, value in piece.items()}}
        case list(), list():
            return _merged_lists(whole, piece)
    return piece if whole is None else whole


def _merged_lists(whole: list[Any], piece: list[Any]) -> list[Any]:
    merged = list(whole)
    for item in piece:
        index = item.get("index") if isinstance(item, Mapping) else None
        at = next((i for i, old in enumerate(merged) if index is not None and old.get("index") == index), None)
        if at is None:
            merged.append(item)
        else:
            merged[at] = _merged(merged[at], item)
    return merged


def _finished(index: int, choice: dict[str, Any]) -> dict[str, Any]:
    """A choice as it stands in a whole answer, where tool calls have no index and absent parts are left out."""
    message = choice.get("message")
    if message is not None:
        for call in message.get("tool_calls") or ():
            call.pop("index", None)
        choice["message"] = {"role": "assistant", "content": None, **message}
    if choice["logprobs"] is None:
        del choice["logprobs"]
    return {"index": index, **choice}
