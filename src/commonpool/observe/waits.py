"""How long requests of each tenant waited lately: a sliding window behind `status`.

Refused requests and those whose client left the queue have no wait; they are counted apart, so that a queue which
refuses everything does not look fast.
"""

from collections import deque

import msgspec

from commonpool.core.model import LATER, NS_PER_S, Outcome, UsageRecord

WINDOW_NS = 600 * NS_PER_S  # ten minutes: long enough for a p99, short enough to be called now
SAMPLES_MAX = 4096  # of one tenant; the newest stay
TENANTS_MAX = 1000
_BIN_NS = 10 * NS_PER_S


class WaitSummary(msgspec.Struct, frozen=True):
    """A tenant's waits in the window. Quantiles are waits that occurred (nearest rank), None where there are none."""

    samples: int = 0
    p50_ns: int | None = None
    p99_ns: int | None = None
    refused: int = 0
    abandoned: int = 0


class _Bin(msgspec.Struct):
    """Requests without a wait, in ten seconds."""

    start_ns: int
    refused: int = 0
    abandoned: int = 0


class _Window:
    """One tenant's samples (when, wait) and counts, oldest first."""

    def __init__(self) -> None:
        self.samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES_MAX)
        self.bins: deque[_Bin] = deque()

    def bin(self, now_ns: int) -> _Bin:
        start_ns = now_ns - now_ns % _BIN_NS
        if not self.bins or self.bins[-1].start_ns < start_ns:
            self.bins.append(_Bin(start_ns))
            self.trim(now_ns)
        return self.bins[-1]

    def trim(self, now_ns: int) -> None:
        """Drops what has left the window."""
        while self.samples and self.samples[0][0] <= now_ns - WINDOW_NS:
            self.samples.popleft()
        while self.bins and self.bins[0].start_ns <= now_ns - WINDOW_NS:
            self.bins.popleft()


class Waits:
    """The windows of all tenants; where there are more than TENANTS_MAX, the one seen first is forgotten.

    `now_ns` is the time of the call by any clock that does not go back, the same in every call.
    """

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def record(self, record: UsageRecord, now_ns: int) -> None:
        """An attempt ended, or a request ended without one. What is answered later may take hours, and is left out."""
        if record.endpoint == LATER:
            return
        window = self._windows.get(record.tenant) or self._open(record.tenant)
        if record.replica:
            window.samples.append((now_ns, record.wait_ns))
        elif record.outcome is Outcome.REFUSED:
            window.bin(now_ns).refused += 1
        elif record.outcome is not Outcome.COMPLETED:  # else it is an answer that was kept from before
            window.bin(now_ns).abandoned += 1

    def summary(self, tenant: str, now_ns: int) -> WaitSummary:
        """A tenant's last ten minutes; zeros for one that was not seen."""
        window = self._windows.get(tenant)
        if window is None:
            return WaitSummary()
        window.trim(now_ns)
        waits = sorted(wait for _, wait in window.samples)
        return WaitSummary(
            samples=len(waits),
            p50_ns=_nearest_rank(waits, 50),
            p99_ns=_nearest_rank(waits, 99),
            refused=sum(each.refused for each in window.bins),
            abandoned=sum(each.abandoned for each in window.bins),
        )

    def _open(self, tenant: str) -> _Window:
        if len(self._windows) >= TENANTS_MAX:
            self._windows.pop(next(iter(self._windows)))
        return self._windows.setdefault(tenant, _Window())


def _nearest_rank(waits: list[int], percent: int) -> int | None:
    return waits[(len(waits) * percent + 99) // 100 - 1] if waits else None
