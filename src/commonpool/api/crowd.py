"""How much is asked of the control plane at once: so much in all and from one address, and the rest is told to wait.

A request holds a place while it is worked on. While its body is on its way it holds a seat instead (`api.bodies`), so
that nobody keeps a place by sending slowly; it takes one again when the body is there.

What tells whether the product is well is always answered. A stream of events counts until it begins: from then on it
does next to nothing, and `app.feed` bounds how many there are.
"""

from collections import Counter
from typing import Final, Literal

import msgspec
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonpool.api.bodies import BYTES_MAX, BYTES_PER_ADDRESS_MAX, SEATS_MAX, Seats
from commonpool.api.streaming import EVENTS, cut
from commonpool.api.wire import errors as wire
from commonpool.core.networks import party

AT_ONCE_MAX: Final = 128
PER_ADDRESS_MAX: Final = 96  # one address, also that of a proxy, leaves room for the others
ALWAYS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
RETRY_S: Final = 1
GONE: Final = "http.disconnect"
_TYPE: Final = b"content-type"


class Limits(msgspec.Struct, frozen=True):
    """How much there may be at once, in all and of one address."""

    places: int = AT_ONCE_MAX
    places_per_address: int = PER_ADDRESS_MAX
    seats: int = SEATS_MAX
    body_bytes: int = BYTES_MAX
    body_bytes_per_address: int = BYTES_PER_ADDRESS_MAX


class Crowd:
    """The application, asked for so much at once. What is too much is refused with 503, and nothing of it is done."""

    def __init__(self, application: ASGIApp, limits: Limits | None = None) -> None:
        self._application = application
        most = limits or Limits()
        said = "{most} requests{whose} are being answered, which is the most"
        self.places = Shares(most.places, most.places_per_address, said)
        said = "{most} bytes of bodies{whose} are the most at once"
        self.body_bytes = Shares(most.body_bytes, most.body_bytes_per_address, said)
        self.seats = Seats(most.seats)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ALWAYS:
            await self._application(scope, receive, send)
            return
        turn = _Turn(self, scope, receive, send)
        if not turn.refused:
            try:
                await self._application(scope, turn.receive, turn.send)
            finally:
                turn.over()
        if turn.refused:
            await _refusal(scope, turn.refused)(scope, receive, send)


class Shares:
    """Something of which there is so much in all and for one address. `said` is how one is told that it is taken."""

    def __init__(self, most: int, per_address: int, said: str) -> None:
        self._most = most
        self._per_address = per_address
        self._said = said
        self._by_address: Counter[str] = Counter()
        self.taken = 0

    def take(self, address: str, count: int) -> str:
        """Take so much, "". Where there is not so much left it is said why not, and nothing is taken."""
        if self._by_address[address] + count > self._per_address:
            return self._said.format(most=self._per_address, whose=" of your address")
        if self.taken + count > self._most:
            return self._said.format(most=self._most, whose="")
        self._by_address[address] += count
        self.taken += count
        return ""

    def give(self, address: str, count: int) -> None:
        """Give back what was taken."""
        self._by_address[address] -= count
        self.taken -= count
        if not self._by_address[address]:
            del self._by_address[address]


class _Turn:
    """One request: what it holds, given back once, and why it is `refused`, where it is."""

    def __init__(self, crowd: Crowd, scope: Scope, receive: Receive, send: Send) -> None:
        self.address = party(scope["client"][0]) if scope.get("client") else ""
        self._crowd = crowd
        self._scope = scope
        self._receive = receive
        self._send = send
        self._holds: Literal["", "place", "seat"] = ""
        self._kept_bytes = 0
        self._has_body = False  # all of it
        self._answers = False
        self.refused = ""
        self._work()

    def cut(self) -> None:
        """See `bodies.Sender`."""
        self._holds = ""
        cut(self._scope)

    def over(self) -> None:
        """It is done, or costs next to nothing from now on."""
        self._rest()
        self._crowd.body_bytes.give(self.address, self._kept_bytes)
        self._kept_bytes = 0

    async def send(self, message: Message) -> None:
        """A part of the application's answer, which counts for nothing once the request is refused."""
        if self.refused:
            return
        if message["type"] == "http.response.start":
            self._answers = True
            if _goes_on(message):
                self.over()
        await self._send(message)

    async def receive(self) -> Message:
        """A part of the body. To the application it looks as if the client had left, once the request is refused."""
        if self.refused:
            return {"type": GONE}
        if self._has_body or self._answers:
            return await self._receive()
        if self._holds == "place":
            self._rest()
            self._holds = "seat"
            self._crowd.seats.enter(self)
        message = await self._receive()
        if self._holds == "seat" and message["type"] == "http.request":
            self._keep(message)
        return message if self._holds else {"type": GONE}

    def _keep(self, part: Message) -> None:
        """A part of the body is there; after the last one it is worked on."""
        count = len(part.get("body", b""))
        self.refused = self._crowd.body_bytes.take(self.address, count)
        if self.refused:
            self.over()
            return
        self._kept_bytes += count
        if not part.get("more_body", False):
            self._has_body = True
            self._rest()
            self._work()

    def _work(self) -> None:
        self.refused = self._crowd.places.take(self.address, 1)
        self._holds = "" if self.refused else "place"

    def _rest(self) -> None:
        match self._holds:
            case "place":
                self._crowd.places.give(self.address, 1)
            case "seat":
                self._crowd.seats.left(self)
        self._holds = ""


def _goes_on(start: Message) -> bool:
    return any(name.lower() == _TYPE and value.startswith(EVENTS.encode()) for name, value in start["headers"])


def _refusal(scope: Scope, said: str) -> Response:
    headers = {"retry-after": str(RETRY_S), "cache-control": "no-store", "connection": "close"}
    if "text/html" in Headers(scope=scope).get("accept", ""):
        return PlainTextResponse(f"The control plane is busy: {said}; try again in a moment.\n", 503, headers)
    failure = wire.Failure(wire.Error(f"{said}; try again in {RETRY_S} s", "server_error", "busy"))
    return Response(msgspec.json.encode(failure), 503, headers, "application/json")
