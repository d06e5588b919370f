"""The books of random life cycles sum to zero; a world in which something is booked wrongly is seen to be wrong."""

from collections import Counter

import pytest
from benchmarks.bench_books import measure, page
from benchmarks.book_cycles import START, World
from benchmarks.book_model import ConflictError, Ledger, balances
from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.core.ledger import Kind, Work
from commonpool.core.model import Outcome
from tests.core.ledgers import RATES, H, record


def test_a_hundred_thousand_life_cycles_sum_to_zero() -> None:
    tally = measure(100_000, first=20_261_201)
    assert tally["cycles"] >= 100_000
    happened = (
        "completed",
        "retried",
        "migrated",
        "preempted",
        "exited",
        "late",
        "voided",
        "told again",
        "corrections",
    )
    assert all(tally[name] for name in happened)
    words = " ".join(page(tally, 60.0, "2026-12-01").split())
    assert f"{tally['cycles']:,} random life cycles" in words
    assert "1.0 minutes of one core" in words


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1 << 64), st.integers(1, 60))
def test_any_world_is_in_order(seed: int, cycles: int) -> None:
    assert World(seed, cycles).run()["hours"] >= 2


@pytest.mark.parametrize("which", ["books", "model"])
def test_a_nanosecond_too_much_is_seen(which: str) -> None:
    world = World(7, 200)
    entries = world._books if which == "books" else world._ledger.entries
    entries[START, Kind.USED, "tenant:ads", "pool:main", "gpu_hour", 2_500_000, Work("ads")] += 1
    with pytest.raises(AssertionError):
        world.run()


def ledger() -> Ledger:
    return Ledger(lambda _: RATES, frozenset())


def posted(books: Ledger) -> dict[tuple[int, str], int]:
    return {(entry[0], entry[1].value): quantity for entry, quantity in books.entries.items() if quantity}


RUNNING = record(run=H // 2, outcome=Outcome.RUNNING)


def test_what_runs_is_pending_until_it_ends() -> None:
    books = ledger()
    books.pend(record(run=0, outcome=Outcome.RUNNING))
    assert (books.pending, posted(books)) == (1, {})
    assert books.post(record(run=H))
    assert (books.pending, posted(books)) == (0, {(0, "used"): 1000 * H})
    assert not books.post(record(run=H))
    books.pend(RUNNING)  # said again after all
    assert (books.pending, posted(books)) == (0, {(0, "used"): 1000 * H})
    assert balances(books.entries) == {"tenant:a": -3_000_000_000 * H, "pool:main": 3_000_000_000 * H}


def test_what_was_posted_in_part_is_posted_in_full_or_taken_back() -> None:
    for end, expected in (
        (record(run=H), {(0, "used"): 1000 * H}),
        (record(run=H, outcome=Outcome.FAILED, micro_per_gpu_hour=0), {(0, "uncharged"): 1000 * H}),
    ):
        books = ledger()
        books.pend(RUNNING)
        books.close()
        assert posted(books) == {(0, "used"): 500 * H}
        assert books.post(end)
        assert posted(books) == expected
        assert sum(balances(books.entries).values()) == 0


def test_a_known_end_with_other_content_is_a_conflict() -> None:
    books = ledger()
    books.post(record())
    with pytest.raises(ConflictError, match="Attempt 1 of r1 has ended otherwise already"):
        books.post(record(milli_gpu_ns=5))
    assert posted(books) == {(0, "used"): 1000 * H}
    assert Counter(entry[1] for entry in books.entries) == {Kind.USED: 1}
