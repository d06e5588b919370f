"""The server-sent events of a product, as somebody hears them who goes on listening."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

WITHIN_S = 120.0


class Stream:
    """The events of a product at `control`, read in a thread from the first one on."""

    def __init__(self, control: str, token: str = "", after: str = "") -> None:
        host, _, port = control.removeprefix("http://").partition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=WITHIN_S)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._connection.request("GET", f"/admin/v1/events?after={after}", headers=headers)
        self.response = self._connection.getresponse()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        name = ""
        for raw in self._lines():
            field, _, value = raw.decode().rstrip("\r\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                self.events.append((name, json.loads(value)))
        self.ended.set()

    def _lines(self) -> Iterator[bytes]:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):  # the connection is closed
            yield from self.response

    def said(self, kind: str = "") -> list[str]:
        """The decisions so far, of a kind."""
        return [
            data["explanation"] for name, data in list(self.events) if name == "decision" and kind in ("", data["kind"])
        ]

    def close(self) -> None:
        with contextlib.suppress(OSError):  # where the product has ended it
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(WITHIN_S)
        self._connection.close()


@contextlib.contextmanager
def listening(control: str, token: str = "", after: str = "") -> Iterator[Stream]:
    stream = Stream(control, token, after)
    try:
        yield stream
    finally:
        stream.close()
