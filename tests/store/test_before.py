"""Who was before a request, as every store says: who waited when it came, and who was started meanwhile."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commonpool.core.model import Outcome, UsageRecord
from commonpool.core.standing import Before, Passage
from commonpool.store.contract import Store
from commonpool.store.memory import MemoryStore
from tests.store.records import T0, usage_record

S = 10**9
PASSAGE = Passage("r", "m", T0 + 10 * S, T0 + 20 * S)
LONGEST = 60 * S


def waited(request_id: str, since_s: int, wait_s: int, **more: object) -> UsageRecord:
    return usage_record(request_id, arrived_ns=T0 + since_s * S, wait_ns=wait_s * S, **{"model": "m", **more})


def test_those_who_wait_and_those_who_are_started_are_counted_by_tenant(store: Store) -> None:
    store.add_usage(
        [
            waited("r", 10, 10),
            waited("was there, and is started", 9, 3, tenant="b"),
            waited("was there, and waits on", 9, 30, tenant="b"),
            waited("came later, and is started", 11, 1, tenant="c"),
            waited("had been started", 8, 2, tenant="c"),
            waited("came and was started behind it", 19, 2, tenant="c"),
            waited("of another model", 9, 3, tenant="b", model="n"),
            waited("too long ago", -60, 75, tenant="b"),
        ]
    )
    assert store.before(PASSAGE, LONGEST) == {"b": Before(2, 1), "c": Before(0, 1)}


def test_what_was_refused_after_a_wait_was_there_and_was_not_served(store: Store) -> None:
    gone = {"outcome": Outcome.CANCELLED, "milli_gpu": 0, "milli_gpu_ns": 0, "run_ns": 0}
    store.add_usage([waited("x", 9, 3, tenant="b", **gone)])
    assert store.before(PASSAGE, LONGEST) == {"b": Before(1, 0)}


@pytest.mark.parametrize("until_s", [10, 20])
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20), st.sampled_from("ab")), max_size=12))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_stores_say_the_same(store: Store, until_s: int, made: list[tuple[int, int, str]]) -> None:
    memory = MemoryStore()
    model = f"{until_s} {made}"  # the store is not emptied in between
    passage = Passage("r", model, T0 + 10 * S, T0 + until_s * S)
    records = [
        waited(f"{model}-{at}", since, wait, tenant=tenant, model=model)
        for at, (since, wait, tenant) in enumerate(made)
    ]
    for each in (store, memory):
        each.add_usage(records)
    found = store.before(passage, LONGEST)
    assert found == memory.before(passage, LONGEST)
    assert sum(each.waiting for each in found.values()) == sum(since < 10 < since + wait for since, wait, _ in made)
    assert sum(each.served for each in found.values()) == sum(
        10 < since + wait <= until_s and since <= until_s for since, wait, _ in made
    )
