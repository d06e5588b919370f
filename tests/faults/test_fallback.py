"""The fallback of a model through the whole data plane: who answered is in the answer and in the record."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from commonpool.core.model import Outcome, Policy
from tests.faults.peer import Reply
from tests.faults.rig import Rig, asking, rig
from tests.gateway.fakes import SECOND, Call, chat_answer, done_event, event, run, until, usage_event

LARGE, SMALL = "big", "tiny"
MAX_WAIT_NS = 2 * SECOND


def with_fallback(policy: Policy, *, allowed: bool = True) -> Policy:
    """The large model has one slot, and the small one answers in its place."""
    large = msgspec.structs.replace(policy.deployments[LARGE], slots=1, fallback=SMALL)
    tenants = {
        name: msgspec.structs.replace(tenant, max_wait_ns=MAX_WAIT_NS, fallback=allowed)
        for name, tenant in policy.tenants.items()
    }
    return msgspec.structs.replace(policy, deployments=policy.deployments | {LARGE: large}, tenants=tenants)


def names_itself(call: Call) -> None:
    """As engines do: the answer says which model gave it."""
    body: dict[str, Any] = msgspec.json.decode(chat_answer("hello"))
    if call.json.get("stream"):
        text = {"model": call.json["model"], "choices": [{"index": 0, "delta": {"content": "hello"}}]}
        call.stream(event(text), usage_event(), done_event())
    else:
        call.answer(msgspec.json.encode(body | {"model": call.json["model"]}))


async def peak(here: Rig) -> list[Call]:
    """One request runs on the large model and one waits for it; they take three seconds each."""
    here.ready("big-0", here.engine.port, model=LARGE)
    held: list[Call] = []

    def script(call: Call) -> None:
        if call.json["model"] == f"served/{SMALL}" or len(here.engine.calls) == 1:
            names_itself(call)
        else:
            held.append(call)

    here.engine.script = held.append
    first = await here.peer()
    first.send(asking(here.mark(), model=LARGE))
    await until(lambda: bool(held))
    ticks = here.ticks
    await until(lambda: here.ticks >= ticks + 30)
    names_itself(held.pop())
    assert (await first.reply()).status == 200
    here.engine.script = script
    for _ in range(2):
        peer = await here.peer()
        await here.sent(peer, asking(here.mark(), model=LARGE))
    await until(lambda: bool(held))
    return held


@pytest.mark.parametrize("stream", [False, True])
def test_at_a_peak_the_small_model_answers_and_says_so(tmp_path: Path, *, stream: bool) -> None:
    async def main() -> None:
        async with rig(tmp_path, rules=with_fallback) as here:
            held = await peak(here)
            peer = await here.peer()
            mark = here.mark()
            peer.send(asking(mark, model=LARGE, stream=stream))
            reply = await peer.reply()
            assert reply.status == 200, reply
            assert reply.headers["x-commonpool-fallback"] == SMALL
            assert reply.headers["x-commonpool-wait"] == "0.000s"
            assert answered_by(reply) == f"served/{SMALL}"
            (record,) = [each for each in here.seen if each.model == SMALL]
            assert (record.outcome, record.version, record.wait_ns) == (Outcome.COMPLETED, "1", 0)
            small = here.machine.state.policy.deployments[SMALL]
            assert record.milli_gpu == small.milli_gpu // small.slots
            names_itself(held.pop())

    run(main)


def test_a_tenant_that_does_not_allow_it_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, rules=lambda policy: with_fallback(policy, allowed=False)) as here:
            held = await peak(here)
            peer = await here.peer()
            peer.send(asking(here.mark(), model=LARGE))
            reply = await peer.reply()
            assert (reply.status, reply.code) == (429, "promise_exceeded")
            assert "x-commonpool-fallback" not in reply.headers
            assert not [each for each in here.seen if each.model == SMALL]
            names_itself(held.pop())

    run(main)


def test_what_has_waited_for_a_model_without_a_replica_is_answered_by_the_small_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, rules=with_fallback) as here:
            here.engine.script = names_itself
            peer = await here.peer()
            peer.send(asking(here.mark(), model=LARGE))
            reply = await peer.reply()
            assert (reply.status, reply.headers["x-commonpool-fallback"]) == (200, SMALL)
            assert reply.headers["x-commonpool-wait"].startswith("2.")
            await asyncio.sleep(0)

    run(main)


def answered_by(reply: Reply) -> Any:
    if reply.headers["content-type"].startswith("text/event-stream"):
        return msgspec.json.decode(reply.body.split(b"\n\n")[0].removeprefix(b"data: "))["model"]
    return reply.json["model"]
