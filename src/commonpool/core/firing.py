"""From what is wrong at each look to alerts that fire and are resolved. Pure: time is an argument.

A trouble is *pending* until it has lasted for its condition's `for_ns`, then it *fires*; once it has been gone for
`keep_ns` it is *resolved*. One that fires again within an hour of that is kept twice as long each time, so that what
comes and goes, however it does, fires a few times an hour and no more.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from commonpool.core.alerts import MINUTE_NS, Trouble
from commonpool.core.model import NS_PER_HOUR

OPEN_MAX: Final = 5000  # alerts that are pending or fire; what comes beyond is counted
ENDED_MAX: Final = 1000  # episodes that are over; the oldest go first
FLAPPING_NS: Final = NS_PER_HOUR
FLAP_KEEP_NS: Final = MINUTE_NS  # doubled with every time that it came back
FLAPS_MAX: Final = 6


class Episode(msgspec.Struct, frozen=True):
    """An alert from when it fired, at `fired_ns`, to when it was resolved, at `ended_ns` (None while it fires).

    `since_ns` is when the trouble began, `seen_ns` when it was there last. `flaps` is how often it had come back soon.
    `id` is the alert's, that of every episode of it: the trouble's, once worked out.
    """

    trouble: Trouble
    since_ns: int
    fired_ns: int
    seen_ns: int
    ended_ns: int | None = None
    flaps: int = 0
    id: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            msgspec.structs.force_setattr(self, "id", self.trouble.id)

    @property
    def key(self) -> tuple[str, int]:
        """What only this episode has."""
        return self.id, self.fired_ns

    @property
    def keep_ns(self) -> int:
        """For how long it must be gone."""
        base = self.trouble.condition.keep_ns
        return max(base, FLAP_KEEP_NS) << self.flaps if self.flaps else base


class Pending(msgspec.Struct, frozen=True):
    """A trouble that has not lasted for long enough yet."""

    trouble: Trouble
    since_ns: int


class Firing:
    """The alerts of a process. `kept` are the episodes that an earlier one knew of.

    Those that fired then fire on, as if their troubles had just been seen: nothing is told twice, nothing is forgotten.
    """

    def __init__(self, kept: Iterable[Episode], now: int) -> None:
        self.pending: dict[str, Pending] = {}
        self.active: dict[str, Episode] = {}
        self.ended: dict[tuple[str, int], Episode] = {}  # oldest end first
        self.gone: frozenset[str] = frozenset()  # of what fires, what the last look knew to be there no more
        self.dropped = 0  # troubles that there was no room for
        self._last: dict[str, Episode] = {}  # of each alert, of those that ended
        for each in sorted(kept, key=lambda each: (each.ended_ns or 0, each.key)):
            if each.ended_ns is None:
                self.active[each.id] = msgspec.structs.replace(each, seen_ns=now)
            else:
                self._end(each)

    def look(self, troubles: Iterable[Trouble], now: int, unknown: Collection[str] = ()) -> list[Episode]:
        """Take note of all that is wrong now; returns the episodes that began or ended.

        Of the conditions in `unknown` nothing is known now, so nothing becomes of theirs.
        """
        seen = {each.id: each for each in troubles}
        changed = []
        # 1. What is there: pending goes on or fires, what fires is seen.
        for key, trouble in seen.items():
            episode = self.active.get(key)
            if episode is not None:
                self.active[key] = msgspec.structs.replace(episode, trouble=trouble, seen_ns=now)
                continue
            if key not in self.pending and len(self.pending) + len(self.active) >= OPEN_MAX:
                self.dropped += 1
                continue
            since = self.pending.get(key, Pending(trouble, now)).since_ns
            if now - since < trouble.condition.for_ns:
                self.pending[key] = Pending(trouble, since)
                continue
            self.pending.pop(key, None)
            began = Episode(trouble, since, now, now, flaps=self._flaps(key, now))
            self.active[key] = began
            changed.append(began)
        # 2. What is gone: pending is forgotten, what fired is resolved once it has been gone for long enough.
        for key in [key for key, each in self.pending.items() if key not in seen and each.trouble.name not in unknown]:
            del self.pending[key]
        for key, episode in list(self.active.items()):
            if key not in seen and episode.trouble.name not in unknown and now - episode.seen_ns >= episode.keep_ns:
                del self.active[key]
                over = msgspec.structs.replace(episode, ended_ns=now)
                self._end(over)
                changed.append(over)
        self.gone = frozenset(
            key for key, each in self.active.items() if key not in seen and each.trouble.name not in unknown
        )
        return changed

    def forget(self) -> list[Episode]:
        """Drop the oldest of what is over, beyond ENDED_MAX; returns what was dropped."""
        dropped = []
        for key in list(self.ended)[: max(0, len(self.ended) - ENDED_MAX)]:
            episode = self.ended.pop(key)
            if self._last.get(episode.id) is episode:
                del self._last[episode.id]
            dropped.append(episode)
        return dropped

    def _end(self, episode: Episode) -> None:
        self.ended[episode.key] = self._last[episode.id] = episode

    def _flaps(self, alert: str, now: int) -> int:
        """How often it has come back within an hour of its end, this time included."""
        last = self._last.get(alert)
        if last is None or last.ended_ns is None or now - last.ended_ns >= FLAPPING_NS:
            return 0
        return min(FLAPS_MAX, last.flaps + 1)
