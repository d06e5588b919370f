"""Given what tenants have wanted, the advised quotas follow the rules of the module, whatever the figures."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.core.advice import Advice, Proposal, Series, advise, enough, high, percentile


def series(tenant: str, *wanted: int, task: int = 1, **more: object) -> Series:
    return msgspec.structs.replace(Series(tenant, wanted, task), **more)


def by_name(advice: Advice) -> dict[str, Proposal]:
    return {each.tenant: each for each in advice.proposals}


@st.composite
def pasts(draw: st.DrawFn) -> list[Series]:
    """Up to five tenants over up to six intervals."""
    length = draw(st.integers(1, 6))
    one = st.tuples(
        st.lists(st.integers(0, 50_000), min_size=length, max_size=length), st.integers(1, 8000), st.booleans()
    )
    past = draw(st.lists(one, min_size=1, max_size=5))
    return [
        Series(name, tuple(wanted), task, lasting=lasting)
        for name, (wanted, task, lasting) in zip("abcde", past, strict=False)
    ]


def test_percentiles_are_by_nearest_rank() -> None:
    assert [percentile(range(1, 101), percent) for percent in (1, 50, 95, 100)] == [1, 50, 95, 100]
    assert percentile([7], 95) == 7
    assert percentile([], 95) == 0


def test_a_pool_of_tenants_who_peak_at_different_times_is_smaller_than_the_sum_of_their_own_cards() -> None:
    day, night = series("day", *[1000] * 50, *[0] * 50), series("night", *[0] * 50, *[1000] * 50)
    advice = advise([day, night])
    assert (advice.enough, advice.static, advice.capacity) == (1000, 2000, 1000)
    assert {each.guaranteed for each in advice.proposals} == {500}  # the pool is shared evenly between equals
    assert {each.elastic_cap for each in advice.proposals} == {1000}


def test_requests_are_guaranteed_their_high_and_the_largest_gives_way() -> None:
    steady, burst = series("steady", *[300] * 100), series("burst", *[0] * 90, *[4000] * 10)
    found = by_name(advise([steady, burst], 2000))
    assert (found["steady"].guaranteed, found["burst"].guaranteed) == (300, 1700)
    assert (found["steady"].elastic_cap, found["burst"].elastic_cap) == (600, 2000)


def test_jobs_are_guaranteed_what_is_usual_and_go_no_further_than_their_high() -> None:
    found = by_name(advise([series("a", *[1000] * 60, *[3000] * 40, lasting=True), series("b", *[9000] * 100)], 9000))
    assert (found["a"].guaranteed, found["a"].elastic_cap) == (1000, 3000)


def test_a_tenant_whose_guarantee_lies_idle_gives_it_up_and_one_that_waits_gets_a_higher_cap() -> None:
    idle = series("idle", *[100] * 100, guaranteed=4000, elastic_cap=8000)
    waits = series(
        "waits",
        *[1000] * 97,
        *[6000] * 3,
        lasting=True,
        guaranteed=1000,
        elastic_cap=2000,
        wait_ns_p99=90 * 10**9,
        patience_ns=10**9,
    )
    busy = series("busy", *[8000] * 100)
    found = by_name(advise([idle, waits, busy], 8000))
    assert found["idle"].guaranteed == 100
    assert found["idle"].sentence.startswith("A part of its guarantee of 4 gpu lies idle")
    assert found["waits"].elastic_cap == 6000  # its peak; patient, it would have its high of 1000
    assert found["waits"].sentence.startswith("One task in a hundred waits 90 s or longer")
    patient = by_name(advise([idle, msgspec.structs.replace(waits, wait_ns_p99=0), busy], 8000))
    assert patient["waits"].elastic_cap == 1000


def test_a_cap_that_protects_nobody_is_none() -> None:
    found = by_name(advise([series("a", *[100] * 20), series("b", *[300] * 20)], 4000))
    assert (found["a"].elastic_cap, found["b"].elastic_cap) == (4000 - 600, 4000 - 200)


def test_who_has_wanted_nothing_may_run_one_task_as_large_as_any() -> None:
    found = by_name(advise([series("new", *[0] * 20, task=0), series("busy", *[900] * 20, task=70)], 1000))
    assert (found["new"].guaranteed, found["new"].elastic_cap) == (0, 70)


def test_series_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        advise([series("a", 1), series("b", 1, 2)])


@settings(max_examples=60, deadline=None)
@given(pasts(), st.none() | st.integers(0, 100_000))
def test_the_laws_of_a_plan(past: list[Series], capacity: int | None) -> None:
    advice = advise(past, capacity)
    assert sum(each.guaranteed for each in advice.proposals) <= advice.capacity
    assert all(0 <= each.guaranteed <= each.elastic_cap <= advice.capacity for each in advice.proposals)
    assert advice.enough <= advice.static
    assert advice == advise(past[::-1], capacity)


@settings(max_examples=60, deadline=None)
@given(pasts(), st.integers(2, 9))
def test_all_demand_times_k_gives_all_advice_times_k(past: list[Series], k: int) -> None:
    larger = [
        msgspec.structs.replace(each, wanted=tuple(k * want for want in each.wanted), task=k * each.task)
        for each in past
    ]
    assert enough(larger) == k * enough(past)
    assert [high(each) for each in larger] == [k * high(each) for each in past]
    pairs = zip(advise(past).proposals, advise(larger).proposals, strict=True)
    # Where the pool is too small for all wishes it is split, and what does not divide stays over.
    assert all(abs(large.guaranteed - k * small.guaranteed) < k * len(past) for small, large in pairs)
