"""Connections to engines: reused only while that is safe, replaced when they turn out stale, closed when in doubt."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import msgspec
import pytest

from commonpool.config.structs import Timeouts
from commonpool.core.model import Fault, Outcome
from commonpool.gateway.upstream import IDLE_NS_MAX, IDLE_NS_UNTOLD
from tests.gateway.fakes import SECOND, Call, chat, chat_answer, config, post, run, until, world


def answering(headers: str = "") -> Callable[[Call], None]:
    return lambda call: call.answer(chat_answer(), headers=headers)


def test_the_connection_used_last_is_used_first() -> None:
    async def main() -> None:
        async with world() as here:
            calls: list[Call] = []
            here.engine.script = calls.append
            clients = [await here.client() for _ in range(3)]
            for client in clients:
                client.send(post(chat()))
            await until(lambda: len(calls) == 3)
            for call in calls:
                call.answer(chat_answer())
            for client in clients:
                assert (await client.answer()).status == 200
            here.engine.script = answering()
            for _ in range(3):
                await clients[0].ask(post(chat()))
            assert {call.transport for call in here.engine.calls[3:]} == {calls[2].transport}

    run(main)


@pytest.mark.parametrize(
    ("headers", "idle_ns"),
    [
        ("", IDLE_NS_UNTOLD),
        ("keep-alive: timeout=5, max=100\r\n", 4 * SECOND),
        ("Keep-Alive: max=100,timeout = 10\r\n", 9 * SECOND),
        ("keep-alive: timeout=86400\r\n", IDLE_NS_MAX),
    ],
)
def test_an_idle_connection_is_kept_for_as_long_as_the_engine_promises_less_a_margin(
    headers: str, idle_ns: int
) -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = answering(headers)
            client = await here.client()
            await client.ask(post(chat()))
            here.pass_time(idle_ns - 1)
            await client.ask(post(chat()))
            assert len({call.transport for call in here.engine.calls}) == 1
            here.pass_time(idle_ns)
            await until(lambda: not here.engine.connections)
            assert (await client.ask(post(chat()))).status == 200

    run(main)


@pytest.mark.parametrize("headers", ["keep-alive: timeout=1\r\n", "keep-alive: max=1\r\n", "connection: close\r\n"])
def test_a_connection_that_is_about_to_close_is_not_kept(headers: str) -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = answering(headers)
            client = await here.client()
            await client.ask(post(chat()))
            await client.ask(post(chat()))
            assert len({call.transport for call in here.engine.calls}) == 2
            assert [ended.outcome for ended in here.desk.ended_events] == ["completed", "completed"]

    run(main)


def test_the_number_of_requests_on_a_connection_is_obeyed() -> None:
    async def main() -> None:
        async with world() as here:
            here.engine.script = answering("keep-alive: timeout=5, max=2\r\n")
            client = await here.client()
            for _ in range(4):
                await client.ask(post(chat()))
            first, second, third, fourth = (call.transport for call in here.engine.calls)
            assert first is second is not third
            assert third is fourth

    run(main)


def test_a_kept_connection_that_the_engine_closed_is_forgotten() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            await client.ask(post(chat()))
            here.engine.calls[0].transport.close()
            await until(lambda: not here.gateway.pool._all)
            assert (await client.ask(post(chat()))).status == 200
            assert [ended.attempt for ended in here.desk.ended_events] == [1, 1]

    run(main)


def test_a_kept_connection_that_dies_under_a_request_is_replaced_once_within_the_attempt() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            await client.ask(post(chat()))
            first = here.engine.calls[0].transport

            def dies_if_kept(call: Call) -> None:
                if call.transport is first:
                    call.close()
                else:
                    call.answer(chat_answer("fresh"))

            here.engine.script = dies_if_kept
            assert (await client.ask(post(chat()))).body == chat_answer("fresh")
            assert [(ended.attempt, ended.outcome) for ended in here.desk.ended_events] == [(1, "completed")] * 2
            # where the fresh one dies too, the attempt has failed, and the next begins anew
            here.engine.script = lambda call: call.close()
            assert (await client.ask(post(chat()))).status == 502
            assert [(ended.outcome, ended.retry) for ended in here.desk.ended_events[2:]] == [
                (Outcome.FAILED, True)
            ] * 2
            assert len(here.engine.calls) == 3 + 2 + 1

    run(main)


@pytest.mark.parametrize("extra", [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother", b"HTTP/1.1 2", b"garbage"])
def test_bytes_that_nobody_asked_for_reach_nobody(extra: bytes) -> None:
    async def main() -> None:
        async with world() as here:

            def says_more(call: Call) -> None:
                body = chat_answer("mine")
                call.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b%b" % (len(body), body, extra))

            here.engine.script = says_more
            client = await here.client()
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.body) == (200, chat_answer("mine"))
            await until(lambda: not here.engine.connections)
            here.engine.script = answering()
            assert (await client.ask(post(chat()))).body == chat_answer()
            # the same while the connection is idle
            here.engine.calls[-1].send(extra)
            await until(lambda: not here.engine.connections)
            assert (await client.ask(post(chat()))).body == chat_answer()

    run(main)


def test_a_replica_that_moved_is_not_reached_at_its_old_address() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            await client.ask(post(chat()))
            here.desk.target = here.engine.target(authorization=b"Bearer new")
            await client.ask(post(chat()))
            assert here.engine.calls[1].headers["authorization"] == "Bearer new"
            assert len({call.transport for call in here.engine.calls}) == 2

    run(main)


def test_an_engine_whose_host_answers_nothing_is_given_up_in_time() -> None:
    """As where a packet filter drops all: here the queue of those that want to connect is full."""

    async def main() -> None:
        async with world(config(timeouts=Timeouts(connect_ns=50_000_000))) as here:
            with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as stack:
                address = full.getsockname()
                for _ in range(8):
                    waiting = stack.enter_context(socket.socket())
                    waiting.setblocking(False)
                    waiting.connect_ex(address)
                here.desk.target = msgspec.structs.replace(here.engine.target(), port=address[1])
                client = await here.client()
                answer = await client.ask(post(chat()))
            assert (answer.status, answer.error["code"]) == (502, "engine_unreached")
            assert [each.fault for each in here.desk.ended_events] == [Fault.ENGINE] * 2

    run(main)


def test_a_large_body_reaches_an_engine_that_reads_slowly() -> None:
    async def main() -> None:
        async with world() as here:
            bodies: list[int] = []

            def script(call: Call) -> None:
                bodies.append(len(call.body))
                call.answer(chat_answer())

            here.engine.script = script
            client = await here.client()
            await client.ask(post(chat()))
            connection = here.engine.connections[0].transport
            connection.pause_reading()
            client.send(post(chat(messages=["x" * 8_000_000])))
            await asyncio.sleep(0.05)
            connection.resume_reading()
            assert (await client.answer()).status == 200
            assert bodies[1] > 8_000_000
            assert here.gateway.held == 0

    run(main)
