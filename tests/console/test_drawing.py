"""Given many who read, then a few pages are worked out at a time, and the rest is told to come again."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.responses import Response

from commonpool import console
from commonpool.api import routes
from commonpool.console.asking import Problem
from commonpool.console.drawing import AT_ONCE_MAX, WAITING_MAX, BusyError, Turns
from commonpool.console.frame import House, Page, View
from tests.api.fakes import FakeOperations
from tests.api.held import HeldThreads
from tests.console.visitor import BASE

WITHIN_S = 120


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_so_many_at_once_in_the_order_in_which_they_came() -> None:
    async def life() -> list[int]:
        order: list[int] = []
        go_on = [asyncio.Event() for _ in range(5)]
        turn = Turns(at_once=2, waiting_max=2)

        async def read(n: int) -> None:
            async with turn.turn():
                order.append(n)
                await go_on[n].wait()

        reading = [asyncio.create_task(read(n)) for n in range(4)]
        await turns()
        assert (order, turn.waiting) == ([0, 1], 2)
        with pytest.raises(BusyError):
            await read(4)
        reading[2].cancel()  # who leaves frees its place in the line
        await turns()
        assert turn.waiting == 1
        reading.append(asyncio.create_task(read(4)))
        for event in go_on:
            event.set()
        await asyncio.gather(*reading, return_exceptions=True)
        assert turn.waiting == 0
        return order

    assert asyncio.run(life()) == [0, 1, 3, 4]


async def asked(count: int, go_on: asyncio.Event) -> AsyncIterator[tuple[int, str]]:
    """The answers to so many readers at once of a page that is worked out once `go_on` is set."""

    async def show(view: View) -> Response:
        await go_on.wait()
        return view.render("refused.html", problem=Problem(409, "no"))

    house = House((Page("/slow", "overview", show, open=True),))
    application = routes.application(FakeOperations(), house.routes())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url=BASE) as client:
        asking = [asyncio.create_task(client.get("/slow")) for _ in range(count)]
        for each in asyncio.as_completed(asking):
            answer = await each
            yield answer.status_code, answer.headers.get("retry-after", "")
            go_on.set()


def test_who_would_wait_too_long_is_told_to_come_again() -> None:
    async def life() -> list[tuple[int, str]]:
        room = AT_ONCE_MAX + WAITING_MAX
        return [each async for each in asked(room + 3, asyncio.Event())]

    found = asyncio.run(life())
    assert found[:3] == [(503, "2")] * 3
    assert [status for status, _ in found[3:]] == [200] * (AT_ONCE_MAX + WAITING_MAX)


async def refused(threads: HeldThreads, count: int) -> AsyncIterator[httpx.Response]:
    """The answers to so many who may not come at once; those that are there while nothing can be drawn come first."""
    application = routes.application(FakeOperations(), console.routes())
    transport = httpx.ASGITransport(application, client=("192.0.2.7", 50000))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        for each in asyncio.as_completed([asyncio.create_task(client.get("/")) for _ in range(count)]):
            yield await each
            threads.go_on.set()


def test_a_refusal_is_drawn_in_its_turn_and_said_in_bare_words_where_too_many_wait() -> None:
    async def life() -> list[httpx.Response]:
        threads = HeldThreads()
        asyncio.get_running_loop().set_default_executor(threads)
        return [each async for each in refused(threads, AT_ONCE_MAX + WAITING_MAX + 3)]

    said = asyncio.run(life())
    assert {each.status_code for each in said} == {401}
    media = [each.headers["content-type"].partition(";")[0] for each in said]
    assert media == ["text/plain"] * 3 + ["text/html"] * (AT_ONCE_MAX + WAITING_MAX)
    assert said[0].text.startswith("a key is needed from another machine")
