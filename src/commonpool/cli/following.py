"""What the product decides and how it stands, followed in a thread of its own, across restarts of the product."""

import threading
from collections.abc import Iterator
from typing import Final

import msgspec

from commonpool.api.wire.decisions import Decision, Decisions
from commonpool.api.wire.status import Status
from commonpool.cli.client import Client
from commonpool.cli.exits import CommandError, ExitCode

AGAIN_S: Final = 1.0
DECISIONS_SHOWN: Final = 50


class Seen(msgspec.Struct, frozen=True):
    """The status as it was seen last, and the last decisions, the newest first. `trouble` says why it is not newer."""

    status: Status
    decisions: tuple[Decision, ...]
    trouble: str = ""


class Event(msgspec.Struct, frozen=True):
    """A server-sent event."""

    name: str
    data: bytes
    id: str


def look(client: Client) -> tuple[Seen, str]:
    """As things stand now, and the place from which events follow. Raises CommandError."""
    decided = client.get("/admin/v1/decisions", Decisions, {"limit": DECISIONS_SHOWN})
    return Seen(client.get("/admin/v1/status", Status), decided.decisions), decided.after


def events(lines: Iterator[bytes]) -> Iterator[Event]:
    """The events in the lines of a stream."""
    name = data = place = b""
    for line in lines:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value
        elif field == b"data":
            data += value
        elif field == b"id":
            place = value
        elif not line and name:
            yield Event(name.decode(), data, place.decode())
            name = data = b""


class Follower:
    """Follows in a thread. `seen` is always whole; `news` is set when it is another one.

    `over` is the error that ended it: the caller may look no more. Whatever else goes wrong is tried again.
    """

    def __init__(self, client: Client, seen: Seen, after: str, again_s: float = AGAIN_S) -> None:
        self._client = client
        self._after = after
        self._again_s = again_s
        self._stopped = threading.Event()
        self.seen = seen
        self.over: CommandError | None = None
        self.news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Follow no more; what is read at this moment is not waited for."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set() and self.over is None:
            try:
                self._follow()
                trouble = "the product has stopped"
            except CommandError as error:
                if error.code is ExitCode.NOT_ALLOWED:
                    self.over = error
                trouble = str(error)
            self._show(msgspec.structs.replace(self.seen, trouble=trouble))
            self._stopped.wait(self._again_s)

    def _follow(self) -> None:
        """Until the stream ends. What was decided before is among what it begins with."""
        with self._client.stream("/admin/v1/events", {"last-event-id": self._after}) as lines:
            status = self._client.get("/admin/v1/status", Status)
            self._show(Seen(status, self.seen.decisions))
            for event in events(lines):
                if self._stopped.is_set():
                    return
                self._take(event)

    def _take(self, event: Event) -> None:
        if event.name == "over":
            said = msgspec.json.decode(event.data, type=dict[str, str])["message"]
            raise CommandError(said, ExitCode.NOT_ALLOWED)
        decisions = self.seen.decisions
        if event.name == "decision":
            decision = msgspec.json.decode(event.data, type=Decision)
            self._after = event.id
            decisions = (decision, *decisions)[:DECISIONS_SHOWN]
            self._show(msgspec.structs.replace(self.seen, decisions=decisions))
        else:
            self._show(Seen(self._client.get("/admin/v1/status", Status), decisions))

    def _show(self, seen: Seen) -> None:
        self.seen = seen
        self.news.set()
