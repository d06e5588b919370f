"""Sessions: how long they last, and that only the browser has what opens them."""

import hashlib

import pytest

from commonpool.access.sessions import IDLE_NS, LIFE_NS, PER_PERSON_MAX, TOUCH_NS, Opened, Sessions, name_of
from commonpool.store.contract import StoreError
from commonpool.store.memory import MemoryStore
from tests.access.house import House


@pytest.fixture
def sessions(alone: House) -> Sessions:
    return Sessions(alone.store, lambda: alone.now)


def issued(house: House, sessions: Sessions) -> Opened:
    return house.run(sessions.open(issuer="https://id", subject="7", member_of=("x",)))


def test_the_store_has_only_a_digest_of_256_random_bits(alone: House, sessions: Sessions) -> None:
    opened = issued(alone, sessions)
    assert len(opened.token) == 43
    assert opened.session.digest == hashlib.sha256(opened.token.encode()).digest()
    assert alone.store.session(opened.session.digest) == opened.session
    assert alone.run(sessions.find(opened.token)) == opened.session
    assert opened.token not in repr(opened)
    assert len({issued(alone, sessions).token for _ in range(50)}) == 50


@pytest.mark.parametrize("token", ["", "x", "é\ud800", "a" * 10_000])
def test_what_nobody_was_given_is_no_session(alone: House, sessions: Sessions, token: str) -> None:
    assert alone.run(sessions.find(token)) is None


def test_the_digest_is_no_session(alone: House, sessions: Sessions) -> None:
    digest = issued(alone, sessions).session.digest
    for shown in (digest.hex(), digest.decode("latin-1")):
        assert alone.run(sessions.find(shown)) is None


def test_they_are_ended_by_their_names_each_person_its_own(alone: House, sessions: Sessions) -> None:
    first, second = issued(alone, sessions), issued(alone, sessions)
    other = alone.run(sessions.open(issuer="https://id", subject="8"))
    assert {each.digest for each in alone.run(sessions.of(first.session))} == {
        first.session.digest,
        second.session.digest,
    }
    assert len(alone.run(sessions.all())) == 3
    assert first.token not in name_of(first.session)
    assert alone.run(sessions.find(name_of(first.session))) is None  # a name opens nothing
    assert alone.run(sessions.end_named(name_of(other.session), first.session)) is None
    assert alone.run(sessions.end_named(name_of(second.session), first.session)) == second.session
    assert alone.run(sessions.find(second.token)) is None
    assert alone.run(sessions.end_named(name_of(second.session))) is None
    assert alone.run(sessions.end_named(name_of(other.session))) == other.session
    assert alone.run(sessions.all()) == (first.session,)


@pytest.mark.parametrize("name", ["", "x", "00", "0" * 64, "zz" * 8])
def test_what_is_no_name_ends_nothing(alone: House, sessions: Sessions, name: str) -> None:
    opened = issued(alone, sessions)
    assert alone.run(sessions.end_named(name)) is None
    assert alone.run(sessions.find(opened.token)) is not None


def test_one_that_is_over_is_not_listed(alone: House, sessions: Sessions) -> None:
    issued(alone, sessions)
    alone.now += IDLE_NS
    assert alone.run(sessions.all()) == ()


def test_it_is_over_when_it_was_not_used_for_an_hour(alone: House, sessions: Sessions) -> None:
    opened = issued(alone, sessions)
    alone.now += IDLE_NS - 1
    assert alone.run(sessions.find(opened.token)) is not None
    alone.now += IDLE_NS - 1
    assert alone.run(sessions.find(opened.token)) is not None
    alone.now += IDLE_NS
    assert alone.run(sessions.find(opened.token)) is None


def test_it_is_over_after_half_a_day_however_much_it_is_used(alone: House, sessions: Sessions) -> None:
    opened = issued(alone, sessions)
    while alone.now < opened.session.created_ns + LIFE_NS - IDLE_NS // 2:
        alone.now += IDLE_NS // 2
        assert alone.run(sessions.find(opened.token)) is not None, alone.now
    alone.now = opened.session.expires_ns
    assert alone.run(sessions.find(opened.token)) is None


def test_use_is_noted_at_most_once_a_minute(alone: House, sessions: Sessions) -> None:
    opened = issued(alone, sessions)
    for passed, noted in ((TOUCH_NS - 1, 0), (TOUCH_NS, TOUCH_NS), (TOUCH_NS + 1, TOUCH_NS)):
        alone.now = opened.session.created_ns + passed
        alone.run(sessions.find(opened.token))
        found = alone.store.session(opened.session.digest)
        assert found is not None
        assert found.used_ns == opened.session.created_ns + noted


def test_it_is_over_at_once_when_it_is_ended(alone: House, sessions: Sessions) -> None:
    opened, other = issued(alone, sessions), issued(alone, sessions)
    alone.run(sessions.end(opened.token))
    alone.run(sessions.end(opened.token))
    assert alone.run(sessions.find(opened.token)) is None
    assert alone.run(sessions.find(other.token)) is not None


def test_a_person_has_so_many_at_most(alone: House, sessions: Sessions) -> None:
    tokens = []
    for _ in range(PER_PERSON_MAX + 3):
        alone.now += 1
        tokens.append(issued(alone, sessions).token)
    assert [alone.run(sessions.find(token)) is not None for token in tokens] == [False] * 3 + [True] * PER_PERSON_MAX


class FullStore(MemoryStore):
    """A store whose disk is full."""

    def touch_session(self, digest: bytes, used_ns: int) -> None:  # noqa: ARG002
        raise StoreError("the disk is full")


def test_while_use_cannot_be_noted_a_session_goes_on(alone: House) -> None:
    sessions = Sessions(FullStore(), lambda: alone.now)
    opened = issued(alone, sessions)
    alone.now += TOUCH_NS
    assert alone.run(sessions.find(opened.token)) is not None
    alone.now = opened.session.created_ns + IDLE_NS
    assert alone.run(sessions.find(opened.token)) is None
