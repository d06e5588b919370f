"""Who is connected to the control plane: so many in all and from one address, and those that ask for nothing make way.

An open connection costs a little memory and a file descriptor, so it is no reason to refuse anybody: a new one takes
the place of one that asks for nothing, whoever that is. Only what is asked at once is scarce; `api.crowd` bounds that.
A newcomer costs the same however many are connected: connections say when they ask and when they rest, nobody looks.
"""

from collections import Counter, OrderedDict
from typing import Final, Protocol

CONNECTIONS_MAX: Final = 512  # half of the file descriptors that a process usually has
PER_ADDRESS_MAX: Final = 256  # behind a proxy all share its address, and it keeps few open that ask for nothing


class Guest(Protocol):
    """A connection, from an `address` (`core.networks.party`)."""

    address: str

    def leave(self) -> None:
        """Close it. `Lobby.left` is called, now or later."""


class Lobby:
    """The connections that are open."""

    def __init__(self, most: int = CONNECTIONS_MAX, per_address: int = PER_ADDRESS_MAX) -> None:
        self._most = most
        self._per_address = per_address
        self._guests: set[Guest] = set()
        self._by_address: Counter[str] = Counter()
        self._idle = _Idle()
        self._idle_by_address: dict[str, _Idle] = {}

    def __len__(self) -> int:
        """How many are connected."""
        return len(self._guests)

    def enter(self, guest: Guest) -> None:
        """It has connected. Where there are too many an idle one leaves: one that never asked before one that did, the
        longest idle first; of its own address, where that has too many. Where none is idle it is the new one.
        """
        address = guest.address
        goes: Guest | None = None
        if self._by_address[address] >= self._per_address:
            own = self._idle_by_address.get(address)
            goes = guest if own is None else own.first(guest)
        elif len(self._guests) >= self._most:
            goes = self._idle.first(guest)
        self._guests.add(guest)
        self._by_address[address] += 1
        self._rest(guest, new=True)
        if goes is not None:
            self.left(goes)
            goes.leave()

    def asks(self, guest: Guest) -> None:
        """It has asked for something: it is not idle until it is answered."""
        self._rise(guest)

    def rests(self, guest: Guest) -> None:
        """All that it asked for is answered, so it can be closed and nothing is lost."""
        if guest in self._guests:
            self._rest(guest, new=False)

    def left(self, guest: Guest) -> None:
        """It is closed, or about to be."""
        if guest not in self._guests:
            return
        self._guests.discard(guest)
        self._rise(guest)
        self._by_address[guest.address] -= 1
        if not self._by_address[guest.address]:
            del self._by_address[guest.address]

    def _rest(self, guest: Guest, *, new: bool) -> None:
        self._idle.add(guest, new=new)
        self._idle_by_address.setdefault(guest.address, _Idle()).add(guest, new=new)

    def _rise(self, guest: Guest) -> None:
        self._idle.discard(guest)
        own = self._idle_by_address.get(guest.address)
        if own is not None:
            own.discard(guest)
            if own.empty:
                del self._idle_by_address[guest.address]


class _Idle:
    """Those that may leave, in the order in which they do."""

    def __init__(self) -> None:
        self._new: OrderedDict[Guest, None] = OrderedDict()
        self._used: OrderedDict[Guest, None] = OrderedDict()

    @property
    def empty(self) -> bool:
        return not self._new and not self._used

    def add(self, guest: Guest, *, new: bool) -> None:
        (self._new if new else self._used)[guest] = None

    def discard(self, guest: Guest) -> None:
        self._new.pop(guest, None)
        self._used.pop(guest, None)

    def first(self, otherwise: Guest) -> Guest:
        return next(iter(self._new or self._used), otherwise)
