"""A two-sample test by ranks, small and exact where that is possible."""

import itertools
import random
from collections.abc import Sequence

EXACT_MAX = 200_000  # ways to divide the values that are all tried; beyond, so many are drawn


def p_value(one: Sequence[float], other: Sequence[float], seed: int = 7) -> float:
    """How probable a difference in ranks as large as this one is where there is none (Mann-Whitney, two-sided).

    By permutation: of all ways to divide the values among the two samples, the share in which they differ as much.
    """
    values = [*one, *other]
    ranks = _ranks(values)
    expected = len(one) * (len(values) + 1) / 2
    seen = abs(sum(ranks[: len(one)]) - expected)
    ways = _divisions(ranks, len(one), seed)
    far = total = 0
    for way in ways:
        total += 1
        far += abs(sum(way) - expected) >= seen - 1e-9
    return far / total


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values share the mean of theirs."""
    order = sorted(values)
    first = {value: order.index(value) for value in set(order)}
    return [first[value] + (order.count(value) + 1) / 2 for value in values]


def _divisions(ranks: list[float], size: int, seed: int) -> "itertools.chain[Sequence[float]]":
    count = 1
    for n in range(size):
        count = count * (len(ranks) - n) // (n + 1)
    if count <= EXACT_MAX:
        return itertools.chain(itertools.combinations(ranks, size))
    seeded = random.Random(seed)
    return itertools.chain([ranks[:size]], (seeded.sample(ranks, size) for _ in range(EXACT_MAX // 10)))
