"""The laws of the ring of decisions: in order, never more than it keeps, and nobody pushes others out of their part."""

from hypothesis import given
from hypothesis import strategies as st

from commonpool.observe.decisions import Decision, Decisions

KEPT = 12
OWNERS = ("a", "b", "c")
OWNER = st.sampled_from(OWNERS)


def decision(owner: str, at_ns: int = 0) -> Decision:
    return Decision(at_ns, "quota", f"{owner} may use more", (owner,) if owner else ())


def filled(owners: list[str]) -> Decisions:
    ring = Decisions(KEPT)
    for at_ns, owner in enumerate(owners):
        ring.add(decision(owner, at_ns))
    return ring


@given(st.lists(OWNER, max_size=60), st.integers(0, 60))
def test_it_keeps_the_newest_in_order_and_never_more_than_it_may(owners: list[str], number: int) -> None:
    ring = filled(owners)
    kept = ring.after(0)
    assert [each.number for each in kept] == sorted(each.number for each in kept)
    assert len(kept) == min(len(owners), KEPT)
    assert ring.lost == len(owners) - len(kept)
    assert ring.last == len(owners)
    assert list(ring.after(number)) == [each for each in kept if each.number > number]


@given(st.lists(OWNER, max_size=60))
def test_of_each_it_keeps_the_newest(owners: list[str]) -> None:
    kept = filled(owners).after(0)
    for owner in OWNERS:
        own = [number for number, each in enumerate(owners, 1) if each == owner]
        mine = [each.number for each in kept if each.owner == owner]
        assert mine == own[len(own) - len(mine) :]


@given(st.permutations(["a"] * 4 + ["b"] * 40 + ["c"] * 4))
def test_whoever_has_no_more_than_its_part_loses_nothing(owners: list[str]) -> None:
    kept = [each.owner for each in filled(owners).after(0)]
    assert (kept.count("a"), kept.count("c"), len(kept)) == (4, 4, KEPT)


def test_a_loan_is_at_the_expense_of_who_borrows() -> None:
    assert Decision(0, "loan", "b borrows of a", ("a", "b")).owner == "b"
    assert Decision(0, "scaling", "m should have 2 replicas", model="m").owner == ""
