"""Given closed hours, when the books are reconciled, then every difference is shown with its cause."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from commonpool.core.ledger import Phase, Span
from tests.api.books import HOUR, at, billed, keep
from tests.api.fakes import FakeOperations

START = "2026-12-30 10:00"


def span(phase: Phase, start: int, end: int, replica: str = "echo-0.1") -> Span:
    return Span(replica, phase, "main", "echo", "platform", 2000, at(START) + start, at(START) + end)


def books(*spans: Span) -> FakeOperations:
    product = billed()
    product.store.add_meters(spans)
    keep(product, START, "2026-12-30 12:00")
    return product


@pytest.fixture
def product() -> FakeOperations:
    second = 10**9
    return books(span(Phase.SERVING, 0, HOUR), span(Phase.HELD, 2 * second, HOUR))


def ask(local: TestClient, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = local.get("/admin/v1/reconciliation", params=query).json()
    return found


def test_what_there_was_is_charged(local: TestClient) -> None:
    table = ask(local, since_ns=at(START), until_ns=at(START) + HOUR)
    (hour,) = table["hours"]
    assert (hour["pool"], hour["hour_ns"]) == ("main", at(START))
    assert hour["devices"] == hour["charged"] == "14400.000000000000"
    assert (hour["price_micro"], hour["cost_micro"], table["currency"]) == (2_500_000, 10_000_000, "EUR")
    assert len(ask(local)["hours"]) == 2


def test_a_lag_is_shown_and_closes(local: TestClient) -> None:
    hour, quiet = ask(local)["hours"]
    assert (hour["held"], hour["reported"]) == ("7200.000000000000", "7196.000000000000")
    assert hour["causes"] == {"started or ended later than told": "4.000000000000"}
    assert hour["closes"]
    assert quiet["causes"] == {}
    assert ask(local)["closes"]


class TestUnknown:
    @pytest.fixture
    def product(self) -> FakeOperations:
        return books(span(Phase.HELD, 0, HOUR, "stray"))

    def test_what_nobody_gave_out_does_not_close(self, local: TestClient) -> None:
        table = ask(local)
        assert table["hours"][0]["causes"] == {"not known to the core": "-7200.000000000000"}
        assert [hour["closes"] for hour in table["hours"]] == [False, True]
        assert not table["closes"]


def test_time_that_ends_before_it_begins(local: TestClient) -> None:
    assert ask(local, since_ns=2, until_ns=1)["error"]["param"] == "until_ns"
