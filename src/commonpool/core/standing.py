"""Where a request that waits stands in its line, and who was before one that waited."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from commonpool.core.entries import Entry
from commonpool.core.model import Request
from commonpool.core.sites import Serving


class Standing(msgspec.Struct, frozen=True):
    """A request that waits: how many of its own tenant come before it, and how many of others wait for the same model.

    Which of those come first is seen each time that something frees. `within_ns` is how long it takes at its tenant's
    guaranteed rate alone, as for its promise; None where that is not known. It arrived then, and waits for this attempt
    since `queued_ns`.
    """

    own_before: int
    others_waiting: int
    within_ns: int | None
    arrived_ns: int
    queued_ns: int
    attempt: int


class Passage(msgspec.Struct, frozen=True):
    """The wait of a request for a model: from when it came until it was started, absolute nanoseconds."""

    request_id: str
    model: str
    since_ns: int
    until_ns: int


class Before(msgspec.Struct, frozen=True):
    """Requests of one tenant: how many `waiting` were there when another one came, and how many were `served` of all,
    later ones too, while that one waited.
    """

    waiting: int = 0
    served: int = 0

    def plus(self, other: "Before") -> "Before":
        return Before(self.waiting + other.waiting, self.served + other.served)


NONE: Final = Before()


def standing(entry: Entry, now: int) -> Standing | None:
    """Where something stands that waits; None for a job, which waits for devices."""
    flow = entry.flow
    site = flow.room
    if not isinstance(site, Serving):
        return None
    ahead = [each for each in flow.waiting() if each is not entry and _is_ahead(each, entry, now)]
    rate = max(flow.node.guaranteed - flow.account.by_jobs, entry.ask)
    pace = site.pace.expected
    within = sum(each.work for each in ahead) * pace // rate if pace and flow.node.guaranteed else None
    others = site.line.waiting - flow.length
    return Standing(len(ahead), others, within, entry.arrived, entry.queued, entry.attempt + 1)


def _is_ahead(other: Entry, entry: Entry, now: int) -> bool:
    """Whether another one of the same flow is served first, as it looks now."""
    late = other.deadline <= now
    if late is not (entry.deadline <= now):
        return late
    if late:
        return (other.deadline, other.seq) < (entry.deadline, entry.seq)
    return (-other.priority, other.seq) < (-entry.priority, entry.seq)


def together(some: Mapping[str, Before], others: Mapping[str, Before]) -> dict[str, Before]:
    """Both, by tenant."""
    return {name: some.get(name, NONE).plus(others.get(name, NONE)) for name in (*some, *others)}


def before(entries: Iterable[Entry], passage: Passage) -> dict[str, Before]:
    """Of these, by tenant: who waited for the model when the request came, and who was started while it waited."""
    found: dict[str, Before] = {}
    for entry in entries:
        task = entry.task
        if not isinstance(task, Request) or task.model != passage.model or task.id == passage.request_id:
            continue
        waits = entry.waiting or entry.dispatched > passage.since_ns
        waiting = entry.arrived < passage.since_ns and waits
        served = not entry.waiting and passage.since_ns < entry.dispatched <= passage.until_ns
        if waiting or served:
            known = found.get(task.tenant, NONE)
            found[task.tenant] = known.plus(Before(int(waiting), int(served)))
    return found
