"""Given many who read, then pages are drawn beside the loop, a few at a time, and the rest is told to come again."""

import asyncio
import threading
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.responses import Response

from commonpool.api import routes
from commonpool.console.asking import Problem
from commonpool.console.drawing import AT_ONCE_MAX, WAITING_MAX, BusyError, Drawn, Turns
from commonpool.console.frame import House, Page, View
from tests.api.fakes import FakeOperations
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


def test_the_loop_goes_on_while_a_page_is_drawn_and_one_is_drawn_at_a_time() -> None:
    async def life() -> None:
        loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def slow() -> str:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(WITHIN_S)
            drawn.append("slow")
            return "slow"

        def quick() -> str:
            drawn.append("quick")
            return "quick"

        drawn: list[str] = []
        pen = asyncio.Semaphore(1)
        first, second = Drawn(slow, 200), Drawn(quick, 200)
        drawing = asyncio.gather(first.draw(pen), second.draw(pen))
        await asyncio.wait_for(begun.wait(), WITHIN_S)  # the loop waits here, and is not held
        await turns()
        assert drawn == []
        go_on.set()
        await drawing
        assert drawn == ["slow", "quick"]
        assert (first.body, first.headers["content-length"]) == (b"slow", "4")

    asyncio.run(life())


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
