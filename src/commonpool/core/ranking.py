"""Which host is the best one for a footprint, found without looking at all of them.

Hosts that look alike are one `State`, and each kind of request is one `Ask`. Asks that differ in CPU and memory alone
share an `Order` of the states that can host them, by ranks that are never above their own; an ask is ranked for the
first of these only, until none that is left can be better. Taking or giving changes the state of one host; an order
catches up with the states that have come up since it was last looked at, most of which are gone again by then.

The rank of a state, smaller first: whether the devices lie in one link island, then by how much what is usable shrinks
(`core.fragmentation`), then how much the host has free. Hosts of the same rank go by name.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final

import msgspec

from commonpool.core.footprint import Footprint, piece_of
from commonpool.core.fragmentation import Measure
from commonpool.core.hosts import FREE, Card, Cell, Host, Part
from commonpool.core.model import Isolation

STRENGTH: Final[dict[str, int]] = {"shared": 0, "guaranteed": 1, "node": 2, "network": 3}
NO_FIT: Final = -1
_UNKNOWN: Final = -2
_FREE_BITS: Final = 20
_GROWTH_BITS: Final = 36
_GROWTH_ZERO: Final = 1 << (_GROWTH_BITS - 1)
# More than this is forgotten at once, and learned anew.
_ASKS_MAX: Final = 1024
_CELLS_MAX: Final = 1 << 16


class Piece:
    """What is taken of one device, and how each cell looks after that (None: it does not fit)."""

    __slots__ = ("after", "footprint", "owner")

    def __init__(self, footprint: Footprint, owner: str) -> None:
        self.footprint = footprint
        self.owner = owner
        self.after: dict[Cell, Cell | None] = {}


class State:
    """How a host looks now, and the hosts that look like that."""

    __slots__ = (
        "cells",
        "closed",
        "free",
        "free_cpu",
        "free_max",
        "free_mib",
        "fullness",
        "hosts",
        "kinds",
        "names",
        "number",
        "owner",
        "rating",
        "runtimes",
        "several",
        "singles",
        "timed",
        "usable",
    )

    def __init__(self, number: int, host: Host, cells: tuple[Cell, ...], *, closed: bool) -> None:
        self.number = number
        self.cells = cells
        self.kinds: list[Cell] = sorted(set(cells), key=_fullest)
        self.closed = closed  # it cannot keep tenants apart as its pool demands
        self.timed = bool(host.node.windows)  # whether it may be taken depends on the time: not in any order
        self.owner = host.owner
        self.runtimes = host.node.runtimes
        self.free_cpu = host.free_cpu
        self.free_mib = host.free_mib
        self.free = sum(cell.free for cell in cells)
        self.fullness = min(self.free, (1 << _FREE_BITS) - 1)  # as it is in ranks
        self.free_max = max((cell.free for cell in cells), default=0)
        self.usable = 0  # milli_gpu × weight on its cells,
        self.rating = 0  # less what is stranded
        self.several: list[tuple[int, int, int, int, int]] = []  # of measure.several, with what is able and free
        self.singles: dict[Piece, int] = {}  # what is usable after the best cell for a piece has been taken of
        self.hosts: dict[str, Host] = {}
        self.names: list[str] = []

    def add(self, host: Host) -> None:
        self.hosts[host.name] = host
        heappush(self.names, host.name)

    def next(self) -> Host:
        """The first of its hosts by name; it has one."""
        while self.names[0] not in self.hosts:
            heappop(self.names)
        return self.hosts[self.names[0]]


class Order:
    """The states that can host a footprint, best first. Asks that differ in CPU and memory alone share one.

    Its `bare` ask takes neither, so its ranks are never above theirs: an ask need not be ranked for states that come
    later here than its best rank.
    """

    __slots__ = ("bare", "came", "position", "ranked", "started")

    def __init__(self, bare: "Ask") -> None:
        self.bare = bare
        self.position = -1  # up to where in the log it has caught up
        self.started = 0  # how often it was made anew
        self.ranked: list[tuple[int, int, State]] = []  # ranks and numbers of states, sorted
        self.came: list[tuple[int, int, State]] = []  # those that came after it was made


class Ask:
    """A footprint of an owner. `heap` has its own ranks, of the states of its order up to `reached`."""

    __slots__ = (
        "came",
        "cpu",
        "devices",
        "footprint",
        "heap",
        "mib",
        "milli",
        "order",
        "owner",
        "piece",
        "reached",
        "runtime",
        "started",
        "taken",
    )

    def __init__(self, footprint: Footprint, owner: str, piece: Piece, order: Order | None = None) -> None:
        self.footprint = footprint
        self.owner = owner
        self.piece = piece
        self.order = order or Order(self)
        # What is read of the footprint for every state.
        self.milli = 0 if footprint.profile else footprint.milli_gpu  # the least that one of its devices has free
        self.devices = footprint.devices
        self.taken = footprint.total_milli_gpu
        self.cpu = footprint.cpu_milli
        self.mib = footprint.memory_mib_host
        self.runtime = footprint.runtime
        self.started = -1  # which making of the order it looks at,
        self.came = 0  # and how many it has seen of those that came since
        self.reached: tuple[int, int, State] | None = None
        self.heap: list[tuple[int, int, State]] = []


def _fullest(cell: Cell) -> tuple[int, int]:
    return cell.free, cell.number


def _number(cell: Cell) -> int:
    return cell.number


def _island(cells: Iterable[Cell]) -> tuple[int, int, str]:
    """The smallest island first, then the fullest."""
    its = list(cells)
    return len(its), sum(cell.free for cell in its), its[0].island


class Index:
    """The states of a pool's hosts, under one measure and one level of isolation."""

    __slots__ = (
        "_asks",
        "_by_device",
        "_by_node",
        "_cells",
        "_level",
        "_live",
        "_log",
        "_log_start",
        "_numbered",
        "_of",
        "_orders",
        "_pieces",
        "_states",
        "measure",
    )

    def __init__(self, measure: Measure, isolation: Isolation) -> None:
        self.measure = measure
        self._level = STRENGTH[isolation]
        self._by_device = self._level >= STRENGTH["guaranteed"]
        self._by_node = self._level >= STRENGTH["node"]
        self._cells: dict[tuple[int, int, int, str], Cell] = {}
        self._pieces: dict[tuple[Footprint, str], Piece] = {}
        self._asks: dict[tuple[Footprint, str], Ask] = {}
        self._orders: dict[tuple[Footprint, str], Order] = {}
        self._states: dict[tuple[object, ...], State] = {}
        self._of: dict[str, State] = {}  # by the name of a host
        self._live = 0  # states that hosts are in
        self._numbered = 0
        self._log: list[State] = []  # states in the order in which hosts came into them
        self._log_start = 0  # the position of the first that is kept

    @property
    def full(self) -> bool:
        """Whether so much was learned that it should start anew."""
        return len(self._cells) > _CELLS_MAX

    # -- hosts ---------------------------------------------------------------------------------------------------------

    def update(self, host: Host) -> None:
        """The host is new here, or something was taken or given there."""
        cells = sorted([self._cell(card) for card in host.cards], key=_number)
        strength = STRENGTH[host.node.isolation]
        owner = host.owner if self._by_node else FREE
        signature = (host.free_cpu, host.free_mib, owner, strength, host.node.runtimes, bool(host.node.windows), *cells)
        old = self._of.get(host.name)
        state = self._states.get(signature)
        if state is None:
            self._numbered += 1
            state = State(self._numbered, host, tuple(cells), closed=strength < self._level)
            self._weigh(state)
            self._states[signature] = state
        if state is old:
            return
        if old is not None:
            self._leave(host, old)
        if not state.hosts:
            self._live += 1
            self._log.append(state)
        state.add(host)
        self._of[host.name] = state
        self._trim()

    def renew(self, measure: Measure) -> None:
        """Go by another measure from now on."""
        self.measure = measure
        for cell in self._cells.values():
            measure.weigh(cell)
        self._states = {signature: state for signature, state in self._states.items() if state.hosts}
        for state in self._states.values():
            self._weigh(state)
        self._asks.clear()
        self._orders.clear()

    def _weigh(self, state: State) -> None:
        measure = self.measure
        state.usable = measure.usable(state.cells)
        state.rating = state.usable - measure.stranded(state.free, state.free_cpu, state.free_mib)
        state.singles.clear()
        state.several.clear()
        for bit, devices, weight in measure.several:
            able = [cell.free for cell in state.cells if cell.able >> bit & 1]
            if len(able) >= devices:
                state.several.append((bit, devices, weight, len(able), sum(able)))

    def remove(self, host: Host) -> None:
        state = self._of.pop(host.name, None)
        if state is not None:
            self._leave(host, state)

    def _leave(self, host: Host, state: State) -> None:
        del state.hosts[host.name]
        if not state.hosts:
            self._live -= 1

    def _trim(self) -> None:
        """Forget the oldest half of what is not needed any more."""
        limit = 4 * self._live + 1024
        if len(self._states) > limit:
            self._states = {signature: state for signature, state in self._states.items() if state.hosts}
        if len(self._log) > limit:
            half = len(self._log) // 2
            self._log = self._log[half:]
            self._log_start += half

    def _cell(self, card: Card) -> Cell:
        cell = card.cell
        if cell is None:
            owner = card.owner if self._by_device else FREE
            signature = (card.kind, card.free_milli, card.free_mib, owner)
            cell = self._cells.get(signature)
            if cell is None:
                cell = self._cells[signature] = Cell(len(self._cells), card, owner)
                self.measure.weigh(cell)
            card.cell = cell
        return cell

    def fragmented(self) -> int:
        """The milli_gpu that are free and expected to be unusable, over all hosts."""
        total = self.measure.total
        if not total:
            return 0
        return sum(state.free * total - state.rating for state in self._of.values()) // total

    def linked(self, footprint: Footprint, rank: int) -> bool:
        """Whether all devices are of one island where it has this rank; one device is."""
        return footprint.devices == 1 or not rank >> (_FREE_BITS + _GROWTH_BITS)

    def growth(self, footprint: Footprint, rank: int) -> int:
        """By how many milli_gpu the fragmentation grows that a rank stands for."""
        shrinks = (rank >> _FREE_BITS & (1 << _GROWTH_BITS) - 1) - _GROWTH_ZERO
        return shrinks // max(1, self.measure.total) - footprint.total_milli_gpu

    # -- asks ----------------------------------------------------------------------------------------------------------

    def ask(self, footprint: Footprint, owner: str) -> Ask:
        """The ask of a footprint; of whom matters only where tenants are kept apart."""
        owner = owner if self._by_device else ""
        ask = self._asks.get((footprint, owner))
        if ask is None:
            if max(len(self._asks), len(self._pieces)) >= _ASKS_MAX:
                self._asks.clear()
                self._orders.clear()
                self._pieces.clear()
            part = (piece_of(footprint), owner)
            piece = self._pieces.get(part)
            if piece is None:
                piece = self._pieces[part] = Piece(*part)
            bare = (msgspec.structs.replace(footprint, cpu_milli=0, memory_mib_host=0), owner)
            order = self._orders.get(bare)
            if order is None:
                order = self._orders[bare] = Ask(*bare, piece).order
            ask = self._asks[footprint, owner] = Ask(footprint, owner, piece, order)
        return ask

    def best(self, ask: Ask) -> tuple[int, Host] | None:
        """The best host and its rank; None where it fits on none."""
        self._catch_up(ask)
        heap = ask.heap
        if not heap:
            return None
        rank = heap[0][0]
        equal: list[tuple[int, int, State]] = []
        first: Host | None = None
        while heap and heap[0][0] == rank:
            entry = heappop(heap)
            state = entry[2]
            if state.hosts and (not equal or equal[-1][2] is not state):
                equal.append(entry)
                host = state.next()
                if first is None or host.name < first.name:
                    first = host
        for entry in equal:
            heappush(heap, entry)
        return None if first is None else (rank, first)

    def rank(self, ask: Ask, host: Host) -> int:
        """The rank of one host, NO_FIT where it does not fit there."""
        return self._rank(ask, self._of[host.name])

    def choose(self, ask: Ask, host: Host) -> list[Card]:
        """The cards that it would take on a host that it fits on."""
        if not ask.footprint.devices:
            return []
        state = self._of[host.name]
        if ask.footprint.devices == 1:
            cell = self._single(ask, state)[1]
            chosen = [] if cell is None else [cell]
        else:
            chosen = self._several(ask, state)[1]
        cards: list[Card] = []
        for card in host.cards:
            cell = self._cell(card)
            if cell in chosen:
                chosen.remove(cell)
                cards.append(card)
        return cards

    def _catch_up(self, ask: Ask) -> None:
        """Afterwards the first in its heap is its best state."""
        order, heap = ask.order, ask.heap
        self._follow(order)
        if ask.started != order.started or len(heap) > 4 * self._live + 64:
            heap.clear()
            ask.started = order.started
            ask.reached = None
        elif ask.reached is not None:
            for entry in order.came[ask.came :]:
                if entry[2].hosts and entry <= ask.reached:
                    self._push(ask, entry[2])
        ask.came = len(order.came)
        ranked = order.ranked
        at = 0 if ask.reached is None else bisect_right(ranked, ask.reached)
        while True:
            while heap and not heap[0][2].hosts:
                heappop(heap)
            if at == len(ranked) or (heap and heap[0][0] < ranked[at][0]):
                break
            entry = ranked[at]
            if entry[2].hosts:
                self._push(ask, entry[2])
                ask.reached = entry
                at += 1
            else:
                del ranked[at]

    def _push(self, ask: Ask, state: State) -> None:
        if state.free_cpu >= ask.cpu and state.free_mib >= ask.mib:
            heappush(ask.heap, (self._rank(ask, state), state.number, state))

    def _follow(self, order: Order) -> None:
        """Bring in what came up since."""
        log = self._log
        end = self._log_start + len(log)
        if order.position == end:
            return
        bare, ranked, came = order.bare, order.ranked, order.came
        if order.position < self._log_start or len(came) > 4 * self._live + 64:
            order.started += 1
            came.clear()
            ranked.clear()
            for state in dict.fromkeys(self._of.values()):
                if not state.timed:
                    rank = self._rank(bare, state)
                    if rank >= 0:
                        ranked.append((rank, state.number, state))
            ranked.sort()
        else:
            milli = bare.milli
            for state in log[order.position - self._log_start :]:
                if state.hosts and state.free_max >= milli and not state.timed:
                    rank = self._rank(bare, state)
                    if rank >= 0:
                        entry = rank, state.number, state
                        came.append(entry)
                        at = bisect_left(ranked, entry)
                        if at == len(ranked) or ranked[at][2] is not state:  # it may have been gone in between
                            ranked.insert(at, entry)
        order.position = end

    # -- one state -----------------------------------------------------------------------------------------------------

    def _rank(self, ask: Ask, state: State) -> int:
        if (
            state.free_max < ask.milli
            or state.free_cpu < ask.cpu
            or state.free_mib < ask.mib
            or state.closed
            or (ask.runtime and ask.runtime not in state.runtimes)
            or (self._by_node and state.owner not in (FREE, ask.owner))
        ):
            return NO_FIT
        apart = 0
        if ask.devices == 1:
            usable = state.singles.get(ask.piece, _UNKNOWN)
            if usable == _UNKNOWN:
                usable = state.singles[ask.piece] = self._single(ask, state)[0]
        elif ask.devices:
            usable, chosen = self._several(ask, state)
            apart = len({cell.island for cell in chosen} - {""}) != 1 or any(not cell.island for cell in chosen)
        else:
            usable = state.usable
        if usable < 0:
            return NO_FIT
        after = usable - self.measure.stranded(
            state.free - ask.taken,
            state.free_cpu - ask.cpu,
            state.free_mib - ask.mib,
        )
        growth = state.rating - after + _GROWTH_ZERO
        return (((apart << _GROWTH_BITS) + growth) << _FREE_BITS) + state.fullness

    def _single(self, ask: Ask, state: State) -> tuple[int, Cell | None]:
        """What is usable on its cells after the best one has been taken of, and that cell."""
        best, chosen = NO_FIT, None
        for cell in state.kinds:
            after = self._after(ask.piece, cell)
            if after is None:
                continue
            usable = state.usable - cell.value + after.value
            for bit, devices, weight, count, free in state.several:
                if cell.able >> bit & 1:
                    if after.able >> bit & 1:
                        usable -= weight * (cell.free - after.free)
                    elif count > devices:
                        usable -= weight * cell.free
                    else:
                        usable -= weight * free
            if usable > best:
                best, chosen = usable, cell
        return best, chosen

    def _several(self, ask: Ask, state: State) -> tuple[int, list[Cell]]:
        """The same for as many cells as are asked for: of the island that they fill best, else of the largest ones."""
        wanted = ask.footprint.devices
        islands: dict[str, list[Cell]] = {}
        found = 0
        for cell in state.cells:
            if self._after(ask.piece, cell) is not None:
                islands.setdefault(cell.island, []).append(cell)
                found += 1
        linked = [cells for island, cells in islands.items() if island and len(cells) >= wanted]
        if linked:
            chosen = sorted(min(linked, key=_island), key=_fullest)[:wanted]
        elif found < wanted or ask.footprint.together == "island":
            return NO_FIT, []
        else:
            chosen = []
            for cells in sorted(islands.values(), key=_island, reverse=True):
                chosen += sorted(cells, key=_fullest)
            del chosen[wanted:]
        left = list(state.cells)
        for cell in chosen:
            left.remove(cell)
            after = self._after(ask.piece, cell)
            if after is not None:
                left.append(after)
        return self.measure.usable(left), chosen

    def _after(self, piece: Piece, cell: Cell) -> Cell | None:
        if cell in piece.after:
            return piece.after[cell]
        card = cell.card
        after: Cell | None = None
        if cell.owner in (FREE, piece.owner) and card.fits(piece.footprint):
            part = Part(piece.owner, card.milli(piece.footprint), card.mib(piece.footprint))
            holder = f"\0{len(card.holders)}"  # no holder is called like this
            after = self._cell(Card(card.device, card.kind, card.holders | {holder: part}))
        piece.after[cell] = after
        return after
