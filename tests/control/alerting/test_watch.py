"""The alerts of a product whose facts and time are given: what is kept, who is told, over restarts and failures."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from commonpool.config import Config, parse
from commonpool.config.structs import Channel
from commonpool.control.alerting.courier import Outside, UndeliveredError
from commonpool.control.alerting.letters import Letter
from commonpool.control.alerting.rules import Away, Facts
from commonpool.control.alerting.watch import RETRY_NS, RETRY_NS_MAX, Alerts, is_quiet
from commonpool.core.alerts import MINUTE_NS
from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.core.telling import Silence
from commonpool.core.views import BudgetView, PoolView, TenantView
from commonpool.store.contract import StoreError
from commonpool.store.memory import MemoryStore
from tests.control.alerting.receivers import hook
from tests.gateway.fakes import run

NOON = 1_800_014_400 * NS_PER_S  # 2027-01-15 12:00 UTC
WAIT = 10 * NS_PER_S
YAML = """
pools: {main: {gpus: 4_gpu}, other: {gpus: 1_gpu}}
models:
  m: {version: v1, pool: main, gpu: 1_gpu, slots: 4, context: 100, engine: {kind: attached, urls: ["http://127.0.0.1:9"]}}
prices: {currency: EUR, gpu_hour: {main: 1, other: 1}}
tenants:
  a: {tenant: {pool: main}}
  b: {tenant: {pool: main}}
alerts:
  group_wait: 10s
  repeat_after: 4h
  QUIET
  channels: {CHANNELS}
"""
OPS = 'ops: {kind: webhook, url: "http://127.0.0.1:9/"}'
OF_A = 'team: {kind: webhook, url: "http://127.0.0.1:9/", tenant: a}'
SCALED = PoolView("main", 4000, 0, 0, scaled=True)
TENANTS = tuple(TenantView(name, "main", 0, 4000, 0, 0, 0, 0, 0, 0) for name in ("a", "b"))
SPENT = BudgetView(100, 100, 0, soft=True, until_ns=1)


def config(*channels: str, quiet: str = "") -> Config:
    text = YAML.replace("CHANNELS", ", ".join(channels))
    return parse(text.replace("QUIET", quiet or "time_zone: UTC"))


class Courier:
    """Notes the letters; `away` are channels that cannot be told."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []
        self.tries = 0
        self.times: list[str] = []
        self.away: set[str] = set()
        self.gate: asyncio.Event | None = None

    async def deliver(self, channel: Channel, letter: Letter, moment: Callable[[int], str]) -> None:
        self.times.append(moment(NOON))
        self.tries += 1
        if self.gate is not None:
            await self.gate.wait()
        if channel.name in self.away:
            raise UndeliveredError("it is away")
        self.letters.append(letter)

    async def close(self) -> None:
        """Nothing is open."""

    def told(self, channel: str = "ops") -> list[list[tuple[str, str]]]:
        return [
            [(item.episode.trouble.name, "over" if item.resolved else "on") for item in letter.items]
            for letter in self.letters
            if letter.channel == channel
        ]


class Store(MemoryStore):
    fails = False
    gate: threading.Event | None = None

    def __init__(self) -> None:
        super().__init__()
        self.saving = threading.Event()

    def save_alerts(self, *args: Any) -> None:
        if self.fails:
            raise StoreError("The store is away.")
        if self.gate is not None:
            self.saving.set()
            self.gate.wait()
        super().save_alerts(*args)


class Room:
    """Alerts with facts and a clock that a test sets."""

    def __init__(self, *channels: str, quiet: str = "", store: Store | None = None, now: int = NOON) -> None:
        self.config = config(*(channels or (OPS,)), quiet=quiet)
        self.store = store or Store()
        self.now = now
        self.facts = Facts(now)
        self.courier = Courier()
        self.start()

    def start(self) -> None:
        """As after a restart, with what is in the store."""
        self.alerts = Alerts(
            self.store, self.courier, clock=lambda: self.now, config=lambda: self.config, facts=self.asked
        )

    async def asked(self) -> Facts:
        return msgspec.structs.replace(self.facts, now_ns=self.now, tenants=TENANTS)

    def put(self, **known: Any) -> None:
        self.facts = Facts(self.now, **known)

    async def look(self, later_ns: int = 0) -> None:
        """Look, and wait until those are told that can be."""
        self.now += later_ns
        await self.alerts.look()
        await self.alerts.settled()


def story(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    return lambda: run(test)


@story
async def test_it_is_told_after_a_short_wait_and_once_it_is_over() -> None:
    room = Room()
    room.put(pools=[SCALED])
    await room.look()
    assert room.courier.told() == []
    room.put(pools=[SCALED], away=Away(store="The store is away."))
    await room.look(WAIT - 1)
    await room.look(1)
    assert room.courier.told() == [[("guarantees_scaled", "on")]]
    await room.look(WAIT)  # in no pool, so by itself
    assert room.courier.told()[1:] == [[("store_away", "on")]]
    room.put()
    await room.look(1)
    await room.look(WAIT)
    await room.look(2 * MINUTE_NS)
    await room.look(WAIT)
    assert room.courier.told()[2:] == [[("guarantees_scaled", "over")], [("store_away", "over")]]
    await room.look(9 * NS_PER_HOUR)
    assert len(room.courier.letters) == 4


@story
async def test_what_is_so_no_more_is_not_told_again_while_it_is_kept() -> None:
    room = Room()
    settings = msgspec.structs.replace(room.config.alerts, repeat_ns=MINUTE_NS)
    room.config = msgspec.structs.replace(room.config, alerts=settings)
    for _ in range(3):  # it comes and goes, so it is kept longer and longer
        room.put(budgets={"a": SPENT})
        await room.look(1)
        await room.look(WAIT)
        if room.alerts.firing.active[_only(room)].flaps < 2:
            room.put()
            await room.look(1)
            await room.look(20 * MINUTE_NS)
            await room.look(WAIT)
    letters = len(room.courier.letters)
    assert room.courier.told()[-1] == [("budget_hard", "on")]
    room.put()
    await room.look(1)
    assert room.alerts.firing.gone == {_only(room)}
    await room.look(MINUTE_NS + WAIT)
    await room.look(MINUTE_NS)
    assert room.alerts.firing.gone == {_only(room)}
    assert len(room.courier.letters) == letters
    room.put(budgets={"a": SPENT})
    await room.look(WAIT)
    assert room.courier.told()[letters:] == [[("budget_hard", "on")]]


def _only(room: Room) -> str:
    (alert,) = room.alerts.firing.active
    return alert


@story
async def test_a_restart_tells_nothing_again_and_forgets_nothing() -> None:
    room = Room()
    room.put(pools=[SCALED], budgets={"a": SPENT})
    await room.look()
    await room.look(WAIT)
    assert room.courier.told() == [[("budget_hard", "on"), ("guarantees_scaled", "on")]]
    # when it starts again, and one of them is over meanwhile
    room.put(pools=[SCALED])
    room.start()
    await room.look(NS_PER_HOUR)
    await room.look(WAIT)
    assert room.courier.told()[1:] == [[("budget_hard", "over")]]
    # and once more, long after
    room.start()
    await room.look(WAIT)
    assert len(room.courier.letters) == 2
    await room.look(4 * NS_PER_HOUR)
    assert room.courier.told()[2:] == [[("guarantees_scaled", "on")]]


@story
async def test_what_was_killed_between_firing_and_telling_is_told_after_the_start() -> None:
    room = Room()
    room.put(pools=[SCALED])
    await room.look()  # it fires, and is kept
    room.start()
    await room.look(WAIT)
    assert room.courier.told() == [[("guarantees_scaled", "on")]]


@story
async def test_what_is_told_when_it_is_killed_is_told_once_more() -> None:
    room = Room()
    room.put(pools=[SCALED])
    await room.look()
    before, room.courier = room.courier, Courier()
    before.gate = asyncio.Event()
    room.now += WAIT
    await room.alerts.look()  # the letter is on its way, and nobody will know whether it arrived
    gone = room.alerts
    room.start()
    await room.look()
    assert room.courier.told() == [[("guarantees_scaled", "on")]]
    await gone.stop()


@story
async def test_a_channel_that_is_away_is_tried_again_and_told_how_things_stand() -> None:
    room = Room()
    room.courier.away = {"ops"}
    room.put(pools=[SCALED])
    await room.look()
    await room.look(WAIT)
    state = room.alerts.channels()["ops"]
    assert (room.courier.tries, state.why, state.failing_since_ns) == (1, "it is away", room.now)
    await room.look(RETRY_NS - 1)
    assert room.courier.tries == 1
    await room.look(1)
    assert (room.courier.tries, state.next_ns) == (2, room.now + 2 * RETRY_NS)
    # it is away for a day, in which the first is over and another comes
    room.put(budgets={"b": SPENT})
    for _ in range(24 * 12):
        await room.look(5 * MINUTE_NS)
    assert state.next_ns - room.now <= RETRY_NS_MAX
    room.courier.away = set()
    await room.look(RETRY_NS_MAX)
    assert room.courier.told() == [
        [("channel_failing", "on")],
        [("budget_hard", "on"), ("guarantees_scaled", "over")],
    ]
    assert state.failing_since_ns is None
    assert room.alerts.outcomes["ops", "delivered"] == 2
    await room.look(1)
    await room.look(WAIT)
    assert room.courier.told()[2:] == [[("channel_failing", "over")]]


@story
async def test_one_channel_that_is_away_holds_up_no_other() -> None:
    room = Room(OPS, OPS.replace("ops", "night"))
    room.courier.away = {"ops"}
    room.put(pools=[SCALED])
    await room.look()
    await room.look(WAIT)
    await room.look(1)
    await room.look(5 * MINUTE_NS)
    await room.look(WAIT)
    assert room.courier.told("night") == [[("guarantees_scaled", "on")], [("channel_failing", "on")]]
    assert room.courier.told() == []


@story
async def test_a_slow_channel_gets_one_letter_at_a_time() -> None:
    room = Room()
    room.courier.gate = asyncio.Event()
    room.put(pools=[SCALED])
    await room.look()
    for _ in range(5):
        room.now += WAIT
        await room.alerts.look()
        await asyncio.sleep(0)
    assert room.courier.tries == 1
    room.courier.gate.set()
    await room.alerts.settled()
    assert room.courier.told() == [[("guarantees_scaled", "on")]]


@story
async def test_a_tenants_channel_is_told_its_own_and_names_nobody_else() -> None:
    room = Room(OPS, OF_A)
    room.put(pools=[SCALED], budgets={"a": SPENT, "b": SPENT}, overdue={"b": 500})
    await room.look()
    await room.look(WAIT)
    assert room.courier.told("team") == [[("budget_hard", "on")]]
    assert room.courier.told() == [[("budget_hard", "on"), ("budget_hard", "on"), ("guarantees_scaled", "on")]]
    (letter,) = (each for each in room.courier.letters if each.channel == "team")
    assert "Tenant b" not in str(letter)


@story
async def test_quiet_hours_hold_back_what_is_not_critical() -> None:
    room = Room(quiet="quiet_hours: 20-7, time_zone: Europe/Berlin".replace(", ", "\n  "), now=NOON + 8 * NS_PER_HOUR)
    room.put(pools=[SCALED], budgets={"a": SPENT})
    await room.look()
    await room.look(WAIT)
    assert room.courier.told() == [[("budget_hard", "on")]]
    # the other is over in the night, and a third begins
    room.put(away=Away(prompts="Prompt logs cannot be written."), budgets={"a": SPENT})
    await room.look(NS_PER_HOUR)
    await room.look(WAIT)
    assert len(room.courier.letters) == 1
    room.now = NOON + 18 * NS_PER_HOUR - 1  # a moment before seven in Berlin
    await room.look()
    assert room.courier.told()[1:] == [[("budget_hard", "on")]]  # again, after four hours
    await room.look(1)
    assert room.courier.told()[2:] == [[("prompts_away", "on")], [("guarantees_scaled", "over")]]
    assert set(room.courier.times) == {"2027-01-15 13:00 CET"}


@pytest.mark.parametrize(
    ("hours", "quiet"),
    [("20-7", [20, 23, 0, 6]), ("0-6", [0, 5]), ("8-9", [8]), ("22-24", [22, 23])],
)
def test_quiet_hours_are_by_the_clock(hours: str, quiet: list[int]) -> None:
    settings = config(OPS, quiet=f"quiet_hours: {hours}").alerts
    midnight = NOON - 12 * NS_PER_HOUR
    found = [hour for hour in range(24) if is_quiet(settings, midnight + hour * NS_PER_HOUR)]
    assert set(quiet) <= set(found)
    assert len(found) == {"20-7": 11, "0-6": 6, "8-9": 1, "22-24": 2}[hours]


@story
async def test_a_silence_holds_over_a_restart_until_its_end() -> None:
    room = Room()
    room.put(pools=[SCALED])
    await room.look()
    (episode,) = room.alerts.firing.active.values()
    await room.alerts.silence(Silence(episode.id, "", room.now + NS_PER_HOUR, "ann"))
    await room.look(WAIT)
    room.start()
    await room.look(WAIT)
    assert room.courier.told() == []
    await room.look(NS_PER_HOUR)
    assert room.courier.told() == [[("guarantees_scaled", "on")]]
    assert room.store.silences() == ()


@story
async def test_a_silence_that_is_ended_early_has_told_what_fires_still() -> None:
    room = Room()
    room.put(pools=[SCALED])
    await room.look()
    (episode,) = room.alerts.firing.active.values()
    await room.alerts.silence(Silence(episode.id, "", room.now + NS_PER_HOUR, "ann"))
    await room.look(WAIT)
    assert room.courier.told() == []
    assert await room.alerts.end_silence(episode.id, "")
    assert not await room.alerts.end_silence(episode.id, "")
    await room.look(1)
    assert room.courier.told() == [[("guarantees_scaled", "on")]]
    assert room.store.silences() == ()


@story
async def test_what_the_store_cannot_take_is_told_and_kept_later() -> None:
    room = Room()
    room.store.fails = True
    room.put(pools=[SCALED])
    await room.look()
    await room.look(WAIT)
    assert room.courier.told() == [[("guarantees_scaled", "on")]]
    assert room.store.alerts() == ()
    room.store.fails = False
    await room.look(1)
    (kept,) = room.store.alerts()
    assert kept.told == {"ops": room.now - 1}


@story
async def test_a_channel_that_is_new_is_told_what_fires_and_one_that_is_gone_nothing() -> None:
    room = Room()
    room.put(pools=[SCALED])
    await room.look()
    room.config = config(OPS.replace("ops", "new"))
    await room.look(WAIT)
    assert (room.courier.told(), room.courier.told("new")) == ([], [[("guarantees_scaled", "on")]])
    assert room.alerts.channels().keys() == {"new"}


@story
async def test_a_test_goes_at_once() -> None:
    room = Room()
    await room.alerts.test("ops")
    assert [letter.items for letter in room.courier.letters] == [()]
    room.courier.away = {"ops"}
    with pytest.raises(UndeliveredError, match="it is away"):
        await room.alerts.test("ops")


@story
async def test_nothing_is_found_once_it_has_stopped() -> None:
    room = Room()
    await room.alerts.stop()
    room.put(pools=[SCALED])
    await room.look()
    assert not room.alerts.firing.active


@story
async def test_a_look_that_goes_on_as_it_stops_finds_nothing() -> None:
    room = Room()
    room.put(pools=[SCALED])
    await asyncio.gather(room.alerts.look(), room.alerts.stop())
    assert not room.alerts.firing.active


@story
async def test_a_look_that_goes_on_as_it_stops_tells_nobody() -> None:
    room = Room()
    room.put(pools=[SCALED])
    await room.look()
    room.put(pools=[SCALED], budgets={"a": SPENT})
    room.now += WAIT
    room.store.gate = threading.Event()
    looking = asyncio.ensure_future(room.alerts.look())
    await asyncio.to_thread(room.store.saving.wait, 120)
    stopping = asyncio.ensure_future(room.alerts.stop())
    await asyncio.sleep(0)
    room.store.gate.set()
    await asyncio.gather(looking, stopping)
    await room.alerts.settled()
    assert room.courier.tries == 0


@story
async def test_a_flood_is_one_post() -> None:
    many = {f"t{number}": SPENT for number in range(1000)}
    async with hook() as receiver:
        room = Room(OPS.replace("127.0.0.1:9/", f"127.0.0.1:{receiver.port}/"))
        outside = Outside(None)
        room.alerts = Alerts(room.store, outside, clock=lambda: room.now, config=lambda: room.config, facts=room.asked)
        room.put(budgets=many)
        await room.look()
        await room.look(WAIT)
        (posted,) = receiver.posted
        assert len(posted.json["alerts"]) == 1000
        room.put()
        await room.look(1)
        await room.look(WAIT)
        assert [len(post.json["alerts"]) for post in receiver.posted] == [1000, 1000]
        await room.alerts.stop()


@story
async def test_a_receiver_that_was_away_is_told_over_the_network() -> None:
    async with hook() as receiver:
        await receiver.close()
        room = Room(OPS.replace("127.0.0.1:9/", f"127.0.0.1:{receiver.port}/"))
        room.alerts = Alerts(
            room.store, Outside(None), clock=lambda: room.now, config=lambda: room.config, facts=room.asked
        )
        room.put(pools=[SCALED])
        await room.look()
        await room.look(WAIT)
        assert "cannot be reached" in room.alerts.channels()["ops"].why
        await receiver.open()
        await room.look(RETRY_NS)
        (posted,) = receiver.posted
        assert [each["name"] for each in posted.json["alerts"]] == ["guarantees_scaled"]
        await room.alerts.stop()
