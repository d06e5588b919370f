"""Given more requests than may be answered at once, then the rest is refused, but how the product is is always said."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from commonpool.api.crowd import Crowd


class Asked:
    """A request whose answer begins, and ends, when the test says so."""

    def __init__(
        self, path: str = "/", address: str = "10.0.0.1", media: str = "application/json", **said: str
    ) -> None:
        headers = [(name.encode(), value.encode()) for name, value in said.items()]
        self.scope = {"type": "http", "path": path, "client": (address, 1), "headers": headers, "method": "GET"}
        self.media = media
        self.begin, self.end = asyncio.Event(), asyncio.Event()
        self.sent: list[Any] = []
        self.task: asyncio.Task[None] | None = None

    async def ask(self, crowd: Crowd) -> "Asked":
        self.task = asyncio.create_task(crowd(self.scope | {"asked": self}, self._receive, self._send))
        await turns()
        return self

    async def _receive(self) -> Any:
        return {"type": "http.request", "body": b""}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"]) if self.sent else 0


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def application(scope: Any, _receive: Any, send: Any) -> None:
    asked = scope["asked"]
    await asked.begin.wait()
    headers = [(b"content-type", asked.media.encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await asked.end.wait()
    await send({"type": "http.response.body", "body": b"{}"})


def run(test: Callable[[Crowd], Any], most: int = 3, per_address: int = 2) -> None:
    async def life() -> None:
        crowd = Crowd(application, most, per_address)
        open_ones = await test(crowd)
        for asked in open_ones:
            asked.begin.set()
            asked.end.set()
            await asked.task
        assert crowd.at_once == 0

    asyncio.run(life())


def test_an_address_may_ask_so_much_and_all_so_much() -> None:
    async def test(crowd: Crowd) -> list[Asked]:
        mine = [await Asked().ask(crowd) for _ in range(3)]
        assert [asked.status for asked in mine] == [0, 0, 503]
        said = json.loads(mine[2].sent[1]["body"])["error"]
        assert said["code"] == "busy"
        assert said["message"].startswith("2 requests of your address are being answered, which is the most")
        assert (b"retry-after", b"1") in mine[2].sent[0]["headers"]
        others = [await Asked(address="10.0.0.2").ask(crowd) for _ in range(2)]
        assert [asked.status for asked in others] == [0, 503]
        assert b"3 requests are being answered" in others[1].sent[1]["body"]
        # One is over: there is room again.
        mine[0].begin.set()
        mine[0].end.set()
        await turns()
        assert (await Asked(address="10.0.0.2").ask(crowd)).status == 0
        return []

    async def life() -> None:
        await test(Crowd(application, 3, 2))

    asyncio.run(life())


def test_how_the_product_is_is_always_answered() -> None:
    async def test(crowd: Crowd) -> list[Asked]:
        busy = [await Asked(address=f"10.0.0.{n}").ask(crowd) for n in range(3)]
        for path in ("/healthz", "/readyz", "/metrics"):
            asked = await Asked(path).ask(crowd)
            asked.begin.set()
            await turns()
            assert asked.status == 200
            asked.end.set()
            await turns()
        assert (await Asked(accept="text/html,*/*").ask(crowd)).sent[1]["body"].startswith(b"The control plane is busy")
        return busy

    run(test)


def test_a_stream_that_has_begun_counts_no_more() -> None:
    async def test(crowd: Crowd) -> list[Asked]:
        streams = [await Asked(media="text/event-stream").ask(crowd) for _ in range(2)]
        assert crowd.at_once == 2
        for stream in streams:
            stream.begin.set()
        await turns()
        assert crowd.at_once == 0
        return [*streams, *[await Asked().ask(crowd) for _ in range(2)]]

    run(test)


def test_one_that_fails_is_over() -> None:
    async def failing(_scope: Any, _receive: Any, _send: Any) -> None:
        raise RuntimeError

    async def life() -> None:
        crowd = Crowd(failing)
        asked = await Asked().ask(crowd)
        assert asked.task is not None
        assert isinstance(asked.task.exception(), RuntimeError)
        assert crowd.at_once == 0

    asyncio.run(life())
