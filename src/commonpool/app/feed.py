"""What the product decides and what changes, once a second, for whoever listens."""

import asyncio
from collections.abc import Mapping
from typing import Final

from commonpool.api.operations import NoMoreStreamsError, TooManyStreamsError
from commonpool.control.decisions import Observer
from commonpool.core.networks import party
from commonpool.core.state import State
from commonpool.observe.changes import Changed, Changes, What
from commonpool.observe.decisions import Decisions

STREAMS_MAX: Final = 256  # half of the connections that the control plane has open at once
STREAMS_PER_CALLER_MAX: Final = 8  # more tabs than a browser has connections for
STREAMS_PER_ADDRESS_MAX: Final = 192  # behind a proxy all share its address; whoever finds no stream asks now and then


class Stream:
    """One who listens (`api.operations.Stream`). What is not taken yet is as small as the names of what there is."""

    def __init__(self, feed: "Feed", caller: str, address: str) -> None:
        self._feed = feed
        self.caller = caller
        self.address = address
        self._looked = asyncio.Event()
        self._names: dict[What, frozenset[str]] = {}

    def tell(self, changed: Changed) -> None:
        """The core was looked at."""
        for part, names in changed.names.items():
            self._names[part] = self._names.get(part, frozenset()) | names
        self._looked.set()

    async def waited(self, within_s: float) -> bool:
        """See `api.operations.Stream`."""
        if self._feed.closed:
            return False
        try:
            async with asyncio.timeout(within_s):
                await self._looked.wait()
        except TimeoutError:
            pass
        self._looked.clear()
        return not self._feed.closed

    def changed(self) -> Changed:
        """See `api.operations.Stream`."""
        names: Mapping[What, frozenset[str]] = self._names
        self._names = {}
        return Changed(names)

    def close(self) -> None:
        """See `api.operations.Stream`."""
        self._feed.left(self)


class Feed:
    """The decisions, and those who listen to them (`api.operations.Feed`). `run` names this run of the product."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.decisions = Decisions()
        self.closed = False
        self._observer = Observer()
        self._changes = Changes()
        self._streams: set[Stream] = set()

    def look(self, state: State, now: int) -> None:
        """About once a second: what was decided since the last look; what has changed, where somebody listens."""
        for decision in self._observer.look(state, now):
            self.decisions.add(decision)
        if not self._streams:
            self._changes.forget()
            return
        changed = self._changes.look(state)
        for stream in self._streams:
            stream.tell(changed)

    def lent_since(self, lender: str, borrower: str) -> int | None:
        """Since when the one lends to the other, as the decisions say; None where they do not."""
        return self._observer.loans.since(lender, borrower)

    def listen(self, caller: str, address: str) -> Stream:
        """See `api.operations.Feed`."""
        own = sum(stream.caller == caller for stream in self._streams)
        if own >= STREAMS_PER_CALLER_MAX:
            raise TooManyStreamsError(
                f"{caller} has {own} streams of events open, and {STREAMS_PER_CALLER_MAX} is the most: close one"
            )
        if len(self._streams) >= STREAMS_MAX:
            raise NoMoreStreamsError(
                f"{STREAMS_MAX} streams of events are open, which is the most: try again when somebody has left"
            )
        where = party(address)
        if sum(stream.address == where for stream in self._streams) >= STREAMS_PER_ADDRESS_MAX:
            raise NoMoreStreamsError(
                f"{STREAMS_PER_ADDRESS_MAX} streams of events are open to {where}, which is the most: try again when "
                "somebody there has left"
            )
        stream = Stream(self, caller, where)
        self._streams.add(stream)
        return stream

    def left(self, stream: Stream) -> None:
        """It listens no more."""
        self._streams.discard(stream)

    @property
    def listening(self) -> int:
        """How many listen."""
        return len(self._streams)

    def close(self) -> None:
        """The product stops: every stream ends."""
        self.closed = True
        for stream in self._streams:
            stream.tell(Changed())
