"""Given pages to draw, then they are drawn beside the loop, one at a time."""

import asyncio
import threading

from starlette.responses import Response

from commonpool.api.drawing import Drawn, Pen

WITHIN_S = 120


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


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
        pen = Pen()
        first, second = Drawn(slow, 200, {}), Drawn(quick, 200, {})
        drawing = asyncio.gather(pen.draw(first), pen.draw(second))
        await asyncio.wait_for(begun.wait(), WITHIN_S)  # the loop waits here, and is not held
        await turns()
        assert drawn == []
        go_on.set()
        assert [*await drawing] == [first, second]
        assert drawn == ["slow", "quick"]
        assert (first.body, first.headers["content-length"]) == (b"slow", "4")

    asyncio.run(life())


def test_what_is_no_page_waits_for_none() -> None:
    async def life() -> None:
        onward = Response(status_code=303)
        assert await Pen().draw(onward) is onward

    asyncio.run(life())
