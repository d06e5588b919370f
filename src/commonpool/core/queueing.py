"""Who is next: order inside a tenant's flow, and fairness between the flows that wait at one site.

Inside a flow (a tenant's requests for one model, or its jobs): a request becomes *urgent* when waiting longer could
break its promise, that is when the work that was ahead of it when it came, at the tenant's guaranteed rate, would take
the rest of its max_wait. While a flow holds an urgent request it is served by deadline; otherwise by priority, then
arrival. A request past max_wait is always urgent. Turning urgent before the deadline, not at it, is what keeps the
promise when many requests share a deadline (docs/adr/0006-urgent-before-late.md).

Between flows: those whose tenant is under its guarantee come first, smallest use / guarantee first. The others are in
the *contest* for the surplus, by virtual token counters (VTC, Sheng et al., OSDI 2024): the smallest counter is next;
a flow that enters the contest is lifted to the smallest counter in it, or, when nobody is in it, to that of the flow
that left it last (the paper's whole-queue-empty rule). An overdue head may pass others for at most 20 % of the surplus.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Final

from commonpool.core.forecast import Forecast
from commonpool.core.limits import Rate
from commonpool.core.model import Cause, Job, Loan, Request, Wait
from commonpool.core.quota import Node, Quota

# Learned figures move by an eighth of the difference with each request.
LEARN_SHIFT: Final = 3
# The scale of the counters, so that integer division by a weight loses nothing that matters.
COUNTER_SCALE: Final = 1 << 20
INPUT_COST: Final = 1
OUTPUT_COST: Final = 2
# One overdue head may pass per this many requests served from the surplus: 20 %.
PASS_PRICE: Final = 5
# The most changes of cause that a flow remembers: an explanation needs the last few, not a history.
_CAUSES_MAX: Final = 64
_FAR: Final = 1 << 61  # later than any time


class Pace:
    """How long a site takes over a unit of service (a token; a job's nanosecond). Nanoseconds; 0 until learned."""

    __slots__ = ("_deviation", "expected")

    def __init__(self) -> None:
        self.expected = 0
        self._deviation = 0

    @property
    def careful(self) -> int:
        """With room for the usual ups and downs: expected plus twice the mean deviation, as TCP sets its time-outs."""
        return self.expected + 2 * self._deviation

    def learn(self, ns_per_unit: int) -> None:
        if not self.expected:
            self.expected = max(1, ns_per_unit)
            self._deviation = self.expected // 4
            return
        error = ns_per_unit - self.expected
        self.expected = max(1, self.expected + (error >> LEARN_SHIFT))
        self._deviation += (abs(error) - self._deviation) >> LEARN_SHIFT


class Spot:
    """A place where something can run: a replica, or the devices of a pool."""

    __slots__ = ()


class Entry:
    """A request or job that waits or runs: what the core knows of it from arrival to its last attempt.

    `ask` is the milli_gpu it uses while it runs, `kv` its KV tokens, `work` its milli_gpu × expected service, `ahead`
    the service that its flow had to give first when it came, at the tenant's guaranteed rate. `also` is what it takes
    of other resources. `surplus` says that it was dispatched from the surplus, `charged` the service that its flow's
    counter was charged for it. `waits` says what it waited for, once it has been dispatched.
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
        "flow",
        "following",
        "id",
        "kv",
        "loans",
        "node",
        "preceding",
        "priority",
        "replica_id",
        "seq",
        "sequences",
        "surplus",
        "task",
        "tokens_reserved",
        "version",
        "waiting",
        "waits",
        "work",
    )

    def __init__(self, task: Request | Job, seq: int, now: int) -> None:
        self.id = task.id
        self.task = task
        self.seq = seq
        self.arrived = now
        self.sequences = 1
        self.attempt = 0
        self.waiting = False
        self.loans: list[Loan] | None = None
        self.surplus = False
        self.charged = 0
        self.dispatched = 0
        self.replica_id = ""
        self.version = ""
        self.ask = 0
        self.also: tuple[tuple[Quota, Node, int], ...] = ()
        self.kv = 0
        self.work = 0
        self.tokens_reserved = 0
        self.priority = 0
        self.deadline = 0
        self.ahead = 0
        self.waits: tuple[Wait, ...] = ()
        self.following: Entry | None = None
        self.preceding: Entry | None = None
        self.flow: Flow
        self.node: Node

    @property
    def ended_loans(self) -> list[Loan]:
        """The loans that have ended already; what waits has none, and most that run never have."""
        if self.loans is None:
            self.loans = []
        return self.loans

    def again(self) -> None:
        """For another attempt: with its place in the order, and nothing of what it took."""
        self.loans = None
        self.surplus = False
        self.charged = 0
        self.waits = ()


class Slice:
    """Neighbours in a queue, as one in the question when they turn urgent: the earliest deadline, the most ahead."""

    __slots__ = ("ahead", "deadline", "last")

    def __init__(self, entry: Entry) -> None:
        self.deadline = entry.deadline
        self.ahead = entry.ahead
        self.last = entry.seq


class Queue:
    """What waits in one priority of a flow, oldest first. A linked list: whatever leaves takes its memory with it.

    When it turns urgent depends on the pace, which changes, so that is worked out from slices of a 64th of max_wait
    each: few, however many wait. A slice stays until the last of it has left or been passed; so the queue may turn
    urgent that much too early, never too late.
    """

    __slots__ = ("_slices", "first", "last", "priority", "urgent_at")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.first: Entry | None = None
        self.last: Entry | None = None
        self.urgent_at = _FAR  # when the first of them turns urgent, a time that may have passed
        self._slices: deque[Slice] = deque()

    def insert(self, entry: Entry, pace: int) -> None:
        """At its place in the order of arrival: the end, except for another attempt at something older."""
        before = self.last
        if before is not None and before.seq > entry.seq:
            before = None
            after = self.first
            while after is not None and after.seq < entry.seq:
                before, after = after, after.following
        after = self.first if before is None else before.following
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
        self.urgent_at = min(self.urgent_at, part.deadline - part.ahead * pace)

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
        slices = self._slices
        gone = False
        while slices and (after is None or slices[0].last < after.seq):
            slices.popleft()
            gone = True
        if gone:
            self.rank(pace)

    def rank(self, pace: int) -> None:
        """Work out anew when the first of them turns urgent."""
        at = _FAR
        for part in self._slices:
            at = min(at, part.deadline - part.ahead * pace)
        self.urgent_at = at

    def cut(self) -> None:
        """Make the slices anew: the deadlines have changed."""
        self._slices.clear()
        entry = self.first
        while entry is not None:
            self._join(entry)
            entry = entry.following

    def _join(self, entry: Entry) -> Slice:
        """The slice that an entry belongs to: the last, a new one, or for another attempt the one that it is in."""
        slices = self._slices
        if slices:
            part = slices[-1]
            if entry.seq < part.last:
                for part in slices:
                    if entry.seq < part.last:
                        break
            elif entry.deadline - part.deadline > (entry.deadline - entry.arrived) >> 6:
                part = Slice(entry)
                slices.append(part)
            part.deadline = min(part.deadline, entry.deadline)
            part.ahead = max(part.ahead, entry.ahead)
            part.last = max(part.last, entry.seq)
        else:
            part = Slice(entry)
            slices.append(part)
        return part


class Account:
    """A tenant's flows, by where they lead, and what is counted over all of them.

    `waiting` counts requests and jobs; `asked` is their milli_gpu, `by_jobs` that of the jobs that run. The rest is
    what admission reads of the tenant for every request.
    """

    __slots__ = (
        "asked",
        "by_jobs",
        "bytes",
        "flows",
        "forecast",
        "max_wait_ns",
        "models",
        "priority",
        "queue_length",
        "requests",
        "tokens",
        "waiting",
    )

    def __init__(self) -> None:
        self.flows: dict[Room, Flow] = {}
        self.waiting = 0
        self.asked = 0
        self.by_jobs = 0
        self.forecast = Forecast()
        self.models: frozenset[str] = frozenset()
        self.priority: dict[str, int] = {}
        self.max_wait_ns = 0
        self.queue_length = 0
        self.requests: Rate | None = None
        self.tokens: Rate | None = None
        self.bytes: Rate | None = None


class Flow:
    """The queue of one (tenant, site), and that tenant's counter in the contest for that site's surplus.

    `node` is its tenant's place in the quota tree, `also` those in the trees of the other resources, for jobs.
    `expected` is the output of a request by app (of a job: how long it takes), learned from those that ended. `asked`
    is the milli_gpu of all that waits, `work` the same times its expected service.
    """

    __slots__ = (
        "_causes",
        "_queues",
        "_urgent_by",
        "account",
        "also",
        "asked",
        "contesting",
        "counter",
        "due",
        "expected",
        "key",
        "length",
        "node",
        "parked",
        "room",
        "stamp",
        "tenant",
        "weight",
        "work",
    )

    def __init__(self, tenant: str, account: Account, node: Node, weight: int, room: "Room") -> None:
        self.tenant = tenant
        self.account = account
        self.node = node
        self.also: tuple[Node, ...] = ()
        self.weight = weight
        self.room = room
        self.length = 0
        self.counter = 0
        self.contesting = False
        self.parked = False
        self.stamp = 0  # places in the line's heaps with another stamp are out of date; 0: it has none
        self.key = 0  # of its place
        self.due = 0  # of its place among the overdue, 0: it has none
        self.expected: dict[str, int] = {}
        self.asked = 0
        self.work = 0
        self._urgent_by = 0  # the pace by which the queues know what is urgent
        self._queues: list[Queue] = []  # largest priority first
        self._causes: list[tuple[int, Cause, str]] = []  # since when its head waits for what, oldest first

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
        self.length += 1
        self.asked += entry.ask
        self.work += entry.work
        self.account.waiting += 1
        self.account.asked += entry.ask
        self._queue(entry.priority).insert(entry, self._urgent_by)

    def remove(self, entry: Entry) -> None:
        """Dispatched or cancelled."""
        entry.waiting = False
        self.length -= 1
        self.asked -= entry.ask
        self.work -= entry.work
        self.account.waiting -= 1
        self.account.asked -= entry.ask
        self._queue(entry.priority).remove(entry, self._urgent_by)

    def head(self, now: int) -> Entry | None:
        """The request to serve next, not removed."""
        if not self.length:
            return None
        pace = self.room.pace.careful
        if 2 * pace > 3 * self._urgent_by or 2 * pace < self._urgent_by:
            # The pace is another one by half or more.
            self._urgent_by = pace
            for queue in self._queues:
                queue.rank(pace)
        for queue in self._queues:
            if queue.urgent_at <= now:
                return self.earliest()
        for queue in self._queues:
            if queue.first is not None:
                return queue.first
        return None

    def earliest(self) -> Entry:
        """The request with the earliest deadline, of a flow that is not empty.

        max_wait is one per tenant, so within a priority that is the oldest.
        """
        best: Entry | None = None
        for queue in self._queues:
            first = queue.first
            if first is not None and (best is None or (first.deadline, first.seq) < (best.deadline, best.seq)):
                best = first
        if best is None:
            raise LookupError(self.tenant)
        return best

    def waiting(self) -> Iterator[Entry]:
        """All that waits, by priority, then arrival; not to be changed meanwhile."""
        for queue in self._queues:
            entry = queue.first
            while entry is not None:
                yield entry
                entry = entry.following

    def resize(self, entry: Entry, asked: int) -> None:
        """What waits asks for another amount than `asked` now."""
        self.asked += entry.ask - asked
        self.account.asked += entry.ask - asked

    def repromise(self, max_wait_ns: int) -> None:
        """Its tenant's max_wait is another one."""
        for entry in self.waiting():
            entry.deadline = entry.arrived + max_wait_ns
        for queue in self._queues:
            queue.cut()
            queue.rank(self._urgent_by)

    def charge(self, service: int) -> None:
        """Charge the counter for service (negative: give back)."""
        self.counter += self.scaled(service)

    def scaled(self, service: int) -> int:
        """What a counter of this flow's weight is charged for service."""
        return service * COUNTER_SCALE // self.weight

    def note(self, now: int, cause: Cause, name: str) -> None:
        """From now on its head waits for this."""
        causes = self._causes
        if causes and causes[-1][1] is cause and causes[-1][2] == name:
            return
        if causes and causes[-1][0] == now:
            causes.pop()
        elif len(causes) >= _CAUSES_MAX:
            del causes[: _CAUSES_MAX // 2]
        causes.append((now, cause, name))

    def waits(self, since: int, now: int) -> tuple[Wait, ...]:
        """What its head waited for in that time, in order; what is no longer known is left out."""
        found: list[Wait] = []
        until = now
        for at, cause, name in reversed(self._causes):
            start = max(at, since)
            if until > start:
                found.append(Wait(cause, name, until - start))
            until = start
            if at <= since:
                break
        found.reverse()
        return tuple(found)

    def _queue(self, priority: int) -> Queue:
        at = 0
        for queue in self._queues:
            if queue.priority == priority:
                return queue
            at += queue.priority > priority
        made = Queue(priority)
        self._queues.insert(at, made)
        return made


# A flow's place in one of a line's heaps: its key there, the place's stamp (who stands longest goes first), the flow.
Place = tuple[int, int, Flow]
Found = tuple[Entry, Spot]


class Room:
    """Where a line leads to: it says whether a head can run at once. `cause` and `about` say why the last could not."""

    __slots__ = ("about", "cause", "line", "name", "pace")

    def __init__(self, name: str) -> None:
        self.name = name
        self.line = Line()
        self.pace = Pace()
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
        spot = None if head is None else self.fit(head, now)
        return None if head is None or spot is None else (head, spot)


class Line:
    """Everyone who waits at one site."""

    __slots__ = ("_contest", "_left_last", "_overdue", "_pass_credit", "_stamps", "_under", "flows", "waiting")

    def __init__(self) -> None:
        self.flows: dict[str, Flow] = {}
        self.waiting = 0  # requests, of all flows; kept by the machine
        self._under: list[Place] = []  # by rank
        self._contest: list[Place] = []  # by counter
        self._overdue: list[Place] = []  # by the earliest deadline, of those in the contest
        self._left_last = 0
        self._stamps = 0
        self._pass_credit = 0

    def place(self, flow: Flow) -> None:
        """Put a flow where it belongs now: after its queue, its tenant's use or its guarantee changed."""
        if not flow.length or flow.parked:
            flow.stamp = 0
            self._leave(flow)
            return
        rank = flow.rank()
        if rank >= 0:
            if flow.contesting:
                self._leave(flow)
            elif flow.stamp and flow.key == rank:
                return  # it stands there already
            self._stand(self._under, rank, flow)
            return
        if not flow.contesting:
            flow.counter = max(flow.counter, self._lift())
            flow.contesting = True
            flow.stamp = 0
        if not flow.stamp or flow.key != flow.counter:
            self._stand(self._contest, flow.counter, flow)
        due = flow.earliest().deadline
        if flow.due != due:
            flow.due = due
            self._stamps += 1
            self._push(self._overdue, (due, self._stamps, flow))

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

    def next_within(self, now: int, room: Room) -> Found | None:
        """The next of those whose tenant is under its guarantee, and where it runs; None if none fits."""
        return self._first(self._under, now, room, patient=True)

    def next_beyond(self, now: int, room: Room) -> Found | None:
        """The next to be served from the surplus. As `next_within`, after it."""
        winner = self._first(self._contest, now, room, patient=False)
        if winner is None:
            return None
        late = self._passing(winner[0].flow, now, room)
        return winner if late is None else late

    def late(self, now: int) -> bool:
        """Whether a head is overdue that may pass others."""
        if not self.may_pass():
            return False
        flow = self._most_overdue()
        return flow is not None and flow.due <= now

    def may_pass(self) -> bool:
        """Whether the 20 % have room for one more that does not wait for its turn."""
        return self._pass_credit >= PASS_PRICE

    def passed(self) -> None:
        self._pass_credit = 0

    def _passing(self, winner: Flow, now: int, room: Room) -> Found | None:
        """The overdue head that passes the winner of the contest, while the 20 % allow it."""
        self._pass_credit = min(PASS_PRICE, self._pass_credit + 1)
        if self._pass_credit < PASS_PRICE:
            return None
        flow = self._most_overdue()
        if flow is None or flow.due > now or flow is winner:
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
        aside: list[Place] = []
        found: Found | None = None
        furthest = _FAR
        while found is None:
            top = _valid_top(heap)
            if top is None:
                break
            flow = top[2]
            if top[0] > furthest:
                flow.note(now, Cause.TURN, "")
                break
            found = room.choose(flow, now)
            if found is None:
                flow.note(now, room.cause, room.about)
                if flow.stamp == top[1]:
                    aside.append(heapq.heappop(heap))
                    patience = None if patient else room.patience(flow, now)
                    if patience is not None:
                        furthest = min(furthest, flow.counter + flow.scaled(patience))
        for item in aside:
            heapq.heappush(heap, item)
        return found

    def _stand(self, heap: list[Place], key: int, flow: Flow) -> None:
        self._stamps += 1
        flow.stamp, flow.key = self._stamps, key
        self._push(heap, (key, self._stamps, flow))

    def _push(self, heap: list[Place], place: Place) -> None:
        heapq.heappush(heap, place)
        if len(heap) > 64 + 4 * len(self.flows):
            if heap is self._overdue:
                heap[:] = [(flow.due, stamp, flow) for due, stamp, flow in heap if flow.due == due]
            else:
                heap[:] = [place for place in heap if place[1] == place[2].stamp]
            heapq.heapify(heap)

    def _lift(self) -> int:
        top = _valid_top(self._contest)
        return self._left_last if top is None else top[0]

    def _leave(self, flow: Flow) -> None:
        if flow.contesting:
            flow.contesting = False
            flow.due = 0
            self._left_last = flow.counter

    def _most_overdue(self) -> Flow | None:
        """The flow in the contest whose head has the earliest deadline."""
        heap = self._overdue
        while heap:
            top = heap[0]
            if top[2].due == top[0]:
                return top[2]
            heapq.heappop(heap)
        return None


def _valid_top(heap: list[Place]) -> Place | None:
    while heap:
        top = heap[0]
        if top[2].stamp == top[1]:
            return top
        heapq.heappop(heap)
    return None
