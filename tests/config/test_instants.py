"""Points in time, written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.config.instants import format_instant, parse_instant

S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "at_s"),
    [("1970-01-01T00:00:00Z", 0), ("2024-02-29T12:00:01Z", 1_709_208_001), ("2027-03-06T22:00:00Z", 1_804_370_400)],
)
def test_an_instant(text: str, at_s: int) -> None:
    assert parse_instant(text) == at_s * S


@given(st.integers(0, 253_402_300_799))
def test_what_is_written_is_read_back(at_s: int) -> None:
    assert parse_instant(format_instant(at_s * S)) == at_s * S


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("2027-03-06", '"2027-03-06" is not a time in UTC; write it like 2027-03-01T22:00:00Z'),
        (
            "2027-03-06T22:00:00+01:00",
            '"2027-03-06T22:00:00+01:00" is not a time in UTC; write it like 2027-03-01T22:00:00Z',
        ),
        (
            "2027-02-30T22:00:00Z",
            '"2027-02-30T22:00:00Z" is not in the calendar; write a time like 2027-03-01T22:00:00Z',
        ),
        ("1969-12-31T23:59:59Z", '"1969-12-31T23:59:59Z" is not a time in UTC; write it like 2027-03-01T22:00:00Z'),
    ],
)
def test_what_is_none(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is what is tested
        parse_instant(text)
    assert str(caught.value) == sentence
