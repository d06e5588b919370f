"""The response cache: the same question of the same tenant, and no other, gets the same answer without an engine."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.config.structs import Config
from commonpool.core.model import Endpoint, Reason, Request, Usage
from commonpool.engines.base import Target
from commonpool.engines.registry import OPENAI
from commonpool.gateway import wire
from commonpool.gateway.identity import Principal
from commonpool.gateway.overheard import Heard
from commonpool.gateway.recall import ANSWER_BYTES_MAX, SEED_MAX, Question, Recall, repeats
from commonpool.store.prompts import Spoken
from tests.gateway.fakes import (
    KEY,
    SECOND,
    Answer,
    Call,
    World,
    chat,
    chat_answer,
    config,
    done_event,
    post,
    principal,
    run,
    text_event,
    until,
    usage_event,
    usage_json,
    world,
)

OTHER = b"Bearer cp_other"
SAME_TENANT = b"Bearer cp_same"
KEYS: dict[bytes, Principal] = {
    KEY: principal(),
    SAME_TENANT: principal(key_id="k2", app="other"),
    OTHER: principal(key_id="k3", tenant="research", app="notes"),
}
AGAIN = "x-commonpool-cache"
BOTH = {"support": 60 * SECOND, "research": 60 * SECOND}


def kept(build: str = "b1", tenants: dict[str, int] = BOTH) -> Config:
    """Two tenants that keep answers for a minute, of models in one build."""
    plain = config()
    deployments = {name: msgspec.structs.replace(each, engine=build) for name, each in plain.policy.deployments.items()}
    policy = msgspec.structs.replace(plain.policy, deployments=deployments)
    return msgspec.structs.replace(plain, policy=policy, response_cache_ns=tenants)


def here_of(configured: Config | None = None, **more: Any) -> Any:
    return world(configured or kept(), identify=KEYS.get, **more)


async def ask(here: World, body: Any, path: str = "/v1/chat/completions", key: bytes = KEY) -> Answer:
    here.desk.target = here.engine.target(model=body["model"], build="b1")
    return await (await here.client()).ask(post(body, path, key=key))


def same(**more: Any) -> dict[str, Any]:
    """A question that asks for the same answer each time."""
    return chat(**{"temperature": 0, **more})


def test_the_same_question_is_answered_again_without_an_engine() -> None:
    async def main() -> None:
        async with here_of() as here:
            first = await ask(here, same())
            again = await ask(here, same(user="somebody else"), key=SAME_TENANT)  # who asks is not part of it
            assert (first.status, first.headers.get(AGAIN)) == (200, None)
            assert (again.status, again.headers.get(AGAIN), again.body) == (200, "hit", first.body)
            assert again.headers["x-request-id"] != first.headers["x-request-id"]
            assert again.headers["content-type"] == first.headers["content-type"]
            assert len(here.engine.calls) == 1
            (recalled,) = here.desk.recalls
            assert (recalled.usage, recalled.bytes_out) == (Usage(7, 7, 3), len(first.body))
            assert (recalled.request.key, recalled.request.app) == ("k2", "other")

    run(main)


def test_an_answer_that_there_is_no_room_for_is_refused_before_it_is_counted() -> None:
    async def main() -> None:
        async with here_of() as here:
            here.engine.script = lambda call: call.answer(chat_answer("y" * 10_000))
            await ask(here, same())
            held_max, here.gateway.held_max = here.gateway.held_max, 15_000
            refused = await ask(here, same())
            assert (refused.status, refused.error["code"]) == (503, "memory")
            assert not here.desk.recalls
            assert here.gateway.held == 0
            here.gateway.held_max = held_max
            assert (await ask(here, same())).headers[AGAIN] == "hit"
            assert here.gateway.held == 0

    run(main)


def test_another_tenant_is_never_answered_so() -> None:
    async def main() -> None:
        async with here_of() as here:
            await ask(here, same())
            assert AGAIN not in (await ask(here, same(), key=OTHER)).headers
            assert len(here.engine.calls) == 2
            assert (await ask(here, same(), key=OTHER)).headers[AGAIN] == "hit"  # what it asked itself

    run(main)


@pytest.mark.parametrize(
    "other",
    [
        same(temperature=0.0),
        same(seed=1),
        same(max_tokens=7),
        same(stream=True),
        same(messages=[{"role": "user", "content": "other"}]),
        same(model="big"),
        same(tools=[]),
        {"model": "tiny", "prompt": "x", "temperature": 0},
    ],
)
def test_another_question_is_another_one(other: Any) -> None:
    async def main() -> None:
        async with here_of() as here:
            here.engine.script = lambda call: (
                call.stream(text_event("a"), usage_event(), done_event())
                if b'"stream":true' in call.body
                else call.answer(chat_answer())
            )
            await ask(here, same())
            path = "/v1/completions" if "prompt" in other else "/v1/chat/completions"
            assert AGAIN not in (await ask(here, other, path)).headers
            assert (await ask(here, other, path)).headers[AGAIN] == "hit"
            assert len(here.engine.calls) == 2

    run(main)


def test_the_order_of_fields_makes_no_other_question() -> None:
    async def main() -> None:
        async with here_of() as here:
            await ask(here, same(max_tokens=7))
            assert (await ask(here, dict(reversed(same(max_tokens=7).items())))).headers[AGAIN] == "hit"

    run(main)


@pytest.mark.parametrize(
    ("endpoint", "fields", "expected"),
    [
        ("chat", {}, False),
        ("chat", {"temperature": 0}, True),
        ("chat", {"temperature": 0.0}, True),
        ("chat", {"temperature": 0.2}, False),
        ("chat", {"temperature": None}, False),
        ("chat", {"temperature": "0"}, False),
        ("chat", {"temperature": 0.7, "seed": 0}, True),
        ("chat", {"seed": 42}, True),
        ("chat", {"seed": None}, False),
        ("chat", {"seed": -1}, False),
        ("chat", {"seed": SEED_MAX}, True),
        ("chat", {"seed": SEED_MAX + 1}, False),
        ("chat", {"seed": 1.5}, False),
        ("chat", {"seed": True}, False),
        ("completions", {"temperature": 0}, True),
        ("completions", {"temperature": 1}, False),
        ("embeddings", {}, True),
    ],
)
def test_what_asks_for_the_same_answer_each_time(endpoint: Endpoint, fields: dict[str, Any], expected: bool) -> None:
    prompt = {wire.PROMPT_FIELD[endpoint]: [] if endpoint == "chat" else "x"}
    assert repeats(wire.read(endpoint, msgspec.json.encode({"model": "tiny", **prompt, **fields}))) is expected


def test_embeddings_are_kept() -> None:
    async def main() -> None:
        async with here_of() as here:
            answer = msgspec.json.encode({"object": "list", "data": [], "usage": usage_json(5, 0)})
            here.engine.script = lambda call: call.answer(answer)
            body = {"model": "tiny", "input": "x"}
            first = await ask(here, body, "/v1/embeddings")
            again = await ask(here, body, "/v1/embeddings")
            assert (again.headers[AGAIN], again.body) == ("hit", first.body)
            assert here.desk.recalls[0].usage == Usage(5, 5, 0)

    run(main)


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream_is_answered_again_as_a_stream(usage: bool) -> None:
    async def main() -> None:
        async with here_of() as here:
            events = (text_event("hel"), text_event("lo"), usage_event(), done_event())
            here.engine.script = lambda call: call.stream(*events)
            body = same(stream=True, stream_options={"include_usage": usage})
            first = await ask(here, body)
            again = await ask(here, body)
            assert (again.headers[AGAIN], again.body) == ("hit", first.body)
            assert again.headers["content-type"] == first.headers["content-type"]
            assert (b"prompt_tokens" in again.body) is usage
            assert again.body.endswith(b"data: [DONE]\n\n")
            other = await ask(here, same(stream=True, stream_options={"include_usage": not usage}))
            assert AGAIN not in other.headers

    run(main)


def test_a_client_without_chunks_gets_it_too() -> None:
    async def main() -> None:
        async with here_of() as here:
            here.engine.script = lambda call: call.stream(text_event("a"), usage_event(), done_event())
            first = await ask(here, same(stream=True))
            old = post(same(stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0")
            again = await (await here.client()).ask(old)
            assert (again.headers[AGAIN], again.body) == ("hit", first.body)
            assert "transfer-encoding" not in again.headers

    run(main)


def failing(call: Call) -> None:
    call.answer(b'{"error":{"message":"no"}}', 400)


def breaking(call: Call) -> None:
    call.begin_stream()
    call.chunk(text_event("a"))
    call.close()


def large(call: Call) -> None:
    call.answer(chat_answer("x" * ANSWER_BYTES_MAX))


@pytest.mark.parametrize(
    ("script", "stream"),
    [(failing, False), (failing, True), (breaking, True), (large, False)],
)
def test_what_is_no_whole_answer_is_not_kept(script: Any, stream: bool) -> None:
    async def main() -> None:
        async with here_of() as here:
            here.engine.script = script
            first = await ask(here, same(stream=stream))
            again = await ask(here, same(stream=stream))
            assert (again.status, AGAIN in again.headers) == (first.status, False)
            assert here.gateway._recall.size == 0

    run(main)


@pytest.mark.parametrize("target", [{"model": "big", "build": "b1"}, {"model": "tiny", "build": "b0"}, {}])
def test_what_another_model_or_build_answered_is_not_kept(target: dict[str, str]) -> None:
    async def main() -> None:
        async with here_of() as here:
            here.desk.target = here.engine.target(**target)
            for _ in range(2):
                answer = await (await here.client()).ask(post(same()))
                assert (answer.status, AGAIN in answer.headers) == (200, False)

    run(main)


def test_the_build_of_an_engine_that_is_attached_goes_with_its_url() -> None:
    async def main() -> None:
        async with here_of() as here:
            here.desk.target = here.engine.target(model="tiny", build="b1 http://10.0.0.1:8000")
            await (await here.client()).ask(post(same()))
            assert (await (await here.client()).ask(post(same()))).headers[AGAIN] == "hit"

    run(main)


def test_what_is_answered_while_the_build_changes_is_not_kept() -> None:
    async def main() -> None:
        async with here_of() as here:
            calls: list[Call] = []
            here.engine.script = calls.append
            here.desk.target = here.engine.target(model="tiny", build="b1")
            client = await here.client()
            client.send(post(same()))
            await until(lambda: bool(calls))
            here.gateway.reconfigure(kept("b2"))
            calls[0].answer(chat_answer())
            assert (await client.answer()).status == 200
            assert here.gateway._recall.size == 0

    run(main)


def test_a_changed_build_drops_what_the_old_one_answered() -> None:
    async def main() -> None:
        async with here_of() as here:
            await ask(here, same())
            here.gateway.reconfigure(kept("b1"))
            assert (await ask(here, same())).headers[AGAIN] == "hit"
            here.gateway.reconfigure(kept("b2"))
            assert here.gateway._recall.size == 0
            assert AGAIN not in (await ask(here, same())).headers

    run(main)


def test_whoever_wants_none_has_none() -> None:
    async def main() -> None:
        async with here_of(kept(tenants={"research": 60 * SECOND})) as here:
            await ask(here, same(), key=OTHER)
            for _ in range(2):
                assert AGAIN not in (await ask(here, same())).headers
            here.gateway.reconfigure(kept(tenants={"support": 60 * SECOND}))
            assert here.gateway._recall.size == 0

    run(main)


def test_it_is_kept_for_so_long_and_no_longer() -> None:
    async def main() -> None:
        async with here_of() as here:
            await ask(here, same())
            here.pass_time(59 * SECOND)
            assert (await ask(here, same())).headers[AGAIN] == "hit"
            assert here.gateway._recall.size > 0
            here.pass_time(SECOND)
            assert here.gateway._recall.size == 0
            assert AGAIN not in (await ask(here, same())).headers

    run(main)


def test_whoever_may_not_ask_now_is_not_answered() -> None:
    async def main() -> None:
        async with here_of() as here:
            await ask(here, same())
            here.desk.refusal = (Reason.REQUESTS_PER_MINUTE, "Not now.", 5 * SECOND)
            refused = await ask(here, same())
            assert (refused.status, refused.headers["retry-after"]) == (429, "5")
            assert AGAIN not in refused.headers

    run(main)


def test_a_client_that_leaves_before_it_is_recalled_gets_nothing() -> None:
    async def main() -> None:
        async with here_of() as here:
            await ask(here, same())
            here.desk.holding = True
            client = await here.client()
            client.send(post(same()))
            await until(lambda: len(here.desk.recalls) == 1)
            (waiter,) = here.desk.waiting.values()
            client.abort()
            await until(lambda: bool(here.desk.cancelled))
            waiter.recalled()

    run(main)


def test_a_prompt_log_hears_what_is_answered_again() -> None:
    class Ears:
        def __init__(self) -> None:
            self.spoken: list[Spoken] = []

        def hear(self, spoken: Spoken) -> None:
            self.spoken.append(spoken)

        def lose(self, tenant: str, count: int) -> None:
            raise AssertionError((tenant, count))

    async def main() -> None:
        ears = Ears()
        async with here_of(listener=ears) as here:
            here.gateway.log_prompts(frozenset({"support"}))
            for _ in range(2):
                await ask(here, same())
            first, again = ears.spoken
            assert first.head.request_id != again.head.request_id
            assert again.asked == first.asked
            assert again.answered.split(b"\r\n\r\n", 1)[1] == first.answered.split(b"\r\n\r\n", 1)[1]

    run(main)


# -- what is kept, and how much --------------------------------------------------------------------------------------


def question(recall: Recall, tenant: str, text: str) -> Question:
    ask = wire.read("chat", msgspec.json.encode(same(messages=[text])))
    asked = recall.question(Request("r", tenant, "app", "tiny", "batch", "chat", 1, 1), ask)
    assert asked is not None
    return asked


def answered(body: bytes) -> Heard:
    return Heard(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


SERVED = Target("tiny-0", "127.0.0.1", 1, OPENAI, "tiny", model="tiny", build="b1"), Usage(3, 0, 2)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["support", "research"]),
            st.sampled_from("abcdefgh"),
            st.integers(0, 3000),
            st.integers(0, 40),
        ),
        max_size=60,
    )
)
def test_a_tenant_finds_only_what_it_was_answered_last_and_all_is_bounded(
    steps: list[tuple[str, str, int, int]],
) -> None:
    recall = Recall(kept(), tenant_bytes_max=8000, bytes_max=12_000)
    last: dict[tuple[str, str], tuple[bytes, int]] = {}
    now = 0
    for number, (tenant, text, size, later) in enumerate(steps):
        now += later * SECOND
        recall.sweep(now)
        asked = question(recall, tenant, text)
        found = recall.find(asked, now)
        if found is not None:
            assert last[tenant, text] == (found.body, found.kept_at_ns)
            assert found.kept_at_ns > now - 60 * SECOND
            assert found.usage == Usage(3, 3, 2)
        body = b"%d " % number + b"x" * size
        recall.keep(asked, answered(body), SERVED, now)
        last[tenant, text] = body, now
        again = recall.find(asked, now)
        assert again is not None
        assert again.body == body  # it has just been kept
        each = {tenant: sum(reply.size for _, reply in kept.values()) for tenant, kept in recall._kept.items()}
        assert (recall.size, each) == (sum(each.values()), recall._sizes)
        assert recall.size <= 12_000
        assert max(each.values()) <= 8000
    recall.sweep(now + 60 * SECOND)
    assert (recall.size, recall._kept, recall._sizes) == (0, {}, {})


def test_whoever_keeps_little_loses_nothing_to_whoever_keeps_much() -> None:
    recall = Recall(kept(), tenant_bytes_max=8000, bytes_max=12_000)
    asked = question(recall, "research", "a")
    recall.keep(asked, answered(b"x" * 3000), SERVED, 0)
    for number in range(20):
        recall.keep(question(recall, "support", str(number)), answered(b"x" * 3000), SERVED, 1)
    assert recall.find(asked, 2) is not None


def test_one_that_is_larger_than_all_that_is_kept_is_not_kept() -> None:
    recall = Recall(kept(), tenant_bytes_max=1000)
    recall.keep(question(recall, "support", "a"), answered(b"x" * 1000), SERVED, 0)
    assert recall.size == 0


def test_fields_do_not_run_into_each_other() -> None:
    """What is between two fields, or a name and its value, is part of the question."""
    recall = Recall(kept())
    bodies = [
        b'{"model":"tiny","messages":[],"temperature":0,"a":1,"ab":2}',
        b'{"model":"tiny","messages":[],"temperature":0,"a":1,"a b":2}',
        b'{"model":"tiny","messages":[],"temperature":0,"a":12,"b":2}',
        b'{"model":"tiny","messages":[],"temperature":0,"a":[1,2],"b":2}',
    ]
    request = Request("r", "support", "app", "tiny", "batch", "chat", 1, 1)
    asked = {each.digest for body in bodies if (each := recall.question(request, wire.read("chat", body)))}
    assert len(asked) == len(bodies)


def test_an_app_that_is_bounded_asks_something_else() -> None:
    """Its answer may be shorter."""
    recall = Recall(kept())
    request = Request("r", "support", "app", "tiny", "batch", "chat", 1, 1)
    plain, bounded = (wire.read("chat", msgspec.json.encode(same())) for _ in range(2))
    bounded.bound(5)
    assert recall.question(request, plain) != recall.question(request, bounded)
