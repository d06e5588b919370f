"""What a gateway elsewhere counts and the core's metrics show.

It is told every few seconds, where there is something, as one more event of a batch: so each count is told once,
however often a batch is sent, and no request waits for it.
"""

from collections import Counter
from collections.abc import Callable

from commonpool.cluster.messages import Counted
from commonpool.observe.exporting import Became


class Tallies:
    """Belongs to one event loop. `traces` says what became of all traces since the start of this process."""

    def __init__(self, traces: Callable[[], Became] = Became) -> None:
        self._traces = traces
        self._traced = Became()  # of those, what was told
        self._answered: Counter[str] = Counter()
        self._slowed: Counter[tuple[str, str]] = Counter()

    def answered(self, _status: int, code: str) -> None:
        """The gateway itself answered a request with this error, and the core keeps no record of it."""
        self._answered[code] += 1

    def slowed(self, tenant: str, why: str) -> None:
        """An error was held back, since the same was asked again too early."""
        self._slowed[tenant, why] += 1

    def take(self) -> Counted | None:
        """What was counted since the last time; None where nothing was."""
        traced = self._traces()
        new = traced.since(self._traced)
        if not self._answered and not self._slowed and new == Became():
            return None
        slowed = [(tenant, why, count) for (tenant, why), count in self._slowed.items()]
        counted = Counted(dict(self._answered), slowed, new)
        self._answered.clear()
        self._slowed.clear()
        self._traced = traced
        return counted
