"""Clients that read slowly, or not at all, hold little memory, and their slots for a while only."""

import asyncio
from pathlib import Path

from commonpool.core.model import Outcome
from commonpool.engines.registry import LLAMACPP, OPENAI
from commonpool.gateway.http import LINGER
from tests.faults.peer import Peer
from tests.faults.rig import TIMEOUTS, Rig, asking, assert_answers, echo, rig
from tests.gateway.fakes import Call, chat_answer, get, run, text_event, until
from tests.gateway.test_later import Peak, at_peak

SMALL = 4096
READERS = 40
# What the transport takes before it says that it is full, and what one read of the engine's answer brings then.
EACH_MAX = 64 * 1024 + 256 * 1024


class Flood:
    """Engines that write as long as they are read, and no faster."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.written = 0
        self._event = text_event("x" * 20_000)

    def __call__(self, call: Call) -> None:
        self.calls.append(call)
        call.begin_stream()
        self._go_on(call)

    def _go_on(self, call: Call) -> None:
        if call.transport.is_closing():
            return
        if not call.transport.get_write_buffer_size():
            call.chunk(self._event)
            self.written += len(self._event)
        asyncio.get_running_loop().call_later(0.001, self._go_on, call)


def unsent(here: Rig) -> list[int]:
    return [each._transport.get_write_buffer_size() for each in here.gateway.connections]


async def still(here: Rig, flood: Flood) -> None:
    """Wait until nothing moves any more: every buffer on the way is full."""
    before = -1
    while before != flood.written or not all(each.stalled for each in here.gateway.connections):
        before = flood.written
        for _ in range(50):
            await asyncio.sleep(0.002)


async def readers(here: Rig, count: int) -> list[Peer]:
    """Clients that ask for a stream and read nothing of it."""
    found = [await here.peer(receive_bytes=SMALL) for _ in range(count)]
    for peer in found:
        peer.send(asking(here.mark(), stream=True))
    return found


def test_the_memory_that_many_slow_readers_hold_is_bounded_and_their_engines_are_paused(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(OPENAI,), slots=READERS, send_bytes=SMALL) as here:
            flood = here.engine.script = Flood()
            peers = await readers(here, READERS)
            await until(lambda: len(flood.calls) == READERS)
            await still(here, flood)
            held = unsent(here)
            assert len(held) == READERS
            assert max(held) <= EACH_MAX
            written = flood.written
            # One that reads goes on where it was, and only that one.
            while flood.written == written:
                await peers[0].more(SMALL)
            assert max(unsent(here)) <= EACH_MAX
            for call in flood.calls:
                call.close()

    run(main)


def test_who_reads_nothing_for_too_long_is_cut_and_the_slots_are_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(OPENAI,), slots=READERS, send_bytes=SMALL) as here:
            flood = here.engine.script = Flood()
            await readers(here, READERS)
            await until(lambda: len(flood.calls) == READERS)
            await still(here, flood)
            waiting = await here.peer()
            mark = here.mark()
            here.engine.script = echo
            await here.sent(waiting, asking(mark))
            assert here.left().waiting == 1
            here.pass_time(TIMEOUTS.stall_ns + 1)
            assert_answers(await waiting.reply(), mark)
            await until(lambda: all(call.lost.is_set() for call in flood.calls))
            ended = [record.outcome for record in here.seen if record.stream]
            assert ended == [Outcome.CANCELLED] * READERS

    run(main)


def test_answers_kept_for_slow_readers_are_counted_and_leave_room_for_others(tmp_path: Path) -> None:
    """A whole answer is kept until it is read; a tenant may have only so much of them kept at once."""

    async def main() -> None:
        async with rig(tmp_path, adapters=(LLAMACPP,), slots=READERS, send_bytes=SMALL) as here:
            here.gateway.held_max = 4_000_000
            here.engine.script = lambda call: call.answer(chat_answer("y" * 400_000))
            peers = [await here.peer(receive_bytes=SMALL) for _ in range(12)]
            for peer in peers:
                peer.send(asking(here.mark()))
                await until(lambda: not here.left().running)
            assert here.gateway.held <= here.gateway.held_max // 2
            told = [(await peer.reply()).status for peer in peers]
            assert set(told) == {200, 502}
            assert 4 <= told.count(200) <= 5
            await until(lambda: here.gateway.held == 0)

    run(main)


def test_answers_of_later_for_slow_readers_are_counted_as_fresh_ones_are() -> None:
    """One may be fetched by any number of clients at once: only so many of them hold it."""

    async def test(here: Peak) -> None:
        gateway = here.world.gateway
        gateway.held_max = 70_000_000
        here.engine.script = lambda call: call.answer(chat_answer("y" * 8_000_000))
        place = await here.taken()
        assert (await here.answered(place)).status == 200
        peers = [await Peer.connect(here.world.port, receive_bytes=SMALL) for _ in range(12)]
        for peer in peers:
            peer.send(get(place))
        # Each has what it gets, as far as its client reads it.
        await until(lambda: sum(each.stalled or each.state is LINGER for each in gateway.connections) == len(peers))
        assert gateway.held <= gateway.held_max // 2
        for peer in peers:
            await peer.heard_of(b"\r\n")
        told = [peer.heard[9:12] for peer in peers]
        assert (told.count(b"200"), told.count(b"503")) == (4, 8)
        for peer in peers:
            await peer.close()
        await until(lambda: gateway.held == 0)

    at_peak(test)
