"""Who is next: order inside a tenant's flow, and fairness between the flows that wait for one deployment.

Inside a flow (one tenant, one model): a request becomes *urgent* when waiting longer could break its promise, that is
when the work that was ahead of it when it came, at the tenant's guaranteed rate, would take the rest of its max_wait.
While a flow holds an urgent request it is served by deadline; otherwise by priority, then arrival. A request past
max_wait is always urgent. Turning urgent before the deadline, not at it, is what keeps the promise when many requests
share a deadline (docs/adr/0006-urgent-before-late.md).

Between flows: those whose tenant is under its guarantee come first, smallest use / guarantee first. The others are in
the *contest* for the surplus, by virtual token counters (VTC, Sheng et al., OSDI 2024): the smallest counter is next;
a flow that enters the contest is lifted to the smallest counter in it, or, when nobody is in it, to that of the flow
that left it last (the paper's whole-queue-empty rule). An overdue head may pass others for at most 20 % of the surplus.
"""

import heapq
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from commonpool.core.model import Loan, Request
from commonpool.core.quota import Node

R = TypeVar("R")

# Learned figures move by an eighth of the difference with each request.
LEARN_SHIFT: Final = 3
# The scale of the counters, so that integer division by a weight loses nothing that matters.
COUNTER_SCALE: Final = 1 << 20
INPUT_COST: Final = 1
OUTPUT_COST: Final = 2
# One overdue head may pass per this many requests served from the surplus: 20 %.
PASS_PRICE: Final = 5
# Use / guarantee in fixed point. With milli_gpu below 2^32, two different ratios differ by more than 2^-64.
_RATIO_BITS: Final = 64
# How many flows that cannot be served now a decision looks past before it gives up until something changes.
_LOOK_PAST_MAX: Final = 64


class Pace:
    """How long a deployment takes over a token of service, learned from what ends. Nanoseconds; 0 until then."""

    __slots__ = ("_deviation", "expected")

    def __init__(self) -> None:
        self.expected = 0
        self._deviation = 0

    @property
    def careful(self) -> int:
        """With room for the usual ups and downs: expected plus twice the mean deviation, as TCP sets its time-outs."""
        return self.expected + 2 * self._deviation

    def learn(self, ns_per_token: int) -> None:
        if not self.expected:
            self.expected = max(1, ns_per_token)
            self._deviation = self.expected // 4
            return
        error = ns_per_token - self.expected
        self.expected = max(1, self.expected + (error >> LEARN_SHIFT))
        self._deviation += (abs(error) - self._deviation) >> LEARN_SHIFT


class Entry:
    """A request that waits or runs: what the core knows of it from arrival to its last attempt.

    `ask` is the milli_gpu it uses while it runs, `kv` its KV tokens, `work` its milli_gpu × expected tokens of service,
    `ahead` the tokens of service that its flow had to serve first when it came, at the tenant's guaranteed rate.
    `surplus` says that it was dispatched from the surplus, `charged` what its flow's counter was charged for it.
    """

    __slots__ = (
        "ahead",
        "arrived",
        "ask",
        "attempt",
        "charged",
        "deadline",
        "dispatched",
        "ended_loans",
        "flow",
        "kv",
        "node",
        "priority",
        "replica_id",
        "request",
        "seq",
        "surplus",
        "tokens_reserved",
        "version",
        "waiting",
        "work",
    )

    def __init__(self, request: Request, seq: int, now: int) -> None:
        self.request = request
        self.seq = seq
        self.arrived = now
        self.attempt = 0
        self.waiting = False
        self.ended_loans: list[Loan] = []
        self.surplus = False
        self.charged = 0
        self.dispatched = 0
        self.replica_id = ""
        self.version = ""
        self.ask = 0
        self.kv = 0
        self.work = 0
        self.tokens_reserved = 0
        self.priority = 0
        self.deadline = 0
        self.ahead = 0
        self.flow: Flow
        self.node: Node

    @property
    def id(self) -> str:
        return self.request.id

    def __lt__(self, other: "Entry") -> bool:
        """Between attempts at one request, whose places in a heap are otherwise equal."""
        return self.attempt < other.attempt

    def again(self) -> "Entry":
        """For another attempt: with its place in the order, and nothing of what it takes.

        It is a new entry because the flow's heaps may still hold the places of the old one.
        """
        again = Entry(self.request, self.seq, self.arrived)
        again.flow, again.node = self.flow, self.node
        again.attempt, again.replica_id = self.attempt, self.replica_id
        again.priority, again.deadline, again.work = self.priority, self.deadline, self.work
        return again


class Flow:
    """The queue of one (tenant, model), and that tenant's counter in the contest for that model's surplus."""

    __slots__ = (
        "_by_deadline",
        "_by_priority",
        "_by_urgency",
        "_length",
        "_pace",
        "_urgent_by",
        "contesting",
        "counter",
        "model",
        "node",
        "output_tokens",
        "parked",
        "stamp",
        "tenant",
        "weight",
        "work",
    )

    def __init__(self, tenant: str, model: str, node: Node, weight: int, pace: Pace) -> None:
        self.tenant = tenant
        self.model = model
        self.node = node
        self.weight = weight
        self.counter = 0
        self.contesting = False
        self.parked = False
        self.stamp = 0  # entries of the line's heaps with another stamp are out of date
        self.output_tokens = 0  # expected output of a request, 0 when none has ended yet
        self.work = 0  # of what waits, milli_gpu × tokens of service
        self._pace = pace
        self._urgent_by = 0  # the pace by which `_by_urgency` is ordered
        self._length = 0
        self._by_priority: list[tuple[int, int, Entry]] = []
        self._by_deadline: list[tuple[int, int, Entry]] = []
        self._by_urgency: list[tuple[int, int, Entry]] = []

    def __len__(self) -> int:
        return self._length

    def push(self, entry: Entry) -> None:
        entry.waiting = True
        self._length += 1
        self.work += entry.work
        heapq.heappush(self._by_priority, (-entry.priority, entry.seq, entry))
        heapq.heappush(self._by_deadline, (entry.deadline, entry.seq, entry))
        heapq.heappush(self._by_urgency, (self._urgent_at(entry), entry.seq, entry))

    def remove(self, entry: Entry) -> None:
        """Dispatched or cancelled. Its places in the heaps go when they surface, or together when they are many."""
        entry.waiting = False
        self._length -= 1
        self.work -= entry.work
        if len(self._by_priority) > 32 + 2 * self._length or len(self._by_deadline) > 32 + 2 * self._length:
            self._compact()

    def head(self, now: int) -> Entry | None:
        """The request to serve next, not removed."""
        if not self._length:
            return None
        pace = self._pace.careful
        if 2 * pace > 3 * self._urgent_by or 2 * pace < self._urgent_by:
            self._reorder(pace)
        _top(self._by_urgency)
        return _top(self._by_deadline) if self._by_urgency[0][0] <= now else _top(self._by_priority)

    def earliest(self) -> Entry:
        """The request with the earliest deadline, of a flow that is not empty."""
        return _top(self._by_deadline)

    def waiting(self) -> Iterator[Entry]:
        return (entry for _, _, entry in sorted(self._by_deadline) if entry.waiting)

    def charge(self, tokens_in: int, tokens_out: int) -> int:
        """Charge the counter for service (negative: give back). Returns the cost before the weight."""
        cost = INPUT_COST * tokens_in + OUTPUT_COST * tokens_out
        self.counter += cost * COUNTER_SCALE // self.weight
        return cost

    def recharge(self, charged: int, tokens_in: int, tokens_out: int) -> None:
        """Correct an earlier charge by what was really served."""
        cost = INPUT_COST * tokens_in + OUTPUT_COST * tokens_out
        self.counter += (cost - charged) * COUNTER_SCALE // self.weight

    def _urgent_at(self, entry: Entry) -> int:
        return entry.deadline - entry.ahead * self._urgent_by

    def _reorder(self, pace: int) -> None:
        """The deployment's pace is another one by half or more: so is the time at which each request turns urgent.

        That is rare, so the whole flow is worked out anew.
        """
        self._urgent_by = pace
        self._by_urgency = [
            (self._urgent_at(item[2]), item[1], item[2]) for item in self._by_urgency if item[2].waiting
        ]
        heapq.heapify(self._by_urgency)

    def _compact(self) -> None:
        for heap in (self._by_priority, self._by_deadline, self._by_urgency):
            heap[:] = [item for item in heap if item[2].waiting]
            heapq.heapify(heap)


def _top(heap: list[tuple[int, int, Entry]]) -> Entry:
    while not heap[0][2].waiting:
        heapq.heappop(heap)
    return heap[0][2]


# A flow's place in one of a line's heaps: its key there, the tenant (ties go by name), the flow's stamp, the flow.
Place = tuple[int, str, int, Flow]


class Line:
    """Everyone who waits for one deployment."""

    __slots__ = ("_contest", "_left_last", "_overdue", "_pass_credit", "_stamps", "_under", "flows", "waiting")

    def __init__(self) -> None:
        self.flows: dict[str, Flow] = {}
        self.waiting = 0  # requests, of all flows; kept by the machine
        self._under: list[Place] = []  # (use / guarantee, tenant, stamp, flow)
        self._contest: list[Place] = []  # (counter, tenant, stamp, flow)
        self._overdue: list[Place] = []  # (earliest deadline, tenant, stamp, flow)
        self._left_last = 0
        self._stamps = 0
        self._pass_credit = 0

    def place(self, flow: Flow) -> None:
        """Put a flow where it belongs now: after its queue, its tenant's use or its guarantee changed."""
        self._stamps += 1
        flow.stamp = self._stamps
        if not len(flow) or flow.parked:
            self._leave(flow)
            return
        node = flow.node
        if node.use < node.guaranteed:
            self._leave(flow)
            self._push(self._under, (node.use << _RATIO_BITS) // node.guaranteed, flow)
            return
        if not flow.contesting:
            flow.counter = max(flow.counter, self._lift())
            flow.contesting = True
        self._push(self._contest, flow.counter, flow)
        self._push(self._overdue, flow.earliest().deadline, flow)

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

    def next_within(self, now: int, fit: Callable[[Entry], R | None]) -> tuple[Entry, R] | None:
        """The next of those whose tenant is under its guarantee, and where it runs; None if none fits.

        `fit(entry)` says where it can run at once, or None; then it may park the flow (and so change this line).
        """
        return self._first(self._under, now, fit)

    def next_beyond(self, now: int, fit: Callable[[Entry], R | None]) -> tuple[Entry, R] | None:
        """The next to be served from the surplus. As `next_within`, after it."""
        winner = self._first(self._contest, now, fit)
        return winner and (self._passing(winner[0].flow, now, fit) or winner)

    def _passing(self, winner: Flow, now: int, fit: Callable[[Entry], R | None]) -> tuple[Entry, R] | None:
        """The overdue head that passes the winner of the contest, while the 20 % allow it."""
        self._pass_credit = min(PASS_PRICE, self._pass_credit + 1)
        if self._pass_credit < PASS_PRICE:
            return None
        overdue = _valid_top(self._overdue)
        if overdue is None or overdue[0] > now or overdue[3] is winner:
            return None
        late = overdue[3].head(now)
        place = fit(late) if late else None
        if late is None or place is None:
            return None
        self._pass_credit = 0
        return late, place

    def _first(self, heap: list[Place], now: int, fit: Callable[[Entry], R | None]) -> tuple[Entry, R] | None:
        """The first head in the heap's order that fits. Those that do not are put back."""
        aside: list[Place] = []
        found: tuple[Entry, R] | None = None
        while found is None and len(aside) < _LOOK_PAST_MAX:
            top = _valid_top(heap)
            if top is None:
                break
            flow = top[3]
            entry = flow.head(now)
            place = fit(entry) if entry else None
            if entry is not None and place is not None:
                found = entry, place
            elif flow.stamp == top[2]:
                aside.append(heapq.heappop(heap))
        for item in aside:
            heapq.heappush(heap, item)
        return found

    def _push(self, heap: list[Place], key: int, flow: Flow) -> None:
        heapq.heappush(heap, (key, flow.tenant, flow.stamp, flow))
        if len(heap) > _LOOK_PAST_MAX + 4 * len(self.flows):
            heap[:] = [place for place in heap if place[2] == place[3].stamp]
            heapq.heapify(heap)

    def _lift(self) -> int:
        top = _valid_top(self._contest)
        return self._left_last if top is None else top[0]

    def _leave(self, flow: Flow) -> None:
        if flow.contesting:
            flow.contesting = False
            self._left_last = flow.counter


def _valid_top(heap: list[Place]) -> Place | None:
    while heap:
        _, _, stamp, flow = heap[0]
        if flow.stamp == stamp and len(flow):
            return heap[0]
        heapq.heappop(heap)
    return None
