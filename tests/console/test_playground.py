"""Given a reader with a key, when they ask from the playground, then only the key of an app is passed on."""

import asyncio
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from commonpool import console
from commonpool.api import routes
from commonpool.api.wire.status import Status
from tests.api.fakes import FakeOperations
from tests.console.visitor import OWN_PAGE, visiting

FIELDS = {"key": "cp_a", "prompt": "Hello", "model": "echo", "max_tokens": "5"}


class Behind(FakeOperations):
    """A product whose gateway is there."""

    def __init__(self, gateway: str) -> None:
        super().__init__()
        self.gateway = gateway

    def status(self) -> Status:
        return msgspec.structs.replace(super().status(), gateway=self.gateway)


def send(product: FakeOperations, **fields: str) -> tuple[int, str]:
    with visiting(product) as local:
        answer = local.post("/playground", data={**FIELDS, **fields}, headers=OWN_PAGE)
        return answer.status_code, answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"key": ""}, 400, "a key and a prompt"),
        ({"prompt": " "}, 400, "a key and a prompt"),
        ({"max_tokens": "0"}, 400, "from 1 to 4096"),
        ({"max_tokens": "9999"}, 400, "from 1 to 4096"),
        ({"max_tokens": "²"}, 400, "not a whole number"),
        ({"max_tokens": "9" * 5000}, 400, "not a whole number"),
        ({"prompt": "x" * 100_001}, 400, "at most 100000"),
        ({"key": "cp_unknown"}, 401, "key"),
        ({"key": "cp_admin"}, 403, "not the key of an app"),
    ],
)
def test_what_cannot_be_passed_on_is_said(fields: dict[str, str], status: int, said: str) -> None:
    found = send(FakeOperations(), **fields)
    assert found[0] == status
    assert said in found[1]


def test_a_gateway_that_is_not_there_is_said_and_the_key_is_not() -> None:
    status, said = send(FakeOperations())  # whose status names no gateway
    assert status == 502
    assert "cannot be reached" in said
    assert "cp_a" not in said


def test_a_reader_who_leaves_while_it_waits_gives_it_up() -> None:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/playground",
        "raw_path": b"/playground",
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:8081"), (b"origin", OWN_PAGE["origin"].encode())],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8081),
    }

    async def story() -> None:
        waits, given_up = asyncio.Event(), asyncio.Event()

        async def gateway(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            waits.set()  # and it answers nothing
            await reader.read()
            given_up.set()
            writer.close()

        async with await asyncio.start_server(gateway, "127.0.0.1", 0) as listening:
            product = Behind(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
            application = routes.application(product, console.routes(product.now_ns))
            form = {"type": "http.request", "body": urlencode(FIELDS).encode(), "more_body": False}
            messages = iter([form])

            async def receive() -> MutableMapping[str, Any]:
                for message in messages:
                    return message
                await waits.wait()
                return {"type": "http.disconnect"}

            async def send(_: MutableMapping[str, Any]) -> None:
                """Nobody reads it."""

            await application(scope, receive, send)
            async with asyncio.timeout(120):
                await given_up.wait()

    asyncio.run(story())


def test_a_page_of_another_host_sends_nothing() -> None:
    with visiting(FakeOperations()) as local:
        answer = local.post("/playground", data=FIELDS, headers={"origin": "http://elsewhere.example"})
    assert answer.status_code == 403
