"""A neighbour that does its worst, in a process of its own, until it is ended.

    python -m benchmarks.neighbour_noise KIND URL KEY

It prints a line when the first of what it does was answered or refused, and at the end how often each status came.
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

PATH = "/v1/chat/completions"
HUGE = "hello " * 800
RECEIVE_BYTES = 4096


class Neighbour:
    """Where it asks, with what key, and what came of it."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._key = key
        self.told: Counter[str] = Counter()
        self.begun = asyncio.Event()

    async def connect(self, *, receive_bytes: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket()
        sock.setblocking(False)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(sock, (self._host, self._port))
        return await asyncio.open_connection(sock=sock, limit=receive_bytes or 65536)

    def request(self, text: str, tokens: int, *, stream: bool = False) -> bytes:
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": tokens, "stream": stream}
        raw = json.dumps(body | {"service_tier": "batch", "ignore_eos": True}).encode()
        head = f"POST {PATH} HTTP/1.1\r\nhost: {self._host}\r\nauthorization: Bearer {self._key}\r\n"
        return f"{head}content-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw

    async def answer(self, reader: asyncio.StreamReader) -> None:
        """Read one whole answer that tells its length."""
        head = await reader.readuntil(b"\r\n\r\n")
        status = head.split(b" ", 2)[1].decode()
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        await reader.readexactly(int(lines[b"content-length"]))
        self.count(status if b"x-commonpool-slowed" not in lines else f"{status}, slowed")

    def count(self, what: str) -> None:
        self.told[what] += 1
        self.begun.set()


async def asks_on_and_on(it: Neighbour, text: str, tokens: int) -> None:
    reader, writer = await it.connect()
    while not writer.is_closing():
        writer.write(it.request(text, tokens))
        await it.answer(reader)


async def flood(it: Neighbour) -> None:
    await asks_on_and_on(it, "Tell me a story.", 24)


async def huge_prompts(it: Neighbour) -> None:
    await asks_on_and_on(it, HUGE, 4)


async def retry_storm(it: Neighbour) -> None:
    """The same request, again as soon as it is refused."""
    await asks_on_and_on(it, "Once more.", 4)


async def slow_reader(it: Neighbour) -> None:
    """It asks for a long stream, and reads a byte of it now and then."""
    while True:
        reader, writer = await it.connect(receive_bytes=RECEIVE_BYTES)
        writer.write(it.request("Count to a thousand.", 200, stream=True))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readexactly(1)
                it.count("bytes")
                await asyncio.sleep(0.5)
        writer.close()


async def reconnect_storm(it: Neighbour) -> None:
    """It connects, asks, and goes away before it was answered."""
    dice = random.Random(id(it))
    while True:
        _, writer = await it.connect()
        writer.write(it.request("Tell me a story.", 100, stream=True))
        await asyncio.sleep(dice.uniform(0.0, 0.1))
        writer.transport.abort()
        it.count("left")


# How many of each at once.
KINDS: dict[str, tuple[Callable[[Neighbour], Awaitable[None]], int]] = {
    "flood": (flood, 64),
    "huge prompts": (huge_prompts, 32),
    "slow reader": (slow_reader, 32),
    "reconnect storm": (reconnect_storm, 32),
    "retry storm": (retry_storm, 32),
}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("url")
    parser.add_argument("key")
    args = parser.parse_args()
    it = Neighbour(args.url, args.key)
    work, count = KINDS[args.kind]
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    tasks = [asyncio.ensure_future(work(it)) for _ in range(count)]
    await it.begun.wait()
    print("begun", flush=True)
    await over.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps(it.told), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
