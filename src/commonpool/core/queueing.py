"""Who is next inside a tenant's flow: its requests for one model, or its jobs.

A request becomes *urgent* when waiting longer could break its promise, that is when the work that was ahead of it when
it came, at the tenant's guaranteed rate, would take the rest of its max_wait. While a flow holds an urgent request it
is served by deadline; otherwise by priority, then arrival. A request past max_wait is always urgent. Turning urgent
before the deadline, not at it, is what keeps the promise when many requests share a deadline
(docs/adr/0006-urgent-before-late.md).

Where an app or a key has limits of its own, what waits of it is in a lane of its own inside the flow: while as many of
it run as may, its lane is passed, and nobody else waits for that. A flow without such lanes is one lane.

What waits is in linked lists, and what is read of a tenant for every request lies in its flow as plain numbers: with
many tenants a decision takes as long as fetching what it looks at from memory (docs/adr/0010-compiled-core.md).
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, merge
from typing import Final, cast

from commonpool.core.books import Task
from commonpool.core.budget import Spending
from commonpool.core.forecast import Forecast
from commonpool.core.limits import NOTHING, Held, Rate, Tally
from commonpool.core.model import Cause, Job, Request, Wait
from commonpool.core.pace import LEARN_SHIFT, Pace
from commonpool.core.quota import Node, Quota
from commonpool.core.waited import Waited

# The scale of the counters, so that integer division by a weight loses nothing that matters.
COUNTER_SCALE: Final = 1 << 20
INPUT_COST: Final = 1
OUTPUT_COST: Final = 2
FAR: Final = 1 << 61  # later than any time
BEHIND: Final = -1  # the priority of what waits behind all else; it has no deadline, and counts for no promise


class Spot:
    """A place where something can run: a replica, or the devices of a pool."""

    __slots__ = ()


class Entry(Task):
    """A request or job that waits or runs: what the core knows of it from arrival to its last attempt.

    `ask` is the milli_gpu it uses while it runs, `kv` its KV tokens, `work` its milli_gpu × expected service, `ahead`
    the service that its flow had to give first when it came, at the tenant's guaranteed rate. `also` is what it takes
    of other resources. `surplus` says that it was dispatched from the surplus, `charged` the service that its flow's
    counter was charged for it. `held` is what is held for it of its tenant's budget. `tallies` are those of its app and
    of its key, where they have limits; `taken` is what it took of rates: from which, how much, and whether that is
    tokens, of which the end tells how many they were. `waits` says what it waited for, once it has been dispatched.
    """

    __slots__ = (
        "ahead",
        "also",
        "arrived",
        "ask",
        "attempt",
        "charged",
        "deadline",
        "dispatched",
        "failures",
        "flow",
        "following",
        "held",
        "kv",
        "node",
        "preceding",
        "priority",
        "queued",
        "replica_id",
        "seq",
        "sequences",
        "surplus",
        "taken",
        "tallies",
        "task",
        "tokens_in",
        "version",
        "waiting",
        "waits",
        "work",
    )

    def __init__(self, task: Request | Job, seq: int, now: int) -> None:
        super().__init__(task.id)
        self.task = task
        self.seq = seq
        self.arrived = now
        self.sequences = 1
        self.attempt = 0
        self.waiting = False
        self.surplus = False
        self.charged = 0
        self.dispatched = 0
        self.queued = now  # since when it waits for this attempt
        self.failures = 0
        self.replica_id = ""
        self.version = ""
        self.ask = 0
        self.also: tuple[tuple[Quota, Node, int], ...] = ()
        self.kv = 0
        self.work = 0
        self.tokens_in = 0
        self.taken: tuple[tuple[Rate, int, bool], ...] = ()
        self.tallies: tuple[Tally, ...] = ()
        self.held = 0
        self.priority = 0
        self.deadline = 0
        self.ahead = 0
        self.waits: tuple[Wait, ...] = ()
        self.following: Entry | None = None
        self.preceding: Entry | None = None
        self.flow: Flow
        self.node: Node

    def again(self, now: int) -> None:
        """For another attempt: with its place in the order, and nothing of what it took."""
        self.queued = now
        self.ended = None
        self.surplus = False
        self.charged = 0
        self.waits = ()


class Slice:
    """Neighbours in a queue, as one in the question when they turn urgent: the earliest deadline, the most ahead."""

    __slots__ = ("ahead", "deadline", "following", "last")

    def __init__(self, entry: Entry) -> None:
        self.deadline = entry.deadline
        self.ahead = entry.ahead
        self.last = entry.seq
        self.following: Slice | None = None


class Queue:
    """What waits in one priority of a flow, oldest first. A linked list: whatever leaves takes its memory with it.

    When it turns urgent depends on the pace, which changes, so that is worked out from slices of a 64th of max_wait
    each: few, however many wait. A slice stays until the last of it has left or been passed, and the pace that counts
    is the one of the last change by half; so the queue may turn urgent too early, and as much too late as the pace has
    grown since.
    """

    __slots__ = ("_newest", "_oldest", "first", "last", "lower", "priority", "urgent_at")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.first: Entry | None = None
        self.last: Entry | None = None
        self.lower: Queue | None = None  # that of the next smaller priority
        self.urgent_at = FAR  # when the first of them turns urgent, a time that may have passed
        self._oldest: Slice | None = None
        self._newest: Slice | None = None

    def insert(self, entry: Entry, pace: int) -> None:
        """At its place in the order of arrival: the end, except for another attempt at something older."""
        before = self.last
        after: Entry | None = None
        if before is not None and before.seq > entry.seq:
            before = None
            after = self.first
            while after is not None and after.seq < entry.seq:
                before, after = after, after.following
        entry.preceding, entry.following = before, after
        if before is None:
            self.first = entry
        else:
            before.following = entry
        if after is None:
            self.last = entry
        else:
            after.preceding = entry
        part = self._join(entry)
        urgent_at = part.deadline - part.ahead * pace
        if urgent_at < self.urgent_at:  # noqa: PLR1730 - as in `_join`
            self.urgent_at = urgent_at

    def remove(self, entry: Entry, pace: int) -> None:
        before, after = entry.preceding, entry.following
        entry.preceding = entry.following = None
        if after is None:
            self.last = before
        else:
            after.preceding = before
        if before is not None:
            before.following = after
            return
        self.first = after
        part = self._oldest
        if part is None or (after is not None and part.last >= after.seq):
            return
        while part is not None and (after is None or part.last < after.seq):
            part = part.following
        self._oldest = part
        if part is None:
            self._newest = None
        self.rank(pace)

    def rank(self, pace: int) -> None:
        """Work out anew when the first of them turns urgent."""
        at = FAR
        part = self._oldest
        while part is not None:
            at = min(at, part.deadline - part.ahead * pace)
            part = part.following
        self.urgent_at = at

    def cut(self) -> None:
        """Make the slices anew: the deadlines have changed."""
        self._oldest = self._newest = None
        entry = self.first
        while entry is not None:
            self._join(entry)
            entry = entry.following

    def _join(self, entry: Entry) -> Slice:
        """The slice that an entry belongs to: the last, a new one, or for another attempt the one that it is in."""
        part = self._newest
        if part is None:
            self._oldest = self._newest = part = Slice(entry)
            return part
        if entry.seq < part.last:
            older = self._oldest
            while older is not None and entry.seq >= older.last:
                older = older.following
            part = older or part
        elif (part.ahead or entry.ahead) and entry.deadline - part.deadline > (entry.deadline - entry.arrived) >> 6:
            part.following = self._newest = part = Slice(entry)
        # This is done for every request, where min and max take longer than all the rest.
        if entry.deadline < part.deadline:  # noqa: PLR1730
            part.deadline = entry.deadline
        if entry.ahead > part.ahead:  # noqa: PLR1730
            part.ahead = entry.ahead
        if entry.seq > part.last:  # noqa: PLR1730
            part.last = entry.seq
        return part


class Account(Tally):
    """A tenant's flows, and what is counted over all of them.

    `waiting` counts requests and jobs; `asked` is their milli_gpu, `by_jobs` that of the jobs that run. `apps` are the
    tallies of its apps that have limits; `lanes` are those of each tally, with their flows. The rest is what admission
    reads of the tenant for every request.
    """

    __slots__ = (
        "apps",
        "asked",
        "by_jobs",
        "flows",
        "forecast",
        "lanes",
        "max_wait_ns",
        "models",
        "priority",
        "spending",
    )

    def __init__(self, tenant: str) -> None:
        super().__init__(f"tenant {tenant}", tenant)
        self.spending = Spending()
        self.asked = 0
        self.by_jobs = 0
        self.max_wait_ns = 0
        self.priority: dict[str, int] = {}
        self.apps: dict[str, Tally] = {}
        self.lanes: dict[Tally, dict[Lane, Flow]] = {}
        self.forecast = Forecast()
        self.models: frozenset[str] = frozenset()
        self.flows: tuple[Flow, ...] = ()

    def keep(self, flows: tuple["Flow", ...]) -> None:
        """These are its flows from now on."""
        self.flows = flows
        for flow in flows:
            flow.others = tuple(other for other in flows if other is not flow)

    def turned(self, tally: Tally, now: int) -> list["Flow"]:
        """As many of it run now as may, or no longer. Returns the flows in which something of it waits."""
        lanes = self.lanes.get(tally)
        if lanes is None:
            return []
        for lane in lanes:
            lane.turn(now)
        return list(lanes.values())


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


class Flow(Queues):
    """The queue of one (tenant, site), and that tenant's counter in the contest for that site's surplus.

    `node` is its tenant's place in the quota tree, `also` those in the trees of the other resources, for jobs; `others`
    are that tenant's other flows. `expected` is the output of a request by app (of a job: how long it takes), learned
    from those that ended. `asked` is the milli_gpu of all that waits, `work` the same times its expected service;
    `deadline` is the earliest of what may be next. Where it stands in its site's line is the line's to say.
    """

    __slots__ = (
        "_leading",
        "_urgent_by",
        "account",
        "also",
        "asked",
        "contesting",
        "counter",
        "expected",
        "fed",
        "key",
        "late",
        "late_key",
        "length",
        "node",
        "open",
        "others",
        "parked",
        "place",
        "place_key",
        "room",
        "seen",
        "tenant",
        "weight",
        "work",
    )

    def __init__(self, tenant: str, account: Account, node: Node, weight: int, room: "Room") -> None:
        super().__init__()
        self.tenant = tenant
        self.account = account
        self.node = node
        self.room = room
        self.open = True  # whether its tenant may use what it leads to
        self.parked = False
        self.contesting = False
        self.length = 0
        self.asked = 0
        self.work = 0
        self.weight = weight
        self.counter = 0
        self.key = 0  # where it belongs in the order in which it stands
        self.place_key = 0  # and where it stands there: there, or before
        self.place: Place | None = None
        self.late_key = 0  # the same among the overdue
        self.late: Place | None = None
        self.fed = False  # one of it was started since the last tick
        self.seen = 0  # how many were started in its room when it was last looked at
        self.also: tuple[Node, ...] = ()
        self.others: tuple[Flow, ...] = ()
        self.expected: dict[str, int] = {}
        self._urgent_by = 0  # the pace by which the queues know what is urgent
        self._leading: tuple[Entry | None, Entry | None, int] = (None, None, FAR)  # where there are lanes

    def rank(self) -> int:
        """Its place among those under their guarantee, smallest first; below 0 when it is not one of them.

        That is the tenant's dominant share: the largest, over the resources that it uses, of use / guarantee.
        """
        node = self.node
        if not node.entitled:
            return -1
        rank = node.rank
        for its in self.also:
            if its.use:
                if not its.entitled:
                    return -1
                rank = max(rank, its.rank)
        return rank

    def push(self, entry: Entry) -> None:
        entry.waiting = True
        if not self.length:
            self.seen, self.fed = self.room.turns, False
        self.length += 1
        self.asked += entry.ask
        self.account.asked += entry.ask
        if entry.priority >= 0:
            self.work += entry.work
            self.account.waiting += 1
        if entry.tallies:
            self._lane_of(entry).insert(entry, self._urgent_by)
            self._counted(entry, 1, entry.work)
            return
        self.insert(entry, self._urgent_by)
        if self.lanes is not None:
            self.settle()

    def remove(self, entry: Entry) -> None:
        """Dispatched or cancelled."""
        entry.waiting = False
        self.length -= 1
        self.asked -= entry.ask
        self.account.asked -= entry.ask
        if entry.priority >= 0:
            self.work -= entry.work
            self.account.waiting -= 1
        if entry.tallies:
            self._lane_of(entry).take_out(entry, self._urgent_by)
            self._counted(entry, -1, -entry.work)
            return
        self.take_out(entry, self._urgent_by)
        if self.lanes is not None:
            self.settle()

    def head(self, now: int) -> Entry | None:
        """The request to serve next, not removed; None too where nothing has room under its own limits."""
        pace = self.room.pace.careful
        if 2 * pace > 3 * self._urgent_by or 2 * pace < self._urgent_by:
            # The pace is another one by half or more.
            self._urgent_by = pace
            for each in self.every():
                each.repace(pace)
            self._settle_all()
        if self.lanes is None:
            return self._earliest if self._urgent_at <= now else self._first
        first, earliest, urgent_at = self._leading
        return earliest if urgent_at <= now else first

    def earliest(self) -> Entry:
        """The request with the earliest deadline of what may be next, of a flow in which something may."""
        earliest = self._earliest if self.lanes is None else self._leading[1]
        if earliest is None:
            raise LookupError(self.tenant)
        return earliest

    def fronts(self, now: int) -> tuple[Entry, ...]:
        """What is its head, or comes to be with time or another pace while nothing arrives and nothing leaves."""
        first, earliest, _ = self.leading()
        if first is None or earliest is None:
            return ()
        return (earliest,) if first is earliest or self.deadline <= now else (first, earliest)

    def waiting(self) -> Iterator[Entry]:
        """All that waits, by priority, then arrival; not to be changed meanwhile."""
        if self.lanes is None:
            return self.own()
        return merge(*(lane.own() for lane in self.every()), key=_by_priority)

    @property
    def idle_length(self) -> int:
        """How much of what waits cannot be next, for a limit of its app or key."""
        return 0 if self.lanes is None else self.lanes.idle_length

    @property
    def idle_work(self) -> int:
        """The same, in the unit of `work`."""
        return 0 if self.lanes is None else self.lanes.idle_work

    def at_limit(self) -> tuple[Cause, str]:
        """Which limit keeps all that waits, and whose it is."""
        lane = self.every()[-1]
        while isinstance(lane, Lane) and lane.cause is Cause.OWN_QUEUE:
            lane = lane.above
        return at_limit(lane.tally) if isinstance(lane, Lane) else (Cause.OWN_QUEUE, "")

    def waited(self, entry: Entry, now: int) -> tuple[Wait, ...]:
        """What something that waits has waited for, for this attempt, in order; what is no longer known is left out."""
        return (self._lane_of(entry) if entry.tallies else self).told(entry.queued, now)

    def resize(self, entry: Entry, asked: int) -> None:
        """What waits asks for another amount than `asked` now, for as long as before."""
        work = entry.work // asked * entry.ask
        if entry.priority >= 0:
            self.work += work - entry.work
        if entry.tallies:
            self._counted(entry, 0, work - entry.work)
        entry.work = work
        self.asked += entry.ask - asked
        self.account.asked += entry.ask - asked

    def repromise(self, max_wait_ns: int) -> None:
        """Its tenant's max_wait is another one."""
        for entry in self.waiting():
            if entry.priority >= 0:
                entry.deadline = entry.arrived + max_wait_ns
        for each in self.every():
            each.cut(self._urgent_by)
        self._settle_all()

    def sort_anew(self, tallies: dict[str, tuple[Tally, ...]]) -> None:
        """What waits, by id, is counted in these tallies from now on, and waits in their lanes."""
        entries = sorted(self.waiting(), key=_by_arrival)
        for entry in entries:
            self.remove(entry)
            entry.tallies = tallies.get(entry.id, entry.tallies)
        for entry in entries:
            self.push(entry)

    def settle(self) -> None:
        self._leading = self.leading()
        earliest = self._leading[1]
        self.deadline = FAR if earliest is None else earliest.deadline

    def charge(self, service: int) -> None:
        """Charge the counter for service (negative: give back)."""
        self.counter += self.scaled(service)

    def scaled(self, service: int) -> int:
        """What a counter of this flow's weight is charged for service."""
        return service * COUNTER_SCALE // self.weight

    def learn(self, app: str, seen: int) -> None:
        """A request of this app produced this much; a job of it took so long."""
        value = self.expected.get(app, 0)
        self.expected[app] = value + ((seen - value) >> LEARN_SHIFT) if value else max(1, seen)

    def _lane_of(self, entry: Entry) -> Lane:
        """The lane of something with tallies; a new one if need be, which is as old as its wait."""
        lane: Queues = self
        for tally in entry.tallies:
            lanes = lane.lanes
            if lanes is None:
                lanes = lane.lanes = Lanes()
            found = lanes.by_tally.get(tally)
            if found is None:
                found = lanes.by_tally[tally] = Lane(lane, tally)
                self.account.lanes.setdefault(tally, {})[found] = self
                found.note(entry.arrived, Cause.OWN_QUEUE, "")
                found.turn(entry.queued)
            lane = found
        return cast("Lane", lane)

    def _counted(self, entry: Entry, count: int, work: int) -> None:
        """So much more waits under its tallies; a lane in which nothing does is gone."""
        deepest = self._lane_of(entry)
        lane: Queues = deepest
        while isinstance(lane, Lane):
            lane.length += count
            if entry.priority >= 0:
                lane.work += work
                lane.tally.waiting += count
            lane = lane.above
        lane = deepest
        while isinstance(lane, Lane) and not lane.length:
            above = lane.above
            if above.lanes is not None:
                above.lanes.discard(lane)
                if not above.lanes.by_tally:
                    above.lanes = None
            its = self.account.lanes[lane.tally]
            del its[lane]
            if not its:
                del self.account.lanes[lane.tally]
            lane = above
        lane.settle()

    def _settle_all(self) -> None:
        if self.lanes is not None:
            for each in reversed(self.every()):
                each.settle()


def at_limit(tally: Tally) -> tuple[Cause, str]:
    """What something waits for that its tally does not allow."""
    return Cause.CONCURRENCY if tally.full else Cause.APP_LIMIT, tally.name


def holds(task: Request | Job, ask: int) -> Held:
    """What it holds while it runs, as the limits of apps count it."""
    if isinstance(task, Request):
        return NOTHING
    return ask, task.resources.get("cpu_milli", 0), task.resources.get("memory_mib", 0)


def _by_priority(entry: Entry) -> tuple[int, int]:
    return -entry.priority, entry.seq


def _by_arrival(entry: Entry) -> int:
    return entry.seq


class Place:
    """A flow's place in one of the orders of a line: the smallest key is next, and who stands longest among equals."""

    __slots__ = ("flow", "key", "stamp")

    def __init__(self, key: int, stamp: int, flow: Flow) -> None:
        self.key = key
        self.stamp = stamp
        self.flow = flow

    def __lt__(self, other: "Place") -> bool:
        return self.key < other.key or (self.key == other.key and self.stamp < other.stamp)


class Room:
    """What a flow leads to: it says whether an entry can run now; `cause` and `about` say why the last could not."""

    __slots__ = ("about", "cause", "name", "pace", "turns")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pace = Pace()
        self.turns = 0  # how many were started here
        self.cause = Cause.SLOTS
        self.about = ""

    def fit(self, entry: Entry, now: int) -> Spot | None:
        """Where it can run at once, or None; then it may park the entry's flow (and so change its line)."""
        raise NotImplementedError

    def patience(self, flow: Flow, now: int) -> int | None:  # noqa: ARG002 - here none has any
        """How much service others may get ahead of a flow whose head found no room; None: as much as they like."""
        return None

    def choose(self, flow: Flow, now: int) -> tuple[Entry, Spot] | None:
        """Which of a flow's entries can run at once, and where: here only the head may."""
        head = flow.head(now)
        if head is None:
            self.passed(flow)
            return None
        spot = self.fit(head, now)
        return None if spot is None else (head, spot)

    def passed(self, flow: Flow) -> None:
        """All that waits in it has no room under limits of its own."""
