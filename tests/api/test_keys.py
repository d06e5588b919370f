"""Given a configuration, when keys are made, listed, revoked, rotated, then secrets show once and names are checked."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api.fakes import NOW, FakeOperations


def create(local: TestClient, **new: Any) -> dict[str, Any]:
    answer = local.post("/admin/v1/keys", json=new)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_secret_is_in_the_answer_and_nowhere_else(local: TestClient, product: FakeOperations) -> None:
    made = create(local, tenant="support", note="for the desk")
    assert made["key"].startswith(f"cp_{made['about']['id']}_")
    listed = local.get("/admin/v1/keys")
    assert [key["id"] for key in listed.json()["keys"]] == [made["about"]["id"]]
    assert made["key"] not in listed.text
    assert "digest" not in listed.text
    assert len(product.store.list_keys()) == 1


def test_app(local: TestClient) -> None:
    assert create(local, tenant="support")["about"]["app"] == "default"
    assert create(local, tenant="research", app="slides")["about"]["app"] == "slides"


def test_admin_key_belongs_to_nobody(local: TestClient) -> None:
    key = create(local, scope="admin")["about"]
    assert (key["scope"], key["tenant"], key["app"]) == ("admin", "", "")


@pytest.mark.parametrize(
    ("new", "param", "says"),
    [
        ({}, "tenant", "tenant '' does not exist for this key; there is support, research"),
        ({"tenant": "suport"}, "tenant", "tenant 'suport' does not exist"),
        ({"tenant": "support", "app": "x"}, "app", "app 'x' does not exist for this key; there is default, helpdesk"),
        ({"tenant": "support", "tier": "gold"}, "tier", "there is interactive, batch"),
        ({"tenant": "support", "models": ["gpt"]}, "models", "there is echo"),
        ({"tenant": "support", "expires_ns": NOW}, "expires_ns", "would expire before it is made"),
        ({"scope": "admin", "tenant": "support"}, None, "belongs to no tenant"),
    ],
)
def test_what_does_not_exist_is_named(
    local: TestClient, product: FakeOperations, new: dict[str, Any], param: str | None, says: str
) -> None:
    answer = local.post("/admin/v1/keys", json=new)
    assert answer.status_code == 400
    assert answer.json()["error"].get("param") == param
    assert says in answer.json()["error"]["message"]
    assert product.store.list_keys() == ()


def test_revoke(local: TestClient) -> None:
    made = create(local, tenant="support")["about"]
    assert local.post(f"/admin/v1/keys/{made['id']}/revoke").json()["revoked_ns"] == NOW
    assert local.get("/admin/v1/keys").json()["keys"][0]["revoked_ns"] == NOW


def test_rotate_overlaps(local: TestClient) -> None:
    made = create(local, tenant="support", tier="batch")["about"]
    answer = local.post(f"/admin/v1/keys/{made['id']}/rotate", json={"overlap_ns": 5})
    assert answer.status_code == 201
    assert answer.json()["about"]["tier"] == "batch"
    old, new = sorted(local.get("/admin/v1/keys").json()["keys"], key=lambda key: key["id"] != made["id"])
    assert (old["expires_ns"], new["expires_ns"]) == (NOW + 5, None)


@pytest.mark.parametrize("verb", ["revoke", "rotate"])
def test_unknown_key(local: TestClient, verb: str) -> None:
    answer = local.post(f"/admin/v1/keys/nobody/{verb}", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
