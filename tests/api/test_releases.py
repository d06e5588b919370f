"""Given a guarantee, when a part of it is released, then who did it is kept, and nobody loses what it needs."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from commonpool.core import views
from commonpool.core.events import Submitted
from commonpool.core.model import Job
from commonpool.core.underuse import Underuse
from tests.api.fakes import ADMIN, NOW, FakeOperations

UNDERUSED = Underuse("support", "main", 2000, 80, 100, 20, 500, 1800)


def guaranteed(product: FakeOperations) -> int:
    return views.tenants(product.machine.state)[0].guaranteed


def test_life_of_a_release(local: TestClient, product: FakeOperations) -> None:
    new = {"tenant": "support", "milli_gpu": 1500, "reason": "nobody trains in summer"}
    answer = local.post("/admin/v1/releases", json=new, headers={"authorization": ADMIN.decode()})
    made = {
        "number": 1,
        "tenant": "support",
        "milli_gpu": 1500,
        "released_ns": NOW,
        "released_by": "key:k1",
        "reason": "nobody trains in summer",
        "undone_ns": None,
        "undone_by": None,
    }
    assert (answer.status_code, answer.json()) == (201, made)
    assert guaranteed(product) == 500
    undone = local.post("/admin/v1/releases/support/undo")
    assert undone.json() == {"releases": [made | {"undone_ns": NOW, "undone_by": "local"}]}
    assert guaranteed(product) == 2000
    assert local.get("/admin/v1/releases").json() == undone.json()


def test_without_an_amount_it_is_what_is_offered(local: TestClient, product: FakeOperations) -> None:
    product.underused = (UNDERUSED,)
    assert local.get("/admin/v1/underuse").json()["offered_milli_gpu"] == 1800
    answer = local.post("/admin/v1/releases", json={"tenant": "support"})
    assert (answer.json()["milli_gpu"], answer.json()["released_by"]) == (1800, "local")


def test_more_than_is_offered_up_to_what_is_not_in_use(local: TestClient, product: FakeOperations) -> None:
    product.machine.handle(Submitted(Job("j", "support", "helpdesk", "main", "batch", 600)), NOW)
    refused = local.post("/admin/v1/releases", json={"tenant": "support", "milli_gpu": 1401})
    assert refused.json()["error"]["message"].startswith("tenant support can release 1.4 gpu now, and not 1.401 gpu")
    assert local.post("/admin/v1/releases", json={"tenant": "support", "milli_gpu": 1400}).status_code == 201
    assert guaranteed(product) == 600


@pytest.mark.parametrize(
    ("new", "status", "says"),
    [
        ({"tenant": "suport"}, 400, "there is no tenant 'suport'; there is support, research"),
        ({"tenant": "support"}, 400, "is not under-used, so nothing is offered"),
        ({"tenant": "support", "milli_gpu": 0}, 400, ">= 1"),
        ({"tenant": "support", "milli_gpu": 100, "reason": "a\u001b[2J"}, 400, "cannot be printed"),
        ({"tenant": "support", "milli_gpu": 100, "reason": "a" * 501}, 400, "<= 500"),
    ],
)
def test_what_cannot_be_released(
    local: TestClient, product: FakeOperations, new: dict[str, Any], status: int, says: str
) -> None:
    answer = local.post("/admin/v1/releases", json=new)
    assert answer.status_code == status
    assert says in answer.json()["error"]["message"]
    assert product.store.releases() == ()


def test_nothing_to_undo(local: TestClient) -> None:
    answer = local.post("/admin/v1/releases/support/undo")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_a_tenants_key_may_not_release(product: FakeOperations, local: TestClient) -> None:
    answer = local.post(
        "/admin/v1/releases", json={"tenant": "support", "milli_gpu": 100}, headers={"authorization": "Bearer cp_a"}
    )
    assert answer.status_code == 403
    assert "key:k2 (app in a) may not release a guarantee" in answer.json()["error"]["message"]
    assert product.store.releases() == ()
