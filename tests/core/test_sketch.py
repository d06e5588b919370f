"""Laws of sketches: any division of values adds up to the same sketch, and its quantiles are those of the values."""

import math

import pytest
from ddsketch.mapping import LogarithmicMapping
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.sketch import ERROR, FLOOR_NS, Sketch

# Of every size that a wait can have, and often the same one.
times = st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 63).map(lambda bits: 1 << bits), st.integers(0, 5))
lists = st.lists(times, max_size=60)


def sketch(*values: int) -> Sketch:
    made = Sketch()
    made.add(values)
    return made


def content(of: Sketch) -> tuple[dict[int, int], int]:
    return of.bins, of.max_ns


def nearest_rank(values: list[int], percent: int) -> int:
    return sorted(values)[(len(values) * percent + 99) // 100 - 1]


@given(lists.filter(bool), st.lists(st.integers(1, 100), min_size=1, max_size=4).map(sorted))
def test_a_quantile_is_the_one_of_the_values_within_the_error(values: list[int], percents: list[int]) -> None:
    for percent, told in zip(percents, sketch(*values).quantiles(*percents), strict=True):
        exact = nearest_rank(values, percent)
        assert told is not None
        if exact < FLOOR_NS:
            assert told == 0
        else:
            assert abs(told - exact) <= ERROR * exact + 1  # and the rounding to whole nanoseconds
        assert told <= max(values)


@given(lists, lists, lists)
def test_sketches_merge_in_any_order_and_division_into_that_of_all(a: list[int], b: list[int], c: list[int]) -> None:
    left, right = sketch(*a), sketch(*b)
    left.merge(sketch(*b))
    left.merge(sketch(*c))
    right.merge(sketch(*c))
    right.merge(sketch(*a))
    assert content(left) == content(right) == content(sketch(*c, *a, *b))
    assert left.count == len(a) + len(b) + len(c)


@given(lists, lists)
def test_what_is_encoded_is_added_as_the_sketch_itself(a: list[int], b: list[int]) -> None:
    taken, merged = sketch(*a), sketch(*a)
    taken.take(sketch(*b).encoded())
    merged.merge(sketch(*b))
    assert content(taken) == content(merged)
    again = Sketch()
    again.take(taken.encoded())
    assert again.encoded() == taken.encoded()


@given(st.integers(FLOOR_NS, 2**62))
def test_a_value_lies_in_the_bin_that_the_library_of_the_algorithm_says(value: int) -> None:
    mapping = LogarithmicMapping(ERROR)
    (key,) = sketch(value).bins
    place = math.log(value, mapping.gamma)
    if abs(place - round(place)) > 1e-6:  # on the border of two bins either will do
        assert key == mapping.key(value)
    (told,) = sketch(value, 2**63 - 1).quantiles(50)
    assert told == pytest.approx(mapping.value(key), rel=1e-9, abs=1)


def test_a_sketch_of_nothing_has_no_quantiles_and_no_bytes() -> None:
    assert Sketch().quantiles(50, 99) == (None, None)
    assert Sketch().encoded() == b""
    assert sketch(0).encoded() != b""


def test_a_sketch_of_a_later_release_is_refused() -> None:
    with pytest.raises(ValueError, match="of version 2, and this release reads version 1"):
        Sketch().take(bytes([0x95, 2, 5, 0, 0, 0]))


def test_the_largest_value_is_exact_and_bounds_what_is_told() -> None:
    # given a value that is told too large
    value = next(ns for ns in range(10**9, 2 * 10**9, 10**6) if (sketch(ns, 10**10).quantiles(50)[0] or 0) > ns)
    assert sketch(value).quantiles(100) == (value,)
    assert sketch(5, value).max_ns == value


def test_64_bits_have_1840_bins() -> None:
    first, last = (next(iter(sketch(value).bins)) for value in (FLOOR_NS, 2**63 - 1))
    assert 1 + last - first + 1 == 1840
