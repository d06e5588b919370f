"""What every store does with alerts and silences."""

import msgspec

from commonpool.core.alerts import Trouble
from commonpool.core.firing import Episode
from commonpool.core.telling import Silence
from commonpool.store.alerts import KeptEpisode
from commonpool.store.contract import Store

DOWN = Trouble("model_down", "No replica of model m is ready.", pool="main", about=(("model", "m"),))
SOFT = Trouble("budget_soft", "Tenant a has spent 80%.", tenant="a", pool="main")
FIRST = KeptEpisode(Episode(DOWN, 1, 2, 3), {"ops": 0, "night": 5})
OTHER = KeptEpisode(Episode(SOFT, 4, 4, 9, ended_ns=9, flaps=2))


def test_episodes_are_kept_as_they_are_now(store: Store) -> None:
    assert store.alerts() == ()
    store.save_alerts([FIRST, OTHER])
    assert sorted(store.alerts(), key=lambda each: each.episode.fired_ns) == [FIRST, OTHER]
    told = msgspec.structs.replace(FIRST, told={"ops": 7})
    store.save_alerts([told])
    assert sorted(store.alerts(), key=lambda each: each.episode.fired_ns) == [told, OTHER]


def test_two_episodes_of_an_alert_are_two(store: Store) -> None:
    again = KeptEpisode(msgspec.structs.replace(FIRST.episode, fired_ns=20))
    store.save_alerts(iter([FIRST, again]))
    assert store.alerts() == (FIRST, again)
    store.save_alerts([], [FIRST.episode.key, ("nobody", 1)])
    assert store.alerts() == (again,)


def test_a_silence_replaces_the_one_before_it(store: Store) -> None:
    store.save_silence(Silence("x", "", 10, "local"))
    store.save_silence(Silence("x", "a", 30, "key:1"))
    store.save_silence(Silence("x", "", 20, "key:2"))
    assert store.silences() == (Silence("x", "", 20, "key:2"), Silence("x", "a", 30, "key:1"))
    store.drop_silences(20)
    assert store.silences() == (Silence("x", "a", 30, "key:1"),)


def test_one_silence_is_forgotten(store: Store) -> None:
    store.save_silence(Silence("x", "", 10, "local"))
    store.save_silence(Silence("x", "a", 30, "key:1"))
    store.drop_silence("x", "b")
    store.drop_silence("x", "")
    assert store.silences() == (Silence("x", "a", 30, "key:1"),)
