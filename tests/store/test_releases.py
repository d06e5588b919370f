"""What every store does with releases and with what is known of demand."""

from contextlib import closing

import msgspec

from commonpool.core.underuse import Demand
from commonpool.store.contract import Store
from commonpool.store.releases import Release
from tests.store.places import Place

A = Release("a", 1500, 10, "local", "nobody trains in summer")
B = Release("b", 500, 20, "k1")


def test_releases_get_numbers_and_come_newest_first(store: Store) -> None:
    first, second = store.add_release(A), store.add_release(B)
    assert (first, second) == (msgspec.structs.replace(A, number=1), msgspec.structs.replace(B, number=2))
    assert store.releases() == (second, first)
    assert store.releases(1) == (second,)


def test_those_of_some_tenants_fill_their_pages(store: Store) -> None:
    for release in (A, B, A, B, A):
        store.add_release(release)
    assert [each.number for each in store.releases(2, ["b"])] == [4, 2]
    assert [each.number for each in store.releases(4, ["a", "b"])] == [5, 4, 3, 2]
    assert store.releases(9, ["c"]) == ()
    assert store.releases(9, []) == ()  # none is not all


def test_what_is_undone_stays_in_the_list_and_counts_no_more(store: Store) -> None:
    for release in (A, B, msgspec.structs.replace(A, milli_gpu=200)):
        store.add_release(release)
    assert store.released() == {"a": 1700, "b": 500}
    undone = store.undo_releases("a", 30, "k2")
    assert [(each.number, each.milli_gpu, each.undone_ns, each.undone_by) for each in undone] == [
        (1, 1500, 30, "k2"),
        (3, 200, 30, "k2"),
    ]
    assert store.released() == {"b": 500}
    assert [each.undone_ns for each in store.releases()] == [30, None, 30]


def test_what_was_undone_before_keeps_who_undid_it(store: Store) -> None:
    store.add_release(A)
    store.undo_releases("a", 30, "k2")
    assert store.undo_releases("a", 40, "local") == ()
    assert store.undo_releases("nobody", 40, "local") == ()
    assert store.releases()[0].undone_by == "k2"


def test_demand_replaces_what_was_kept(store: Store) -> None:
    assert store.demand() == ()
    store.save_demand([Demand("b", 7, (1, 2)), Demand("a", 5, (0, 2**40))])
    assert store.demand() == (Demand("a", 5, (0, 2**40)), Demand("b", 7, (1, 2)))
    store.save_demand(iter([Demand("b", 8, (2,))]))
    assert store.demand() == (Demand("b", 8, (2,)),)


def test_it_is_there_after_a_restart(place: Place) -> None:
    with closing(place.open()) as before:
        before.add_release(A)
        before.save_demand([Demand("a", 5, (1,))])
    with closing(place.open()) as after:
        assert after.released() == {"a": 1500}
        assert after.demand() == (Demand("a", 5, (1,)),)
        assert after.add_release(B).number == 2
