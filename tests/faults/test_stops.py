"""Stopping, whatever is under way: every client hears of it, every attempt is recorded, and the gateway ends."""

from pathlib import Path

import pytest

from commonpool.core.model import Outcome
from commonpool.engines.registry import OPENAI
from tests.faults.peer import Peer
from tests.faults.rig import Left, Rig, asking, assert_answers, echo, marks, rig
from tests.gateway.fakes import SECOND, Call, run, text_event, until


async def busy(here: Rig, *, stream: bool) -> tuple[list[Peer], list[Call]]:
    """Eight clients and two slots; the first stream has begun."""
    calls: list[Call] = []
    here.engine.script = calls.append
    peers = [await here.peer() for _ in range(8)]
    for peer in peers:
        await here.sent(peer, asking(here.mark(), stream=stream))
    await until(lambda: len(calls) == 2)
    if stream:
        calls[0].begin_stream()
        calls[0].chunk(text_event("one"))
        await peers[0].heard_of(b"one")
    return peers, calls


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_cut_at_the_deadline_is_answered_recorded_and_gone(tmp_path: Path, *, stream: bool) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(OPENAI,), slots=2) as here:
            peers, calls = await busy(here, stream=stream)
            assert await here.gateway.drain(0) == len(peers)
            for index, peer in enumerate(peers):
                (reply,) = await peer.replies()
                assert reply.status == (200 if stream and not index else 503)
                assert b'"stopping"' in reply.body
            for peer in peers:
                await peer.close()
            await until(lambda: here.left() == Left())
            assert {each.outcome for each in here.seen} <= {Outcome.CANCELLED, Outcome.FAILED}
            assert len(here.seen) == len(peers)
            # Nothing was sent to an engine only to be cut in the same breath.
            assert len(here.machine.dispatches) == len(calls) == 2

    run(main)


def test_within_the_deadline_what_runs_and_waits_is_finished_and_the_rest_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, adapters=(OPENAI,), slots=2) as here:
            peers, calls = await busy(here, stream=False)
            idle, partly = [await here.peer() for _ in range(2)]
            request = asking(here.mark())
            await here.sent(partly, request[:-5])
            here.engine.script = echo
            for call in calls:
                echo(call)
            assert await here.gateway.drain(120 * SECOND) == 0
            for peer, mark in zip(peers, here.given[:-1], strict=True):
                (reply,) = await peer.replies()
                assert_answers(reply, mark)
                assert marks(peer.heard) == {mark}
            assert await idle.replies() == []
            partly.send(request[-5:])
            (reply,) = await partly.replies()
            assert reply.headers["connection"] == "close"

    run(main)
