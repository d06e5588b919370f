"""A storm: hundreds of clients that ask, pipeline, dawdle, cancel and reset at random, all at once, from a seed."""

import asyncio
import random
from collections import Counter, deque
from pathlib import Path

import pytest

from commonpool.core.breaker import OPEN_MAX_NS
from commonpool.core.model import Outcome
from commonpool.engines.registry import EMBEDDED, OPENAI
from tests.faults.peer import Peer, Reply
from tests.faults.rig import Rig, asking, assert_answers, echoed, marks, pieces, rig
from tests.gateway.fakes import Call, get, post, run

CLIENTS = 300
ACTIONS_MAX = 4
BREAKS = 0.002  # of the turns of an engine


class Client:
    """One client with a seed of its own; `own` are the marks it may ever read."""

    def __init__(self, here: Rig, seed: int, done: Counter[str]) -> None:
        self._here = here
        self._dice = random.Random(seed)
        self._done = done
        self.own: set[bytes] = set()

    async def live(self) -> None:
        for _ in range(self._dice.randrange(4)):
            await asyncio.sleep(0)
        peer = await self._here.peer()
        actions = (self.ask, self.ask, self.pipeline, self.stream_and_leave, self.ask_and_leave, self.half, self.junk)
        for _ in range(self._dice.randint(1, ACTIONS_MAX)):
            action = self._dice.choice(actions)
            self._done[action.__name__] += 1
            goes_on = await action(peer)
            assert marks(peer.heard) <= self.own, "another client's bytes"
            if not goes_on:
                break
        await peer.close()
        assert marks(peer.heard) <= self.own, "another client's bytes"

    def request(self, *, stream: bool = False) -> tuple[bytes, bytes]:
        mark = self._here.mark()
        self.own.add(mark)
        return mark, asking(mark, stream=stream)

    async def send(self, peer: Peer, data: bytes) -> None:
        size = self._dice.choice((len(data), len(data), 100, 17))
        for piece in pieces(data, size):
            peer.send(piece)
            if size < len(data):
                await asyncio.sleep(0)

    async def ask(self, peer: Peer) -> bool:
        mark, data = self.request(stream=self._dice.random() < 0.5)
        await self.send(peer, data)
        assert_own(await peer.reply(), mark)
        return True

    async def pipeline(self, peer: Peer) -> bool:
        requests = [self.request(stream=self._dice.random() < 0.5) for _ in range(self._dice.randint(2, 4))]
        await self.send(peer, get("/v1/models").join(data for _, data in requests))
        for index, (mark, _) in enumerate(requests):
            if index:
                assert (await peer.reply()).json["object"] == "list"
            assert_own(await peer.reply(), mark)
        return True

    async def stream_and_leave(self, peer: Peer) -> bool:
        mark, data = self.request(stream=True)
        await self.send(peer, data)
        while mark not in peer.heard and b"engine_failed" not in peer.heard:
            assert await peer.more()
        self.leave(peer)
        return False

    async def ask_and_leave(self, peer: Peer) -> bool:
        _, data = self.request(stream=self._dice.random() < 0.5)
        await self.send(peer, data * self._dice.randint(1, 3))
        for _ in range(self._dice.randint(0, 8)):
            await asyncio.sleep(0)
        self.leave(peer)
        return False

    async def half(self, peer: Peer) -> bool:
        _, data = self.request()
        await self.send(peer, data[: self._dice.randrange(1, len(data))])
        self.leave(peer)
        return False

    async def junk(self, peer: Peer) -> bool:
        sent, status, goes_on = self._dice.choice(
            (
                (post(b"{"), 400, True),
                (get("/nowhere"), 404, True),
                (b"\x16\x03\x01\r\n\r\n", 400, False),
                (b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n", 400, False),
            )
        )
        await self.send(peer, sent)
        assert (await peer.reply()).status == status
        return goes_on

    def leave(self, peer: Peer) -> None:
        if self._dice.random() < 0.7:
            peer.reset()
        else:
            peer.finish()


def assert_own(reply: Reply, mark: bytes) -> None:
    """It is the whole answer, or says that there is none."""
    if b'"engine_failed"' in reply.body:
        assert reply.status in (200, 502)
        assert marks(reply.body) <= {mark}
    else:
        assert_answers(reply, mark)


class Moody:
    """An engine that answers sooner or later, in one piece or in many, and now and then breaks off.

    `crossed` counts requests that were mixed up.
    """

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.crossed = 0

    def __call__(self, call: Call) -> None:
        if len(marks(call.body)) != 1:
            self.crossed += 1
        answer = echoed(call)
        size = self._dice.choice((len(answer), 500, 100, 40))
        self._later(self._dice.randrange(30), call, deque(pieces(answer, size)))

    def _later(self, turns: int, call: Call, parts: deque[bytes]) -> None:
        if call.transport.is_closing():
            return
        if self._dice.random() < BREAKS:
            call.close()
        elif turns:
            asyncio.get_running_loop().call_soon(self._later, turns - 1, call, parts)
        elif parts:
            call.send(parts.popleft())
            self._later(self._dice.randrange(1, 10), call, parts)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_in_a_storm_everybody_reads_their_own_answers_and_nothing_is_left(tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(OPENAI, EMBEDDED)) as here:
            engine = here.engine.script = Moody(seed)
            done: Counter[str] = Counter()
            clients = [Client(here, seed * 1000 + number, done) for number in range(CLIENTS)]
            async with asyncio.TaskGroup() as group:
                for client in clients:
                    group.create_task(client.live())
            assert engine.crossed == 0
            assert set(done) == {"ask", "pipeline", "stream_and_leave", "ask_and_leave", "half", "junk"}
            await here.settled()
            outcomes = Counter((record.outcome, bool(record.replica)) for record in here.seen)
            assert outcomes.keys() == {
                (Outcome.COMPLETED, True),
                (Outcome.CANCELLED, True),
                (Outcome.CANCELLED, False),
                (Outcome.FAILED, True),
            }
            here.pass_time(OPEN_MAX_NS)
            here.desk.tick()  # replicas that failed are asked again
            assert here.machine.state.sites["tiny"].free_slots == 4

    run(main)
