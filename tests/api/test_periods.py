"""Given months of books, when one is closed, then it is closed once, and only when all of it is known."""

import pytest
from starlette.testclient import TestClient

from tests.api.books import HOUR, at, billed, keep
from tests.api.fakes import ADMIN, FakeOperations


@pytest.fixture
def product() -> FakeOperations:
    product = billed(now="2027-01-02 00:30")
    keep(product, "2026-12-30 00:00", "2027-01-01 23:00")
    return product


def close(local: TestClient, name: str, **headers: str) -> tuple[int, str]:
    answer = local.post("/admin/v1/periods", json={"name": name}, headers=headers)
    said = answer.json()
    return answer.status_code, said["error"]["message"] if "error" in said else said["state"]


def states(local: TestClient) -> list[tuple[str, str]]:
    return [(each["name"], each["state"]) for each in local.get("/admin/v1/periods").json()["periods"]]


def test_months_since_the_books_began(local: TestClient) -> None:
    assert states(local) == [("2026-12", "over"), ("2027-01", "open")]


def test_a_month_that_is_over_is_closed_once(local: TestClient, product: FakeOperations) -> None:
    assert close(local, "2026-12", authorization=ADMIN.decode()) == (201, "closed")
    assert close(local, "2026-12") == (409, "The period 2026-12 is closed already.")
    assert states(local) == [("2026-12", "closed"), ("2027-01", "open")]
    (december, _) = local.get("/admin/v1/periods").json()["periods"]
    assert (december["closed_ns"], december["closed_by"]) == (product.now, "key:k1")
    assert (december["start_ns"], december["end_ns"]) == (at("2026-12-01 00:00"), at("2027-01-01 00:00"))


def test_a_month_that_goes_on_is_not_closed(local: TestClient) -> None:
    assert close(local, "2027-01") == (
        409, "2027-01 is not over; it can be closed from 2027-02-01 00:00 Europe/Berlin on",
    )  # fmt: skip


def test_a_month_with_an_open_hour_is_not_closed(local: TestClient, product: FakeOperations) -> None:
    product.now = at("2027-02-01 00:00") + HOUR
    code, said = close(local, "2027-01")
    assert code == 409
    assert said.startswith("2027-01 cannot be closed yet: the hour of pool main from 2027-01-01 23:00 Europe/Berlin on")
    assert states(local)[1] == ("2027-01", "open")


def test_a_month_without_books_is_not_closed(local: TestClient) -> None:
    assert close(local, "2026-10") == (409, "there are no books of 2026-10, so there is nothing to close")


@pytest.mark.parametrize("name", ["2026-13", "2026-12-01", "December", ""])
def test_what_is_no_month(local: TestClient, name: str) -> None:
    assert close(local, name)[0] == 400
