"""Two figures that need the whole simulation in order of time: the service gap, and fragmentation."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import lcm
from typing import NamedTuple

# Pairs are compared, so the work grows with the square of the tenants; of more than this the first ones are compared.
GAP_TENANTS_MAX = 64
_NEVER = 1 << 63


class Turns(NamedTuple):
    """Requests by position, in order of arrival: whose (a tenant's number), when, and with how much service.

    start_ns and end_ns are below 0 for what never started or ended.
    """

    tenant: Sequence[int]
    came_ns: Sequence[int]
    start_ns: Sequence[int]
    end_ns: Sequence[int]
    service_in: Sequence[int]
    service_out: Sequence[int]


def service_gap(turns: Turns, weights: Sequence[int], until_ns: int) -> tuple[int, int]:
    """The largest gap in weighted service between two tenants who both wait, and the gap at `until_ns`.

    `weights` are by the tenant's number. Service in counts at the start, service out at the end; gaps are in tokens of
    service, over the weight. The first gap is over any time in which both have something waiting throughout, the second
    of all service until `until_ns` between those who then wait.
    """
    scale = lcm(*weights)
    factors = [scale // weight for weight in weights[:GAP_TENANTS_MAX]]
    compared = [at for at, tenant in enumerate(turns.tenant) if tenant < len(factors)]
    came, start, end = turns.came_ns, turns.start_ns, turns.end_ns
    coming = [at for at in compared if start[at] != came[at]]  # who starts at once has not waited
    if not coming:
        return 0, 0
    owners, service_in, service_out = turns.tenant, turns.service_in, turns.service_out
    starting = sorted((at for at in compared if start[at] >= 0), key=start.__getitem__)
    ending = sorted((at for at in compared if end[at] >= 0 and start[at] >= 0), key=end.__getitem__)
    contest = _Contest(len(factors))
    gap_then: int | None = None
    coming_next, starting_next, ending_next = iter(coming), iter(starting), iter(ending)
    comes, starts, ends = next(coming_next), next(starting_next, -1), next(ending_next, -1)
    comes_at = came[comes]
    starts_at = start[starts] if starts >= 0 else _NEVER
    ends_at = end[ends] if ends >= 0 else _NEVER
    while True:
        now = min(comes_at, starts_at, ends_at)
        if now > until_ns and gap_then is None:
            gap_then = contest.gap_now()
        if now == _NEVER:
            break
        # At one instant what was served counts before anybody starts or begins to wait.
        if now == ends_at:
            tenant = owners[ends]
            contest.serve(tenant, service_out[ends] * factors[tenant])
            ends = next(ending_next, -1)
            ends_at = end[ends] if ends >= 0 else _NEVER
        elif now == starts_at:
            tenant = owners[starts]
            contest.serve(tenant, service_in[starts] * factors[tenant])
            if now != came[starts]:
                contest.wait(tenant, -1)
            starts = next(starting_next, -1)
            starts_at = start[starts] if starts >= 0 else _NEVER
        else:
            contest.wait(owners[comes], 1)
            comes = next(coming_next, -1)
            comes_at = came[comes] if comes >= 0 else _NEVER
    return contest.gap // scale, (gap_then or 0) // scale


class _Contest:
    """Who waits, what each was served, and of each two who both wait the extremes of their difference since then."""

    __slots__ = ("_extremes", "_served", "_waiting", "_who", "gap")

    def __init__(self, tenants: int) -> None:
        self.gap = 0
        self._served = [0] * tenants
        self._waiting = [0] * tenants
        self._who: dict[int, None] = {}
        self._extremes: dict[tuple[int, int], tuple[int, int]] = {}  # of (i, j), i < j: least and most of i less j

    def wait(self, at: int, more: int) -> None:
        """One more request of a tenant waits, or one less."""
        self._waiting[at] += more
        if not self._waiting[at]:
            del self._who[at]
        elif at not in self._who:
            for other in self._who:
                pair, difference = self._compare(at, other)
                self._extremes[pair] = difference, difference
            self._who[at] = None

    def serve(self, at: int, amount: int) -> None:
        """A tenant was served this much more."""
        self._served[at] += amount
        if at not in self._who or len(self._who) == 1:
            return
        for other in self._who:
            if other != at:
                pair, difference = self._compare(at, other)
                least, most = self._extremes[pair]
                self.gap = max(self.gap, difference - least, most - difference)
                if difference < least or difference > most:
                    self._extremes[pair] = min(least, difference), max(most, difference)

    def _compare(self, one: int, other: int) -> tuple[tuple[int, int], int]:
        pair = (one, other) if one < other else (other, one)
        return pair, self._served[pair[0]] - self._served[pair[1]]

    def gap_now(self) -> int:
        """Between those who wait now, of all that they were ever served."""
        served = [self._served[at] for at in self._who]
        return max(served) - min(served) if served else 0


def fragmentation(
    held: Iterable[tuple[int, int, int]], capacity: int, shapes: Sequence[int], start_ns: int, end_ns: int
) -> tuple[int, int]:
    """Free GPU time that a typical task could not use, and all free GPU time, in milli_gpu × ns.

    `held` are (start, end, milli_gpu) of all that ran, `shapes` the milli_gpu of every task that was asked for. What is
    free is of no use to a task that asks for more, so at any time the part of `shapes` that is larger than what is free
    is the part of it that counts: the fragmentation measure of FGD (Weng et al., USENIX ATC 2023) for a pool that is
    one node.
    """
    ordered = sorted(shapes)
    changes: list[tuple[int, int]] = []
    for start, end, milli_gpu in held:
        changes.append((start, milli_gpu))
        changes.append((end, -milli_gpu))
    changes.sort()
    changes.append((end_ns, 0))
    unusable = total = use = 0
    since = start_ns
    for time, change in changes:
        until = min(time, end_ns)
        if until > since:
            free = max(0, capacity - use)
            total += free * (until - since)
            unusable += free * (until - since) * (len(ordered) - bisect_right(ordered, free))
            since = until
        use += change
    return unusable // max(1, len(ordered)), total
