"""Who is next inside a tenant's flow: its requests for one model, or its jobs.

A request becomes *urgent* when waiting longer could break its promise, that is when the work that was ahead of it when
it came, at the tenant's guaranteed rate, would take the rest of its max_wait. While a flow holds an urgent request it
is served by deadline; otherwise by priority, then arrival. A request past max_wait is always urgent. Turning urgent
before the deadline, not at it, is what keeps the promise when many requests share a deadline
(docs/adr/0006-urgent-before-late.md).

What is read of a tenant for every request lies in its flow as plain numbers (docs/adr/0010-compiled-core.md).
"""

from collections.abc import Iterator
from heapq import merge
from typing import Final, cast

from commonpool.core.budget import Spending
from commonpool.core.entries import FAR, Entry, Spot
from commonpool.core.forecast import Forecast
from commonpool.core.lanes import Lane, Lanes, Queues, at_limit
from commonpool.core.limits import Tally
from commonpool.core.model import Cause, Wait
from commonpool.core.pace import LEARN_SHIFT, Pace
from commonpool.core.quota import Node

# The scale of the counters, so that integer division by a weight loses nothing that matters.
COUNTER_SCALE: Final = 1 << 20
INPUT_COST: Final = 1
OUTPUT_COST: Final = 2


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
