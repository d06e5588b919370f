"""Who is next among the flows that wait at one site.

Those whose tenant is under its guarantee come first, smallest use / guarantee first. The others are in the *contest*
for the surplus, by virtual token counters (VTC, Sheng et al., OSDI 2024): the smallest counter is next; a flow that
enters the contest is lifted to the smallest counter in it, or, when nobody is in it, to that of the flow that left it
last (the paper's whole-queue-empty rule). An overdue head may pass others for at most 20 % of the surplus. A large head
that finds no room is passed only by flows that are behind it by no more than one such request (`Room.patience`).
"""

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from commonpool.core.entries import Entry, Spot
from commonpool.core.model import Cause
from commonpool.core.queueing import Flow, Place, Room

# One overdue head may pass per this many requests served from the surplus: 20 %.
PASS_PRICE: Final = 5
_FAR: Final = 1 << 200  # further than any counter
_TURN: Final = Cause.TURN

Found = tuple[Entry, Spot]


class Line:
    """Everyone who waits at one site.

    Keys mostly grow: use, counters and deadlines go up. So a flow is moved in its order only when its key has become
    smaller, or when it has come to the front with a key that is larger by now.
    """

    __slots__ = (
        "_contest",
        "_left_last",
        "_overdue",
        "_pass_credit",
        "_stamps",
        "_under",
        "behind",
        "flows",
        "stopped",
        "waiting",
    )

    def __init__(self) -> None:
        self.flows: dict[str, Flow] = {}
        self.waiting = 0  # requests, of all flows; kept by the machine
        self.behind = 0  # those of them that wait behind all else
        self.stopped = False  # whether a large head keeps others from the surplus; reset by who dispatches
        self._under: list[Place] = []  # by rank
        self._contest: list[Place] = []  # by counter
        self._overdue: list[Place] = []  # by the earliest deadline, of those in the contest
        self._left_last = 0
        self._stamps = 0
        self._pass_credit = 0

    def place(self, flow: Flow) -> None:
        """Put a flow where it belongs now: after its queue, its tenant's use or its guarantee changed."""
        if not flow.length or flow.parked:
            flow.place = None
            self._leave(flow)
            return
        rank = flow.rank()
        group = flow.node.home
        while group is not None:  # its rank depends on what the group's others give back
            group.waiters[flow] = None
            group = group.home
        if rank >= 0:
            if flow.contesting:
                flow.place = None
                self._leave(flow)
            self._stand(self._under, rank, flow)
            return
        if not flow.contesting:
            flow.place = None
            flow.counter = max(flow.counter, self._lift())
            flow.contesting = True
        self._stand(self._contest, flow.counter, flow)
        if flow.late is None or flow.deadline < flow.late_key:
            self._stamps += 1
            flow.late_key = flow.deadline
            flow.late = Place(flow.deadline, self._stamps, flow)
            self._push(self._overdue, flow.late)

    def straight_through(self, flow: Flow) -> None:
        """A request is served from the surplus while nobody waits: its flow entered an empty contest and left it."""
        flow.counter = max(flow.counter, self._left_last)

    def served(self, flow: Flow) -> None:
        """Its counter was charged; when it is not in the contest it is the last who left it."""
        if not flow.contesting:
            self._left_last = flow.counter

    def park(self, flow: Flow) -> None:
        """It found no room on its own path: it is looked at again when room is given back there."""
        flow.parked = True
        self.place(flow)

    def unpark(self) -> None:
        """Quota has changed: everybody is looked at again."""
        for flow in self.flows.values():
            flow.parked = False
            self.place(flow)

    def next_within(self, now: int, room: Room) -> Found | None:
        """The next of those whose tenant is under its guarantee, and where it runs; None if none fits."""
        return self._first(self._under, now, room, patient=True) if self._under else None

    def next_beyond(self, now: int, room: Room) -> Found | None:
        """The next to be served from the surplus. As `next_within`, after it."""
        winner = self._first(self._contest, now, room, patient=False)
        if winner is None:
            return None
        late = self._passing(winner[0].flow, now, room)
        return winner if late is None else late

    def _passing(self, winner: Flow, now: int, room: Room) -> Found | None:
        """The overdue head that passes the winner of the contest, while the 20 % allow it."""
        self._pass_credit = min(PASS_PRICE, self._pass_credit + 1)
        if self._pass_credit < PASS_PRICE:
            return None
        flow = self.most_overdue(now)
        if flow is None or flow is winner:
            return None
        late = room.choose(flow, now)
        if late is not None:
            self._pass_credit = 0
        return late

    def _first(self, heap: list[Place], now: int, room: Room, *, patient: bool) -> Found | None:
        """The first flow in the heap's order of which something fits. Those that do not are put back.

        A large head that finds no room is passed by smaller ones, which would go on for ever while room comes free in
        small parts. So those who are not `patient` are passed only by flows whose counter is ahead by no more than
        the room's patience; then what comes free is kept for them.
        """
        aside: list[Place] | None = None
        found: Found | None = None
        furthest = _FAR
        while found is None:
            top = self._top(heap)
            if top is None:
                break
            flow = top.flow
            if patient and flow.node.home is not None and flow.rank() != flow.key:
                self.place(flow)  # the group's others have taken something
                continue
            if top.key > furthest:
                flow.note(now, _TURN, "")
                self.stopped = True
                break
            found = room.choose(flow, now)
            if found is None:
                flow.note(now, room.cause, room.about)
                if flow.place is top:
                    heappop(heap)
                    aside = [*aside, top] if aside else [top]
                    patience = None if patient else room.patience(flow, now)
                    if patience is not None:
                        furthest = min(furthest, flow.counter + flow.scaled(patience))
        if aside is not None:
            for place in aside:
                heappush(heap, place)
        return found

    def _stand(self, heap: list[Place], key: int, flow: Flow) -> None:
        flow.key = key
        if flow.place is None or key < flow.place_key:
            self._stamps += 1
            flow.place_key = key
            flow.place = Place(key, self._stamps, flow)
            self._push(heap, flow.place)

    def _push(self, heap: list[Place], place: Place) -> None:
        heappush(heap, place)
        if len(heap) > 64 + 4 * len(self.flows):
            heap[:] = [each for each in heap if each is each.flow.place or each is each.flow.late]
            heapify(heap)

    def _top(self, heap: list[Place]) -> Place | None:
        """The first place of the contest, or of those under their guarantee, that is where its flow belongs."""
        while heap:
            place = heap[0]
            flow = place.flow
            if flow.place is not place:
                heappop(heap)
            elif place.key == flow.key:
                return place
            else:
                flow.place_key = flow.key
                self._move_back(heap, flow.key)
        return None

    def _move_back(self, heap: list[Place], key: int) -> None:
        """The first place has a larger key by now."""
        self._stamps += 1
        place = heap[0]
        place.key, place.stamp = key, self._stamps
        heapreplace(heap, place)

    def _lift(self) -> int:
        top = self._top(self._contest)
        return self._left_last if top is None else top.key

    def _leave(self, flow: Flow) -> None:
        if flow.contesting:
            flow.contesting = False
            self._left_last = flow.counter

    def most_overdue(self, now: int) -> Flow | None:
        """The flow in the contest whose head has the earliest deadline, if that has passed."""
        heap = self._overdue
        while heap:
            place = heap[0]
            if place.key > now:
                return None
            flow = place.flow
            if flow.late is not place:
                heappop(heap)
            elif not flow.contesting:
                heappop(heap)
                flow.late = None
            elif place.key == flow.deadline:
                return flow
            else:
                flow.late_key = flow.deadline
                self._move_back(heap, flow.deadline)
        return None
