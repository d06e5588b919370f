"""What the core has decided since the last look, with its reasons: made of what it holds, once a second.

So no request costs anything for it, and what begins and ends between two looks is not told. What comes and goes (a loan
is one of every request that borrows) is told as an episode: when it begins, and when it has been over for a while.
"""

from collections.abc import Iterator

from commonpool.control.decisions.jobs import Jobs
from commonpool.control.decisions.loans import Loans
from commonpool.control.decisions.models import Models
from commonpool.control.decisions.quotas import Quotas
from commonpool.core.state import State
from commonpool.observe.decisions import Decision

__all__ = ["Observer"]


class Observer:
    """Remembers what it saw; the first look tells of all that is there."""

    def __init__(self) -> None:
        self.loans = Loans()
        self._parts = Quotas(), Models(), Jobs(), self.loans

    def look(self, state: State, now: int) -> Iterator[Decision]:
        """What was decided since the last look; `now` in nanoseconds since the epoch."""
        for part in self._parts:
            yield from part.look(state, now)
