"""A sketch of lengths of time: how many there were of each size, so that quantiles can be told of any sum of sketches.

It is a DDSketch (Masson, Rim, Lee: "DDSketch", VLDB 2019): a value lies in the bin of its logarithm, and each bin is
2 % wide, so that what is told of a value in it is wrong by 1 % at most. Counts are whole numbers, and no bin is ever
given up: 64 bits of nanoseconds have 1,840 of them. docs/adr/0030-waits-in-sketches.md says why no library does it.
"""

from bisect import bisect_left
from collections.abc import Collection
from itertools import accumulate
from math import ceil, log
from typing import Final

import msgspec

ERROR: Final = 0.01  # of what is told of a value, relative to it
FLOOR_NS: Final = 1000  # nobody notices a microsecond: less is 0

_HEAD: Final = 5  # numbers before the counts
_VERSION: Final = 1  # of the bytes; another one has to be able to read this one's
_GAMMA: Final = (1 + ERROR) / (1 - ERROR)  # how much larger the values of a bin may be than those of the one before
_PER_LOG: Final = 1 / log(_GAMMA)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[int]).decode


class Sketch:
    """Counts of nanoseconds by bin. `max_ns` is exact, 0 where there are none."""

    __slots__ = ("_counts", "_first", "_zeros", "max_ns")

    def __init__(self) -> None:
        self.max_ns = 0
        self._zeros = 0  # less than FLOOR_NS
        self._first = 0  # the bin of the first count
        self._counts: list[int] = []  # of it and those that follow

    @property
    def count(self) -> int:
        """How many there are."""
        return self._zeros + sum(self._counts)

    @property
    def bins(self) -> dict[int, int]:
        """The counts by bin, 0 being what is less than FLOOR_NS."""
        found = {0: self._zeros, **dict(enumerate(self._counts, self._first))}
        return {key: count for key, count in found.items() if count}

    def add(self, times: Collection[int]) -> None:
        """Adds these; none is negative."""
        keys = [ceil(log(ns) * _PER_LOG) for ns in times if ns >= FLOOR_NS]
        self._zeros += len(times) - len(keys)
        if keys:
            first = min(keys)
            self._reach(first, max(keys))
            counts, begin = self._counts, self._first
            for key in keys:
                counts[key - begin] += 1
        self.max_ns = max(self.max_ns, max(times, default=0))

    def merge(self, other: "Sketch") -> None:
        """Adds all that are in another one: neither their order matters nor how they were divided."""
        self.take(other.encoded())

    def take(self, data: bytes) -> None:
        """As `merge`, of one that `encoded` made. ValueError where that was a later release."""
        if not data:
            return
        kept = _decode(data)
        if kept[0] != _VERSION:
            raise ValueError(f"A sketch is of version {kept[0]}, and this release reads version {_VERSION}.")
        _, max_ns, zeros, first, last = kept[:_HEAD]
        self.max_ns = max(self.max_ns, max_ns)
        self._zeros += zeros
        if len(kept) == _HEAD:
            return
        self._reach(first, last)
        counts, at = self._counts, first - self._first
        for count in kept[_HEAD:]:
            if count < 0:
                at -= count
            else:
                counts[at] += count
                at += 1

    def encoded(self) -> bytes:
        """A list in msgpack: the version, the maximum, what is less than FLOOR_NS, the first bin and the last one, then
        a count for each of them; a negative number is so many empty bins. No bytes where there are none.
        """
        if not self._zeros and not self._counts:
            return b""
        last = self._first + len(self._counts) - 1
        kept, empty = [_VERSION, self.max_ns, self._zeros, self._first, last], 0
        if 0 not in self._counts:
            return _encode(kept + self._counts)
        for count in self._counts:
            if count:
                if empty:
                    kept.append(-empty)
                    empty = 0
                kept.append(count)
            else:
                empty += 1
        return _encode(kept)

    def quantiles(self, *percents: int) -> tuple[int | None, ...]:
        """The smallest value that so many percent do not exceed (nearest rank), each within ERROR; None of none.

        Values under FLOOR_NS are told as 0.
        """
        count = self.count
        if not count:
            return (None,) * len(percents)
        up_to = list(accumulate(self._counts))
        found = []
        for percent in percents:
            rank = (count * percent + 99) // 100 - self._zeros
            # In the middle of the bin, relative to both its ends.
            middle = 2 * _GAMMA ** (self._first + bisect_left(up_to, rank)) / (1 + _GAMMA)
            found.append(min(self.max_ns, round(middle)) if rank > 0 else 0)
        return tuple(found)

    def _reach(self, first: int, last: int) -> None:
        """There is a count for each of these bins."""
        if not self._counts:
            self._first, self._counts = first, [0] * (last - first + 1)
            return
        if first < self._first:
            self._counts[:0] = [0] * (self._first - first)
            self._first = first
        if (more := last - self._first + 1 - len(self._counts)) > 0:
            self._counts += [0] * more
