"""Given meters with prices, when somebody tells what was measured elsewhere, then it is taken down once."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from commonpool.config import parse_sources
from commonpool.core.ledger import Counted, Work
from commonpool.core.model import NS_PER_HOUR
from commonpool.store.ledger import Period, Reading
from tests.api.fakes import CONFIG, NOW, FakeOperations, sources

END = NOW - NOW % NS_PER_HOUR
START = END - NS_PER_HOUR
GIB_HOUR = 1024 * 3600
NEW: dict[str, Any] = {
    "id": "nfs-1/2026-11-03T10",
    "meter": "storage_gib_hour",
    "tenant": "support",
    "app": "helpdesk",
    "quantity": 500 * GIB_HOUR,
    "start_ns": START,
    "end_ns": END,
}


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    text = CONFIG.replace("currency: EUR", "currency: EUR\n  meters: {storage_gib_hour: 0.0001, network_gb: 0.02}")
    product._config = parse_sources(sources(text))
    return product


def test_a_reading_is_taken_down_and_counted_in_its_hours(local: TestClient, product: FakeOperations) -> None:
    answer = local.post("/admin/v1/readings", json=NEW)
    assert answer.status_code == 201
    assert answer.json() == {"reading": {**NEW, "cost_center": "CC-1", "pool": ""}, "unit": GIB_HOUR}
    work = product.store.hour_work("", START)
    assert work.counted == (
        Counted(
            Work(tenant="support", app="helpdesk", cost_center="CC-1"), {"storage_gib_hour": 500 * GIB_HOUR}
        ),
    )  # fmt: skip


def test_the_same_again_is_there_already(local: TestClient) -> None:
    first = local.post("/admin/v1/readings", json=NEW)
    again = local.post("/admin/v1/readings", json=NEW)
    assert (again.status_code, again.json()) == (200, first.json())


def test_the_same_id_with_other_content_is_a_conflict(local: TestClient, product: FakeOperations) -> None:
    local.post("/admin/v1/readings", json=NEW)
    answer = local.post("/admin/v1/readings", json={**NEW, "quantity": 1})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    assert NEW["id"] in answer.json()["error"]["message"]
    assert product.store.hour_work("", START).counted[0].quantities == {"storage_gib_hour": 500 * GIB_HOUR}


def test_a_closed_period_takes_nothing_more(local: TestClient, product: FakeOperations) -> None:
    product.store.add_period(Period("2027-01", START, END, NOW, "k1", b"{}"))
    answer = local.post("/admin/v1/readings", json=NEW)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    assert "2027-01" in answer.json()["error"]["message"]


def test_an_app_is_the_default_one_and_a_pool_is_none(local: TestClient, product: FakeOperations) -> None:
    few = {name: NEW[name] for name in ("id", "meter", "tenant", "quantity", "start_ns", "end_ns")}
    answer = local.post("/admin/v1/readings", json=few)
    assert answer.json()["reading"] | {"app": "default", "cost_center": "", "pool": ""} == answer.json()["reading"]
    product.store.add_reading(Reading(**{**few, "app": "default"}))  # the same one: no conflict


@pytest.mark.parametrize(
    ("changed", "param", "says"),
    [
        ({"meter": "storage_gb"}, "meter", "there is no meter 'storage_gb'; did you mean storage_gib_hour?"),
        ({"meter": "gpu_hour"}, "meter", "there is no meter 'gpu_hour'"),
        ({"meter": "cpu_hour"}, "meter", "cpu_hour has no price, so nobody would pay for it"),
        ({"quantity": -1}, None, ">= 0"),
        ({"quantity": 1.5}, None, "quantity"),
        ({"start_ns": END}, "end_ns", "a reading ends after it begins"),
        ({"start_ns": END + 1}, "end_ns", "a reading ends after it begins"),
        ({"end_ns": NOW + 1}, "end_ns", "in the future"),
        ({"start_ns": START // 10**9}, "start_ns", "give nanoseconds since 1970, not seconds"),
        ({"tenant": "suport"}, "tenant", "there is no tenant 'suport'; there is support, research"),
        ({"app": "papers"}, "app", "tenant support has no app 'papers'; it has default, helpdesk"),
        ({"pool": "mian"}, "pool", "there is no pool 'mian'; there is main"),
        ({"id": ""}, None, "id"),
        ({"price": 1}, None, "price"),
    ],
)
def test_what_is_no_reading(
    local: TestClient, product: FakeOperations, changed: dict[str, Any], param: str | None, says: str
) -> None:
    answer = local.post("/admin/v1/readings", json={**NEW, **changed})
    assert (answer.status_code, answer.json()["error"].get("param")) == (400, param)
    assert says in answer.json()["error"]["message"]
    assert product.store.hour_work("", START).counted == ()
