"""Generated tenants: days with a peak, bursts, and lengths with heavy tails. The same seed gives the same arrivals.

Each tenant draws from sources of its own, so that adding one leaves the others as they are.
"""

import math
import random
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Final

import msgspec

from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Request
from commonpool.simulator.workload import Arrival, Workload, workload

_NS_PER_DAY: Final = 24 * NS_PER_HOUR
# Above this many standard deviations (the longest 5 %) lengths follow the tail instead of the body.
_TAIL_FROM: Final = 1.6449


class Lengths(msgspec.Struct, frozen=True):
    """Lengths in tokens: lognormal around a median, its longest 5 % Pareto with exponent `tail`, none above `most`.

    A smaller `tail` is a heavier one; at 2 and below the variance has no bound but `most`.
    """

    median: int
    sigma: float = 1.0
    tail: float = 2.0
    most: int = 100_000

    def draw(self, chance: random.Random) -> int:
        """One length, at least 1."""
        deviation = chance.gauss(0.0, 1.0)
        length = self.median * math.exp(self.sigma * min(deviation, _TAIL_FROM))
        if deviation > _TAIL_FROM:
            length *= chance.paretovariate(self.tail)
        return max(1, min(self.most, round(length)))


class Profile(msgspec.Struct, frozen=True):
    """A tenant's demand.

    Requests come at `requests_per_hour` on average over the day without its bursts, `peak_ratio` times as many at
    `peak_hour` (UTC) as twelve hours away from it. Bursts begin `bursts_per_day` times a day on average; for `burst_ns`
    there are then `burst_factor` times as many requests.
    """

    tenant: str
    app: str
    model: str
    tier: str
    requests_per_hour: float
    tokens_in: Lengths
    tokens_out: Lengths
    peak_hour: float = 14.0
    peak_ratio: float = 1.0
    bursts_per_day: float = 0.0
    burst_factor: float = 1.0
    burst_ns: int = 300 * NS_PER_S


def generate(name: str, profiles: Sequence[Profile], start_ns: int, length_ns: int, seed: int) -> Workload:
    """The demand of some tenants from `start_ns` (since the epoch) on, for `length_ns`."""
    arrivals: list[Arrival] = []
    for profile in profiles:
        sizes = random.Random(f"{seed}:{profile.tenant}:sizes")  # noqa: S311 - not for secrets
        for number, at in enumerate(_times(profile, start_ns, start_ns + length_ns, seed)):
            tokens_in, tokens_out = profile.tokens_in.draw(sizes), profile.tokens_out.draw(sizes)
            request = Request(
                f"{profile.tenant}-{number}",
                profile.tenant,
                profile.app,
                profile.model,
                profile.tier,
                "chat",
                tokens_in,
            )
            arrivals.append(Arrival(at, request, tokens_in, tokens_out))
    return workload(name, arrivals)


def _times(profile: Profile, start: int, end: int, seed: int) -> Iterator[int]:
    """The arrivals of the day's shape, and those that each burst adds."""
    chance = random.Random(f"{seed}:{profile.tenant}:times")  # noqa: S311 - not for secrets
    streams = [_shaped(profile, profile.requests_per_hour, start, end, chance)]
    if profile.bursts_per_day > 0 and profile.burst_factor > 1:
        more = profile.requests_per_hour * (profile.burst_factor - 1)
        burst = start
        while True:
            burst += _gap(chance, profile.bursts_per_day / _NS_PER_DAY)
            if burst >= end:
                break
            streams.append(_shaped(profile, more, burst, min(end, burst + profile.burst_ns), chance))
    return merge(*streams)


def _shaped(profile: Profile, per_hour: float, start: int, end: int, chance: random.Random) -> list[int]:
    """A Poisson process that follows the hour of the day, thinned from one at the peak's rate."""
    swing = (profile.peak_ratio - 1) / (profile.peak_ratio + 1)
    per_ns = per_hour * (1 + swing) / NS_PER_HOUR
    times: list[int] = []
    at = start
    while per_ns > 0:
        at += _gap(chance, per_ns)
        if at >= end:
            break
        hour = (at % _NS_PER_DAY) / NS_PER_HOUR
        shape = 1 + swing * math.cos((hour - profile.peak_hour) * math.tau / 24)
        if chance.random() * (1 + swing) < shape:
            times.append(at)
    return times


def _gap(chance: random.Random, per_ns: float) -> int:
    return int(chance.expovariate(1.0) / per_ns) + 1
