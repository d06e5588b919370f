"""How long requests of each tenant waited lately: a sliding window behind `status`.

Refused requests and those whose client left the queue have no wait, and are not among them.
"""

from collections import deque
from typing import Final

from commonpool.core.model import LATER, NS_PER_S, UsageRecord
from commonpool.core.sketch import Sketch

WINDOW_NS: Final = 600 * NS_PER_S  # ten minutes: long enough for a p99, short enough to be called now
PART_NS: Final = 60 * NS_PER_S  # the window moves by whole ones
TENANTS_MAX: Final = 1000
# One at a time they would cost each request as much as its whole record does.
_AT_ONCE: Final = 256


class _Window:
    """One tenant's waits: `_latest` are those of the part that began last, and `_fresh` of them are not counted yet."""

    __slots__ = ("_before", "_fresh", "_latest", "_parts", "_start_ns")

    def __init__(self) -> None:
        self._parts: deque[tuple[int, bytes]] = deque()  # start and sketch of those before, the oldest first
        self._before = b""  # the sketch of all these
        self._start_ns = 0
        self._latest = Sketch()
        self._fresh: list[int] = []

    def add(self, wait_ns: int, now_ns: int) -> None:
        if now_ns >= self._start_ns + PART_NS:
            self._begin(now_ns)
        self._fresh.append(wait_ns)
        if len(self._fresh) >= _AT_ONCE:
            self._count()

    def whole(self, now_ns: int) -> Sketch:
        """All that is in the window."""
        if now_ns >= self._start_ns + PART_NS:
            self._begin(now_ns)
        self._count()
        found = Sketch()
        found.take(self._before)
        found.merge(self._latest)
        return found

    def _begin(self, now_ns: int) -> None:
        """Another part begins, and what is too old is dropped."""
        self._count()
        self._parts.append((self._start_ns, self._latest.encoded()))
        self._start_ns, self._latest = now_ns - now_ns % PART_NS, Sketch()
        while self._parts and self._parts[0][0] <= now_ns - WINDOW_NS:
            self._parts.popleft()
        before = Sketch()
        for _, part in self._parts:
            before.take(part)
        self._before = before.encoded()

    def _count(self) -> None:
        self._latest.add(self._fresh)
        self._fresh.clear()


class Waits:
    """The windows of all tenants; where there are more than TENANTS_MAX, the one seen first is forgotten.

    `now_ns` is the time of the call by any clock that does not go back, the same in every call.
    """

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def record(self, record: UsageRecord, now_ns: int) -> None:
        """An attempt ended, or a request ended without one. What is answered later may take hours, and is left out."""
        if record.replica and record.endpoint != LATER:
            window = self._windows.get(record.tenant) or self._open(record.tenant)
            window.add(record.wait_ns, now_ns)

    def quantiles(self, tenant: str, now_ns: int) -> tuple[int | None, int | None]:
        """The median and the 99th percentile of a tenant's last ten minutes, as sketches tell them; None of none."""
        window = self._windows.get(tenant)
        if window is None:
            return None, None
        p50_ns, p99_ns = window.whole(now_ns).quantiles(50, 99)
        return p50_ns, p99_ns

    def _open(self, tenant: str) -> _Window:
        if len(self._windows) >= TENANTS_MAX:
            self._windows.pop(next(iter(self._windows)))
        return self._windows.setdefault(tenant, _Window())
