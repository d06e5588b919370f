"""Given more requests than may be answered at once, then the rest is refused, but how the product is is always said.

Who sends a body slowly holds no place, and makes way for others.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.api.crowd import ALWAYS, Crowd, Limits
from commonpool.api.streaming import CUT

FEW = Limits(places=3, places_per_address=2, seats=3, body_bytes=40, body_bytes_per_address=30)


class Asked:
    """A request whose answer begins, and ends, when the test says so; with `sends` its body comes when that says so."""

    def __init__(
        self,
        path: str = "/",
        address: str = "10.0.0.1",
        media: str = "application/json",
        *,
        sends: bool = False,
        **said: str,
    ) -> None:
        headers = [(name.encode(), value.encode()) for name, value in said.items()]
        self.scope: dict[str, Any] = {"type": "http", "path": path, "method": "GET", "headers": headers}
        self.scope |= {"client": (address, 1), "extensions": {CUT: {"now": self._cut}}}
        self.media = media
        self.begin, self.end = asyncio.Event(), asyncio.Event()
        self.sent: list[Any] = []
        self.body: bytes | None = None  # as the application has it, once that is whole
        self.cut = False
        self._parts: asyncio.Queue[tuple[bytes, bool] | None] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None
        if not sends:
            self.put(b"", more=False)

    def start(self, crowd: Crowd) -> None:
        self.task = asyncio.create_task(crowd(self.scope | {"asked": self}, self._receive, self._send))

    async def ask(self, crowd: Crowd) -> "Asked":
        self.start(crowd)
        await turns()
        return self

    def put(self, part: bytes, *, more: bool) -> None:
        """A part of the body is there, and nobody has looked yet."""
        self._parts.put_nowait((part, more))

    async def come(self, part: bytes, *, more: bool = True) -> "Asked":
        """A part of the body comes."""
        self.put(part, more=more)
        await turns()
        return self

    async def leave(self) -> None:
        """The client leaves."""
        self._parts.put_nowait(None)
        await turns()

    async def over(self) -> None:
        """It is answered."""
        self.begin.set()
        self.end.set()
        await turns()

    async def _receive(self) -> Any:
        part = await self._parts.get()
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part[0], "more_body": part[1]}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    def _cut(self) -> None:
        self.cut = True
        self._parts.put_nowait(None)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"]) if self.sent else 0

    @property
    def said(self) -> str:
        return str(json.loads(self.sent[1]["body"])["error"]["message"])


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def application(scope: Any, receive: Any, send: Any) -> None:
    """It reads the body and works on it until it is told to answer; to a client that leaves it answers something."""
    asked, body, more = scope["asked"], b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        body += message["body"]
        more = message["more_body"]
    asked.body = body
    await asked.begin.wait()
    headers = [(b"content-type", asked.media.encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await asked.end.wait()
    await send({"type": "http.response.body", "body": b"{}"})


def run(test: Callable[[Crowd], Awaitable[list[Asked]]], limits: Limits = FEW) -> None:
    """The test, then what it returns is answered, and nothing is held any more."""

    async def life() -> None:
        crowd = Crowd(application, limits)
        for asked in await test(crowd):
            await asked.over()
        assert held(crowd) == (0, 0, 0)

    asyncio.run(life())


def held(crowd: Crowd) -> tuple[int, int, int]:
    """Places, seats and bytes."""
    return crowd.places.taken, len(crowd.seats), crowd.body_bytes.taken


def test_an_address_may_ask_so_much_and_all_so_much() -> None:
    async def test(crowd: Crowd) -> list[Asked]:
        mine = [await Asked().ask(crowd) for _ in range(3)]
        assert [asked.status for asked in mine] == [0, 0, 503]
        said = json.loads(mine[2].sent[1]["body"])["error"]
        assert said["code"] == "busy"
        assert said["message"] == "2 requests of your address are being answered, which is the most; try again in 1 s"
        assert (b"retry-after", b"1") in mine[2].sent[0]["headers"]
        others = [await Asked(address="10.0.0.2").ask(crowd) for _ in range(2)]
        assert [asked.status for asked in others] == [0, 503]
        assert b"3 requests are being answered" in others[1].sent[1]["body"]
        # One is over: there is room again.
        await mine[0].over()
        late = await Asked(address="10.0.0.2").ask(crowd)
        assert late.status == 0
        return [mine[1], others[0], late]

    run(test)


def test_the_addresses_of_a_network_are_one() -> None:
    async def test(crowd: Crowd) -> list[Asked]:
        mine = [await Asked(address=f"2001:db8::{n}").ask(crowd) for n in range(1, 4)]
        assert [asked.status for asked in mine] == [0, 0, 503]
        other = await Asked(address="2001:db8:0:1::1").ask(crowd)
        assert other.status == 0
        return [mine[0], mine[1], other]

    run(test)


def test_how_the_product_is_is_always_answered() -> None:
    async def test(crowd: Crowd) -> list[Asked]:
        busy = [await Asked(address=f"10.0.0.{n}").ask(crowd) for n in range(3)]
        for path in sorted(ALWAYS):
            asked = await Asked(path).ask(crowd)
            await asked.over()
            assert asked.status == 200
        assert (await Asked(accept="text/html,*/*").ask(crowd)).sent[1]["body"].startswith(b"The control plane is busy")
        return busy

    run(test)


def test_a_stream_that_has_begun_counts_no_more() -> None:
    async def test(crowd: Crowd) -> list[Asked]:
        streams = [await Asked(media="text/event-stream").ask(crowd) for _ in range(2)]
        assert crowd.places.taken == 2
        for stream in streams:
            stream.begin.set()
        await turns()
        assert crowd.places.taken == 0
        return [*streams, *[await Asked().ask(crowd) for _ in range(2)]]

    run(test)


def test_one_that_fails_is_over() -> None:
    async def failing(_scope: Any, receive: Any, _send: Any) -> None:
        await receive()
        raise RuntimeError

    async def life(*, sends: bool) -> None:
        crowd = Crowd(failing)
        asked = await Asked(sends=sends).ask(crowd)
        if sends:
            await asked.come(b"name")
        assert asked.task is not None
        assert isinstance(asked.task.exception(), RuntimeError)
        assert held(crowd) == (0, 0, 0)

    asyncio.run(life(sends=False))
    asyncio.run(life(sends=True))


# -- bodies on their way -----------------------------------------------------------------------------------------------


def test_who_sends_slowly_holds_no_place() -> None:
    async def test(crowd: Crowd) -> list[Asked]:
        slow = [await (await Asked(sends=True).ask(crowd)).come(b"name") for _ in range(3)]
        assert held(crowd) == (0, 3, 12)
        others = [await Asked().ask(crowd) for _ in range(2)]
        assert [asked.status for asked in others] == [0, 0]
        # A body that is there is worked on in its turn: where there is no place it is refused like any other.
        await slow[0].come(b"=bo", more=False)
        said = "2 requests of your address are being answered, which is the most; try again in 1 s"
        assert (slow[0].status, slow[0].said) == (503, said)
        assert slow[0].body is None
        await others[0].over()
        await slow[1].come(b"=ann", more=False)
        assert (slow[1].body, slow[1].status) == (b"name=ann", 0)
        assert held(crowd) == (2, 1, 12)
        await slow[2].leave()
        assert held(crowd) == (2, 0, 8)
        return [others[1], slow[1]]

    run(test)


def test_where_all_seats_are_taken_the_slowest_of_who_has_most_makes_way() -> None:
    async def test(crowd: Crowd) -> list[Asked]:
        honest = await Asked(address="10.0.0.9", sends=True).ask(crowd)
        mine = [await Asked(sends=True).ask(crowd) for _ in range(4)]
        assert [asked.cut for asked in mine] == [True, True, False, False]
        assert held(crowd) == (0, 3, 0)
        assert not honest.cut
        await honest.come(b"name=bo", more=False)
        assert honest.body == b"name=bo"
        for asked in mine[2:]:
            await asked.leave()
        return [honest]

    run(test)


def test_a_body_that_comes_while_its_seat_is_taken_away_does_nothing() -> None:
    async def test(crowd: Crowd) -> list[Asked]:
        first, *others = [await Asked(sends=True).ask(crowd) for _ in range(3)]
        last = Asked(sends=True)
        last.start(crowd)
        await asyncio.sleep(0)  # it has come, and nobody has made way yet
        first.put(b"name=bo", more=False)
        await turns()
        assert first.cut
        assert first.body is None
        for asked in (*others, last):
            await asked.come(b"", more=False)
            await asked.over()
        return []

    run(test)


def test_a_body_that_is_there_at_once_takes_nobodys_seat() -> None:
    async def test(crowd: Crowd) -> list[Asked]:
        slow = [await Asked(sends=True).ask(crowd) for _ in range(3)]
        quick = Asked(sends=True)
        quick.put(b"name=bo", more=False)
        await quick.ask(crowd)
        assert quick.body == b"name=bo"
        assert not any(asked.cut for asked in slow)
        for asked in slow:
            await asked.leave()
        return [quick]

    run(test)


def test_bodies_are_kept_so_far_in_all_and_of_an_address() -> None:
    async def test(crowd: Crowd) -> list[Asked]:
        first = await (await Asked(sends=True).ask(crowd)).come(b"x" * 20, more=False)
        second = await (await Asked(sends=True).ask(crowd)).come(b"x" * 11)
        said = "30 bytes of bodies of your address are the most at once; try again in 1 s"
        assert (second.status, second.said) == (503, said)
        other = await (await Asked(address="10.0.0.2", sends=True).ask(crowd)).come(b"x" * 20)
        assert held(crowd) == (1, 1, 40)
        await other.come(b"x")
        assert (other.status, other.said) == (503, "40 bytes of bodies are the most at once; try again in 1 s")
        assert held(crowd) == (1, 0, 20)  # kept until what it asks for is done
        return [first]

    run(test)


@pytest.mark.parametrize("more", [True, False])
def test_an_answer_before_the_body_is_there_is_sent(more: bool) -> None:
    """As one that is too long, or not allowed."""

    async def early(_scope: Any, receive: Any, send: Any) -> None:
        if more:
            await receive()
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        while (await receive())["type"] != "http.disconnect":
            pass

    async def life() -> None:
        crowd = Crowd(early, FEW)
        asked = await (await Asked(sends=True).ask(crowd)).come(b"x")
        assert asked.status == 413
        await asked.come(b"x" * 100)  # nobody keeps that
        assert crowd.body_bytes.taken == int(more)
        await asked.leave()
        assert held(crowd) == (0, 0, 0)

    asyncio.run(life())


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "part", "whole", "leave", "over"]), st.integers(0, 9), st.sampled_from("ab")),
        max_size=20,
    )
)
@settings(max_examples=60, deadline=None)
def test_what_is_held_is_within_the_limits_and_given_back(moves: list[tuple[str, int, str]]) -> None:
    async def life() -> None:
        crowd = Crowd(application, FEW)
        asked: list[Asked] = []
        for what, n, address in moves:
            if what == "ask":
                asked.append(await Asked(address=address, sends=n % 2 == 0).ask(crowd))
            elif asked:
                one = asked[n % len(asked)]
                match what:
                    case "part" | "whole":
                        await one.come(b"x" * n, more=what == "part")
                    case "leave":
                        await one.leave()
                    case _:
                        await one.over()
            places, seats, kept = held(crowd)
            assert places <= FEW.places
            assert seats <= FEW.seats
            assert kept <= FEW.body_bytes
            alive = sum(not each.task.done() for each in asked if each.task is not None)
            assert places + seats == alive
        for one in asked:
            await one.leave()
            await one.over()
        assert held(crowd) == (0, 0, 0)

    asyncio.run(life())
