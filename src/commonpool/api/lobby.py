"""Who is connected to the control plane: so many in all and from one address, and those that ask for nothing make way.

An open connection costs a little memory and a file descriptor, so it is no reason to refuse anybody: a new one takes
the place of one that asks for nothing, whoever that is. Only what is asked at once is scarce; `api.crowd` bounds that.
"""

from collections import Counter
from typing import Final, Protocol

CONNECTIONS_MAX: Final = 512  # half of the file descriptors that a process usually has
PER_ADDRESS_MAX: Final = 256  # behind a proxy all share its address, and it keeps few open that ask for nothing


class Guest(Protocol):
    """A connection. It is `idle` while nothing of it is asked or answered, and `new` until it has asked once."""

    address: str

    @property
    def idle(self) -> bool:
        """Whether it can be closed and nothing is lost."""

    @property
    def new(self) -> bool:
        """Whether it has never asked for anything."""

    def leave(self) -> None:
        """Close it. `Lobby.left` is called, now or later."""


class Lobby:
    """The connections that are open, the oldest first."""

    def __init__(self, most: int = CONNECTIONS_MAX, per_address: int = PER_ADDRESS_MAX) -> None:
        self._most = most
        self._per_address = per_address
        self._guests: dict[Guest, None] = {}
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many are connected."""
        return len(self._guests)

    def enter(self, guest: Guest) -> None:
        """It has connected. Where there are too many an idle one leaves: one that never asked before one that did, the
        oldest first; of its own address, where that has too many. Where none is idle it is the new one.
        """
        self._guests[guest] = None
        self._by_address[guest.address] += 1
        if self._by_address[guest.address] > self._per_address:
            self._make_room(guest, guest.address)
        elif len(self._guests) > self._most:
            self._make_room(guest, None)

    def left(self, guest: Guest) -> None:
        """It is closed, or about to be."""
        if guest not in self._guests:
            return
        del self._guests[guest]
        self._by_address[guest.address] -= 1
        if not self._by_address[guest.address]:
            del self._by_address[guest.address]

    def _make_room(self, arrived: Guest, address: str | None) -> None:
        idle = [each for each in self._guests if each.idle and address in {None, each.address} and each is not arrived]
        goes = min(idle, key=lambda each: not each.new, default=arrived)
        self.left(goes)
        goes.leave()
