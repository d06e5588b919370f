"""Given a request's records, when it is traced, then every posting of it is shown, and they sum to what it cost."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from commonpool.core.model import Outcome
from tests.api.books import BILLED, HOUR, at, billed, close, keep, work
from tests.api.fakes import KEY_OF_A, FakeOperations, sources

MINUTE = HOUR // 60


@pytest.fixture
def product() -> FakeOperations:
    product = billed()
    keep(
        product,
        "2026-12-30 00:00",
        "2026-12-30 11:00",
        [
            work("r1", "2026-12-30 10:40", 20 * MINUTE, outcome=Outcome.FAILED),
            work("r1", "2026-12-30 11:20", 40 * MINUTE, attempt=2, loan=1000),
        ],
    )
    return product


def ask(local: TestClient, request_id: str = "r1") -> dict[str, Any]:
    found: dict[str, Any] = local.get(f"/admin/v1/requests/{request_id}/postings").json()
    return found


def test_every_attempt_with_its_postings(local: TestClient) -> None:
    failed, done = ask(local)["attempts"]
    assert [(each["kind"], each["debit"]) for each in failed["postings"]] == [("uncharged", "platform")]
    assert failed["cost_micro"] == 0
    hours = {(each["kind"], each["hour_ns"]): each for each in done["postings"] if each["meter"] == "gpu_hour"}
    own, lent = hours["used", at("2026-12-30 10:00")], hours["borrowed", at("2026-12-30 10:00")]
    assert (own["quantity"], own["price_micro"], own["cost_micro"]) == ("1200.000000000000", 2_500_000, 833_333)
    assert (lent["credit"], lent["price_micro"], lent["cost_micro"]) == ("tenant:research", 2_000_000, 666_667)
    assert {each["meter"] for each in done["postings"]} == {
        "gpu_hour", "million_tokens_in", "million_tokens_out", "request",
    }  # fmt: skip


def test_postings_sum_to_the_cost(local: TestClient) -> None:
    story = ask(local)
    for attempt in story["attempts"]:
        paid = [each["cost_micro"] for each in attempt["postings"] if each["debit"] == "tenant:support"]
        assert sum(paid) == attempt["cost_micro"]
    assert sum(attempt["cost_micro"] for attempt in story["attempts"]) == story["cost_micro"] == 3_000_000 + 251


def test_hours_say_whether_they_are_in_the_books(local: TestClient) -> None:
    booked = {each["hour_ns"]: each["booked"] for each in ask(local)["attempts"][1]["postings"]}
    assert booked == {at("2026-12-30 10:00"): True, at("2026-12-30 11:00"): False}


def test_what_is_booked_keeps_its_price(local: TestClient, product: FakeOperations) -> None:
    product.configure(sources(BILLED.replace("main: 2.50", "main: 10").replace("80%", "50%")))
    prices = {
        (each["kind"], each["booked"]): each["price_micro"]
        for each in ask(local)["attempts"][1]["postings"]
        if each["meter"] == "gpu_hour"
    }
    assert prices == {
        ("used", True): 2_500_000, ("borrowed", True): 2_000_000,
        ("used", False): 10_000_000, ("borrowed", False): 5_000_000,
    }  # fmt: skip


def test_a_price_that_is_missing_is_said(local: TestClient, product: FakeOperations) -> None:
    dated = "main: [{price: 2.50, from: 2027-01-01}]"
    product.configure(sources(BILLED.replace("main: 2.50", dated)))
    story = ask(local)
    assert story["attempts"][1]["postings"] == []
    assert "prices.gpu_hour.main" in story["attempts"][1]["problem"]


def test_who_may_ask(local: TestClient, product: FakeOperations) -> None:
    product.store.add_usage([work("mine", "2026-12-30 11:20", MINUTE, tenant="a")])
    close(product, at("2026-12-30 12:00"))
    of_a = {"authorization": KEY_OF_A.decode()}
    assert local.get("/admin/v1/requests/mine/postings", headers=of_a).status_code == 200
    assert local.get("/admin/v1/requests/r1/postings", headers=of_a).status_code == 404
    assert "no attempt at 'r9' has ended" in ask(local, "r9")["error"]["message"]
