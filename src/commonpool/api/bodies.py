"""Bodies that are on their way: who sends one slowly holds a seat, which is no place of work, and makes way for others.

A body usually comes with its head or right after it. So nobody honest has a seat for long, and where there is none left
the one is taken away that has been held longest, of the address that holds most: whoever takes seats takes them from
themselves first.
"""

import asyncio
from collections import OrderedDict
from typing import Final, Protocol

SEATS_MAX: Final = 96  # with the places of `crowd` and the streams of `app.feed` fewer than the connections of `lobby`
WITHIN_S: Final = 60.0  # the whole body: 16 MiB at 2.2 Mbit/s, and what people and commands send is 1,000 times smaller
BYTES_MAX: Final = 64 * 1024 * 1024  # kept of bodies until what they ask for is done: four of the largest
BYTES_PER_ADDRESS_MAX: Final = 48 * 1024 * 1024


class Sender(Protocol):
    """A request of which the body is on its way, from an `address` (`core.networks.party`)."""

    address: str

    def cut(self) -> None:
        """End it. Its seat is taken away already."""


class Seats:
    """Those who send."""

    def __init__(self, most: int = SEATS_MAX) -> None:
        self._most = most
        self._by_address: dict[str, OrderedDict[Sender, None]] = {}
        self._taken = 0

    def __len__(self) -> int:
        """How many send."""
        return self._taken

    def enter(self, sender: Sender) -> None:
        """It has a seat. Where there are too many another one makes way, unless the body turns out to be there."""
        self._by_address.setdefault(sender.address, OrderedDict())[sender] = None
        self._taken += 1
        if self._taken > self._most:
            asyncio.get_running_loop().call_soon(self._make_way)

    def left(self, sender: Sender) -> None:
        """Its body is there, or it sends no more."""
        own = self._by_address.get(sender.address)
        if own is None or sender not in own:
            return
        del own[sender]
        self._taken -= 1
        if not own:
            del self._by_address[sender.address]

    def _make_way(self) -> None:
        while self._taken > self._most:
            own = max(self._by_address.values(), key=len)  # looked for only where all are taken, among as many as those
            slowest = next(iter(own))
            self.left(slowest)
            slowest.cut()
