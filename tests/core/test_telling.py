"""Whom is told what, and when: given episodes, the messages that are due; and that nothing is lost or told twice."""

from itertools import pairwise

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.core.alerts import MINUTE_NS, Severity, Trouble
from commonpool.core.firing import Episode
from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.core.telling import ITEMS_MAX, Key, Message, Pace, Route, Silence, Silences, Telling
from tests.core.troubles import ALL, AWAY, DOWN, HARD, IDLE, SCALED, SOFT

OPS = Route("ops")
PACE = Pace(group_wait_ns=30 * NS_PER_S, repeat_ns=NS_PER_HOUR)
NOBODY = Silences()


def fires(trouble: Trouble, at: int = 0) -> Episode:
    return Episode(trouble, at, at, at)


def over(episode: Episode, at: int) -> Episode:
    return msgspec.structs.replace(episode, ended_ns=at)


class Room:
    """Episodes and what channels were told of them."""

    def __init__(self, *episodes: Episode, routes: tuple[Route, ...] = (OPS,)) -> None:
        self.episodes: dict[Key, Episode] = {}
        self.telling = Telling()
        self.routes = routes
        self.put(*episodes)

    def put(self, *episodes: Episode) -> None:
        self.episodes.update({each.key: each for each in episodes})
        self.telling.owe(self.routes, [each for each in episodes if each.ended_ns is None])

    def due(self, now: int, route: Route = OPS, silences: Silences = NOBODY, *, quiet: bool = False) -> list[Message]:
        return self.telling.due(route, self.episodes, silences, now, PACE, quiet=quiet)

    def tell(self, now: int) -> list[list[tuple[str, bool]]]:
        """The names of each message that is due, with whether they are over; all is taken."""
        messages = self.due(now)
        for message in messages:
            self.telling.note(message, now)
        return [[(item.episode.trouble.name, item.resolved) for item in message.items] for message in messages]


def test_the_first_waits_for_others_of_its_pool() -> None:
    room = Room(fires(SCALED, 0), fires(SOFT, 20 * NS_PER_S), fires(AWAY, 29 * NS_PER_S))
    assert room.tell(30 * NS_PER_S - 1) == []
    # what is in another pool, or in none, has a message of its own
    assert room.tell(30 * NS_PER_S) == [[("guarantees_scaled", False), ("budget_soft", False)]]
    assert room.tell(59 * NS_PER_S) == [[("journal_away", False)]]


def test_the_worst_comes_first_and_what_is_over_last() -> None:
    ended = fires(msgspec.structs.replace(DOWN, about=(("model", "n"),)))
    room = Room(fires(SOFT), fires(DOWN, 5), ended)
    room.put(over(ended, 9))
    assert room.tell(MINUTE_NS) == [[("model_down", False), ("budget_soft", False), ("model_down", True)]]


def test_it_is_told_again_after_a_while_and_once_when_it_is_over() -> None:
    episode = fires(SCALED)
    room = Room(episode)
    assert room.tell(MINUTE_NS) == [[("guarantees_scaled", False)]]
    assert room.tell(NS_PER_HOUR) == []
    again = MINUTE_NS + NS_PER_HOUR + PACE.group_wait_ns
    assert [item.again for message in room.due(again) for item in message.items] == [True]
    assert room.tell(again) == [[("guarantees_scaled", False)]]
    room.put(over(episode, again + 1))
    assert room.tell(again + MINUTE_NS) == [[("guarantees_scaled", True)]]
    assert room.tell(again + 9 * NS_PER_HOUR) == []
    assert room.telling.of(episode.key) == {}


def test_of_what_is_gone_nobody_is_told_that_it_fires() -> None:
    told, new = fires(SCALED), fires(SOFT, MINUTE_NS)
    room = Room(told)
    room.tell(MINUTE_NS)
    room.put(new)
    later = 2 * NS_PER_HOUR
    gone = {told.id, new.id}
    assert room.telling.due(OPS, room.episodes, NOBODY, later, PACE, quiet=False, gone=gone) == []
    room.put(over(told, later), over(new, later))
    assert room.tell(later + MINUTE_NS) == [[("guarantees_scaled", True), ("budget_soft", True)]]


def test_what_was_over_before_it_could_be_told_is_told_once() -> None:
    episode = fires(SCALED)
    room = Room(episode)
    room.put(over(episode, 10))
    assert room.tell(MINUTE_NS) == [[("guarantees_scaled", True)]]
    assert room.tell(9 * NS_PER_HOUR) == []


def test_what_was_not_taken_is_due_still() -> None:
    room = Room(fires(SCALED))
    assert len(room.due(MINUTE_NS)) == 1  # and nobody took it
    assert room.tell(9 * NS_PER_HOUR) == [[("guarantees_scaled", False)]]


def test_in_quiet_hours_only_what_is_critical_is_told_and_the_rest_at_their_end() -> None:
    ended = fires(SOFT, 1)
    room = Room(fires(SCALED), ended, fires(DOWN))
    (message,) = room.due(MINUTE_NS, quiet=True)
    assert [item.episode.trouble for item in message.items] == [DOWN]
    room.telling.note(message, MINUTE_NS)
    room.put(over(ended, 2 * MINUTE_NS))
    assert room.due(30 * MINUTE_NS, quiet=True) == []
    assert room.tell(31 * MINUTE_NS) == [[("guarantees_scaled", False), ("budget_soft", True)]]


def test_a_channel_is_told_what_it_wants() -> None:
    pages = Route("pages", severity=Severity.CRITICAL)
    every = Route("every", severity=Severity.INFO)
    of_a = Route("a", tenant="a", severity=Severity.INFO)
    routes = (OPS, pages, every, of_a)
    told = {route.channel: {each.name for each in ALL if route.wants(each)} for route in routes}
    assert told["ops"] == {each.name for each in ALL} - {IDLE.name}
    assert told["pages"] == {DOWN.name, HARD.name, AWAY.name}
    assert told["every"] == {each.name for each in ALL}
    assert told["a"] == {SOFT.name, IDLE.name}


def test_who_is_silenced_is_not_told_and_others_are() -> None:
    of_a = Route("a", tenant="a")
    room = Room(fires(SOFT), routes=(OPS, of_a))
    own = Silences([Silence(SOFT.id, "a", NS_PER_HOUR, "ann")])
    assert room.due(MINUTE_NS, of_a, own) == []
    assert len(room.due(MINUTE_NS, OPS, own)) == 1
    everybody = Silences([Silence(SOFT.id, "", NS_PER_HOUR, "ann")])
    assert room.due(MINUTE_NS, of_a, everybody) == room.due(MINUTE_NS, OPS, everybody) == []
    assert len(room.due(NS_PER_HOUR, OPS, everybody)) == 1  # it has ended


def test_that_it_is_over_is_told_to_those_who_know_of_it() -> None:
    episode = fires(SCALED)
    room = Room(episode)
    room.tell(MINUTE_NS)
    room.put(over(episode, 2 * MINUTE_NS))
    silences = Silences([Silence(SCALED.id, "", NS_PER_HOUR, "ann")])
    assert room.telling.settle(OPS, room.episodes, silences, 3 * MINUTE_NS) == []
    assert len(room.due(3 * MINUTE_NS, silences=silences)) == 1


def test_what_was_silenced_until_it_was_over_is_told_to_nobody() -> None:
    episode = over(fires(SCALED), 10)
    room = Room(fires(SCALED))
    room.put(episode)
    silences = Silences([Silence(SCALED.id, "", NS_PER_HOUR, "ann")])
    assert room.telling.settle(OPS, room.episodes, silences, MINUTE_NS) == [episode.key]
    assert room.tell(9 * NS_PER_HOUR) == []


def test_a_silence_is_ended_alone() -> None:
    silences = Silences([Silence("x", "", 10, "ann"), Silence("x", "a", 20, "bob")])
    silences.end("x", "a")
    silences.end("x", "a")
    silences.end("nothing", "")
    assert silences.own("x", "a", 5) is None
    assert silences.of("x", "a", 5) == silences.own("x", "", 5) == Silence("x", "", 10, "ann")
    assert silences.own("x", "", 10) is None


def test_silences_end() -> None:
    silences = Silences([Silence("x", "", 10, "ann"), Silence("x", "a", 20, "bob")])
    assert silences.of("x", "a", 5) == Silence("x", "a", 20, "bob")
    assert silences.over(10) == [Silence("x", "", 10, "ann")]
    assert len(silences) == 1
    assert silences.of("x", "", 5) is None


def test_a_thousand_are_few_messages() -> None:
    many = [fires(msgspec.structs.replace(SCALED, tenant=f"t{number}")) for number in range(ITEMS_MAX + 1)]
    messages = Room(*many).due(MINUTE_NS)
    assert [len(message.items) for message in messages] == [ITEMS_MAX, 1]


def test_a_channel_that_is_new_is_told_what_fires() -> None:
    episode = fires(SCALED)
    room = Room(episode)
    room.tell(MINUTE_NS)
    new = Route("new")
    assert room.telling.owe((OPS, new), [episode]) == [episode.key]
    assert room.due(2 * MINUTE_NS) == []
    assert len(room.due(2 * MINUTE_NS, new)) == 1
    room.telling.keep_to(["new"])
    assert room.telling.of(episode.key) == {"new": 0}


def test_what_is_kept_is_told_on_from() -> None:
    episode = fires(SCALED)
    telling = Telling({episode.key: {"ops": MINUTE_NS}})
    assert telling.due(OPS, {episode.key: episode}, NOBODY, NS_PER_HOUR, PACE, quiet=False) == []
    assert telling.forget(episode.key) == ("ops",)


STEPS = st.lists(
    st.tuples(
        st.integers(1, 40 * 60),  # seconds
        st.frozensets(st.integers(0, len(ALL) - 1), max_size=3),  # whose state turns
        st.booleans(),  # quiet
        st.booleans(),  # whether the receivers take it
    ),
    max_size=25,
)
ROUTES = (OPS, Route("pages", severity=Severity.CRITICAL), Route("a", tenant="a", severity=Severity.INFO))


@settings(max_examples=60)
@given(STEPS)
def test_law_each_is_told_once_in_its_time_and_nothing_is_lost(  # noqa: C901 - one life from beginning to end
    steps: list[tuple[int, frozenset[int], bool, bool]],
) -> None:
    room, now = Room(routes=ROUTES), 0
    active: dict[Trouble, Episode] = {}
    told: dict[tuple[str, Key], list[tuple[int, bool]]] = {}

    def give(*, quiet: bool, taken: bool) -> None:
        for route in ROUTES:
            for message in room.due(now, route, quiet=quiet):
                assert len({item.episode.trouble.pool for item in message.items}) == 1
                for item in message.items:
                    assert route.wants(item.episode.trouble)
                    assert not quiet or item.episode.trouble.condition.severity is Severity.CRITICAL
                if taken:
                    room.telling.note(message, now)
                    for item in message.items:
                        told.setdefault((route.channel, item.episode.key), []).append((now, item.resolved))

    for step_s, turned, quiet, taken in steps:
        now += step_s * NS_PER_S
        for number in sorted(turned):
            trouble = ALL[number]
            if trouble in active:
                room.put(over(active.pop(trouble), now))
            else:
                active[trouble] = fires(trouble, now)
                room.put(active[trouble])
        give(quiet=quiet, taken=taken)
    # when all is as it should be for a while
    now += PACE.repeat_ns + PACE.group_wait_ns
    give(quiet=False, taken=True)
    # then each that wants it has been told of every episode, in its order and not too often
    for episode in room.episodes.values():
        for route in ROUTES:
            log = told.get((route.channel, episode.key), [])
            if not route.wants(episode.trouble):
                assert log == []
                continue
            assert [done for _, done in log].count(True) == (episode.ended_ns is not None)
            assert log
            assert all(not done for _, done in log[:-1])
            times = [at for at, done in log if not done]
            assert all(b - a >= PACE.repeat_ns for a, b in pairwise(times))
            if episode.ended_ns is None:
                assert now - times[-1] < PACE.repeat_ns + PACE.group_wait_ns
    # and nothing is told again at once
    assert not any(room.due(now, route) for route in ROUTES)
