"""Places in listings: numbers that a store has room for, or a refusal that says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from commonpool.api.places import NUMBER_MAX, number


@given(st.integers(0, NUMBER_MAX))
def test_a_number_is_read_as_it_is_written(value: int) -> None:
    assert number(str(value)) == value


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "+1", " 1", "1_0", "1.0", "\u0665", str(NUMBER_MAX + 1), "9" * 19, "9" * 25, "9" * 5000]
)
def test_what_is_none(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize("digits", [25, 5000])
@pytest.mark.parametrize(
    "path",
    [
        "audit?after={}",
        "jobs?all=true&after={}.x",
        "records?after={}.1.x",
        "records?after=1.{}.x",
        "bill/records?after={}.1.x",
        "bill/records?after=1.{}.x",
        "audit/verify?after={}:" + "0" * 64,
        "audit/verify?head={}:" + "0" * 64,
    ],
)
def test_a_place_beyond_all_is_refused(local: TestClient, path: str, digits: int) -> None:
    answer = local.get(f"/admin/v1/{path.format('9' * digits)}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
