"""Calls to the issuer over TLS: with its name, whatever address it has, and by certificates that are trusted."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest

from commonpool.access.problems import AwayError
from commonpool.access.web import Web
from tests.access.certificates import Authority


class Said(msgspec.Struct):
    """What the server below answers."""

    host: str


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = msgspec.json.encode(Said(self.headers["host"]))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


class Place:
    """A server with TLS on 127.0.0.1, and the names that clients asked it by."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        files = self.authority.issue("server")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        self.names: list[str | None] = []
        context.sni_callback = lambda _, name, __: self.names.append(name)
        self._server = HTTPServer(("127.0.0.1", 0), _Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign] # that a client leaves is no fault
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    running = Place(tmp_path)
    yield running
    running.close()


def get(url: str, trusted: ssl.SSLContext) -> Said:
    async def story() -> Said:
        web = Web(call_s=60, trusted=trusted)
        try:
            return (await web.call("GET", url, Said))[1]
        finally:
            await web.close()

    return asyncio.run(story())


def test_it_is_called_and_proves_itself_by_its_name(place: Place) -> None:
    found = get(f"https://localhost:{place.port}/x", place.authority.trusting())
    assert found == Said(f"localhost:{place.port}")
    assert set(place.names) == {"localhost"}


def test_who_is_not_trusted_is_away(place: Place) -> None:
    with pytest.raises(AwayError, match=r"localhost cannot be reached \(ConnectError\)"):
        get(f"https://localhost:{place.port}/x", ssl.create_default_context())
