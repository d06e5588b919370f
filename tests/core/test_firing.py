"""From troubles to alerts: given looks at certain times, when it fires and when it is over."""

from itertools import pairwise

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.core.alerts import MINUTE_NS, Trouble
from commonpool.core.firing import ENDED_MAX, FLAPPING_NS, OPEN_MAX, Episode, Firing
from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from tests.core.troubles import ALL, AWAY, DOWN, SCALED

FLAPS_AN_HOUR = 7  # kept for 2, 4, 8, 16 and 32 minutes, an alert that comes and goes has no time for more


def test_it_fires_once_it_has_lasted() -> None:
    firing = Firing((), 0)
    assert firing.look([DOWN], 0) == []
    assert firing.look([DOWN], 2 * MINUTE_NS - 1) == []
    (fired,) = firing.look([DOWN], 2 * MINUTE_NS)
    assert (fired.since_ns, fired.fired_ns, fired.ended_ns) == (0, 2 * MINUTE_NS, None)
    assert firing.look([DOWN], 3 * MINUTE_NS) == []


def test_a_break_begins_the_wait_anew() -> None:
    firing = Firing((), 0)
    firing.look([DOWN], 0)
    firing.look([], MINUTE_NS)
    assert firing.look([DOWN], 2 * MINUTE_NS) == []
    assert firing.pending[DOWN.id].since_ns == 2 * MINUTE_NS


def test_it_is_over_once_it_has_been_gone() -> None:
    firing = Firing((), 0)
    firing.look([AWAY], 0)
    firing.look([AWAY], 10)
    assert firing.look([], 10 + MINUTE_NS - 1) == []
    (over,) = firing.look([], 10 + MINUTE_NS)
    assert (over.fired_ns, over.ended_ns) == (0, 10 + MINUTE_NS)
    assert not firing.active


def test_what_is_back_in_time_was_never_over() -> None:
    firing = Firing((), 0)
    firing.look([AWAY], 0)
    firing.look([], MINUTE_NS - 1)
    assert firing.look([AWAY], MINUTE_NS) == []
    assert firing.look([], 2 * MINUTE_NS - 1) == []


def test_nothing_becomes_of_what_is_not_known() -> None:
    firing = Firing((), 0)
    firing.look([SCALED, DOWN], 0)
    assert firing.look([], NS_PER_HOUR, {"guarantees_scaled", "model_down"}) == []
    assert set(firing.active) == {SCALED.id}
    assert set(firing.pending) == {DOWN.id}


def test_what_is_kept_though_it_is_gone_is_known() -> None:
    firing = Firing((), 0)
    firing.look([AWAY, SCALED, DOWN], 0)
    assert firing.gone == frozenset()
    firing.look([], 1, {"guarantees_scaled"})  # of which nothing is known
    assert firing.gone == {AWAY.id}
    firing.look([AWAY], 2)
    assert firing.gone == frozenset()
    firing.look([], 3)
    firing.look([], 3 + MINUTE_NS)
    assert (firing.gone, AWAY.id in firing.active) == (frozenset(), False)


def test_the_sentence_is_the_newest() -> None:
    firing = Firing((), 0)
    firing.look([AWAY], 0)
    newer = msgspec.structs.replace(AWAY, sentence="It is full still.")
    assert firing.look([newer], 1) == []
    assert firing.active[AWAY.id].trouble == newer


def test_what_fired_before_a_restart_fires_on() -> None:
    before = Firing((), 0)
    began = before.look([AWAY, SCALED], 0)
    # when it starts again much later, and only one of them is there still
    after = Firing(began, NS_PER_HOUR)
    (over,) = after.look([AWAY], NS_PER_HOUR + 1)
    # then that one goes on, and the other is over
    assert over.key == (SCALED.id, 0)
    assert after.active[AWAY.id].key == (AWAY.id, 0)


def test_what_comes_back_soon_is_kept_for_longer() -> None:
    firing, now = Firing((), 0), 0
    kept = []
    for _ in range(4):
        (fired,) = firing.look([SCALED], now)
        kept.append(fired.keep_ns)
        now += fired.keep_ns
        (over,) = firing.look([], now)
        assert over.key == fired.key
        now += NS_PER_S
    assert kept == [0, 2 * MINUTE_NS, 4 * MINUTE_NS, 8 * MINUTE_NS]
    # and after an hour without it, not any more
    (fired,) = firing.look([SCALED], now + FLAPPING_NS)
    assert fired.flaps == 0


def test_there_is_a_limit_to_how_many_are_open() -> None:
    firing = Firing((), 0)
    many = [msgspec.structs.replace(SCALED, pool=f"p{number}") for number in range(OPEN_MAX + 3)]
    assert len(firing.look(many, 0)) == OPEN_MAX
    assert firing.dropped == 3


def test_the_oldest_of_what_is_over_goes_first() -> None:
    over = [Episode(SCALED, at, at, at, ended_ns=at + 1) for at in range(ENDED_MAX + 2)]
    firing = Firing(reversed(over), 0)
    assert firing.forget() == over[:2]
    assert len(firing.ended) == ENDED_MAX
    assert firing.forget() == []


LOOKS = st.lists(
    st.tuples(st.integers(1, 20 * 60), st.frozensets(st.sampled_from(ALL), max_size=4)), min_size=1, max_size=50
)


@settings(max_examples=50)
@given(LOOKS)
def test_law_alerts_last_as_their_conditions_say(looks: list[tuple[int, frozenset[Trouble]]]) -> None:
    firing, now = Firing((), 0), 0
    seen: dict[str, list[tuple[int, bool]]] = {each.id: [] for each in ALL}
    fired: dict[str, list[int]] = {each.id: [] for each in ALL}
    for step_s, there in looks:
        now += step_s * NS_PER_S
        for each in ALL:
            seen[each.id].append((now, each in there))
        for episode in firing.look(sorted(there, key=ALL.index), now):
            history = seen[episode.id]
            if episode.ended_ns is None:
                # it had been there in every look since, and for long enough
                assert all(was for at, was in history if at >= episode.since_ns)
                assert now - episode.since_ns >= episode.trouble.condition.for_ns
                fired[episode.id].append(now)
            else:
                # it was gone for long enough
                last = max(at for at, was in history if was)
                assert last == episode.seen_ns
                assert now - last >= episode.trouble.condition.keep_ns
                assert (last, episode.ended_ns) >= (episode.fired_ns, episode.fired_ns)
        # what is there fires, or has not lasted yet, and nothing is both
        assert {each.id for each in there} <= firing.active.keys() | firing.pending.keys()
        assert not firing.active.keys() & firing.pending.keys()
    for times in fired.values():
        assert len(times) == len(set(times))
        for first, beyond in zip(times, times[FLAPS_AN_HOUR:], strict=False):
            assert beyond - first >= NS_PER_HOUR
        assert all(a < b for a, b in pairwise(times))


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 600), st.booleans()), min_size=30, max_size=80))
def test_law_what_comes_and_goes_fires_seldom(looks: list[tuple[int, bool]]) -> None:
    firing, now, fired = Firing((), 0), 0, []
    for step_s, there in looks:
        now += step_s * NS_PER_S
        fired += [each.fired_ns for each in firing.look([SCALED] if there else [], now) if each.ended_ns is None]
    for first, beyond in zip(fired, fired[FLAPS_AN_HOUR:], strict=False):
        assert beyond - first >= NS_PER_HOUR
