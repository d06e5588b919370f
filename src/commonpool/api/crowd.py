"""How much is asked of the control plane at once: so much in all and from one address, and the rest is told to wait.

What tells whether the product is well is always answered. A stream of events counts until it begins: from then on it
does next to nothing, and `app.feed` bounds how many there are.
"""

from collections import Counter
from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonpool.api.streaming import EVENTS
from commonpool.api.wire import errors as wire

AT_ONCE_MAX: Final = 128
PER_ADDRESS_MAX: Final = 96  # one address, also that of a proxy, leaves room for the others
ALWAYS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
RETRY_S: Final = 1
_TYPE: Final = b"content-type"


class Crowd:
    """The application, asked for so much at once. What is too much is refused with 503 before anything is read."""

    def __init__(self, application: ASGIApp, most: int = AT_ONCE_MAX, per_address: int = PER_ADDRESS_MAX) -> None:
        self._application = application
        self._most = most
        self._per_address = per_address
        self._by_address: Counter[str] = Counter()

    @property
    def at_once(self) -> int:
        """How much is being answered."""
        return self._by_address.total()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ALWAYS:
            await self._application(scope, receive, send)
            return
        address = scope["client"][0] if scope.get("client") else ""
        said = self._too_many(address)
        if said:
            await _refusal(scope, said)(scope, receive, send)
            return
        turn = _Turn(self._by_address, address)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and _goes_on(message):
                turn.over()
            await send(message)

        try:
            await self._application(scope, receive, sent)
        finally:
            turn.over()

    def _too_many(self, address: str) -> str:
        """Why no more may be asked now, "" where it may."""
        if self._by_address[address] >= self._per_address:
            return f"{self._per_address} requests of your address are being answered, which is the most; try again"
        if self.at_once >= self._most:
            return f"{self._most} requests are being answered, which is the most; try again"
        return ""


class _Turn:
    """What one request has taken, given back once."""

    def __init__(self, taken: Counter[str], address: str) -> None:
        self._taken = taken
        self._address = address
        self._is_over = False
        taken[address] += 1

    def over(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._taken[self._address] -= 1
        if not self._taken[self._address]:
            del self._taken[self._address]


def _goes_on(start: Message) -> bool:
    return any(name.lower() == _TYPE and value.startswith(EVENTS.encode()) for name, value in start["headers"])


def _refusal(scope: Scope, said: str) -> Response:
    headers = {"retry-after": str(RETRY_S), "cache-control": "no-store", "connection": "close"}
    if "text/html" in Headers(scope=scope).get("accept", ""):
        return PlainTextResponse(f"The control plane is busy: {said} in a moment.\n", 503, headers)
    failure = wire.Failure(wire.Error(f"{said} in {RETRY_S} s", "server_error", "busy"))
    return Response(msgspec.json.encode(failure), 503, headers, "application/json")
