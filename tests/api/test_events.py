"""Given somebody who listens, when something is decided or changes, then it is told as it happens, to who may know."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import msgspec
import pytest

from commonpool.access.callers import by_admin_key
from commonpool.api.events import HEARTBEAT_NS
from commonpool.api.operations import NoMoreStreamsError
from commonpool.api.server import Server
from commonpool.api.streaming import EventStream, Streamed, event
from commonpool.app.feed import STREAMS_MAX, STREAMS_PER_ADDRESS_MAX, STREAMS_PER_CALLER_MAX
from commonpool.core.events import Arrived, Submitted
from commonpool.core.model import Job, Request
from commonpool.observe.decisions import Decision
from tests.api.fakes import NOW, FakeOperations
from tests.cli.serving import serving

WITHIN_S = 120.0


class Listener:
    """A client that reads a stream of events."""

    def __init__(self, url: str, path: str = "/admin/v1/events", **headers: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._connection = HTTPConnection(host, int(port), timeout=WITHIN_S)
        self._connection.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        self.response: HTTPResponse = self._connection.getresponse()

    def block(self) -> dict[str, str]:
        """The next event or comment, by field; {} at the end of the stream."""
        found: dict[str, str] = {}
        for raw in self.response:
            line = raw.decode().rstrip("\r\n")
            if not line:
                return found
            field, _, value = line.partition(":")
            found[field] = value.removeprefix(" ")
        return found

    def close(self) -> None:
        self._connection.close()


class Here:
    """A product that is served, with what a test does to it from outside its loop."""

    def __init__(self, product: FakeOperations, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self.product = product
        self.url = url
        self._loop = loop
        self._open: list[Listener] = []

    def listen(self, path: str = "/admin/v1/events", **headers: str) -> Listener:
        listener = Listener(self.url, path, **headers)
        self._open.append(listener)
        return listener

    def do(self, what: Callable[[], object]) -> None:
        """Do it where the product is served."""
        done = threading.Event()

        def do_it() -> None:
            what()
            done.set()

        self._loop.call_soon_threadsafe(do_it)
        assert done.wait(WITHIN_S)

    def look(self) -> None:
        """As the product does once a second."""
        self.do(lambda: self.product.fake_feed.look(self.product.machine.state, self.product.now))

    def decide(self, said: str, *tenants: str) -> None:
        self.do(lambda: self.product.fake_feed.decisions.add(Decision(NOW, "quota", said, tenants)))
        self.look()

    def close(self) -> None:
        for listener in self._open:
            listener.close()


@pytest.fixture
def here(product: FakeOperations) -> Iterator[Here]:
    product.callers |= {
        b"Bearer viewer": by_admin_key("v", "viewer", "support"),
        b"Bearer operator": by_admin_key("o", "operator"),
    }
    loops: list[asyncio.AbstractEventLoop] = []
    with serving(product, served_by=loops.append) as url:
        here = Here(product, url, loops[0])
        yield here
        here.close()
        here.do(product.fake_feed.close)


def test_what_is_decided_is_told_with_its_place(here: Here) -> None:
    listener = here.listen()
    assert listener.response.headers["content-type"].startswith("text/event-stream")
    assert listener.block() == {"retry": "2000", "": "open"}
    here.decide("support may use more", "support")
    told = listener.block()
    assert (told["event"], told["id"]) == ("decision", "run.1")
    decision = msgspec.json.decode(told["data"])
    assert (decision["id"], decision["explanation"]) == ("run.1", "support may use more")


def test_who_comes_again_gets_what_it_missed_and_nothing_twice(here: Here) -> None:
    for n in range(3):
        here.decide(f"decision {n}", "support")
    for listener in (here.listen(Last_Event_ID="run.1"), here.listen("/admin/v1/events?after=run.1")):
        listener.block()
        assert [listener.block()["id"] for _ in range(2)] == ["run.2", "run.3"]
    after_a_restart = here.listen(Last_Event_ID="older.77")
    after_a_restart.block()
    assert [after_a_restart.block()["id"] for _ in range(3)] == ["run.1", "run.2", "run.3"]


def test_a_tenant_hears_of_its_own_alone(here: Here) -> None:
    listener = here.listen(authorization="Bearer viewer")
    listener.block()
    here.decide("research may use more", "research")
    here.decide("support may use more", "support")
    told = listener.block()
    assert told["id"] == "run.2"
    assert "research" not in told["data"]


def test_a_change_is_told_once_a_look_with_what_it_is_in(here: Here) -> None:
    listener = here.listen()
    listener.block()
    here.look()
    request = Request("r", "support", "helpdesk", "echo", "interactive", "chat", 10, 10)
    here.do(lambda: here.product.machine.handle(Arrived(request), NOW))
    here.look()
    told = listener.block()
    assert told["event"] == "changed"
    assert msgspec.json.decode(told["data"]) == {"at_ns": NOW, "what": ["tenants", "models"]}
    assert "id" not in told


def test_a_tenant_hears_of_no_change_of_another_one(here: Here) -> None:
    listener = here.listen(authorization="Bearer viewer")
    listener.block()
    here.look()
    job = Job("j", "research", "papers", "main", "batch", 9000)
    here.do(lambda: here.product.machine.handle(Submitted(job), NOW))
    here.look()
    here.decide("support may use more", "support")
    assert listener.block()["event"] == "decision"


def test_a_silent_stream_says_that_it_lives(here: Here) -> None:
    listener = here.listen()
    listener.block()
    here.product.now += HEARTBEAT_NS
    here.look()
    assert listener.block() == {"": "alive"}


def test_it_ends_when_the_key_counts_no_more(here: Here) -> None:
    listener = here.listen(authorization="Bearer viewer")
    listener.block()
    del here.product.callers[b"Bearer viewer"]
    here.decide("support may use more", "support")
    told = listener.block()
    assert told["event"] == "over"
    assert "the key is not valid" in told["data"]
    assert listener.block() == {}


def test_it_ends_when_the_product_stops(here: Here) -> None:
    listener = here.listen()
    listener.block()
    here.do(here.product.fake_feed.close)
    assert listener.block() == {}


def test_nobody_may_have_too_many_and_those_who_left_do_not_count(here: Here) -> None:
    mine = [here.listen(authorization="Bearer viewer") for _ in range(STREAMS_PER_CALLER_MAX)]
    assert {listener.response.status for listener in mine} == {200}
    one_more = here.listen(authorization="Bearer viewer")
    assert one_more.response.status == 429
    assert b"has 8 streams of events open, and 8 is the most: close one" in one_more.response.read()
    assert here.listen(authorization="Bearer operator").response.status == 200
    for listener in mine:
        listener.response.close()
        listener.close()
    gone = threading.Event()
    for _ in range(int(WITHIN_S / 0.05)):
        if here.product.fake_feed.listening == 1 or gone.wait(0.05):
            break
    assert here.product.fake_feed.listening == 1


def test_there_may_not_be_too_many_of_all(product: FakeOperations) -> None:
    feed = product.fake_feed
    for n in range(STREAMS_MAX):
        feed.listen(f"caller {n}", f"10.0.0.{n // 64}")
    with serving(product) as url:
        refused = Listener(url)
        assert refused.response.status == 503
        assert b"256 streams of events are open, which is the most" in refused.response.read()
        refused.close()


def test_there_may_not_be_too_many_of_an_address(product: FakeOperations) -> None:
    feed = product.fake_feed
    for n in range(STREAMS_PER_ADDRESS_MAX):
        feed.listen(f"caller {n}", "127.0.0.1")
    with serving(product) as url:
        refused = Listener(url)
        assert refused.response.status == 503
        assert b"192 streams of events are open to 127.0.0.1, which is the most" in refused.response.read()
        refused.close()
    feed.listen("somebody", "10.0.0.1")


def test_the_addresses_of_a_network_are_one(product: FakeOperations) -> None:
    feed = product.fake_feed
    for n in range(STREAMS_PER_ADDRESS_MAX):
        feed.listen(f"caller {n}", f"2001:db8::{n:x}")
    with pytest.raises(NoMoreStreamsError, match="192 streams of events are open to 2001:db8::/64"):
        feed.listen("somebody", "2001:db8::ffff")
    feed.listen("somebody", "2001:db8:0:1::1")


def test_asking_for_the_head_opens_none(here: Here) -> None:
    host, _, port = here.url.removeprefix("http://").partition(":")
    connection = HTTPConnection(host, int(port), timeout=WITHIN_S)
    connection.request("HEAD", "/admin/v1/events")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.close()
    assert here.product.fake_feed.listening == 0


# -- a reader that takes nothing ---------------------------------------------------------------------------------------


def test_a_reader_that_takes_nothing_is_cut() -> None:
    asyncio.run(_slow_reader())


async def _slow_reader() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield event("decision", {"explanation": "x" * 100_000})

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await EventStream(Streamed(endless(), closed.set), {}, within_s=0.2)(scope, receive, send)

    server = Server(application)
    await server.start("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", server.port)) as reader:
        reader.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(reader, b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
        async with asyncio.timeout(WITHIN_S):
            await closed.wait()
            while await loop.sock_recv(reader, 1 << 20):
                """What was on its way; then the connection is over, and not whole."""
    await server.stop()
