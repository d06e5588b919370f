"""Guesses at passwords: how many, from where, and in how much memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.access import guesses
from commonpool.access.guesses import ENTRIES_MAX, KNOWN_MAX, PACES, Guesses
from commonpool.access.problems import TooManyGuessesError

SECOND = 10**9


def takes(tried: Guesses, name: str, address: str, now: int, times: int) -> int:
    """How many of so many guesses it takes."""
    taken = 0
    for _ in range(times):
        try:
            tried.take(name, address, now)
            taken += 1
        except TooManyGuessesError:
            pass
    return taken


def test_an_account_takes_a_few_at_once_and_then_one_a_minute() -> None:
    tried = Guesses()
    assert [takes(tried, "ann", f"192.0.2.{n}", 0, 1) for n in range(7)] == [1] * 5 + [0] * 2
    with pytest.raises(TooManyGuessesError, match="try again in 60 s") as caught:
        tried.take("ann", "192.0.2.8", 0)
    assert caught.value.wait_ns == 60 * SECOND
    assert takes(tried, "ann", "192.0.2.8", 60 * SECOND - 1, 1) == 0
    assert takes(tried, "ann", "192.0.2.8", 60 * SECOND, 2) == 1
    assert takes(tried, "bo", "192.0.2.8", 0, 9) == 5  # another account has its own


def test_an_address_takes_twenty_at_all_accounts_together() -> None:
    tried = Guesses()
    assert sum(takes(tried, f"a{n}", "192.0.2.7", 0, 1) for n in range(30)) == 20
    assert takes(tried, "b", "192.0.2.8", 0, 1) == 1


def test_a_refused_guess_takes_nothing() -> None:
    tried = Guesses()
    assert takes(tried, "ann", "192.0.2.7", 0, 100) == 5
    assert sum(takes(tried, f"a{n}", "192.0.2.7", 0, 1) for n in range(30)) == 15


def test_a_right_guess_counts_as_none() -> None:
    tried = Guesses()
    for _ in range(50):
        tried.right(tried.take("ann", "192.0.2.7", 0), 0)
    assert len(tried) == 0


def test_who_guesses_elsewhere_does_not_keep_the_owner_out() -> None:
    tried = Guesses()
    tried.right(tried.take("ann", "192.0.2.7", 0), 0)
    assert takes(tried, "ann", "198.51.100.1", 0, 9) == 5
    assert takes(tried, "ann", "203.0.113.1", 0, 9) == 0
    assert takes(tried, "ann", "192.0.2.7", 0, 9) == 5  # and no more than that from there


def test_where_there_is_no_account_only_the_address_counts() -> None:
    tried = Guesses()
    assert takes(tried, "", "192.0.2.7", 0, 30) == 20
    tried = Guesses()
    tried.right(tried.take("", "192.0.2.7", 0), 0)
    assert takes(tried, "", "192.0.2.7", 0, 30) == 20


def test_it_remembers_so_much_and_beyond_that_counts_all_together() -> None:
    tried = Guesses()
    for n in range(ENTRIES_MAX // 2):  # each wants an entry for the account and one for the address
        tried.take(f"a{n}", f"10.0.{n >> 8}.{n & 255}", 0)
    assert len(tried) == ENTRIES_MAX
    late = sum(takes(tried, f"b{n}", f"11.0.0.{n}", 0, 1) for n in range(100))
    assert late == PACES["others"][0] // 2  # neither the account nor the address has an entry
    assert len(tried) == ENTRIES_MAX + 1
    assert takes(tried, "a0", "10.0.0.1", 0, 9) == 4  # what was known before the flood is not forgotten
    assert takes(tried, "c", "192.0.2.9", 3600 * SECOND, 1) == 1  # an hour later there is room again
    assert len(tried) == 2


def test_who_logged_in_is_remembered_up_to_a_limit() -> None:
    tried = Guesses()
    for n in range(KNOWN_MAX + 1):
        tried.right(tried.take(f"a{n}", "192.0.2.7", n * SECOND), n * SECOND)
    assert guesses.Guess("a1", "192.0.2.7", (("known", "a1", "192.0.2.7"),)) == tried.take("a1", "192.0.2.7", 0)
    assert ("account", "a0") in tried.take("a0", "192.0.2.7", 10**15).buckets


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3), st.integers(0, 90), st.booleans()), max_size=80)
)
def test_no_account_ever_takes_more_wrong_ones_than_its_pace(steps: list[tuple[str, int, int, bool]]) -> None:
    """In any stretch of time at most the burst and one for each minute, and as much again from where it logged in."""
    tried, now = Guesses(), 0
    wrong: dict[tuple[str, ...], list[int]] = {}
    for name, host, pause, right in steps:
        now += pause * SECOND
        try:
            guess = tried.take(name, f"192.0.2.{host}", now)
        except TooManyGuessesError:
            continue
        if right:
            tried.right(guess, now)
        else:
            wrong.setdefault(guess.buckets[0], []).append(now)
    for times in wrong.values():
        for at, first in enumerate(times):
            for last in range(at, len(times)):
                assert last - at + 1 <= 5 + (times[last] - first) // (60 * SECOND) + 1
