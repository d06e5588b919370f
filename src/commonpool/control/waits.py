"""Keeps the waits: counts what was recorded, makes hours and days of it, forgets what is old, and looks at promises.

All of it is done in threads, of records that are in the store: nothing of it runs while a request does.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog

from commonpool.core.burn import OVER_NS, SHORTEST_NS, Promise, promise
from commonpool.core.model import NS_PER_HOUR, Policy
from commonpool.core.waits import DAY_NS, MINUTE_NS, Judged, Tally, spread
from commonpool.store.contract import StoreError
from commonpool.store.waits import Uncounted, WaitStore, WaitTable

EVERY_S: Final = 10.0
LOOK_NS: Final = MINUTE_NS  # between two looks at promises: of 600 series one takes some 200 ms
COUNTED_AT_ONCE: Final = 5000  # in one transaction: some ten milliseconds
PAUSE_S: Final = 0.02  # between two of them, so that records can be stored meanwhile
# What a question has counted before it is answered: more than comes between two rounds. Where more is left, as after an
# upgrade, it is answered at once and says so.
ASKED_MAX: Final = 20_000
WINDOWS_KEPT_NS: Final = 40 * DAY_NS  # the whole last month by ten minutes
HOURS_KEPT_NS: Final = 400 * DAY_NS  # the same month of last year by hours; days are kept for ever

log = structlog.get_logger()


class WaitBooks:
    """`promises` are those of all tenants and their tiers, by tenant, tier and name, as they stood at `looked_ns`.

    `flush` returns when what was recorded so far is stored.
    """

    def __init__(
        self,
        store: WaitStore,
        *,
        clock: Callable[[], int],
        policy: Callable[[], Policy],
        flush: Callable[[], object],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        pause: Callable[[float], None] = time.sleep,
        at_once: int = COUNTED_AT_ONCE,
        asked_max: int = ASKED_MAX,
    ) -> None:
        self.promises: tuple[Promise, ...] = ()
        self.looked_ns = 0
        self._store = store
        self._clock = clock
        self._policy = policy
        self._flush = flush
        self._sleep = sleep
        self._pause = pause
        self._at_once = at_once
        self._asked_max = asked_max
        self._busy = threading.Lock()
        self._minutes: dict[tuple[int, str, str], Judged] = {}  # the last ones
        self._rolled_ns = self._forgot_ns = 0
        self._looked_at: Policy | None = None
        self._trouble = ""

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self.look)
                self._trouble = ""
            except StoreError as error:
                if str(error) != self._trouble:
                    log.warning("waits are not counted now", error=str(error))
                self._trouble = str(error)
            await self._sleep(EVERY_S)

    async def table(
        self, by: Sequence[str], since_ns: int, until_ns: int, filters: Mapping[str, Sequence[str]]
    ) -> tuple[WaitTable, bool, Uncounted]:
        """As the store's, whether what ended before the call is in it, and what is left to count.

        It is not after an upgrade, or while the disk is full.
        """
        return await asyncio.to_thread(self._table, by, since_ns, until_ns, filters)

    def look(self) -> None:
        """Do all that is to be done now. Blocks. StoreError where the store cannot be used."""
        self._flush()
        while not self._count(1):
            self._pause(PAUSE_S)
        now = self._clock()
        if now - self._rolled_ns >= NS_PER_HOUR:
            while self._store.roll_waits(now):
                self._pause(PAUSE_S)
            self._rolled_ns = now - now % NS_PER_HOUR
        if now - self._forgot_ns >= DAY_NS:
            self._store.forget_waits(now - WINDOWS_KEPT_NS, now - HOURS_KEPT_NS)
            self._forgot_ns = now - now % DAY_NS
        policy = self._policy()
        if policy is not self._looked_at or now - self.looked_ns >= LOOK_NS:
            self.promises = self._promises(policy, now)
            self.looked_ns, self._looked_at = now, policy

    def _table(
        self, by: Sequence[str], since_ns: int, until_ns: int, filters: Mapping[str, Sequence[str]]
    ) -> tuple[WaitTable, bool, Uncounted]:
        complete = False
        if self._store.uncounted_waits().records <= self._asked_max:
            self._flush()
            with suppress(StoreError):  # it cannot be written now: what it has can be read all the same
                complete = self._count(self._asked_max // self._at_once + 1)
        left = Uncounted() if complete else self._store.uncounted_waits()
        return self._store.waits(by, since_ns, until_ns, filters), complete, left

    def _count(self, turns: int) -> bool:
        """Counts what came, so many times; whether that is all."""
        for turn in range(turns):
            if turn:
                self._pause(PAUSE_S)
            counted = self._store.count_waits(self._policy().tiers, self._at_once)
            first = self._clock() - SHORTEST_NS - MINUTE_NS
            with self._busy:
                for place, judged in counted.minutes.items():
                    if place[0] > first:
                        self._minutes.setdefault(place, Judged()).add(judged)
            if counted.records < self._at_once:
                return True
        return False

    def _promises(self, policy: Policy, now: int) -> tuple[Promise, ...]:
        judged: dict[int, Mapping[tuple[str, str], Judged]] = {SHORTEST_NS: self._lately(now)}
        for over_ns in OVER_NS:
            if over_ns != SHORTEST_NS:
                judged[over_ns] = self._store.judged_waits(now - over_ns, now + 1)
        tallies = {
            (*line.keys, tier): line.tally
            for tier in policy.tiers
            for line in self._store.waits(("tenant",), now - NS_PER_HOUR, now + 1, {"tier": (tier,)}).lines
        }
        found = []
        for key in sorted((name, tier) for name, tenant in policy.tenants.items() for tier in tenant.priority):
            tally, tier = tallies.get(key, _NOTHING), policy.tiers[key[1]]
            of_key = {over_ns: of[key] for over_ns, of in judged.items() if key in of}
            first_token, wait = spread(tally.first_token), spread(tally.wait)
            found.append(promise(*key, "first_token", tier.first_token_target_ns, first_token, of_key))
            found.append(promise(*key, "queue", tier.queue_target_ns, wait, of_key))
        return tuple(found)

    def _lately(self, now: int) -> dict[tuple[str, str], Judged]:
        """Of the minutes of the shortest time that a promise is looked at over, the one that goes on included."""
        first = now - SHORTEST_NS - MINUTE_NS
        found: dict[tuple[str, str], Judged] = {}
        with self._busy:
            for place in [place for place in self._minutes if place[0] <= first]:
                del self._minutes[place]
            for (_, *key), judged in self._minutes.items():
                tenant, tier = key
                found.setdefault((tenant, tier), Judged()).add(judged)
        return found


_NOTHING: Final = Tally()
