"""An engine for a replica's child process that answers at once and at the pace that a request's prompt asks for.

It speaks `engines.child`'s protocol. A prompt `slow N` is answered in N milliseconds, and of a prompt `until FILE` the
end comes when there is such a file; the answer names the engine's host, so that a test sees where it ran. Of a request
that is traced it writes to its log what it was told of that.
"""

import asyncio
import json
import os
import re
import sys
from pathlib import Path

SLOW = re.compile(rb"slow (\d+)")
UNTIL = re.compile(rb"until ([\w./-]+)")
TRACED = re.compile(rb"traceparent: (\S+-01)\r", re.IGNORECASE)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def main() -> None:
    spec = json.loads(sys.stdin.readline())
    server = await asyncio.start_server(lambda r, w: serve(spec["host"], r, w), spec["host"], 0)
    say(1, json.dumps({"host": spec["host"], "port": server.sockets[0].getsockname()[1]}))
    say(2, f"devices {os.environ.get('CUDA_VISIBLE_DEVICES')}")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)


def say(to: int, line: str) -> None:
    os.write(to, f"{line}\n".encode())


async def serve(host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length[1])) if length else b""
            if traced := TRACED.search(head):
                say(2, f"traced {traced[1].decode()}")
            if head.startswith(b"GET"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            else:
                await answer(host, body, writer)
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def answer(host: str, body: bytes, writer: asyncio.StreamWriter) -> None:
    asked = json.loads(body)
    slow = SLOW.search(body)
    if slow:
        await asyncio.sleep(int(slow[1]) / 1000)
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    if not asked.get("stream"):
        message = {"role": "assistant", "content": host}
        whole = {"choices": [{"index": 0, "message": message, "text": host, "finish_reason": "stop"}], "usage": usage}
        data = json.dumps(whole).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(data))
        writer.write(data)
        return
    choice = {"index": 0, "delta": {"role": "assistant", "content": host}, "finish_reason": None}
    base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": asked.get("model", "")}
    writer.write(HEAD)
    until = UNTIL.search(body)
    for number, event in enumerate(
        (
            {**base, "choices": [choice]},
            {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {**base, "choices": [], "usage": usage},
        )
    ):
        chunk = b"data: " + json.dumps(event).encode() + b"\n\n"
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if until and not number:
            await there(Path(until[1].decode()))
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def there(file: Path) -> None:
    while not file.exists():  # noqa: ASYNC110, ASYNC240 - a test makes it
        await asyncio.sleep(0.02)


asyncio.run(main())
