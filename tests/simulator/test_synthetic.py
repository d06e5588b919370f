"""Generated tenants: same seed, same arrivals; the day's shape, bursts and tails are there."""

import random
from collections import Counter
from typing import Any

from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.simulator.synthetic import Lengths, Profile, generate
from commonpool.simulator.traces import MONDAY_NS

DAY = 24 * NS_PER_HOUR


def profile(tenant: str = "a", **more: Any) -> Profile:
    fields: dict[str, Any] = {"requests_per_hour": 200, "tokens_in": Lengths(500), "tokens_out": Lengths(100)}
    return Profile(tenant, "app", "m", "interactive", **(fields | more))


def hours(*profiles: Profile, seed: int = 1, days: int = 1) -> Counter[int]:
    found = generate("g", profiles, MONDAY_NS, days * DAY, seed)
    return Counter((arrival.at_ns - MONDAY_NS) // NS_PER_HOUR % 24 for arrival in found.arrivals)


def test_the_same_seed_gives_the_same_arrivals_and_another_others() -> None:
    a, b = profile("a", bursts_per_day=8, burst_factor=5), profile("b")
    first, again, other = (generate("g", [a, b], MONDAY_NS, DAY, seed) for seed in (1, 1, 2))
    assert first == again
    assert first.arrivals != other.arrivals
    assert first.tenants == ("a", "b")
    assert [x.at_ns for x in first.arrivals] == sorted(x.at_ns for x in first.arrivals)
    assert len({x.task.id for x in first.arrivals}) == len(first.arrivals)


def test_a_tenant_is_the_same_whoever_else_is_there() -> None:
    alone = generate("g", [profile("a")], MONDAY_NS, DAY, 1)
    both = generate("g", [profile("b"), profile("a")], MONDAY_NS, DAY, 1)
    assert [x for x in both.arrivals if x.task.tenant == "a"] == alone.arrivals


def test_the_peak_is_at_its_hour_and_the_mean_stays() -> None:
    by_hour = hours(profile(peak_hour=14.5, peak_ratio=4), days=20)
    around_peak = by_hour[13] + by_hour[14] + by_hour[15]
    around_trough = by_hour[1] + by_hour[2] + by_hour[3]
    assert 3.5 < around_peak / around_trough < 4.5
    assert abs(by_hour.total() / (20 * 24 * 200) - 1) < 0.02


def test_bursts_add_their_factor_for_their_length() -> None:
    calm = hours(profile(), days=20).total()
    burst = profile(bursts_per_day=12, burst_factor=11, burst_ns=600 * NS_PER_S)
    # Twelve times ten minutes a day, ten times as many on top: twenty hours' worth.
    assert abs(hours(burst, days=20).total() / calm - (1 + 20 / 24)) < 0.15


def test_lengths_have_their_median_and_a_heavy_tail_within_bounds() -> None:
    chance = random.Random(1)
    drawn = sorted(Lengths(100, sigma=0.5, tail=1.2, most=5000).draw(chance) for _ in range(20_000))
    assert 97 <= drawn[10_000] <= 103
    assert drawn[0] >= 1
    assert drawn[-1] == 5000
    light = sorted(Lengths(100, sigma=0.5, tail=50, most=5000).draw(chance) for _ in range(20_000))
    assert drawn[int(20_000 * 0.999)] > 3 * light[int(20_000 * 0.999)]


def test_nothing_comes_of_a_tenant_without_requests() -> None:
    assert generate("g", [profile(requests_per_hour=0, bursts_per_day=3, burst_factor=9)], 0, DAY, 1).arrivals == []
