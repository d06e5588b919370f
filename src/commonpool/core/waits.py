"""How long requests waited: what is counted of those that ended in a window of time, and how windows are added up.

A series is a tenant, a model and a tier. All counts are of attempts at requests, as in a usage table; jobs, of which
there are few and which wait for hours, are not among them. A window has those that ended in it.

What a tier promises is judged by the promise that is in force when a record is counted. Late for the queue target is
what was dispatched later, what gave up after longer (the client left, or it was refused after it had waited), and what
was refused for want of room. Late for the first-token target is a first token that came later, an attempt that ended
later without one, and the same two that never ran. A client that leaves in time, and a request that is refused for what
it is or for a limit of its own, shows nothing of whether the promise was kept.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Outcome, Reason, Tier
from commonpool.core.sketch import Sketch

WINDOW_NS: Final = 600 * NS_PER_S
MINUTE_NS: Final = 60 * NS_PER_S
DAY_NS: Final = 24 * NS_PER_HOUR
# What was refused although it was right, since there was no room for it.
NO_ROOM: Final = frozenset({Reason.QUEUE_FULL, Reason.PROMISE, Reason.NO_REPLICA, Reason.NO_JOURNAL})

Series = tuple[str, str, str]  # tenant, model, tier
Place = tuple[int, str, str, str]  # of a window: its start (ns since the epoch, UTC), then its series
Verdict = tuple[bool, bool, bool, bool]  # as `Judged` has them, of one attempt
Ended = tuple[str, str, str, str, str, str, int, int, int, int]  # as `End`, which takes longer to make
Row = tuple[int, int, int, int, int, int, int, int, str, bytes, bytes, bytes]  # a tally as it is kept

_COMPLETED: Final = Outcome.COMPLETED.value  # a plain text, as those are that it is compared with
_NO_TIER: Final = Tier("")
_NONE_REFUSED: Final = "{}"
_encode_refused = msgspec.json.Encoder(order="deterministic").encode
_decode_refused = msgspec.json.Decoder(dict[str, int]).decode


class End(NamedTuple):
    """What is counted of a record, with its fields' names. `ended_ns` is since the epoch."""

    tenant: str
    model: str
    tier: str
    replica: str
    outcome: str
    reason: str
    ended_ns: int
    wait_ns: int
    first_token_ns: int
    total_ns: int


class Spread(msgspec.Struct, frozen=True):
    """Quantiles of times in nanoseconds, None where there are none; `max_ns` is exact, the others within 1 %."""

    count: int = 0
    p50_ns: int | None = None
    p90_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None


class Judged:
    """How many had a promise, and how many of them were late, of each of a tier's two promises."""

    __slots__ = ("first_token_late", "first_token_promised", "queue_late", "queue_promised")

    def __init__(
        self, queue_promised: int = 0, queue_late: int = 0, first_token_promised: int = 0, first_token_late: int = 0
    ) -> None:
        self.queue_promised = queue_promised
        self.queue_late = queue_late
        self.first_token_promised = first_token_promised
        self.first_token_late = first_token_late

    def add(self, other: "Judged") -> None:
        """Adds others."""
        self.queue_promised += other.queue_promised
        self.queue_late += other.queue_late
        self.first_token_promised += other.first_token_promised
        self.first_token_late += other.first_token_late


class Tally:
    """What is known of the attempts of one series, or of several, in some time."""

    __slots__ = (
        "abandoned",
        "cancelled",
        "completed",
        "failed",
        "first_token",
        "judged",
        "refused",
        "unserved",
        "wait",
    )

    def __init__(self) -> None:
        self.completed = 0  # answers that were kept from before are among them
        self.failed = 0
        self.cancelled = 0  # while it ran
        self.abandoned = 0  # while it waited
        self.refused: dict[str, int] = {}  # by reason
        self.judged = Judged()
        self.wait = Sketch()  # of those that were dispatched
        self.first_token = Sketch()  # from arrival, of those that had one
        self.unserved = Sketch()  # how long those waited that were abandoned, or refused after they had waited

    def add(self, end: End) -> None:
        """One more; what is judged of it is added to `judged` apart."""
        outcome = end.outcome
        if end.replica:
            self.wait.add((end.wait_ns,))
            if end.first_token_ns:
                self.first_token.add((end.first_token_ns,))
        if outcome == _COMPLETED:
            self.completed += 1
        elif outcome == Outcome.REFUSED:
            self.refused[end.reason] = self.refused.get(end.reason, 0) + 1
            if end.wait_ns:
                self.unserved.add((end.wait_ns,))
        elif not end.replica:
            self.abandoned += 1
            self.unserved.add((end.wait_ns,))
        elif outcome == Outcome.FAILED:
            self.failed += 1
        else:
            self.cancelled += 1

    def merge(self, other: "Tally") -> None:
        """Adds all that another one has."""
        self.completed += other.completed
        self.failed += other.failed
        self.cancelled += other.cancelled
        self.abandoned += other.abandoned
        self._refuse(other.refused)
        self.judged.add(other.judged)
        self.wait.merge(other.wait)
        self.first_token.merge(other.first_token)
        self.unserved.merge(other.unserved)

    def take(self, row: Row) -> None:
        """Adds all that one has of which this row was made."""
        completed, failed, cancelled, abandoned, *judged, refused, wait, first_token, unserved = row
        self.completed += completed
        self.failed += failed
        self.cancelled += cancelled
        self.abandoned += abandoned
        self.judged.add(Judged(*judged))
        if refused != _NONE_REFUSED:
            self._refuse(_decode_refused(refused))
        self.wait.take(wait)
        self.first_token.take(first_token)
        self.unserved.take(unserved)

    def row(self) -> Row:
        """As it is kept: what `take` adds."""
        judged = self.judged
        return (
            self.completed,
            self.failed,
            self.cancelled,
            self.abandoned,
            judged.queue_promised,
            judged.queue_late,
            judged.first_token_promised,
            judged.first_token_late,
            _encode_refused(self.refused).decode() if self.refused else _NONE_REFUSED,
            self.wait.encoded(),
            self.first_token.encoded(),
            self.unserved.encoded(),
        )

    def _refuse(self, counts: Mapping[str, int]) -> None:
        for reason, count in counts.items():
            self.refused[reason] = self.refused.get(reason, 0) + count


class Folded:
    """Ends that were counted together: tallies by window, and what was judged by minute, tenant and tier."""

    __slots__ = ("minutes", "windows")

    def __init__(self) -> None:
        self.windows: dict[Place, Tally] = {}
        self.minutes: dict[tuple[int, str, str], Judged] = {}


class _Minute:
    """What ended in one minute of a series: times of attempts that went as most do, and the others."""

    __slots__ = ("first_tokens", "others", "waits")

    def __init__(self) -> None:
        self.waits: list[int] = []
        self.first_tokens: list[int] = []
        self.others: list[End] = []


def fold(ends: Iterable[Ended], tiers: Mapping[str, Tier]) -> Folded:
    """Counts ends, judged by these tiers' promises; one whose tier is not there was promised nothing."""
    # 1. Sorted by minute and series: here every instruction is one for every request.
    found: dict[Place, _Minute] = {}
    for end in ends:
        tenant, model, tier, replica, outcome, _, ended_ns, wait_ns, first_token_ns, _ = end
        place = ended_ns - ended_ns % MINUTE_NS, tenant, model, tier
        minute = found.get(place)
        if minute is None:
            minute = found[place] = _Minute()
        if replica and first_token_ns and outcome == _COMPLETED:
            minute.waits.append(wait_ns)
            minute.first_tokens.append(first_token_ns)
        else:
            minute.others.append(End(*end))
    # 2. Counted.
    folded = Folded()
    for (start_ns, tenant, model, tier), minute in found.items():
        window = start_ns - start_ns % WINDOW_NS, tenant, model, tier
        tally = folded.windows.get(window)
        if tally is None:
            tally = folded.windows[window] = Tally()
        judged = _count(minute, tally, tiers.get(tier, _NO_TIER))
        tally.judged.add(judged)
        folded.minutes.setdefault((start_ns, tenant, tier), Judged()).add(judged)
    return folded


def _count(minute: _Minute, tally: Tally, tier: Tier) -> Judged:
    tally.completed += len(minute.waits)
    tally.wait.add(minute.waits)
    tally.first_token.add(minute.first_tokens)
    judged = Judged()
    if tier.queue_target_ns is not None:
        judged.queue_promised = len(minute.waits)
        judged.queue_late = _longer(minute.waits, tier.queue_target_ns)
    if tier.first_token_target_ns is not None:
        judged.first_token_promised = len(minute.first_tokens)
        judged.first_token_late = _longer(minute.first_tokens, tier.first_token_target_ns)
    for end in minute.others:
        tally.add(end)
        judged.add(Judged(*judge(end, tier)))
    return judged


def _longer(times: list[int], than_ns: int) -> int:
    return sum([ns > than_ns for ns in times])


def judge(end: End, tier: Tier) -> Verdict:
    """Whether it had each of the tier's promises, and whether it was late."""
    queue, first_token = tier.queue_target_ns, tier.first_token_target_ns
    if not end.replica:  # it counts only where it shows that the promise was not kept
        no_room = end.reason in NO_ROOM
        of_queue = queue is not None and (no_room or end.wait_ns > queue)
        of_first_token = first_token is not None and (no_room or end.wait_ns > first_token)
        return of_queue, of_queue, of_first_token, of_first_token
    waited = queue is not None and end.wait_ns > queue
    late = first_token is not None and (end.first_token_ns or end.total_ns) > first_token
    came = first_token is not None and end.first_token_ns > 0
    return queue is not None, waited, late or came, late


def spread(sketch: Sketch) -> Spread:
    """What is told of a sketch."""
    count = sketch.count
    p50, p90, p99 = sketch.quantiles(50, 90, 99)
    return Spread(count, p50, p90, p99, sketch.max_ns) if count else Spread()
