"""Looks every few seconds what is wrong, keeps it, and has each channel told what it is to be told.

What is to be told is worked out anew each time from what is kept (`core.telling`): a channel that cannot be told is
tried again later, at longer and longer intervals, with what is due then. What fires is in the store before it is told,
and that it was told right after: so a restart in between tells it once more rather than never.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
import structlog

from commonpool.config import Config
from commonpool.config.calendar import Calendar
from commonpool.config.structs import Alerts as Settings
from commonpool.config.structs import Channel
from commonpool.control.alerting import rules
from commonpool.control.alerting.courier import Courier, UndeliveredError
from commonpool.control.alerting.formats import Moment
from commonpool.control.alerting.letters import Letter, letter_of, trial_letter
from commonpool.control.alerting.rules import Facts, Failing
from commonpool.core.alerts import CONDITIONS, Trouble
from commonpool.core.firing import Episode, Firing, Pending
from commonpool.core.model import NS_PER_S
from commonpool.core.telling import Key, Message, Pace, Route, Silence, Silences, Telling
from commonpool.store.alerts import AlertStore, KeptEpisode
from commonpool.store.contract import StoreError

EVERY_S: Final = 2.0
RETRY_NS: Final = 2 * NS_PER_S  # doubled with each failure in a row
RETRY_NS_MAX: Final = 300 * NS_PER_S
SILENCES_MAX: Final = 1000

log = structlog.get_logger()


class ChannelState(msgspec.Struct):
    """How telling a channel goes. `failing_since_ns` and `why` are there while it fails; `next_ns` is the next try, and
    `taken_ns` when it took something last.
    """

    busy: bool = False
    failures: int = 0
    failing_since_ns: int | None = None
    why: str = ""
    next_ns: int = 0
    taken_ns: int | None = None


class Alerts:
    """The alerts of the product. Belongs to one event loop. `clock` gives nanoseconds since the epoch.

    `facts` are what is known now, but for what fails here. `outcomes` counts what was told, by channel and how it went.
    """

    def __init__(
        self,
        store: AlertStore,
        courier: Courier,
        *,
        clock: Callable[[], int],
        config: Callable[[], Config],
        facts: Callable[[], Awaitable[Facts]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._courier = courier
        self._clock = clock
        self._config = config
        self._facts = facts
        self._sleep = sleep
        kept = [each for each in store.alerts() if each.episode.trouble.name in CONDITIONS]
        self.firing = Firing((each.episode for each in kept), clock())
        self.silences = Silences(store.silences())
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._telling = Telling({each.episode.key: each.told for each in kept})
        self._routes: tuple[Route, ...] = ()
        self._channels: dict[str, ChannelState] = {}
        self._unsaved: dict[Key, None] = {}
        self._saving = asyncio.Lock()
        self._sending: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:
                log.exception("looking for what is wrong failed")  # a fault of ours must not end the watch
            await self._sleep(EVERY_S)

    async def stop(self) -> None:
        """Nothing is sent any more; what was not told yet is told after the next start."""
        self._stopped.set()
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self._save()
        await self._courier.close()

    async def settled(self) -> None:
        """Return when nothing is on its way to a channel."""
        while self._sending:
            await asyncio.gather(*self._sending, return_exceptions=True)

    # -- looking -------------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Find out what is wrong, keep it, and begin to tell what is due."""
        if self._stopped.is_set():
            return
        facts = msgspec.structs.replace(await self._facts(), failing=self._failing())
        await asyncio.sleep(0)  # with many tenants each half takes milliseconds, and requests go on in between
        if self._stopped.is_set():
            return
        now = self._clock()
        # 1. What fires and what is over.
        changed = self.firing.look(rules.troubles(facts), now, rules.unknown(facts))
        for each in changed:
            said = "an alert is over" if each.ended_ns is not None else "an alert fires"
            log.info(said, alert=each.trouble.name, id=each.id, sentence=each.trouble.sentence)
        self._unsaved.update(dict.fromkeys(each.key for each in changed))
        # 2. Whom it concerns.
        self._owe(changed)
        # 3. It is kept before anybody is told.
        forgotten = self._forget()
        await self._save(forgotten)
        await self._end_silences(now)
        # 4. Those are told that can be.
        if self._stopped.is_set():
            return
        episodes = self._episodes()
        for route in self._routes:
            self._tell(route, episodes, now)

    def _owe(self, changed: Sequence[Episode]) -> None:
        channels = self._config().alerts.channels
        routes = tuple(Route(each.name, each.tenant, each.severity) for each in channels.values())
        episodes: Iterable[Episode] = (each for each in changed if each.ended_ns is None)
        if routes != self._routes:
            self._routes = routes
            self._telling.keep_to(channels)
            self._channels = {name: self._channels.get(name, ChannelState()) for name in channels}
            episodes = self.firing.active.values()
        self._unsaved.update(dict.fromkeys(self._telling.owe(routes, episodes)))

    def _forget(self) -> list[Key]:
        forgotten = []
        for episode in self.firing.forget():
            lost = self._telling.forget(episode.key)
            for channel in lost:
                self.outcomes[channel, "lost"] += 1
            if lost:
                log.warning("nobody could be told of an alert", alert=episode.trouble.name, channels=lost)
            self._unsaved.pop(episode.key, None)
            forgotten.append(episode.key)
        return forgotten

    async def _save(self, forgotten: Sequence[Key] = ()) -> None:
        """Keep what has changed. What the store cannot take now is kept with the next change."""
        async with self._saving:
            keys, episodes = tuple(self._unsaved), self._episodes()
            if not keys and not forgotten:
                return
            kept = [KeptEpisode(episodes[key], self._telling.of(key)) for key in keys if key in episodes]
            self._unsaved = {}
            try:
                await asyncio.to_thread(self._store.save_alerts, kept, forgotten)
            except StoreError as error:
                self._unsaved = {**dict.fromkeys(keys), **self._unsaved}
                log.warning("alerts could not be kept", error=str(error))

    async def _end_silences(self, now: int) -> None:
        if self.silences.over(now):
            try:
                await asyncio.to_thread(self._store.drop_silences, now)
            except StoreError as error:
                log.warning("silences that are over could not be forgotten", error=str(error))

    def _episodes(self) -> dict[Key, Episode]:
        return {each.key: each for each in self.firing.active.values()} | self.firing.ended

    def _failing(self) -> tuple[Failing, ...]:
        tenants = {route.channel: route.tenant for route in self._routes}
        return tuple(
            Failing(name, tenants.get(name, ""), state.why)
            for name, state in self._channels.items()
            if state.failing_since_ns is not None
        )

    # -- telling -------------------------------------------------------------------------------------------------------

    def _tell(self, route: Route, episodes: dict[Key, Episode], now: int) -> None:
        state = self._channels[route.channel]
        settings = self._config().alerts
        if state.busy or now < state.next_ns:
            return
        self._unsaved.update(dict.fromkeys(self._telling.settle(route, episodes, self.silences, now)))
        pace = Pace(settings.group_wait_ns, settings.repeat_ns)
        quiet, gone = is_quiet(settings, now), self.firing.gone
        found = self._telling.due(route, episodes, self.silences, now, pace, quiet=quiet, gone=gone)
        if found:
            state.busy = True
            task = asyncio.ensure_future(self._deliver(settings, found, now))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _deliver(self, settings: Settings, messages: Sequence[Message], now: int) -> None:
        """Tell a channel all of it, one after the other, or up to what it does not take."""
        channel = settings.channels[messages[0].channel]
        state = self._channels[channel.name]
        try:
            for message in messages:
                await self._hand(channel, state, letter_of(message, self._clock()), moment_in(settings.time_zone))
                self._unsaved.update(dict.fromkeys(self._telling.note(message, now)))
        except UndeliveredError:
            pass  # what is due then is told at the next try
        except Exception:
            log.exception("telling a channel failed", channel=channel.name)
            state.next_ns = self._clock() + RETRY_NS_MAX
        finally:
            state.busy = False
        await self._save()

    async def _hand(self, channel: Channel, state: ChannelState, letter: Letter, moment: Moment) -> None:
        try:
            await self._courier.deliver(channel, letter, moment)
        except UndeliveredError as error:
            state.why = str(error)
            if state.failing_since_ns is None:
                state.failing_since_ns = self._clock()
                log.warning("alerts cannot be delivered", channel=channel.name, why=state.why)
            state.next_ns = self._clock() + min(RETRY_NS_MAX, RETRY_NS << min(state.failures, 16))
            state.failures += 1
            self.outcomes[channel.name, "failed"] += 1
            raise
        if state.failing_since_ns is not None:
            log.info("alerts are delivered again", channel=channel.name)
        state.failing_since_ns, state.why, state.failures, state.next_ns = None, "", 0, 0
        state.taken_ns = self._clock()
        self.outcomes[channel.name, "delivered"] += 1

    # -- what people ask -----------------------------------------------------------------------------------------------

    def known(self) -> list[Episode | Pending]:
        """What fires, what is about to, and what is over: the newest first of each."""
        active = sorted(self.firing.active.values(), key=lambda each: -each.fired_ns)
        pending = sorted(self.firing.pending.values(), key=lambda each: -each.since_ns)
        return [*active, *pending, *reversed(self.firing.ended.values())]

    def find(self, alert: str) -> Trouble | None:
        """The trouble of an alert that is known, by its id."""
        return next((each.trouble for each in self.known() if each.trouble.id == alert), None)

    def channels(self) -> dict[str, ChannelState]:
        """The state of each channel, in the order of the configuration."""
        return {name: self._channels.get(name, ChannelState()) for name in self._config().alerts.channels}

    @property
    def silences_left(self) -> int:
        """How many more silences there can be."""
        return max(0, SILENCES_MAX - len(self.silences))

    async def silence(self, silence: Silence) -> None:
        """It holds when this returns. Raises StoreError."""
        await asyncio.to_thread(self._store.save_silence, silence)
        self.silences.add(silence)

    async def end_silence(self, alert: str, tenant: str) -> bool:
        """Whether there was one of this tenant ("": for all); it holds no more when this returns. Raises StoreError.

        What is due is told at the next look.
        """
        if self.silences.own(alert, tenant, self._clock()) is None:
            return False
        await asyncio.to_thread(self._store.drop_silence, alert, tenant)
        self.silences.end(alert, tenant)
        return True

    async def test(self, name: str) -> None:
        """Send something through a channel of the configuration now. Raises UndeliveredError."""
        settings = self._config().alerts
        channel = settings.channels[name]
        letter = trial_letter(name, channel.tenant, self._clock())
        state = self._channels.setdefault(name, ChannelState())
        await self._hand(channel, state, letter, moment_in(settings.time_zone))


def is_quiet(settings: Settings, now_ns: int) -> bool:
    """Whether only what is critical is told now."""
    if settings.quiet is None:
        return False
    first, last = settings.quiet
    hour = Calendar(settings.time_zone).local_hour(now_ns)
    return first <= hour < last if first < last else hour >= first or hour < last


def moment_in(time_zone: str) -> Moment:
    """Writes times of a zone, to the minute."""
    zone = ZoneInfo(time_zone)
    return lambda at_ns: datetime.fromtimestamp(at_ns // NS_PER_S, zone).strftime("%Y-%m-%d %H:%M %Z")
