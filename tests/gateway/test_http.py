"""A client's connection: one request at a time and in order, bounded, timed, and seen to go."""

import asyncio

import pytest

from commonpool.config.structs import Timeouts
from commonpool.core.model import Reason
from commonpool.gateway.http import AHEAD_BYTES_MAX, BUSY, LINGER_NS
from tests.gateway.fakes import (
    KEY,
    SECOND,
    Call,
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

HEALTH = get("/healthz", key=None)


def test_requests_on_one_connection_one_after_the_other() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            for _ in range(3):
                answer = await client.ask(post(chat()))
                assert (answer.status, answer.body) == (200, chat_answer())
                assert "connection" not in answer.headers
            assert len(here.gateway.connections) == 1
            assert len(here.engine.connections) == 1

    run(main)


def test_the_repeated_head_is_recognised_and_a_different_one_too() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            for text in ("a", "bb" * 500, "c"):
                assert (await client.ask(post(chat(messages=[{"content": text}])))).status == 200
                assert here.engine.calls[-1].json["messages"] == [{"content": text}]
            assert (await client.ask(post(chat(), headers="x-new: 1\r\n"))).status == 200
            assert (await client.ask(post(chat(), key=b"Bearer other"))).status == 401
            # a repeated head whose body comes in pieces, with the next request behind it
            raw = post(chat(messages=["slow"]), key=b"Bearer other")
            client.send(raw[:-5])
            await asyncio.sleep(0.01)
            client.send(raw[-5:] + post(chat()))
            assert [(await client.answer()).status, (await client.answer()).status] == [401, 200]

    run(main)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def main() -> None:
        async with world() as here:
            calls: list[Call] = []
            here.engine.script = calls.append
            client = await here.client()
            client.send(post(chat(n=1)) + HEALTH + post(chat(n=2)) + get("/nope") + post(chat(n=3)))
            statuses = []
            for n in (1, 2, 3):
                await until(lambda: bool(calls))
                call = calls.pop()
                assert call.json["n"] == n
                assert here.engine.calls[n:] == []  # the next one is not sent on before this one is answered
                call.answer(chat_answer(str(n)))
                answer = await client.answer()
                assert answer.json["choices"][0]["message"]["content"] == str(n)
                if n < 3:
                    statuses.append((await client.answer()).status)
            assert statuses == [200, 404]

    run(main)


def test_split_at_every_byte() -> None:
    async def main() -> None:
        async with world() as here:
            data = post(chat())
            client = await here.client()
            for at in range(1, len(data)):
                client.send(data[:at])
                await asyncio.sleep(0)
                client.send(data[at:])
                assert (await client.answer()).status == 200
            for byte in data:
                client.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await client.answer()).body == chat_answer()

    run(main)


def test_what_is_sent_ahead_is_bounded_and_still_answered() -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.holding = True
            client = await here.client()
            count = 3 * AHEAD_BYTES_MAX // len(HEALTH)
            client.send(post(chat()) + HEALTH * count)
            await until(lambda: bool(here.desk.waiting))
            (connection,) = here.gateway.connections
            await until(lambda: connection._full)
            here.desk.dispatch(here.desk.requests[0].id)
            assert (await client.answer()).status == 200
            for _ in range(count):
                assert (await client.answer()).body == b'{"status":"ok"}'

    run(main)


def test_chunked_bodies_extensions_and_trailers() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            head = post(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
            body = b'{"model":"tiny","messages":[]}'
            client.send(head + b"5;x=y\r\n" + body[:5] + b"\r\n%x\r\n" % (len(body) - 5))
            await asyncio.sleep(0.01)
            client.send(body[5:] + b"\r\n0\r\nTrailer: x\r\n\r\n" + HEALTH)
            assert (await client.answer()).status == 200
            assert (await client.answer()).body == b'{"status":"ok"}'
            assert here.engine.calls[0].json == {"model": "served/tiny", "messages": []}
            assert here.gateway.held == 0
            bad = await client.ask(head + b"zz\r\n")
            assert (bad.status, bad.headers["connection"]) == (400, "close")
            assert await client.ended()

    run(main)


def test_http_1_0_is_answered_and_closed_and_its_stream_is_not_chunked() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            client.send(post(chat()).replace(b"HTTP/1.1", b"HTTP/1.0"))
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await client.ended()

            client = await here.client()
            answer = await client.ask(post(chat(), headers="connection: keep-alive\r\n").replace(b"1.1", b"1.0", 1))
            assert answer.headers["connection"] == "keep-alive"
            here.engine.script = lambda call: call.stream(text_event("a"), b"data: [DONE]\n\n")
            client.send(post(chat(stream=True), headers="connection: keep-alive\r\n").replace(b"1.1", b"1.0", 1))
            answer = await client.answer()
            assert answer.headers["connection"] == "close"
            assert "transfer-encoding" not in answer.headers
            assert answer.body == text_event("a") + b"data: [DONE]\n\n"

    run(main)


def test_connection_close_is_obeyed_and_nothing_behind_it_is_served() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            client.send(get("/healthz", headers="connection: close\r\n") + post(chat()))
            assert (await client.answer()).headers["connection"] == "close"
            assert await client.ended()
            assert here.desk.requests == []

    run(main)


def test_expect_is_met_only_for_a_head_that_is_acceptable() -> None:
    async def main() -> None:
        async with world(config(body_bytes_max=1000)) as here:
            expect = "expect: 100-Continue\r\n"
            head, _, body = post(chat(), headers=expect).partition(b"\r\n\r\n")
            client = await here.client()
            assert (await client.ask(head + b"\r\n\r\n")).status == 100
            assert (await client.ask(body)).status == 200
            # the body already under way needs no invitation
            assert (await client.ask(post(chat(), headers=expect))).status == 200

            for data, status in (
                (post(b"", key=b"Bearer no", headers=expect).replace(b"length: 0", b"length: 9"), 401),
                (post(b"", headers=expect).replace(b"length: 0", b"length: 1001"), 413),
                (post(b"", path="/nope", headers=expect).replace(b"length: 0", b"length: 9"), 404),
                (post(b"", headers="expect: tea\r\n"), 417),
            ):
                client = await here.client()
                answer = await client.ask(data)
                assert (answer.status, answer.headers["connection"]) == (status, "close")
                assert await client.ended()

    run(main)


def test_a_refused_small_body_is_read_and_the_connection_goes_on() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            raw = post(b"x" * 500, key=None)
            client.send(raw[:-100])
            await asyncio.sleep(0.01)
            answer = await client.ask(raw[-100:])
            assert answer.status == 401
            assert "connection" not in answer.headers
            assert (await client.ask(post(chat()))).status == 200

    run(main)


def test_a_body_over_the_limit_is_refused_at_once_and_the_answer_can_be_read() -> None:
    async def main() -> None:
        async with world(config(body_bytes_max=100_000)) as here:
            client = await here.client()
            client.send(post(b"x" * 3_000_000))
            answer = await client.answer()
            assert (answer.status, answer.error["code"]) == (413, "body_too_large")
            assert answer.headers["connection"] == "close"
            assert await client.ended()

            client = await here.client()
            client.send(post(b"").replace(b"content-length: 0", b"transfer-encoding: chunked") + b"186a1\r\nabc")
            assert (await client.answer()).status == 413
            assert await client.ended()
            here.pass_time(LINGER_NS + 1)  # a client that stays is left behind
            await until(lambda: not here.gateway.connections)
            assert here.gateway.held == 0

    run(main)


def test_the_bytes_held_for_all_clients_are_bounded() -> None:
    async def main() -> None:
        async with world() as here:
            here.gateway.held_max = 2000  # of which one tenant may have half
            client = await here.client()
            answer = await client.ask(post(b"x" * 1001))
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            slow = await here.client()
            slow.send(post(b"x" * 900)[:-1])
            await until(lambda: here.gateway.held == 899)
            other = await here.client()
            assert (await other.ask(post(b"x" * 500))).status == 503
            chunked = await here.client()
            chunked.send(
                post(b"").replace(b"content-length: 0", b"transfer-encoding: chunked") + b"100\r\n" + b"x" * 256
            )
            assert (await chunked.answer()).status == 503
            slow.abort()
            await until(lambda: here.gateway.held == 0)

    run(main)


def test_a_tenant_whose_bodies_hold_all_they_may_leaves_room_for_another() -> None:
    async def main() -> None:
        keys = {KEY: principal(), b"Bearer other": principal(tenant="research", app="default")}
        async with world(identify=keys.get) as here:
            here.gateway.held_max = 2000
            hogs = [await here.client() for _ in range(10)]
            for hog in hogs:
                hog.send(post(b"x" * 333)[:-1])
            refused = [hog for hog in hogs[3:] if (await hog.answer()).error["code"] == "memory"]
            assert len(refused) == 7
            assert here.gateway.held == 3 * 332
            quiet = await here.client()
            assert (await quiet.ask(post(chat(model="tiny"), key=b"Bearer other"))).status == 200
            for hog in hogs[:3]:
                hog.send(b"x")
                assert (await hog.answer()).error["code"] == "malformed_json"
            assert here.gateway.held == 0
            assert {purse.held for purse in here.gateway._purses.values()} == {0}

    run(main)


def test_a_body_shorter_than_told_is_a_clean_close() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            client.send(post(chat())[:-1])
            client.writer.write_eof()
            assert await client.ended()
            assert here.desk.requests == []
            assert here.gateway.held == 0

    run(main)


@pytest.mark.parametrize(
    ("sent", "limit", "status"),
    [
        (b"", Timeouts().header_ns, None),
        (b"\r\n", Timeouts().header_ns, None),
        (b"POST /v1", Timeouts().header_ns, 408),
        (post(chat())[:-1], Timeouts().body_ns, 408),
    ],
)
def test_slow_clients_are_timed_out(sent: bytes, limit: int, status: int | None) -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            client.send(sent)
            await until(lambda: bool(here.gateway.connections))
            await asyncio.sleep(0.02)
            here.pass_time(limit)
            assert len(here.gateway.connections) == 1
            here.pass_time(1)
            if status is not None:
                answer = await client.answer()
                assert (answer.status, answer.headers["connection"]) == (status, "close")
            assert await client.ended()

    run(main)


def test_a_head_that_trickles_in_is_timed_from_its_first_byte() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            for byte in b"POST /":
                client.send(bytes([byte]))
                await asyncio.sleep(0.01)
                here.pass_time(2 * SECOND)
            assert (await client.answer()).status == 408

    run(main)


def test_a_kept_connection_may_idle_for_longer() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            assert (await client.ask(HEALTH)).status == 200
            here.pass_time(Timeouts().idle_ns)
            assert (await client.ask(HEALTH)).status == 200
            here.pass_time(Timeouts().idle_ns + 1)
            assert await client.ended()

    run(main)


def test_a_request_that_waits_is_not_timed_out() -> None:
    async def main() -> None:
        async with world() as here:
            here.desk.holding = True
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: bool(here.desk.waiting))
            here.pass_time(3600 * SECOND)
            here.desk.dispatch(here.desk.requests[0].id)
            assert (await client.answer()).status == 200

    run(main)


def test_a_client_that_does_not_read_is_cut_and_its_bytes_are_given_back() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = lambda call: call.answer(chat_answer("x" * 20_000_000))
            client = await here.client()
            client.send(post(chat()))
            await until(lambda: len(here.desk.ended_events) == 1)
            (connection,) = here.gateway.connections
            await until(lambda: connection.stalled)
            assert connection.state is BUSY
            assert here.gateway.held > 20_000_000
            here.pass_time(Timeouts().stall_ns)
            assert here.gateway.connections
            here.pass_time(1)
            await until(lambda: not here.gateway.connections)
            assert here.gateway.held == 0

    run(main)


def test_a_slow_reader_gets_its_large_answer_and_then_the_next_one() -> None:
    async def main() -> None:
        async with world() as here:
            large = chat_answer("x" * 20_000_000)
            here.engine.script = lambda call: call.answer(large)
            client = await here.client()
            client.send(post(chat()) + HEALTH)
            (connection,) = here.gateway.connections
            await until(lambda: connection.stalled)
            assert (await client.answer()).body == large
            assert (await client.answer()).body == b'{"status":"ok"}'
            assert here.gateway.held == 0

    run(main)


def test_errors_are_told_by_the_hook() -> None:
    async def main() -> None:
        told: list[tuple[int, str]] = []
        async with world(failed=lambda status, code: told.append((status, code))) as here:
            client = await here.client()
            await client.ask(get("/nope"))
            await client.ask(b"\x00")
            assert told == [(404, "path_not_found"), (400, "malformed_request")]

    run(main)


def test_what_the_core_has_a_record_of_is_not_told_a_second_time() -> None:
    async def main() -> None:
        told: list[tuple[int, str]] = []
        async with world(failed=lambda status, code: told.append((status, code))) as here:
            client = await here.client()
            for reason in (Reason.BUDGET, Reason.QUEUE_FULL, Reason.PROMISE, Reason.NO_REPLICA):
                here.desk.refusal = (reason, "The sentence of the core.", None)
                assert (await client.ask(post(chat()))).error["message"] == "The sentence of the core."
            here.desk.refusal = None
            here.engine.script = lambda call: call.answer(b"{}", 500)
            assert (await client.ask(post(chat()))).status == 500
            assert told == []
            # What it keeps no record of is.
            here.desk.refusal = (Reason.NO_JOURNAL, "The journal cannot be written.", None)
            assert (await client.ask(post(chat()))).status == 503
            assert told == [(503, "no_journal")]

    run(main)
