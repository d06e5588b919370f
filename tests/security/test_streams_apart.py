"""Streams stay apart: 1,000 clients leave at random among 200 that read at once, and nobody reads another's bytes.

Every request has a mark of its own, which its answer repeats in every event. So what a client may read is known byte
by byte: the answer to its own mark as far as it goes, and nothing else. Connections are used again on both sides, by
clients after whole answers and by the gateway to its engines.
"""

import asyncio
import random
from collections import Counter, deque
from pathlib import Path
from typing import Any

import msgspec

from commonpool.core.model import Outcome
from commonpool.engines.registry import LLAMACPP, OPENAI
from tests.engines.running import run as run_long
from tests.engines.running import until_busy
from tests.faults.peer import Peer
from tests.faults.rig import MARK, Rig, asking, marks, rig
from tests.gateway.fakes import Call, done_event, post, run, text_event, usage_event
from tests.security.served import Served, key, served

STREAMS = 200
CANCELS = 1000
EVENTS = 6
HEAD_END = b"\r\n\r\n"


def expected(mark: bytes) -> bytes:
    """The body of the whole stream that answers this mark."""
    return b"".join(text_event(f"{mark.decode()}{number} ") for number in range(EVENTS)) + done_event()


def streamed(raw: bytes) -> bytes:
    """The body of a stream as far as it has come; `raw` begins with the answer's head."""
    head, found, data = raw.partition(HEAD_END)
    if not found:
        return b""
    assert head.startswith(b"HTTP/1.1 200 "), head
    assert b"transfer-encoding: chunked" in head
    body = b""
    while (at := data.find(b"\r\n")) >= 0:
        size = int(data[:at], 16)
        body += data[at + 2 : at + 2 + size]
        data = data[at + 4 + size :]
    return body


class Engines:
    """Answer each mark with its own stream, in pieces of any size, a little at a time; none before all are there.

    `most` is how many streams were open at once.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._open = 0
        self._held: list[tuple[Call, deque[bytes]]] | None = []
        self.most = 0
        self.mixed = 0  # requests that held another mark than their own

    def __call__(self, call: Call) -> None:
        (mark, *others) = MARK.findall(call.body)
        self.mixed += bool(others)
        self._open += 1
        self.most = max(self.most, self._open)
        whole = b"".join(text_event(f"{mark.decode()}{number} ") for number in range(EVENTS))
        whole += usage_event() + done_event()
        size = self._dice.choice((len(whole), 400, 90, 33))
        parts = deque(whole[at : at + size] for at in range(0, len(whole), size))
        call.begin_stream()
        if self._held is None:
            self._go_on(call, parts)
            return
        self._held.append((call, parts))
        if len(self._held) == STREAMS:
            held, self._held = self._held, None
            for each, its in held:
                self._go_on(each, its)

    def _go_on(self, call: Call, parts: deque[bytes]) -> None:
        if call.transport.is_closing():
            self._open -= 1
        elif not parts:
            call.send(b"0\r\n\r\n")
            self._open -= 1
        else:
            call.chunk(parts.popleft())
            later = self._dice.randrange(6)
            asyncio.get_running_loop().call_soon(self._wait, later, call, parts)

    def _wait(self, turns: int, call: Call, parts: deque[bytes]) -> None:
        if turns and not call.transport.is_closing():
            asyncio.get_running_loop().call_soon(self._wait, turns - 1, call, parts)
        else:
            self._go_on(call, parts)


class Crowd:
    """Clients that together leave `CANCELS` times, each at a moment of its own choice."""

    def __init__(self, here: Rig, dice: random.Random) -> None:
        self._here = here
        self._dice = dice
        self.left = 0
        self.done: Counter[str] = Counter()

    async def live(self) -> None:
        peer = await self._here.peer()
        asked = 0
        while self.left < CANCELS:
            asked += 1
            mark = self._here.mark()
            before = len(peer.heard)
            peer.send(asking(mark, stream=True))
            if self._dice.random() < 0.4:
                self._read_whole((await peer.reply()).body, mark)
                self.done["whole answers"] += 1
                self.done["on a connection used before"] += asked > 1
                continue
            self.left += 1
            await self._leave(peer, before)
            body = streamed(peer.heard[before:])
            assert expected(mark).startswith(body), "bytes that are not of this answer"
            self.done["left within the answer" if body else "left before it"] += 1
            assert marks(peer.heard[before:]) <= {mark}
            peer, asked = await self._here.peer(), 0
        await peer.close()

    def _read_whole(self, body: bytes, mark: bytes) -> None:
        assert body == expected(mark)

    async def _leave(self, peer: Peer, before: int) -> None:
        """Read some of the answer or none of it, then go: by a reset, by a close, or by the end of what is sent."""
        enough = before + self._dice.choice((0, 0, 1, 300, 600, 900, 1100))
        while len(peer.heard) < enough and done_event() not in peer.heard[before:]:
            assert await peer.more(self._dice.choice((64, 256, 65536)))
        how = self._dice.randrange(3)
        if how == 0:
            peer.reset()
        elif how == 1:
            peer.finish()
            await peer.lost()
        else:
            await peer.close()


def test_a_thousand_clients_leave_and_no_stream_has_a_byte_of_another(tmp_path: Path) -> None:
    async def main() -> None:
        dice = random.Random(1)
        async with rig(tmp_path, adapters=(OPENAI, LLAMACPP), slots=STREAMS // 2) as here:
            engines = here.engine.script = Engines(dice)
            crowd = Crowd(here, dice)
            async with asyncio.TaskGroup() as group:
                for _ in range(STREAMS):
                    group.create_task(crowd.live())
            assert engines.most == STREAMS
            assert engines.mixed == 0
            assert crowd.left >= CANCELS
            assert min(crowd.done.values()) > 50, crowd.done
            assert len(crowd.done) == 4
            await here.settled()
            ended = Counter(record.outcome for record in here.seen)
            assert ended[Outcome.CANCELLED] >= CANCELS // 2
            assert ended[Outcome.COMPLETED] >= crowd.done["whole answers"]
            assert set(ended) <= {Outcome.COMPLETED, Outcome.CANCELLED}
            # Engines were asked on connections that had answered others before.
            assert len(here.engine.calls) - len({id(call.transport) for call in here.engine.calls}) > 200

    run(main)


# -- the same with the real engine: a grammar lets it say nothing but its own mark

REAL_CLIENTS = 8
REAL_CANCELS = 16
REPEATS = 2


async def real_client(here: Served, dice: random.Random, tenant: str, state: dict[str, int]) -> None:
    while state["left"] < REAL_CANCELS:
        state["marks"] += 1
        mark = f"mark-{state['marks']:06d}-"
        body: dict[str, Any] = {
            "model": "tiny",
            "prompt": f"Say {mark}.",
            "grammar": f'root ::= "{mark * REPEATS}"',
            "max_tokens": 60,
            "stream": True,
        }
        async with here.client() as client:
            client.send(post(body, "/v1/completions", key=key(tenant)))
            whole = dice.random() < 0.4
            enough = 1 << 30 if whole else dice.choice((0, 1, 3, 8))
            said = ""
            if not whole:
                state["left"] += 1
            if enough:
                status, _ = await client.head()
                assert status == 200
                async for piece in client.chunks():
                    for line in piece.splitlines():
                        if line.startswith(b"data: {"):
                            choices = msgspec.json.decode(line[6:])["choices"]
                            said += choices[0]["text"] if choices else ""
                    if len(said) >= enough:
                        break
            assert (mark * REPEATS).startswith(said), said
            if whole:
                assert said == mark * REPEATS
                state["whole"] += 1
            else:
                client.abort()


def test_with_the_real_engine_too_each_stream_says_its_own_mark_alone(tmp_path: Path) -> None:
    async def main() -> None:
        dice = random.Random(7)
        state = {"marks": 0, "left": 0, "whole": 0}
        async with served(tmp_path, ("a", "b"), slots=4) as here:
            async with asyncio.TaskGroup() as group:
                for number in range(REAL_CLIENTS):
                    group.create_task(real_client(here, dice, "ab"[number % 2], state))
            assert state["left"] >= REAL_CANCELS
            assert state["whole"] > 2
            await until_busy(here.handle, slots=0)
            while here.running():  # noqa: ASYNC110 - bounded by the test's own time-out
                await asyncio.sleep(0.01)
            assert {record.outcome for record in here.records} == {Outcome.COMPLETED, Outcome.CANCELLED}

    run_long(main)
