"""The output tokens of further choices, for engines whose `usage` counts the first one only.

The engine's own tokenizer counts the text of each other choice, one after the other; where it does not answer, the
length of the text stands in. Only answers with several choices of such engines come here.
"""

from collections.abc import Callable

import msgspec

from commonpool.core.model import TokenSource, Usage
from commonpool.engines.base import Target
from commonpool.gateway.answers import estimate
from commonpool.gateway.upstream import Loss, Pool, UpstreamConnection


class _Tokens(msgspec.Struct):
    tokens: list[msgspec.Raw]


class Recount:
    """Counts `texts` (those of the other choices) on top of `usage`, and hands the sum to `counted`."""

    __slots__ = ("_body", "_connection", "_counted", "_path", "_pool", "_status", "_target", "_texts", "usage")

    def __init__(
        self, pool: Pool, target: Target, path: str, texts: list[str], usage: Usage, counted: Callable[[Usage], None]
    ) -> None:
        self.usage = usage
        self._pool = pool
        self._target = target
        self._path = path
        self._texts = texts
        self._counted = counted
        self._connection: UpstreamConnection | None = None
        self._body = bytearray()
        self._status = 0

    def start(self) -> None:
        """Ask for the next text's tokens, or finish."""
        if not self._texts:
            self._counted(self.usage)
            return
        self._body.clear()
        body = msgspec.json.encode({"content": self._texts[0]})
        self._connection = self._pool.send(self._target, self._path, body, self)

    def abort(self) -> None:
        """The answer is not wanted any more."""
        if self._connection is not None:
            self._connection.abort()

    # -- Reader

    def head(self, status: int, *, event_stream: bool) -> None:  # noqa: ARG002 - an answer is read whole here
        self._status = status

    def data(self, piece: bytes) -> None:
        self._body += piece

    def done(self) -> None:
        try:
            tokens = len(msgspec.json.decode(self._body, type=_Tokens).tokens) if self._status == 200 else None  # noqa: PLR2004
        except msgspec.DecodeError:
            tokens = None
        self._add(tokens)

    def lost(self, loss: Loss) -> None:  # noqa: ARG002 - whatever happened, the length stands in
        self._add(None)

    def _add(self, tokens: int | None) -> None:
        before = self.usage
        source = before.source
        text = self._texts.pop(0)
        if tokens is None:
            tokens = estimate(0, [text]).tokens_out
            source = TokenSource.ESTIMATED
        self.usage = Usage(before.tokens_in, before.tokens_cached, before.tokens_out + tokens, source)
        self.start()
