"""What is allowed to one request by itself: how much it may answer, and for how long it may run."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.config.structs import Config
from commonpool.core.limits import size_limits
from commonpool.core.model import NO_LIMITS, Limits, Outcome, Reason, TokenSource, Usage
from commonpool.engines.base import Adapter
from commonpool.engines.registry import LLAMACPP
from tests.gateway.fakes import (
    OPENAI,
    SECOND,
    Call,
    World,
    chat,
    config,
    done_event,
    event,
    post,
    principal,
    run,
    text_event,
    until,
    world,
)


def limited(of_tenant: Limits = NO_LIMITS, of_app: Limits = NO_LIMITS) -> Config:
    configured = config()
    tenants = configured.policy.tenants
    support = msgspec.structs.replace(tenants["support"], limits=of_tenant, apps={"helpdesk": of_app})
    policy = msgspec.structs.replace(configured.policy, tenants={**tenants, "support": support})
    return msgspec.structs.replace(configured, policy=policy)


LIMITS = st.builds(Limits, *[st.none()] * 5, *[st.none() | st.integers(1, 9)] * 3)


@given(st.lists(LIMITS, max_size=3))
def test_the_tightest_of_each_counts(every: list[Limits]) -> None:
    found = size_limits(*every)
    for name in ("tokens_in_max", "tokens_out_max", "run_ns_max"):
        given = [amount for each in every if (amount := getattr(each, name)) is not None]
        assert getattr(found, name) == min(given, default=None)
    assert (found is NO_LIMITS) == (found == NO_LIMITS)


# -- output: what does not say how much it wants asks the engine for what it may have ----------------------------------


@pytest.mark.parametrize(
    ("of_tenant", "of_app", "of_key", "each"),
    [(100, None, None, 100), (100, 60, None, 60), (100, 60, 12, 12), (None, None, 12, 12), (10, 60, 12, 10)],
)
def test_an_answer_is_bounded_by_the_tightest(
    of_tenant: int | None, of_app: int | None, of_key: int | None, each: int
) -> None:
    async def main() -> None:
        configured = limited(Limits(tokens_out_max=of_tenant), Limits(tokens_out_max=of_app))
        who = principal(sizes=size_limits(Limits(tokens_out_max=of_key)))
        async with world(configured, identify=lambda _: who) as here:
            client = await here.client()
            await client.ask(post(chat()))
            assert here.engine.calls[0].json["max_tokens"] == each
            assert here.desk.requests[0].tokens_out_max == each

    run(main)


@pytest.mark.parametrize(
    ("path", "body", "asked"),
    [
        ("/v1/chat/completions", chat(n=4), {"max_tokens": 25}),
        ("/v1/chat/completions", chat(max_tokens=None), {"max_tokens": 100}),
        ("/v1/chat/completions", chat(max_tokens=7), {"max_tokens": 7}),
        ("/v1/chat/completions", chat(max_completion_tokens=7), {"max_completion_tokens": 7}),
        ("/v1/completions", {"model": "tiny", "prompt": ["a", "b"], "n": 2}, {"max_tokens": 25}),
        ("/v1/completions", {"model": "tiny", "prompt": "a", "n": 128}, {"max_tokens": 1}),
        ("/v1/embeddings", {"model": "tiny", "input": "a"}, {}),
    ],
)
def test_all_answers_together_have_what_one_may(path: str, body: dict[str, Any], asked: dict[str, int]) -> None:
    """What asks for more itself goes to the core as it came, which refuses it (tests/core/test_tallies.py)."""

    async def main() -> None:
        async with world(limited(Limits(tokens_out_max=100))) as here:
            client = await here.client()
            await client.ask(post(body, path))
            sent = here.engine.calls[0].json
            assert {name: sent[name] for name in ("max_tokens", "max_completion_tokens") if sent.get(name)} == asked
            assert here.desk.requests[0].tokens_out_max == (next(iter(asked.values())) if asked else None)

    run(main)


def test_without_such_a_limit_nothing_is_added() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            await client.ask(post(chat()))
            assert "max_tokens" not in here.engine.calls[0].json
            assert here.desk.requests[0].tokens_out_max is None

    run(main)


def chunks(call: Call, count: int) -> None:
    """An engine that does not listen: it goes on and on."""
    call.begin_stream()
    for n in range(count):
        call.chunk(text_event(f"t{n} "))


@pytest.mark.parametrize("include_usage", [True, False])
def test_an_engine_that_does_not_listen_is_cut_at_twice_the_length(include_usage: bool) -> None:
    """An engine may say one token in two fields, so only at twice the length is it sure that it does not listen."""

    async def main() -> None:
        async with world(limited(Limits(tokens_out_max=5))) as here:
            here.engine.script = lambda call: chunks(call, 11)
            client = await here.client()
            options = {"stream_options": {"include_usage": True}} if include_usage else {}
            answer = await client.ask(post(chat(stream=True, **options)))
            *_, finish, usage, done = (b"data: " + part for part in (answer.body + b"").split(b"data: ")[1:])
            if not include_usage:
                finish = usage
            assert done == done_event()
            last = json.loads(finish.removeprefix(b"data: "))
            assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": "length"}]
            assert last["id"] == "chatcmpl-1"
            if include_usage:
                assert json.loads(usage.removeprefix(b"data: "))["usage"]["completion_tokens"] == 11
            assert answer.body.count(b'"content"') == 11
            (ended,) = here.desk.ended_events
            assert (ended.outcome, ended.status, ended.reason) == (Outcome.COMPLETED, 200, "")
            assert (ended.usage.tokens_out, ended.usage.source) == (11, TokenSource.COUNTED)
            await here.engine.calls[0].lost.wait()  # it was told to stop
            assert (await client.ask(post(chat(stream=True)))).status == 200  # and the connection goes on

    run(main)


def test_a_gathered_answer_that_is_too_long_is_cut_as_well() -> None:
    async def main() -> None:
        async with world(limited(Limits(tokens_out_max=2)), adapter=LLAMACPP) as here:
            here.engine.script = lambda call: chunks(call, 5)
            client = await here.client()
            answer = await client.ask(post(chat()))
            (choice,) = answer.json["choices"]
            assert choice["finish_reason"] == "length"
            assert choice["message"]["content"] == "t0 t1 t2 t3 t4 "
            assert answer.json["usage"]["completion_tokens"] == 5
            await here.engine.calls[0].lost.wait()

    run(main)


def test_an_answer_of_just_that_length_is_not_touched() -> None:
    async def main() -> None:
        async with world(limited(Limits(tokens_out_max=3))) as here:
            twice = event({"choices": [{"index": 0, "delta": {"reasoning": "a", "reasoning_content": "a"}}]})
            here.engine.script = lambda call: call.stream(twice, twice, twice, done_event())
            client = await here.client()
            answer = await client.ask(post(chat(stream=True)))
            assert b"length" not in answer.body
            assert answer.body.endswith(done_event())

    run(main)


# -- run time ----------------------------------------------------------------------------------------------------------


async def begun(here: World, *, stream: bool, events: int) -> Any:
    """A request that runs, after so many events; gives its client."""
    here.engine.script = lambda call: chunks(call, events)
    client = await here.client()
    client.send(post(chat(stream=stream)))
    await until(lambda: bool(here.engine.calls))
    return client


@pytest.mark.parametrize("whose", ["tenant", "app", "key"])
def test_a_stream_that_runs_too_long_ends_with_an_error_and_is_paid_for(whose: str) -> None:
    async def main() -> None:
        own = Limits(run_ns_max=30 * SECOND)
        configured = limited(own if whose == "tenant" else NO_LIMITS, own if whose == "app" else NO_LIMITS)
        who = principal(sizes=own if whose == "key" else NO_LIMITS)
        async with world(configured, identify=lambda _: who) as here:
            client = await begun(here, stream=True, events=2)
            assert (await client.head())[0] == 200
            here.pass_time(29 * SECOND)
            assert here.desk.ended_events == []
            here.pass_time(SECOND)
            body = b"".join([piece async for piece in client.chunks()])
            error = json.loads(body.rpartition(b"data: ")[2])["error"]
            assert (error["code"], error["type"]) == ("run_time_exceeded", "server_error")
            assert error["message"] == (
                "The answer ends here: the request ran for 30 s, all that it may (limits.run_time)."
            )
            (ended,) = here.desk.ended_events
            assert (ended.outcome, ended.status, ended.reason) == (Outcome.CANCELLED, 200, Reason.RUN_TIME)
            assert ended.usage == Usage(ended.usage.tokens_in, 0, 2, TokenSource.COUNTED)
            await here.engine.calls[0].lost.wait()

    run(main)


@pytest.mark.parametrize("adapter", [OPENAI, LLAMACPP])
def test_what_has_not_answered_yet_is_told_and_not_to_be_tried_again(adapter: Adapter) -> None:
    async def main() -> None:
        async with world(limited(Limits(run_ns_max=30 * SECOND)), adapter=adapter) as here:
            client = await begun(here, stream=False, events=2)
            here.pass_time(30 * SECOND)
            answer = await client.answer()
            assert (answer.status, answer.error["code"]) == (504, "run_time_exceeded")
            assert answer.headers["x-should-retry"] == "false"
            (ended,) = here.desk.ended_events
            assert (ended.outcome, ended.status, ended.reason) == (Outcome.CANCELLED, 504, Reason.RUN_TIME)
            assert not ended.retry

    run(main)


def test_the_wait_in_the_queue_is_no_run_time() -> None:
    async def main() -> None:
        async with world(limited(Limits(run_ns_max=30 * SECOND))) as here:
            here.desk.holding = True
            here.engine.script = lambda call: chunks(call, 1)
            client = await here.client()
            client.send(post(chat(stream=True)))
            await until(lambda: bool(here.desk.requests))
            here.pass_time(100 * SECOND)
            here.desk.dispatch(here.desk.requests[0].id)
            await client.head()
            here.pass_time(29 * SECOND)
            assert here.desk.ended_events == []
            here.pass_time(SECOND)
            assert len(here.desk.ended_events) == 1

    run(main)
