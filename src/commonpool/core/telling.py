"""Which alerts each channel is still to be told, and in which messages. Pure: time is an argument.

What a channel is owed follows from the episodes and from what it was told; there is no queue of messages. So a receiver
that was away is told how things stand when it is back, and what failed is worked out anew.

Of an episode that it wants a channel is told that it fires, again after `repeat_ns` while it does, and once that it is
resolved; of one that was over before it could be told, once that it was. While its trouble is gone, and it fires on
until that has lasted, nobody is told that it does. What is due is told by pool, `group_wait_ns` after the first of it,
all in one message.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from commonpool.core.alerts import Severity, Trouble
from commonpool.core.firing import Episode

ITEMS_MAX: Final = 1000  # of one message; what is more follows in the next
NEVER: Final = 0

Key = tuple[str, int]  # of an episode


class Route(msgspec.Struct, frozen=True):
    """What a channel wants: alerts of at least this severity, of one tenant, or with `tenant` "" of everybody."""

    channel: str
    tenant: str = ""
    severity: Severity = Severity.WARNING

    def wants(self, trouble: Trouble) -> bool:
        whose = not self.tenant or trouble.tenant == self.tenant
        return whose and trouble.condition.severity.rank >= self.severity.rank


class Silence(msgspec.Struct, frozen=True):
    """Nobody is told of this alert until then; where `tenant` is named, only that tenant's channels are not."""

    alert: str
    tenant: str
    until_ns: int
    by: str


class Silences:
    """The silences that hold, by alert."""

    def __init__(self, kept: Iterable[Silence] = ()) -> None:
        self._by_alert: dict[str, dict[str, Silence]] = {}
        for each in kept:
            self.add(each)

    def add(self, silence: Silence) -> None:
        """It holds in place of an earlier one for the same channels."""
        self._by_alert.setdefault(silence.alert, {})[silence.tenant] = silence

    def end(self, alert: str, tenant: str) -> None:
        """There is none any more for the channels of this tenant alone ("": for all)."""
        found = self._by_alert.get(alert, {})
        if found.pop(tenant, None) is not None and not found:
            del self._by_alert[alert]

    def own(self, alert: str, tenant: str, now: int) -> Silence | None:
        """The one that holds for the channels of this tenant alone ("": for all)."""
        found = self._by_alert.get(alert, {}).get(tenant)
        return found if found is not None and found.until_ns > now else None

    def of(self, alert: str, tenant: str, now: int) -> Silence | None:
        """The one that keeps the channels of a tenant ("": of the platform) from being told, the longest of them."""
        found = self._by_alert.get(alert, {})
        holding = [each for whose in {"", tenant} if (each := found.get(whose)) is not None and each.until_ns > now]
        return max(holding, key=lambda each: each.until_ns, default=None)

    def over(self, now: int) -> list[Silence]:
        """Forget those that have ended, and return them."""
        gone = [each for found in self._by_alert.values() for each in found.values() if each.until_ns <= now]
        for each in gone:
            self.end(each.alert, each.tenant)
        return gone

    def __len__(self) -> int:
        return sum(map(len, self._by_alert.values()))


class Item(msgspec.Struct, frozen=True):
    """One line of a message. `again`: the channel was told before that it fires."""

    episode: Episode
    again: bool = False

    @property
    def resolved(self) -> bool:
        return self.episode.ended_ns is not None


class Message(msgspec.Struct, frozen=True):
    """What a channel is told at once, of one pool ("" for what is in none): the worst first, what is over last."""

    channel: str
    tenant: str
    pool: str
    items: tuple[Item, ...]


class Pace(msgspec.Struct, frozen=True):
    """How long the first waits for others to go with it, and after how long what fires still is told again."""

    group_wait_ns: int
    repeat_ns: int


class Telling:
    """What each channel was told of each episode: when that it fires, or NEVER. What it was told all of is gone."""

    def __init__(self, kept: Mapping[Key, Mapping[str, int]] = {}) -> None:
        self._told: dict[str, dict[Key, int]] = {}
        for key, channels in kept.items():
            for channel, at in channels.items():
                self._told.setdefault(channel, {})[key] = at

    def owe(self, routes: Iterable[Route], episodes: Iterable[Episode]) -> list[Key]:
        """Those of these routes that want these episodes, which fire, are to be told; returns what was not so yet."""
        routes, new = tuple(routes), []
        for episode in episodes:
            for route in routes:
                told = self._told.setdefault(route.channel, {})
                if episode.key not in told and route.wants(episode.trouble):
                    told[episode.key] = NEVER
                    new.append(episode.key)
        return new

    def keep_to(self, channels: Iterable[str]) -> None:
        """There are no other channels any more."""
        for gone in self._told.keys() - set(channels):
            del self._told[gone]

    def forget(self, key: Key) -> tuple[str, ...]:
        """An episode is forgotten; returns the channels that were still to be told of it."""
        return tuple(channel for channel, told in self._told.items() if told.pop(key, None) is not None)

    def of(self, key: Key) -> dict[str, int]:
        """What is kept of an episode."""
        return {channel: told[key] for channel, told in self._told.items() if key in told}

    def settle(self, route: Route, episodes: Mapping[Key, Episode], silences: Silences, now: int) -> list[Key]:
        """Strike out what was over before it could be told, and is silenced; returns the episodes."""
        told = self._told.get(route.channel, {})
        struck = [
            key
            for key, at in told.items()
            if at == NEVER and _over(episodes.get(key)) and silences.of(key[0], route.tenant, now) is not None
        ]
        for key in struck:
            del told[key]
        return struck

    def due(
        self,
        route: Route,
        episodes: Mapping[Key, Episode],
        silences: Silences,
        now: int,
        pace: Pace,
        *,
        quiet: bool,
        gone: Collection[str] = (),
    ) -> list[Message]:
        """The messages that a channel is to have now; in `quiet` hours of what is critical alone, of the rest later.

        `gone` are the alerts that fire, and of which the trouble is not there now.
        """
        groups: dict[str, list[tuple[int, Item]]] = {}
        for key, told in self._told.get(route.channel, {}).items():
            episode = episodes.get(key)
            if episode is None or (quiet and episode.trouble.condition.severity is not Severity.CRITICAL):
                continue
            since = _due_since(episode, told, pace.repeat_ns)
            held = episode.ended_ns is None and (
                episode.id in gone or silences.of(episode.id, route.tenant, now) is not None
            )
            if since <= now and not held:
                item = Item(episode, again=told != NEVER and episode.ended_ns is None)
                groups.setdefault(episode.trouble.pool, []).append((since, item))
        found = []
        for pool, waiting in sorted(groups.items()):
            if now - min(since for since, _ in waiting) < pace.group_wait_ns:
                continue
            items = sorted((item for _, item in waiting), key=_order)
            found += [
                Message(route.channel, route.tenant, pool, tuple(items[at : at + ITEMS_MAX]))
                for at in range(0, len(items), ITEMS_MAX)
            ]
        return found

    def note(self, message: Message, at: int) -> list[Key]:
        """A channel has been told; returns the episodes."""
        told = self._told.get(message.channel, {})
        for item in message.items:
            if item.resolved:
                told.pop(item.episode.key, None)
            elif item.episode.key in told:
                told[item.episode.key] = at
        return [item.episode.key for item in message.items]


def _over(episode: Episode | None) -> bool:
    return episode is not None and episode.ended_ns is not None


def _due_since(episode: Episode, told: int, repeat_ns: int) -> int:
    """From when on a channel is to be told, where it was told last that it fires."""
    if told == NEVER:
        return episode.fired_ns
    return told + repeat_ns if episode.ended_ns is None else episode.ended_ns


def _order(item: Item) -> tuple[bool, int, int, str]:
    return item.resolved, -item.episode.trouble.condition.severity.rank, item.episode.fired_ns, item.episode.id
