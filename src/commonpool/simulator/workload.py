"""What is asked of a simulated pool: arrivals in order of time, whether read from a trace or generated."""

import msgspec

from commonpool.core.model import Job, Request


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A task and when it comes, nanoseconds since the epoch; and what the machine is not told: how long it will be.

    A request takes `tokens_in`, and produces `tokens_out` in each of its sequences if nothing cuts it; `patience_ns` is
    how long its client waits for a first token, None as the others do. A job runs for `duration_ns`, counted from each
    start.
    """

    at_ns: int
    task: Request | Job
    tokens_in: int = 0
    tokens_out: int = 0
    duration_ns: int = 0
    patience_ns: int | None = None


class Workload(msgspec.Struct, frozen=True):
    """Arrivals sorted by time, each with an id of its own, and the names of their tenants, sorted.

    `dropped` counts what the source had and a simulation cannot use, by reason.
    """

    name: str
    arrivals: list[Arrival]
    tenants: tuple[str, ...]
    dropped: dict[str, int] = {}


def workload(name: str, arrivals: list[Arrival], dropped: dict[str, int] | None = None) -> Workload:
    """A workload of arrivals in any order; those of one instant stay in theirs."""
    ordered = sorted(arrivals, key=lambda arrival: arrival.at_ns)
    return Workload(name, ordered, tuple(sorted({arrival.task.tenant for arrival in ordered})), dropped or {})
