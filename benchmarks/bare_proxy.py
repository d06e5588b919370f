"""The baseline: what an ordinary Python proxy costs, with nothing on but passing bytes.

A raw ASGI application on uvicorn (uvloop, httptools, one worker) that sends each POST on with aiohttp's client and
relays the answer as it comes. No keys, no limits, no queue, no usage record, no body read.

    python benchmarks/bare_proxy.py --port 9100 --engine http://127.0.0.1:9000
"""

import argparse
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp
import uvicorn

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CONTENT_TYPE = b"content-type"


class BareProxy:
    """The ASGI application; its client lives as long as it is served."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._client: aiohttp.ClientSession

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._relay(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        # Never fewer connections than clients, and none of the client's own work that a relay does not need.
        connector = aiohttp.TCPConnector(limit=0)
        self._client = aiohttp.ClientSession(self._engine, connector=connector, auto_decompress=False)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._client.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _relay(self, scope: Message, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        headers = {"content-type": "application/json"}
        async with self._client.post(scope["path"], data=body, headers=headers) as answer:
            lines = [(name.lower(), value) for name, value in answer.raw_headers if name.lower() == CONTENT_TYPE]
            if answer.content_length is not None:
                lines.append((b"content-length", b"%d" % answer.content_length))
            await send({"type": "http.response.start", "status": answer.status, "headers": lines})
            async for piece in answer.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> bytes:
    message = await receive()
    if not message.get("more_body"):
        whole: bytes = message["body"]
        return whole
    pieces = [message["body"]]
    while message.get("more_body"):
        message = await receive()
        pieces.append(message["body"])
    return b"".join(pieces)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9100)
    parser.add_argument("--engine", default="http://127.0.0.1:9000", help="the engine's base URL, without a path")
    args = parser.parse_args()
    uvicorn.run(
        BareProxy(args.engine),
        host=args.host,
        port=args.port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        backlog=4096,
    )


if __name__ == "__main__":
    main()
