"""Where a request stands in its line, and who was before one that waited."""

from commonpool.core.standing import Before, Passage, Standing, together
from tests.core.worlds import S, World, policy, tenant


def full() -> World:
    """All four slots are taken by `a`; its fifth and sixth wait, and two of `b` and one that is more urgent."""
    here = World(policy(tenant("a", 2000), tenant("b", 2000, elastic_cap=2000)), replicas=1)
    for n in range(6):
        here.arrive(f"a{n}", "a", "batch")
    here.later(1)
    for n in range(2):
        here.arrive(f"b{n}", "b")
    here.later(1).arrive("a6", "a", "interactive")
    return here


def test_it_stands_behind_its_own_of_higher_priority_and_beside_others() -> None:
    here = full()
    standing = here.machine.standing("a4", here.now)
    assert standing == Standing(1, 2, None, arrived_ns=0, queued_ns=0, attempt=1)
    last = here.machine.standing("a5", here.now)
    assert last is not None
    assert (last.own_before, last.others_waiting) == (2, 2)
    first = here.machine.standing("a6", here.now)
    assert first is not None
    assert (first.own_before, first.arrived_ns) == (0, 2 * S)


def test_once_a_service_time_is_known_it_says_within_which_time() -> None:
    here = full()
    here.end("a0")
    standing = here.machine.standing("a5", here.now)
    assert standing is not None
    assert standing.within_ns is not None
    assert standing.within_ns > 0


def test_what_runs_and_what_is_unknown_stands_nowhere() -> None:
    here = full()
    assert here.machine.standing("a0", here.now) is None
    assert here.machine.standing("nothing", here.now) is None
    here.submit("job", "a", 4000)
    assert here.machine.standing("job", here.now) is None


def test_who_was_there_and_who_was_served_meanwhile() -> None:
    here = full()
    passage = Passage("b0", "m", 1 * S, 3 * S)
    assert here.machine.before(passage) == {"a": Before(waiting=2, served=0)}
    here.later(1)
    here.end("a0")
    here.end("a1")
    found = here.machine.before(Passage("a5", "m", 0, here.now))
    assert found["b"].served == 2  # they came later, and were started first: their tenant was under its guarantee
    assert here.machine.before(Passage("a5", "other", 0, here.now)) == {}


def test_both_together_are_their_sums() -> None:
    some, others = {"a": Before(1, 2)}, {"a": Before(3, 0), "b": Before(0, 1)}
    assert together(some, others) == {"a": Before(4, 2), "b": Before(0, 1)}
