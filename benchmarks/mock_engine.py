"""An engine that costs almost nothing, to measure what stands in front of it.

It answers every POST as an OpenAI-compatible engine would: a completion of about 1 KB, or a stream of `--chunks` chunks
`--interval-ms` apart with a usage chunk at the end. Requests are parsed as little as will do.

    python benchmarks/mock_engine.py --port 9000 --chunks 20 --interval-ms 0
"""

import argparse
import asyncio
import json
from typing import Any, cast

import uvloop

HEAD_END = b"\r\n\r\n"


class Script:
    """The bytes that every request is answered with."""

    def __init__(self, chunks: int, interval_ms: float) -> None:
        self.interval_s = interval_ms / 1000
        usage = {"prompt_tokens": 12, "completion_tokens": chunks, "total_tokens": 12 + chunks}
        message = {"role": "assistant", "content": "lorem ipsum " * 55}
        whole = {
            "id": "chatcmpl-mock",
            "object": "chat.completion",
            "created": 1,
            "model": "mock",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage,
        }
        body = _json(whole)
        self.whole = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
            len(body),
            body,
        )
        self.stream_head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        delta = {"index": 0, "delta": {"content": " lorem"}, "logprobs": None, "finish_reason": None}
        base = {"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 1, "model": "mock"}
        self.events = [_event(_json({**base, "choices": [delta]})) for _ in range(chunks)]
        self.events.append(_event(_json({**base, "choices": [], "usage": usage})))
        self.last = _event(b"[DONE]") + b"0\r\n\r\n"


class Engine(asyncio.Protocol):
    """One connection."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._buffer = b""
        self._stream: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was lost
        if self._stream is not None:
            self._stream.cancel()

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        while (end := data.find(HEAD_END)) >= 0:
            head = data[:end].lower()
            at = head.find(b"content-length:")
            length = 0 if at < 0 else int(head[at + 15 :].split(b"\r\n", 1)[0])
            total = end + len(HEAD_END) + length
            if len(data) < total:
                break
            self._answer(data[end:total])
            data = data[total:]
        self._buffer = data

    def _answer(self, body: bytes) -> None:
        script = self._script
        if b'"stream":true' not in body and b'"stream": true' not in body:
            self._transport.write(script.whole)
            return
        self._transport.write(script.stream_head)
        self._next(iter(script.events))

    def _next(self, events: Any) -> None:
        """Each event is a write of its own, as a real engine's are."""
        event = next(events, None)
        if event is None:
            self._transport.write(self._script.last)
            return
        self._transport.write(event)
        loop = asyncio.get_running_loop()
        self._stream = loop.call_later(self._script.interval_s, self._next, events)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _event(payload: bytes) -> bytes:
    event = b"data: %b\n\n" % payload
    return b"%x\r\n%b\r\n" % (len(event), event)


async def serve(host: str, port: int, script: Script) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Engine(script), host, port, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000, help="0 picks a free one; it is printed")
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--interval-ms", type=float, default=0.0)
    args = parser.parse_args()
    uvloop.run(serve(args.host, args.port, Script(args.chunks, args.interval_ms)))


if __name__ == "__main__":
    main()
