"""Given a tenant with room below its hard_cap, when it is granted more for a while, then its names and bounds hold."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from commonpool.config import parse_sources
from tests.api.fakes import CONFIG, NOW, FakeOperations, sources

S = 10**9
YEAR = 366 * 86400 * S


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    product._config = parse_sources(
        sources(CONFIG.replace("elastic_cap: 4_gpu}", "elastic_cap: 2_gpu, hard_cap: 3_gpu}", 1))
    )
    return product


def test_a_grant_is_an_amount_and_an_end(local: TestClient, product: FakeOperations) -> None:
    new = {"tenant": "support", "elastic_cap_milli_gpu": 3000, "for_ns": 7200 * S}
    answer = local.post("/admin/v1/grants", json=new)
    assert answer.status_code == 201
    until = NOW + 7200 * S
    assert answer.json() == {"tenant": "support", "elastic_cap_milli_gpu": 3000, "until_ns": until}
    assert product.granted == [("support", 3000, until)]


def test_a_grant_that_is_ended_leaves_what_is_configured(local: TestClient, product: FakeOperations) -> None:
    answer = local.post("/admin/v1/grants/support/end")
    assert answer.json() == {"tenant": "support", "elastic_cap_milli_gpu": 2000, "until_ns": None}
    assert product.granted == [("support", 0, NOW)]


@pytest.mark.parametrize(
    ("changed", "param", "says"),
    [
        ({"tenant": "suport"}, "tenant", "there is no tenant 'suport'; there is support, research"),
        ({"elastic_cap_milli_gpu": 3001}, "elastic_cap_milli_gpu", "3.001 gpu is more than the hard_cap"),
        ({"elastic_cap_milli_gpu": 2000}, "elastic_cap_milli_gpu", "may use 2 gpu without a grant"),
        ({"for_ns": 0}, "for_ns", "a grant for 0s is not for a while"),
        ({"for_ns": YEAR + 1}, "for_ns", "at most 366d"),
        ({"elastic_cap_milli_gpu": 0}, None, ">= 1"),
        ({"forever": True}, None, "forever"),
    ],
)  # fmt: skip
def test_what_cannot_be_granted(
    local: TestClient, product: FakeOperations, changed: dict[str, Any], param: str | None, says: str
) -> None:
    new = {"tenant": "support", "elastic_cap_milli_gpu": 2500, "for_ns": S, **changed}
    answer = local.post("/admin/v1/grants", json=new)
    assert (answer.status_code, answer.json()["error"].get("param")) == (400, param)
    assert says in answer.json()["error"]["message"]
    assert product.granted == []


def test_a_pool_that_lends_nothing_has_nothing_to_grant(local: TestClient, product: FakeOperations) -> None:
    text = CONFIG.replace("4_gpu}", "4_gpu, rule: guaranteed}", 1).replace("elastic_cap: 4_gpu", "hard_cap: 4_gpu")
    product._config = parse_sources(sources(text))
    answer = local.post("/admin/v1/grants", json={"tenant": "support", "elastic_cap_milli_gpu": 3000, "for_ns": S})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tenant")
    assert "knows no loans" in answer.json()["error"]["message"]
    assert product.granted == []


def test_the_bounds_themselves_are_allowed(local: TestClient, product: FakeOperations) -> None:
    new = {"tenant": "support", "elastic_cap_milli_gpu": 3000, "for_ns": YEAR}
    assert local.post("/admin/v1/grants", json=new).status_code == 201
    assert product.granted == [("support", 3000, NOW + YEAR)]


def test_the_grant_of_nobody_cannot_be_ended(local: TestClient, product: FakeOperations) -> None:
    answer = local.post("/admin/v1/grants/nobody/end")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert product.granted == []
