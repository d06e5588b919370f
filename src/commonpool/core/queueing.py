"""Who is next inside a tenant's flow: its requests for one model, or its jobs.

A request becomes *urgent* when waiting longer could break its promise, that is when the work that was ahead of it when
it came, at the tenant's guaranteed rate, would take the rest of its max_wait. While a flow holds an urgent request it
is served by deadline; otherwise by priority, then arrival. A request past max_wait is always urgent. Turning urgent
before the deadline, not at it, is what keeps the promise when many requests share a deadline
(docs/adr/0006-urgent-before-late.md).

What waits is in linked lists, and what is read of a tenant for every request lies in its flow as plain numbers: with
many tenants a decision takes as long as fetching what it looks at from memory (docs/adr/0010-compiled-core.md).
"""

from collections.abc import Iterator
from typing import Final

from commonpool.core.books import Task
from commonpool.core.budget import Spending
from commonpool.core.forecast import Forecast
from commonpool.core.limits import Rate
from commonpool.core.model import Cause, Job, Request, Wait
from commonpool.core.pace import LEARN_SHIFT, Pace
from commonpool.core.quota import Node, Quota

# The scale of the counters, so that integer division by a weight loses nothing that matters.
COUNTER_SCALE: Final = 1 << 20
INPUT_COST: Final = 1
OUTPUT_COST: Final = 2
# The most changes of cause that a flow remembers: an explanation needs the last few, not a history.
_CAUSES_MAX: Final = 64
_FAR: Final = 1 << 61  # later than any time


class Spot:
    """A place where something can run: a replica, or the devices of a pool."""

    __slots__ = ()


class Entry(Task):
    """A request or job that waits or runs: what the core knows of it from arrival to its last attempt.

    `ask` is the milli_gpu it uses while it runs, `kv` its KV tokens, `work` its milli_gpu × expected service, `ahead`
    the service that its flow had to give first when it came, at the tenant's guaranteed rate. `also` is what it takes
    of other resources. `surplus` says that it was dispatched from the surplus, `charged` the service that its flow's
    counter was charged for it. `held` is what is held for it of its tenant's budget. `waits` says what it waited for,
    once it has been dispatched.
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
        "task",
        "tokens_in",
        "tokens_reserved",
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
        self.tokens_reserved = 0
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
        self.urgent_at = _FAR  # when the first of them turns urgent, a time that may have passed
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
        at = _FAR
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
        part.deadline = min(part.deadline, entry.deadline)
        part.ahead = max(part.ahead, entry.ahead)
        part.last = max(part.last, entry.seq)
        return part


class Account:
    """A tenant's flows, and what is counted over all of them.

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
        "spending",
        "tokens",
        "waiting",
    )

    def __init__(self) -> None:
        self.spending = Spending()
        self.waiting = 0
        self.asked = 0
        self.by_jobs = 0
        self.max_wait_ns = 0
        self.queue_length = 0
        self.priority: dict[str, int] = {}
        self.requests: Rate | None = None
        self.tokens: Rate | None = None
        self.bytes: Rate | None = None
        self.forecast = Forecast()
        self.models: frozenset[str] = frozenset()
        self.flows: tuple[Flow, ...] = ()

    def keep(self, flows: tuple["Flow", ...]) -> None:
        """These are its flows from now on."""
        self.flows = flows
        for flow in flows:
            flow.others = tuple(other for other in flows if other is not flow)


class Flow:
    """The queue of one (tenant, site), and that tenant's counter in the contest for that site's surplus.

    `node` is its tenant's place in the quota tree, `also` those in the trees of the other resources, for jobs; `others`
    are that tenant's other flows. `expected` is the output of a request by app (of a job: how long it takes), learned
    from those that ended. `asked` is the milli_gpu of all that waits, `work` the same times its expected service;
    `deadline` is the earliest. Where it stands in its site's line is the line's to say.
    """

    __slots__ = (
        "_about",
        "_cause",
        "_causes",
        "_earliest",
        "_first",
        "_queues",
        "_since",
        "_urgent_at",
        "_urgent_by",
        "account",
        "also",
        "asked",
        "contesting",
        "counter",
        "deadline",
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
        self.deadline = 0
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
        self._urgent_at = _FAR  # the earliest of the queues'
        self._first: Entry | None = None  # by priority, then arrival
        self._earliest: Entry | None = None  # by deadline, then arrival
        self._queues: Queue | None = None  # that of the largest priority
        self._since = -1  # since when its head waits for what, and what it waited for before, oldest first
        self._cause = Cause.OWN_QUEUE
        self._about = ""
        self._causes: list[tuple[int, Cause, str]] = []

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
        self.work += entry.work
        self.account.waiting += 1
        self.account.asked += entry.ask
        queue = self._queue(entry.priority)
        queue.insert(entry, self._urgent_by)
        self._urgent_at = min(self._urgent_at, queue.urgent_at)
        if queue.first is entry:
            self._look()

    def remove(self, entry: Entry) -> None:
        """Dispatched or cancelled."""
        entry.waiting = False
        self.length -= 1
        self.asked -= entry.ask
        self.work -= entry.work
        self.account.waiting -= 1
        self.account.asked -= entry.ask
        queue = self._queue(entry.priority)
        urgent_at = queue.urgent_at
        behind = entry.following
        queue.remove(entry, self._urgent_by)
        if queue.urgent_at != urgent_at:
            self._rank()
        if entry is self._earliest:
            self._look()
        elif entry is self._first:
            if behind is None:
                self._look()
            else:
                self._first = behind

    def head(self, now: int) -> Entry | None:
        """The request to serve next, not removed."""
        pace = self.room.pace.careful
        if 2 * pace > 3 * self._urgent_by or 2 * pace < self._urgent_by:
            # The pace is another one by half or more.
            self._urgent_by = pace
            for queue in self._each_queue():
                queue.rank(pace)
            self._rank()
        return self._earliest if self._urgent_at <= now else self._first

    def earliest(self) -> Entry:
        """The request with the earliest deadline, of a flow that is not empty."""
        if self._earliest is None:
            raise LookupError(self.tenant)
        return self._earliest

    def fronts(self, now: int) -> tuple[Entry, ...]:
        """What is its head, or comes to be with time or another pace while nothing arrives and nothing leaves."""
        first, earliest = self._first, self._earliest
        if first is None or earliest is None:
            return ()
        return (earliest,) if first is earliest or self.deadline <= now else (first, earliest)

    def waiting(self) -> Iterator[Entry]:
        """All that waits, by priority, then arrival; not to be changed meanwhile."""
        for queue in self._each_queue():
            entry = queue.first
            while entry is not None:
                yield entry
                entry = entry.following

    def resize(self, entry: Entry, asked: int) -> None:
        """What waits asks for another amount than `asked` now, for as long as before."""
        work = entry.work // asked * entry.ask
        self.work += work - entry.work
        entry.work = work
        self.asked += entry.ask - asked
        self.account.asked += entry.ask - asked

    def repromise(self, max_wait_ns: int) -> None:
        """Its tenant's max_wait is another one."""
        for entry in self.waiting():
            entry.deadline = entry.arrived + max_wait_ns
        for queue in self._each_queue():
            queue.cut()
            queue.rank(self._urgent_by)
        self._rank()
        self._look()

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

    @property
    def cause(self) -> Cause:
        """What its head waits for now."""
        return self._cause

    def note(self, now: int, cause: Cause, name: str) -> None:
        """From now on its head waits for this."""
        if cause is self._cause and name == self._about and self._since >= 0:
            return
        causes = self._causes
        if self._since == now:
            if causes and causes[-1][1] is cause and causes[-1][2] == name:
                self._since, self._cause, self._about = causes.pop()
                return
        elif self._since >= 0:
            if len(causes) >= _CAUSES_MAX:
                del causes[: _CAUSES_MAX // 2]
            causes.append((self._since, self._cause, self._about))
        self._since, self._cause, self._about = now, cause, name

    def waits(self, since: int, now: int) -> tuple[Wait, ...]:
        """What its head waited for in that time, in order; what is no longer known is left out."""
        if now <= since or self._since < 0:
            return ()
        if self._since <= since:
            return (Wait(self._cause, self._about, now - since),)
        found = [Wait(self._cause, self._about, now - self._since)] if self._since < now else []
        until = self._since
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

    def _each_queue(self) -> Iterator[Queue]:
        queue = self._queues
        while queue is not None:
            yield queue
            queue = queue.lower

    def _rank(self) -> None:
        """Find out when the first of all turns urgent."""
        at = _FAR
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
        spot = None if head is None else self.fit(head, now)
        return None if head is None or spot is None else (head, spot)
