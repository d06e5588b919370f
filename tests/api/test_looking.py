"""Given records, when some are looked for bit by bit, then exactly those are found that one look would find."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from commonpool.api.looking import Found, look_through
from commonpool.core.model import UsageRecord
from commonpool.store.contract import Place
from tests.api.fakes import FakeOperations
from tests.store.records import T0, usage_record

FILTER = {"tenant": ["a"]}


def product(*tenants: str) -> FakeOperations:
    """One request a nanosecond, of these tenants."""
    made = FakeOperations()
    made.store.add_usage(usage_record(f"r{at}", tenant=tenant, arrived_ns=T0 + at) for at, tenant in enumerate(tenants))
    return made


def look(product: FakeOperations, after: Place | None, *, looked_max: int, newest: bool, limit: int = 9) -> Found:
    return asyncio.run(
        look_through(product, (T0, T0 + 100), after, limit, FILTER, newest=newest, looked_max=looked_max)
    )


def ids(found: Found) -> list[str]:
    return [record.request_id for record in found.records]


def test_a_look_ends_after_so_many_and_says_how_far_it_came() -> None:
    made = product("a", "b", "b", "b", "b", "a", "b")
    first = look(made, None, looked_max=3, newest=False)
    assert (ids(first), first.looked_ns, first.after) == (["r0"], T0 + 3, (T0 + 3, "", 0))
    second = look(made, first.after, looked_max=3, newest=False)
    assert (ids(second), second.looked_ns) == (["r5"], T0 + 6)
    assert look(made, second.after, looked_max=3, newest=False) == Found((), None)


def test_the_newest_first_it_says_back_to_when() -> None:
    made = product("a", "b", "b", "b", "a", "b")
    first = look(made, None, looked_max=3, newest=True)
    assert (ids(first), first.looked_ns, first.after) == (["r4"], T0 + 3, (T0 + 3, "", 0))
    second = look(made, first.after, looked_max=4, newest=True)
    assert (ids(second), second.after, second.looked_ns) == (["r0"], None, None)


def test_a_page_that_is_full_goes_on_behind_its_last_one() -> None:
    found = look(product("a", "a", "a"), None, looked_max=2, newest=False, limit=1)
    assert (ids(found), found.after, found.looked_ns) == (["r0"], (T0, "r0", 1), None)


@given(
    arrivals=st.lists(st.tuples(st.integers(0, 6), st.sampled_from("abb")), max_size=25),
    newest=st.booleans(),
    limit=st.integers(1, 4),
    looked_max=st.integers(1, 6),
)
def test_looks_together_find_what_one_would(
    arrivals: list[tuple[int, str]], newest: bool, limit: int, looked_max: int
) -> None:
    made = FakeOperations()
    made.store.add_usage(
        usage_record(f"r{number}", tenant=tenant, arrived_ns=T0 + at) for number, (at, tenant) in enumerate(arrivals)
    )
    together: list[UsageRecord] = []
    after: Place | None = None
    for _ in range(2 * len(arrivals) + 9):  # each look goes on by a nanosecond at least, or finds something
        found = look(made, after, looked_max=looked_max, newest=newest, limit=limit)
        together += found.records
        after = found.after
        if after is None:
            break
    assert after is None
    assert tuple(together) == made.store.records(T0, T0 + 100, None, 99, FILTER, newest=newest)
