"""A sketch of lengths of time: how many there were of each size, so that quantiles can be told of any sum of sketches.

It is a DDSketch (Masson, Rim, Lee: "DDSketch", VLDB 2019): a value lies in the bin of its logarithm, and each bin is
2 % wide, so that what is told of a value in it is wrong by 1 % at most. Counts are whole numbers, and no bin is ever
given up: 64 bits of nanoseconds have 1,840 of them. docs/adr/0030-waits-in-sketches.md says why no library does it.
"""

from collections.abc import Collection
from itertools import accumulate
from math import ceil, log
from typing import Final

import msgspec

ERROR: Final = 0.01  # of what is told of a value, relative to it
FLOOR_NS: Final = 1000  # nobody notices a microsecond: less is 0, in the bin 0

_VERSION: Final = 1  # of the bytes; another one has to be able to read this one's
_GAMMA: Final = (1 + ERROR) / (1 - ERROR)  # how much larger the values of a bin may be than those of the one before
_PER_LOG: Final = 1 / log(_GAMMA)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[int]).decode


class Sketch:
    """Counts of nanoseconds by bin. `max_ns` is exact, 0 where there are none."""

    __slots__ = ("bins", "max_ns")

    def __init__(self) -> None:
        self.max_ns = 0
        self.bins: dict[int, int] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.bins.values())

    def add(self, times: Collection[int]) -> None:
        """Adds these; none is negative."""
        bins = self.bins
        for ns in times:
            key = ceil(log(ns) * _PER_LOG) if ns >= FLOOR_NS else 0
            bins[key] = bins.get(key, 0) + 1
        self.max_ns = max(self.max_ns, max(times, default=0))

    def merge(self, other: "Sketch") -> None:
        """Adds all that are in another one: neither their order matters nor how they were divided."""
        bins = self.bins
        for key, count in other.bins.items():
            bins[key] = bins.get(key, 0) + count
        self.max_ns = max(self.max_ns, other.max_ns)

    def take(self, data: bytes) -> None:
        """As `merge`, of one that `encoded` made. ValueError where that was a later release."""
        if not data:
            return
        bins, kept = self.bins, _decode(data)
        if kept[0] != _VERSION:
            raise ValueError(f"A sketch is of version {kept[0]}, and this release reads version {_VERSION}.")
        for key, count in zip(accumulate(kept[2::2]), kept[3::2], strict=True):
            bins[key] = bins.get(key, 0) + count
        self.max_ns = max(self.max_ns, kept[1])

    def encoded(self) -> bytes:
        """A list in msgpack: the version, the maximum, then of each bin its distance from the one before and its count.

        Empty where there are none.
        """
        bins = self.bins
        if not bins:
            return b""
        kept, last = [_VERSION, self.max_ns], 0
        for key in sorted(bins):
            kept += key - last, bins[key]
            last = key
        return _encode(kept)

    def quantiles(self, *percents: int) -> tuple[int | None, ...]:
        """The smallest value that so many percent do not exceed (nearest rank), each within ERROR; None of none.

        `percents` ascend. Values under FLOOR_NS are told as 0.
        """
        count = self.count
        if not count:
            return (None,) * len(percents)
        bins = iter(sorted(self.bins.items()))
        found, key, below = [], 0, 0
        for percent in percents:
            rank = (count * percent + 99) // 100
            while below < rank:
                key, more = next(bins)
                below += more
            # In the middle of the bin, relative to both its ends.
            found.append(min(self.max_ns, round(2 * _GAMMA**key / (1 + _GAMMA))) if key else 0)
        return tuple(found)
