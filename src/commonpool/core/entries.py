"""What waits or runs, and the order of a queue: what of it is urgent, and who is next.

What waits is in linked lists: with many tenants a decision takes as long as fetching what it looks at from memory
(docs/adr/0010-compiled-core.md).
"""

from typing import TYPE_CHECKING, Final

from commonpool.core.books import Task
from commonpool.core.limits import NOTHING, Held, Rate, Tally
from commonpool.core.model import Job, Request, Wait
from commonpool.core.quota import Node, Quota

if TYPE_CHECKING:  # an entry knows its flow, and a flow its entries
    from commonpool.core.queueing import Flow

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


def holds(task: Request | Job, ask: int) -> Held:
    """What it holds while it runs, as the limits of apps count it."""
    if isinstance(task, Request):
        return NOTHING
    return ask, task.resources.get("cpu_milli", 0), task.resources.get("memory_mib", 0)
