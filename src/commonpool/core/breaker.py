"""The circuit of a replica: whether it gets new work, by how attempts on it ended; and what may be tried again.

A replica that fails gives its slots back at once and would eat the whole queue. After one failure it rests until the
next tick. After `FAILURES_MAX` in a row, or half of the last `WINDOW` attempts, its circuit is *open*: it gets nothing
new. After a while, longer each time, it is *half open*: one request is the probe, and how that ends decides.

Not every failure is the replica's. One that answers with an error may be right, and the request wrong; whoever can send
such requests must not be able to take replicas from others. So an answered error counts only where requests of two
tenants failed in a row, or where another replica has then answered the same request.
"""

import enum
from typing import Final

from commonpool.core.model import NS_PER_S

FAILURES_MAX: Final = 3
WINDOW: Final = 20
OPEN_MIN_NS: Final = 2 * NS_PER_S  # an engine that is restarted takes at least so long
OPEN_MAX_NS: Final = 60 * NS_PER_S
# Of what was started lately one in so many may be tried again, and one a second beside.
RETRY_ONE_IN: Final = 10
RETRIES_MIN: Final = 10

_ALL: Final = (1 << WINDOW) - 1
_OPENED_MAX: Final = 10  # more often changes nothing


class Circuit(enum.StrEnum):
    """What a replica gets."""

    CLOSED = "closed"  # requests
    OPEN = "open"  # nothing new
    HALF_OPEN = "half_open"  # one request at a time


_CLOSED, _OPEN, _HALF_OPEN = Circuit  # bound once: an attribute of an Enum is slow


class Breaker:
    """The circuit of one replica. Times are absolute nanoseconds.

    `takes`: whether it may have new work now. `troubled`: whether there is anything that a success would change; while
    it is false nobody has to tell of successes. `until` is when an open one is tried again.
    """

    __slots__ = ("_accuser", "_in_row", "_opened", "_outcomes", "_probe", "_resting", "circuit", "takes", "troubled",
                 "until")  # fmt: skip

    def __init__(self) -> None:
        self.circuit = _CLOSED
        self.takes = True
        self.troubled = False
        self.until = 0
        self._in_row = 0  # failures since the last success
        self._outcomes = 0  # the last attempts, a bit each, the newest lowest; 1 has failed
        self._resting = False  # until the next tick
        self._opened = 0  # how often, since it was last closed
        self._accuser = ""  # the tenant whose request it answered with an error last, if nothing has succeeded since
        self._probe = ""  # the request that decides, while it runs

    @property
    def failing(self) -> bool:
        """Whether it is open, and was so before: its probe has failed."""
        return self.circuit is _OPEN and self._opened > 1

    def started(self, request_id: str) -> None:
        """A request starts there. Only has to be told while it is `troubled`."""
        if self.circuit is _HALF_OPEN:
            self._probe = request_id
            self.takes = False

    def succeeded(self) -> None:
        """It answered a request."""
        self._accuser = ""
        self._in_row = 0
        if self.circuit is _CLOSED:
            self._outcomes = self._outcomes << 1 & _ALL
        elif self.circuit is _HALF_OPEN:
            self._close()
        self._settle()

    def failed(self, now: int) -> None:
        """It failed on a request, and that is its own fault."""
        self._in_row += 1
        self._outcomes = (self._outcomes << 1 | 1) & _ALL
        self._resting = True
        many = self._in_row >= FAILURES_MAX or 2 * self._outcomes.bit_count() >= WINDOW
        if self.circuit is _HALF_OPEN or (self.circuit is _CLOSED and many):
            self.circuit = _OPEN
            self.until = now + min(OPEN_MIN_NS << self._opened, OPEN_MAX_NS)
            self._opened = min(self._opened + 1, _OPENED_MAX)
            self._probe = ""
        self._settle()

    def accused(self, tenant: str, now: int) -> None:
        """It answered a request of this tenant with an error, which may be the request's own fault."""
        another = self._accuser not in ("", tenant)
        self._accuser = tenant
        if another:
            self.failed(now)
        else:
            self._settle()

    def left(self, request_id: str) -> None:
        """A request ended there that says nothing of it: where it was the probe, another one has to be."""
        if self._probe == request_id:
            self._probe = ""
            self._settle()

    def tick(self, now: int) -> None:
        """Time has passed."""
        self._resting = False
        if self.circuit is _OPEN and now >= self.until:
            self.circuit = _HALF_OPEN
        self._settle()

    def _close(self) -> None:
        self.circuit = _CLOSED
        self._outcomes = 0
        self._resting = False
        self._opened = 0
        self._probe = ""

    def _settle(self) -> None:
        closed = self.circuit is _CLOSED
        self.takes = not self._resting if closed else self.circuit is _HALF_OPEN and not self._probe
        self.troubled = not closed or self._resting or self._outcomes > 0 or self._accuser != ""


class Retries:
    """What a deployment may try again: one in `RETRY_ONE_IN` of what it started lately, and one a second.

    So a model that fails is not asked twice as much. As many are kept as run on a replica at once (`most`), at least
    `RETRIES_MIN`, so that all that ran on one that dies can move.
    """

    __slots__ = ("_at", "_kept_ns", "_most_ns", "_started")

    def __init__(self, most: int) -> None:
        self._at = 0
        self._started = 0
        self._most_ns = NS_PER_S * max(RETRIES_MIN, most)  # a retry is a second's worth
        self._kept_ns = self._most_ns

    def take(self, started: int, now: int, *, sure: bool) -> bool:
        """Whether there is one left, which is then taken; `started` is how many the deployment has started so far.

        One that is not `sure` to help leaves half of them for those that are.
        """
        earned_ns = now - self._at + (started - self._started) * NS_PER_S // RETRY_ONE_IN
        self._at, self._started = now, started
        self._kept_ns = min(self._most_ns, self._kept_ns + earned_ns)
        if self._kept_ns < (NS_PER_S if sure else NS_PER_S + self._most_ns // 2):
            return False
        self._kept_ns -= NS_PER_S
        return True
