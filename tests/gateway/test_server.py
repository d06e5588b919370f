"""The gateway as a whole: its paths, who may do what, how a configuration changes and how it stops."""

import asyncio
import re

import msgspec
import pytest

from commonpool.config.structs import Address
from commonpool.core.model import Cause, Wait
from commonpool.gateway.server import CROWDED_IDLE_NS, Gateway
from tests.gateway.fakes import (
    SECOND,
    Call,
    FakeDesk,
    World,
    chat,
    chat_answer,
    config,
    get,
    post,
    principal,
    run,
    text_event,
    until,
    world,
)


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (get("/"), 404, "path_not_found"),
        (get("/v1/modelsx"), 404, "path_not_found"),
        (get("/v1/chat/completions"), 405, "method_not_allowed"),
        (post(b"", "/v1/models"), 405, "method_not_allowed"),
        (get("/v1/models", "OPTIONS"), 405, "method_not_allowed"),
        (get("/healthz", "DELETE"), 405, "method_not_allowed"),
        (get("/v1/models", key=None), 401, "invalid_api_key"),
        (get("/v1/models", key=b"Bearer wrong"), 401, "invalid_api_key"),
        (post(chat(), key=None, headers="api-key: cp_test\r\nx-api-key: cp_test\r\n"), 401, "invalid_api_key"),
        (get("/v1/models/huge"), 404, "model_not_found"),
        (post(chat(model="huge")), 404, "model_not_found"),
        (post(chat(service_tier="gold")), 400, "tier_not_found"),
        (post(chat(n=0)), 400, "invalid_parameter"),
        (post(b"{"), 400, "malformed_json"),
        (post(b""), 400, "empty_body"),
    ],
)
def test_errors_have_one_shape_and_an_id_and_keep_the_connection(request_: bytes, status: int, code: str) -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            for _ in range(2):
                answer = await client.ask(request_)
                assert (answer.status, answer.error["code"]) == (status, code)
                assert set(answer.error) == {"message", "type", "param", "code"}
                assert answer.headers["content-type"] == "application/json"
                assert re.fullmatch(r"[0-9a-f]{16}-[0-9a-f]+", answer.headers["x-request-id"])
                assert answer.headers["date"].endswith(" GMT")
            assert here.desk.requests == []

    run(main)


def test_what_errors_say() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            assert "/v1/embeddings" in (await client.ask(get("/v2"))).error["message"]
            assert (await client.ask(get("/v1/completions"))).headers["allow"] == "POST"
            assert (await client.ask(get("/v1/models", key=None))).headers["www-authenticate"] == "Bearer"
            unknown = (await client.ask(post(chat(model="huge")))).error
            assert (unknown["param"], "big, tiny" in unknown["message"]) == ("model", True)
            tier = (await client.ask(post(chat(service_tier="gold")))).error
            assert (tier["param"], "batch, interactive" in tier["message"]) == ("service_tier", True)

    run(main)


def test_health_and_readiness_need_no_key_and_take_head() -> None:
    async def main() -> None:
        ready = [(False, "No replica of tiny is ready.")]
        async with world(ready=lambda: ready[0]) as here:
            client = await here.client()
            assert (await client.ask(get("/healthz", key=None))).body == b'{"status":"ok"}'
            client.send(get("/healthz", "HEAD", key=None))
            answer = await client.answer(bodyless=True)
            assert (answer.status, answer.headers["content-length"]) == (200, "15")
            answer = await client.ask(get("/readyz", key=None))
            assert (answer.status, answer.error["message"]) == (503, "No replica of tiny is ready.")
            client.send(get("/readyz", "HEAD", key=None))
            assert (await client.answer(bodyless=True)).status == 503
            ready[0] = (True, "")
            assert (await client.ask(get("/readyz", key=None))).status == 200

    run(main)


def test_models_are_those_the_key_may_use() -> None:
    async def main() -> None:
        keys = {
            b"Bearer all": principal(),
            b"Bearer one": principal(models=("big", "gone")),
            b"Bearer research": principal(tenant="research", app="lab"),
            b"Bearer lost": principal(tenant="dissolved"),
            b"Bearer admin": principal(scope="admin"),
        }
        async with world(identify=keys.get) as here:
            client = await here.client()

            async def listed(key: bytes) -> list[str]:
                answer = await client.ask(get("/v1/models", key=key))
                assert answer.json["object"] == "list"
                return [model["id"] for model in answer.json["data"]]

            assert await listed(b"Bearer all") == ["big", "tiny"]
            assert await listed(b"Bearer one") == ["big"]
            assert await listed(b"Bearer research") == ["tiny"]
            model = (await client.ask(get("/v1/models/t%69ny?x=1", key=b"Bearer all"))).json
            assert (model["id"], model["object"], model["owned_by"]) == ("tiny", "model", "commonpool")
            assert (await client.ask(get("/v1/models/big", key=b"Bearer research"))).status == 404
            assert (await client.ask(post(chat(model="big"), key=b"Bearer research"))).status == 404
            assert (await client.ask(post(chat(), key=b"Bearer one"))).status == 404
            assert (await client.ask(post(chat(), key=b"Bearer lost"))).error["code"] == "tenant_not_found"
            assert (await client.ask(post(chat(), key=b"Bearer admin"))).error["code"] == "wrong_scope"
            assert here.desk.requests == []

    run(main)


def test_a_request_as_the_core_sees_it_comes_from_the_credential_alone() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            body = chat(user="ceo", metadata={"tenant": "research"}, priority=0, max_tokens=9, n=2, stream=False)
            headers = "x-tenant: research\r\nx-priority: 0\r\nx-request-id: mine\r\n"
            answer = await client.ask(post(body, headers=headers))
            (request,) = here.desk.requests
            assert (request.tenant, request.app, request.cost_center) == ("support", "helpdesk", "CC-1001")
            assert (request.model, request.tier, request.endpoint) == ("tiny", "interactive", "chat")
            assert (request.tokens_out_max, request.sequences, request.stream) == (9, 2, False)
            assert answer.headers["x-request-id"] == request.id != "mine"
            call = here.engine.calls[0]
            assert call.json == {**chat(max_tokens=9, n=2, stream=False), "model": "served/tiny"}
            assert set(call.headers) == {"host", "user-agent", "accept", "content-type", "content-length"}

    run(main)


@pytest.mark.parametrize(
    ("asked", "key_tier", "tenant", "tier"),
    [
        (None, None, "support", "interactive"),
        ("auto", None, "support", "interactive"),
        ("default", "batch", "support", "batch"),
        (None, "batch", "support", "batch"),
        ("interactive", "batch", "support", "interactive"),
        ("batch", None, "support", "batch"),
        (None, None, "research", "batch"),
        (None, "interactive", "research", None),
        ("interactive", None, "research", None),
    ],
)
def test_the_tier(asked: str | None, key_tier: str | None, tenant: str, tier: str | None) -> None:
    async def main() -> None:
        async with world(identify=lambda _: principal(tenant=tenant, tier=key_tier)) as here:
            client = await here.client()
            answer = await client.ask(post(chat(service_tier=asked)))
            assert [request.tier for request in here.desk.requests] == ([] if tier is None else [tier])
            assert (answer.status == 200) is (tier is not None)

    run(main)


def test_headers_of_an_answer() -> None:
    async def main() -> None:
        limits = b"x-ratelimit-limit-requests: 60\r\nx-ratelimit-reset-requests: 12ms\r\n"
        async with world(limits=lambda tenant, _app, _key: limits if tenant == "support" else b"") as here:
            here.desk.holding = True
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(here.desk.waiting))
            here.desk.dispatch(here.desk.requests[0].id, wait_ns=2_012_999_999)
            answer = await client.answer()
            assert answer.headers["x-commonpool-wait"] == "2.012s"
            assert answer.headers["x-ratelimit-limit-requests"] == "60"
            client.send(post(chat()))
            await until(lambda: bool(here.desk.waiting))
            waits = (Wait(Cause.OWN_QUEUE, "", 900_000_000), Wait(Cause.LOAN_DUE, "research", 1_100_000_000))
            here.desk.dispatch(here.desk.requests[1].id, wait_ns=2_000_000_000, waits=waits)
            answer = await client.answer()
            assert answer.headers["x-commonpool-wait"] == "2.000s; loan_due=research 1.100s; own_queue 0.900s"
            bad = await client.ask(post(chat(n=0)))
            assert (bad.status, bad.headers["x-ratelimit-reset-requests"]) == (400, "12ms")

    run(main)


def test_a_well_formed_traceparent_goes_on_and_nothing_else() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
            await client.ask(
                post(chat(), headers=f"traceparent: {trace}\r\ncookie: a=b\r\nx-api-base: http://evil\r\n")
            )
            await client.ask(post(chat(), headers="traceparent: junk\r\n"))
            await client.ask(post(chat()))
            assert [call.headers.get("traceparent") for call in here.engine.calls] == [trace, None, None]
            assert "cookie" not in here.engine.calls[0].headers

    run(main)


def test_a_new_configuration_holds_for_the_next_request() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            assert (await client.ask(post(chat()))).status == 200
            here.desk.holding = True
            waiting = await here.client()
            waiting.send(post(chat()))
            await until(lambda: bool(here.desk.waiting))
            here.gateway.reconfigure(msgspec.structs.replace(config(models=("other",)), body_bytes_max=5000))
            assert (await client.ask(post(chat()))).error["code"] == "model_not_found"
            assert (await client.ask(post(b"x" * 5001))).status == 413
            here.desk.dispatch(here.desk.requests[-1].id)
            assert (await waiting.answer()).status == 200

    run(main)


def test_too_many_connections_are_turned_away() -> None:
    async def main() -> None:
        async with world() as here:
            here.gateway.connections_max = 2
            clients = [await here.client() for _ in range(3)]
            answer = await clients[2].answer()
            assert (answer.status, answer.headers["connection"]) == (503, "close")
            assert await clients[2].ended()
            assert (await clients[0].ask(get("/healthz"))).status == 200

    run(main)


# -- stopping


async def draining(here: World, within_ns: int = 120 * SECOND) -> asyncio.Task[int]:
    task = asyncio.get_running_loop().create_task(here.gateway.drain(within_ns))
    await until(lambda: here.gateway.draining)
    return task


def test_where_nearly_too_many_are_connected_those_that_ask_for_nothing_are_closed() -> None:
    async def main() -> None:
        async with world() as here:
            here.gateway.connections_max = 20
            calls: list[Call] = []
            here.engine.script = calls.append
            busy = await here.client()
            busy.send(post(chat()))
            await until(lambda: bool(calls))
            idle = [await here.client() for _ in range(17)]
            assert (await idle[0].ask(get("/healthz"))).status == 200
            here.pass_time(CROWDED_IDLE_NS + 1)
            assert len(here.gateway.connections) == 18
            newest = await here.client()
            here.pass_time(1)
            await until(lambda: len(here.gateway.connections) == 2)
            calls[0].answer(chat_answer())
            assert (await busy.answer()).status == 200
            assert (await newest.ask(get("/healthz"))).status == 200

    run(main)


def test_drain_lets_what_waits_and_runs_finish() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.begin_stream()
            idle, streaming, waiting = [await here.client() for _ in range(3)]
            assert (await idle.ask(get("/healthz"))).status == 200
            streaming.send(post(chat(stream=True)))
            await until(lambda: bool(here.engine.calls))
            here.engine.calls[0].chunk(text_event("a"))
            assert (await streaming.head())[0] == 200
            here.desk.holding = True
            waiting.send(post(chat()))
            await until(lambda: len(here.desk.waiting) == 2)

            task = await draining(here)
            assert await idle.ended()
            with pytest.raises(OSError, match="refused"):
                await here.client()
            assert not task.done()
            here.engine.script = lambda call: call.answer(chat_answer())
            here.desk.dispatch(here.desk.requests[1].id)
            assert (await waiting.answer()).status == 200
            assert await waiting.ended()
            here.engine.calls[0].chunk(b"data: [DONE]\n\n")
            here.engine.calls[0].send(b"0\r\n\r\n")
            chunks = [chunk async for chunk in streaming.chunks()]
            assert b"".join(chunks) == text_event("a") + b"data: [DONE]\n\n"
            assert await streaming.ended()
            assert await task == 0
            assert [event.outcome for event in here.desk.ended_events] == ["completed", "completed"]

    run(main)


def test_while_draining_new_requests_are_refused_and_closed() -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.holding = True
            busy = await here.client()
            late = await here.client()
            late.send(post(chat())[:20])
            busy.send(post(chat()))
            await until(lambda: bool(here.desk.waiting))
            task = await draining(here)
            answer = await late.ask(post(chat())[20:])
            assert (answer.status, answer.headers["connection"], answer.error["code"]) == (503, "close", "stopping")
            here.desk.dispatch(here.desk.requests[0].id)
            assert (await busy.answer()).headers["connection"] == "close"
            assert await task == 0

    run(main)


def test_after_the_deadline_what_is_left_is_cut_and_settled_once() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.begin_stream()
            streaming, running, waiting = [await here.client() for _ in range(3)]
            streaming.send(post(chat(stream=True)))
            await until(lambda: bool(here.engine.calls))
            here.engine.calls[0].chunk(text_event("a"))
            await streaming.head()
            running.send(post(chat()))
            await until(lambda: len(here.engine.calls) == 2)
            here.desk.holding = True
            waiting.send(post(chat()))
            await until(lambda: len(here.desk.waiting) == 3)

            assert await (await draining(here, within_ns=0)) == 3
            assert b'"stopping"' in b"".join([chunk async for chunk in streaming.chunks()])
            assert (await running.answer()).status == 503
            assert (await waiting.answer()).status == 503
            for client in (streaming, running, waiting):
                assert await client.ended()
            assert sorted((event.outcome, event.status) for event in here.desk.ended_events) == [
                ("failed", 200),
                ("failed", 503),
            ]
            assert here.desk.cancelled == [here.desk.requests[2].id]
            assert not here.desk.waiting
            await until(lambda: not here.engine.connections)

    run(main)


def test_a_taken_port_is_an_os_error() -> None:
    async def main() -> None:
        async with world() as here:
            other = Gateway(config(), FakeDesk(), lambda _key, _peer: None, clock=lambda: 0, monotonic=lambda: 0)
            with pytest.raises(OSError, match="in use"):
                await other.start(Address("127.0.0.1", here.port))
            await other.close()

    run(main)
