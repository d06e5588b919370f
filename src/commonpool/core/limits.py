"""Limits: what each tenant, app and key has used of its own, in exact integers.

Rates are so many units a minute. A bucket holds one minute's worth and refills continuously (GCRA: one number, the time
at which the bucket is full again). That number is kept multiplied by the rate, so that no division ever rounds.
"""

from collections.abc import Iterable
from operator import add, ge, sub
from typing import Final

from commonpool.core.model import NO_LIMITS, NS_PER_S, Limits

MINUTE_NS = 60 * NS_PER_S
SECONDS_PER_MINUTE: Final = 60
ENDLESS: Final = 1 << 62  # more than there ever is
_NONE: Final = (None, None, None)

Held = tuple[int, ...]  # of GPUs in milli_gpu, of CPU in thousandths, of memory in MiB
NOTHING: Final[Held] = (0, 0, 0)  # which is what requests hold: their GPUs are their tenant's quota


class Rate:
    """`per_minute` units a minute, at most a minute's worth at once."""

    __slots__ = ("_full_at", "per_minute")

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._full_at = 0  # ns × per_minute

    def _owed(self, now: int) -> int:
        return max(0, self._full_at - now * self.per_minute)

    def now(self, now: int) -> tuple[int, int]:
        """Whole units that can be taken now (below 0 where more was used than expected), and how long until full."""
        owed = self._owed(now)
        return self.per_minute - -(-owed // MINUTE_NS), -(-owed // self.per_minute)

    def wait_ns(self, units: int, now: int) -> int:
        """How long until `units` can be taken; 0 when they can be taken now. Only for units <= per_minute."""
        excess = self._owed(now) + (units - self.per_minute) * MINUTE_NS
        return -(-excess // self.per_minute) if excess > 0 else 0

    def take(self, units: int, now: int) -> None:
        """Take units that `wait_ns` found to be there, or correct an earlier take (negative gives back)."""
        self._full_at = now * self.per_minute + self._owed(now) + units * MINUTE_NS

    def change(self, per_minute: int, now: int) -> None:
        """There are so many a minute from now on; what is used stays used."""
        owed = self._owed(now)
        self.per_minute = per_minute
        self._full_at = now * per_minute + owed


class Tally:
    """What a tenant, an app or a key has used of its limits.

    `whose` says in a sentence whose they are, `name` in a word. `limited` is false where nothing but the queue is
    limited. `waiting` and `running` count what waits and runs; a tenant's `running` is counted in the quota tree, and
    is 0 here. `held` is what the jobs of an app hold of GPUs, CPU and memory, and `held_max` what they may, where one
    of them is limited. What there is no limit on is None.
    """

    __slots__ = (
        "bytes",
        "held",
        "held_max",
        "limited",
        "name",
        "queue_length",
        "requests",
        "running",
        "running_max",
        "tokens",
        "tokens_in_max",
        "tokens_out_max",
        "waiting",
        "whose",
    )

    def __init__(self, whose: str, name: str) -> None:
        self.whose = whose
        self.name = name
        self.waiting = 0
        self.running = 0
        self.limited = False
        self.queue_length = ENDLESS
        self.running_max: int | None = None
        self.requests: Rate | None = None
        self.tokens: Rate | None = None
        self.bytes: Rate | None = None
        self.tokens_in_max: int | None = None
        self.tokens_out_max: int | None = None
        self.held = NOTHING
        self.held_max: Held | None = None

    def limit(self, limits: Limits, now: int) -> None:
        """These are its limits from now on. What is used stays used."""
        self.queue_length = ENDLESS if limits.queue_length is None else limits.queue_length
        self.running_max = limits.concurrent_requests
        self.requests = _rate(self.requests, limits.requests_per_minute, now)
        self.tokens = _rate(self.tokens, limits.tokens_per_minute, now)
        per_second = limits.bytes_per_second
        self.bytes = _rate(self.bytes, per_second and per_second * SECONDS_PER_MINUTE, now)
        self.tokens_in_max = limits.tokens_in_max
        self.tokens_out_max = limits.tokens_out_max
        self.limited = limits != Limits(queue_length=limits.queue_length)
        most = limits.milli_gpu, limits.cpu_milli, limits.memory_mib
        self.held_max = None if most == _NONE else tuple(ENDLESS if each is None else each for each in most)

    @property
    def full(self) -> bool:
        """Whether as many run as may at once."""
        return self.running_max is not None and self.running >= self.running_max

    def allows(self, asked: Held) -> bool:
        """Whether what holds so much may run beside what runs."""
        if self.running_max is not None and self.running >= self.running_max:
            return False
        most = self.held_max
        return most is None or all(map(ge, most, map(add, self.held, asked)))

    def take(self, asked: Held) -> bool:
        """It runs. Returns whether that may change what is allowed."""
        self.running += 1
        if asked is NOTHING:
            return self.running == self.running_max
        self.held = tuple(map(add, self.held, asked))
        return self.held_max is not None or self.running == self.running_max

    def give(self, asked: Held) -> bool:
        """It runs no more. As `take`."""
        was_full = self.full
        self.running -= 1
        if asked is NOTHING:
            return was_full and not self.full
        self.held = tuple(map(sub, self.held, asked))
        return self.held_max is not None or (was_full and not self.full)


def app_tally(tenant: str, app: str) -> Tally:
    """That of an app."""
    return Tally(f"app {app} of tenant {tenant}", f"{tenant}/{app}")


def key_tally(key_id: str) -> Tally:
    """That of a key."""
    return Tally(f"key {key_id}", f"key:{key_id}")


def size_limits(*limits: Limits) -> Limits:
    """What several of them allow to one request: its input, its output and how long it runs; NO_LIMITS where nothing
    does.
    """
    found = Limits(
        tokens_in_max=_least(each.tokens_in_max for each in limits),
        tokens_out_max=_least(each.tokens_out_max for each in limits),
        run_ns_max=_least(each.run_ns_max for each in limits),
    )
    return NO_LIMITS if found == NO_LIMITS else found


def _least(amounts: Iterable[int | None]) -> int | None:
    return min((amount for amount in amounts if amount is not None), default=None)


def _rate(rate: Rate | None, per_minute: int | None, now: int) -> Rate | None:
    if per_minute is None:
        return None
    if rate is None:
        return Rate(per_minute)
    rate.change(per_minute, now)
    return rate
