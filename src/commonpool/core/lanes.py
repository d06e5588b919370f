"""What waits of one tenant for one thing, by the limits that hold it back.

Where an app or a key has limits of its own, what waits of it is in a lane of its own inside the flow: while as many of
it run as may, its lane is passed, and nobody else waits for that (docs/adr/0025-lanes-for-limits.md). A flow without
such lanes is one lane.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from commonpool.core.entries import FAR, Entry, Queue, holds
from commonpool.core.limits import Tally
from commonpool.core.model import Cause, Wait
from commonpool.core.waited import Waited


class Queues(Waited):
    """What waits under the same limits, a queue for each priority, and in `lanes` what waits under more of them.

    Its own first is the oldest of the largest priority, its earliest the one with the earliest deadline.
    """

    __slots__ = ("_earliest", "_first", "_queues", "_urgent_at", "deadline", "lanes")

    def __init__(self) -> None:
        super().__init__()
        self.deadline = 0
        self.lanes: Lanes | None = None
        self._urgent_at = FAR  # the earliest of the queues'
        self._first: Entry | None = None  # by priority, then arrival
        self._earliest: Entry | None = None  # by deadline, then arrival
        self._queues: Queue | None = None  # that of the largest priority

    @property
    def oldest(self) -> Entry | None:
        """Its own with the earliest deadline, whether it may be next or not."""
        return self._earliest

    def insert(self, entry: Entry, pace: int) -> None:
        """It waits here, at its place."""
        queue = self._queue(entry.priority)
        queue.insert(entry, pace)
        if queue.urgent_at < self._urgent_at:  # noqa: PLR1730 - as in `Queue._join`
            self._urgent_at = queue.urgent_at
        if queue.first is entry:
            self._look()

    def take_out(self, entry: Entry, pace: int) -> None:
        """It waits here no more."""
        queue = self._queue(entry.priority)
        urgent_at = queue.urgent_at
        behind = entry.following
        queue.remove(entry, pace)
        if queue.urgent_at != urgent_at:
            self._rank()
        if entry is self._earliest:
            self._look()
        elif entry is self._first:
            if behind is None:
                self._look()
            else:
                self._first = behind

    def leading(self) -> tuple[Entry | None, Entry | None, int]:
        """The first, the earliest, and when the first of all turns urgent, of what has room under its own limits."""
        first, earliest, urgent_at = self._first, self._earliest, self._urgent_at
        lanes = self.lanes
        if lanes is None:
            return first, earliest, urgent_at
        lane = lanes.by_first.top()
        other = None if lane is None else lane.first
        if other is not None and (first is None or (-other.priority, other.seq) < (-first.priority, first.seq)):
            first = other
        lane = lanes.by_deadline.top()
        other = None if lane is None else lane.earliest
        if other is not None and (earliest is None or (other.deadline, other.seq) < (earliest.deadline, earliest.seq)):
            earliest = other
        lane = lanes.by_urgency.top()
        return first, earliest, urgent_at if lane is None else min(urgent_at, lane.urgent_at)

    def settle(self) -> None:
        """Look anew who leads, after what waits here, or what may be next of it, has changed."""
        raise NotImplementedError

    def told(self, since: int, until: int) -> tuple[Wait, ...]:
        """What something here waited for in that time."""
        return self.waits(since, until)

    def every(self) -> "tuple[Queues, ...]":
        """The lane itself, and every one in it, each before those in it."""
        if self.lanes is None:
            return (self,)
        return (self, *(each for lane in self.lanes.by_tally.values() for each in lane.every()))

    def own(self) -> Iterator[Entry]:
        """What waits here itself, by priority, then arrival; not to be changed meanwhile."""
        for queue in self.each_queue():
            entry = queue.first
            while entry is not None:
                yield entry
                entry = entry.following

    def each_queue(self) -> Iterator[Queue]:
        """Its own queues, by priority."""
        queue = self._queues
        while queue is not None:
            yield queue
            queue = queue.lower

    def repace(self, pace: int) -> None:
        """Work out anew when its own turn urgent."""
        for queue in self.each_queue():
            queue.rank(pace)
        self._rank()

    def cut(self, pace: int) -> None:
        """The deadlines of its own have changed."""
        for queue in self.each_queue():
            queue.cut()
        self.repace(pace)
        self._look()

    def _queue(self, priority: int) -> Queue:
        above: Queue | None = None
        queue = self._queues
        while queue is not None and queue.priority >= priority:
            if queue.priority == priority:
                return queue
            above, queue = queue, queue.lower
        made = Queue(priority)
        made.lower = queue
        if above is None:
            self._queues = made
        else:
            above.lower = made
        return made

    def _rank(self) -> None:
        """Find out when the first of its own turns urgent."""
        at = FAR
        queue = self._queues
        while queue is not None:
            at = min(at, queue.urgent_at)
            queue = queue.lower
        self._urgent_at = at

    def _look(self) -> None:
        """Find the first by priority, and by deadline: max_wait is one per tenant, so each is the oldest of a queue."""
        self._first = self._earliest = None
        queue = self._queues
        while queue is not None:
            oldest = queue.first
            if oldest is not None:
                if self._first is None:
                    self._first = oldest
                best: Entry | None = self._earliest
                if (
                    best is None
                    or oldest.deadline < self.deadline
                    or (oldest.deadline == self.deadline and oldest.seq < best.seq)
                ):
                    self._earliest = oldest
                    self.deadline = oldest.deadline
            queue = queue.lower


class Lane(Queues):
    """What waits under one tally in a flow, or in the lane of another: that of a key is in that of its app.

    `length` and `work` are of all in it, `idle_length` and `idle_work` of what cannot be next, for a limit of its own.
    `first`, `earliest` and `urgent_at` are of the others; while as many run as may there are none.
    """

    __slots__ = (
        "above",
        "earliest",
        "first",
        "idle_length",
        "idle_work",
        "length",
        "tally",
        "urgent_at",
        "work",
    )

    def __init__(self, above: Queues, tally: Tally) -> None:
        super().__init__()
        self.above = above
        self.tally = tally
        self.length = 0
        self.work = 0
        self.idle_length = 0
        self.idle_work = 0
        self.first: Entry | None = None
        self.earliest: Entry | None = None
        self.urgent_at = FAR

    def turn(self, now: int) -> None:
        """It is passed from now on, or no longer."""
        self.settle()
        if self.first is None:
            self.note(now, *at_limit(self.tally))
        else:
            self.note(now, Cause.OWN_QUEUE, "")

    def settle(self) -> None:
        beside = self.above.lanes
        assert beside is not None  # noqa: S101 - it is one of them
        first, earliest, self.urgent_at = self.leading()
        if first is None or not self.tally.allows(holds(first.task, first.ask)):
            first = None
        if earliest is None or not self.tally.allows(holds(earliest.task, earliest.ask)):
            earliest = first
        self.first, self.earliest = first or earliest, earliest
        if earliest is None:
            idle_length, idle_work = self.length, self.work
        else:
            lanes = self.lanes
            idle_length, idle_work = (0, 0) if lanes is None else (lanes.idle_length, lanes.idle_work)
        beside.idle_length += idle_length - self.idle_length
        beside.idle_work += idle_work - self.idle_work
        self.idle_length, self.idle_work = idle_length, idle_work
        beside.place(self)
        self.above.settle()

    def told(self, since: int, until: int) -> tuple[Wait, ...]:
        """For its own limit while it was passed, and for what the others waited for otherwise."""
        mine = self.waits(since, until)
        at = until - sum(wait.ns for wait in mine)
        found: list[Wait] = []
        for wait in mine:
            if wait.cause is Cause.OWN_QUEUE:
                found += self.above.told(at, at + wait.ns)
            else:
                found.append(wait)
            at += wait.ns
        return tuple(found)


class Lanes:
    """The lanes in a flow or in a lane, by who leads them; those that are passed lead nobody."""

    __slots__ = ("by_deadline", "by_first", "by_tally", "by_urgency", "idle_length", "idle_work")

    def __init__(self) -> None:
        self.by_tally: dict[Tally, Lane] = {}
        self.by_first = Heads()
        self.by_deadline = Heads()
        self.by_urgency = Heads()
        self.idle_length = 0
        self.idle_work = 0

    def place(self, lane: Lane) -> None:
        """Put a lane where it belongs now."""
        first, earliest = lane.first, lane.earliest
        if first is None or earliest is None:
            self._leave(lane)
            return
        self.by_first.put(lane, -first.priority, first.seq)
        self.by_deadline.put(lane, earliest.deadline, earliest.seq)
        self.by_urgency.put(lane, lane.urgent_at, earliest.seq)

    def discard(self, lane: Lane) -> None:
        """Nothing waits in it any more."""
        del self.by_tally[lane.tally]
        self.idle_length -= lane.idle_length
        self.idle_work -= lane.idle_work
        self._leave(lane)

    def _leave(self, lane: Lane) -> None:
        self.by_first.drop(lane)
        self.by_deadline.drop(lane)
        self.by_urgency.drop(lane)


class Heads:
    """Lanes by a key that changes, the smallest first; among equals, which only one that is gone can be, the oldest."""

    __slots__ = ("_heap", "_keys", "_stamps")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Lane]] = []
        self._keys: dict[Lane, tuple[int, int, int]] = {}
        self._stamps = 0

    def put(self, lane: Lane, key: int, then: int) -> None:
        known = self._keys.get(lane)
        if known is not None and known[0] == key and known[1] == then:
            return
        self._stamps += 1
        self._keys[lane] = (key, then, self._stamps)
        heappush(self._heap, (key, then, self._stamps, lane))
        if len(self._heap) > 64 + 4 * len(self._keys):
            self._heap = [(*known, lane) for lane, known in self._keys.items()]
            heapify(self._heap)

    def drop(self, lane: Lane) -> None:
        self._keys.pop(lane, None)

    def top(self) -> Lane | None:
        """The lane with the smallest key."""
        heap = self._heap
        while heap:
            key, then, stamp, lane = heap[0]
            if self._keys.get(lane) == (key, then, stamp):
                return lane
            heappop(heap)
        return None


def at_limit(tally: Tally) -> tuple[Cause, str]:
    """What something waits for that its tally does not allow."""
    return Cause.CONCURRENCY if tally.full else Cause.APP_LIMIT, tally.name
