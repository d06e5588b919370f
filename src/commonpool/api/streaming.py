"""Answers that go on: server-sent events, written as they come, to a reader who takes them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

EVENTS = "text/event-stream"
CUT = "commonpool.cut"
"""The extension of an ASGI scope whose `now` ends its connection, without waiting for what was not taken."""

TAKEN_WITHIN_S = 10.0  # a reader that takes nothing for so long is cut


class Streamed(msgspec.Struct, frozen=True):
    """What a handler answers that goes on: pieces of the body, and what to do once nobody reads them any more."""

    pieces: AsyncIterator[bytes]
    close: Callable[[], None]


class EventStream(Response):
    """Writes the pieces until they end, the reader leaves, or it takes nothing for `within_s`."""

    media_type = EVENTS

    def __init__(self, streamed: Streamed, headers: Mapping[str, str], within_s: float = TAKEN_WITHIN_S) -> None:
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._streamed = streamed
        self._within_s = within_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.ensure_future(self._write(send))
        leaving = asyncio.ensure_future(_left(receive))
        both: set[asyncio.Future[Any]] = {writing, leaving}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if writing.done() and isinstance(writing.exception(), TimeoutError):
                cut(scope)
            elif writing.done():
                await writing
        finally:
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            self._streamed.close()

    async def _write(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        async for piece in self._streamed.pieces:
            async with asyncio.timeout(self._within_s):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(self._within_s):
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def cut(scope: Scope) -> None:
    """End the connection of a request, whatever it has not taken or not sent; nothing where there is none to end."""
    now = scope.get("extensions", {}).get(CUT, {}).get("now")
    if now is not None:
        now()


def event(name: str, data: object, place: str = "") -> bytes:
    """One event; `data` as JSON on one line. With a `place` the reader asks for what follows it when it comes again."""
    head = f"id: {place}\nevent: {name}\n" if place else f"event: {name}\n"
    return b"%sdata: %s\n\n" % (head.encode(), msgspec.json.encode(data))
