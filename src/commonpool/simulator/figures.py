"""The figures of a simulation: what a report shows, for one policy, in all and by tenant.

Times are nanoseconds, `milli_gpu_ns` GPU thousandths × nanoseconds, `_ppm` parts per million. All integers, so that
the same simulation gives the same bytes.
"""

from collections.abc import Sequence

import msgspec

PPM = 1_000_000


class Spread(msgspec.Struct, frozen=True):
    """How a set of lengths is spread, in nanoseconds; all 0 for an empty set. Percentiles by nearest rank."""

    p50_ns: int = 0
    p90_ns: int = 0
    p99_ns: int = 0
    mean_ns: int = 0
    max_ns: int = 0


class Part(msgspec.Struct, frozen=True):
    """A set of tasks. `wait` is of those that were served, from arrival to the start that was not taken back.

    `violations` are those refused, failed, or served after more than their tier's queue_target.
    """

    arrivals: int
    served: int
    refused: int
    failed: int
    violations: int
    wait: Spread


class Lending(msgspec.Struct, frozen=True):
    """Loans between tenants, those of the pool's unowned part left out. `length` is how long each took."""

    count: int
    milli_gpu_ns: int
    length: Spread


class Figures(msgspec.Struct, frozen=True):
    """Of one tenant, or of all together (tenant "").

    `within` are the tasks at whose arrival the tenant's offered demand is at most its guarantee, `beyond` the others.
    `used_milli_gpu_ns` is the use of tasks that were served, from the first arrival to the last; `lost_milli_gpu_ns` is
    the work that was thrown away with killed or failed attempts. `late` counts requests that were not refused at their
    arrival and yet waited for more than their tenant's max_wait, which is no promise to jobs. Loans are those in which
    the tenant is the borrower; `lent_milli_gpu_ns` is what it lent.
    """

    tenant: str
    guaranteed_milli_gpu: int
    all: Part
    within: Part
    beyond: Part
    used_milli_gpu_ns: int
    lost_milli_gpu_ns: int
    preemptions: int
    late: int
    loans: Lending
    lent_milli_gpu_ns: int


class Outcomes(msgspec.Struct, frozen=True):
    """What one policy made of a workload.

    `utilisation_ppm` is use over capacity from the first arrival to the last, `use_milli_gpu` the mean use in each of
    the equal parts of that time. `service_gap` is the largest difference of weighted service (tokens in + 2 × tokens
    out, over weight) between two tenants over any time in which both had requests waiting, `service_gap_end` that of
    whole services at the last arrival between tenants who then wait. `fragmentation_ppm` is the part of the free GPU
    time that a task of a typical shape could not have used, because less was free than it asks for. Where replicas
    follow demand `held_milli_gpu_ns` is what they held in that time, and `starts` how many were started.
    """

    policy: str
    sentence: str
    total: Figures
    tenants: tuple[Figures, ...]
    capacity_milli_gpu: int
    utilisation_ppm: int
    use_milli_gpu: tuple[int, ...]
    service_gap: int
    service_gap_end: int
    fragmentation_ppm: int
    refusals: dict[str, int]
    held_milli_gpu_ns: int = 0
    starts: int = 0


def spread(lengths: Sequence[int]) -> Spread:
    """How these are spread."""
    if not lengths:
        return Spread()
    ordered = sorted(lengths)
    count = len(ordered)
    p50, p90, p99 = (ordered[(count * percent + 99) // 100 - 1] for percent in (50, 90, 99))
    return Spread(p50, p90, p99, sum(ordered) // count, ordered[-1])


def ppm(part: int, whole: int) -> int:
    """`part / whole` in parts per million, rounded to the nearest; 0 of nothing."""
    return (2 * part * PPM + whole) // (2 * whole) if whole else 0
