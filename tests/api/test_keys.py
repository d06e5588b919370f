"""Given a configuration, when keys are made, listed, revoked, rotated, then secrets show once and names are checked."""

from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from commonpool.api.keys import LIVE_KEYS_MAX
from commonpool.core.model import Limits
from commonpool.store.keys import mint
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
        ({}, "tenant", "there is no tenant ''; there is support, research"),
        ({"tenant": "suport"}, "tenant", "there is no tenant 'suport'; there is"),
        ({"tenant": "support", "app": "x"}, "app", "app 'x' does not exist for this key; there is default, helpdesk"),
        ({"tenant": "support", "tier": "gold"}, "tier", "there is interactive, batch"),
        ({"tenant": "support", "models": ["gpt"]}, "models", "there is echo"),
        ({"tenant": "support", "expires_ns": NOW}, "expires_ns", "would expire before it is made"),
        ({"tenant": "support", "tiers": ["batch", "gold"]}, "tiers", "tiers 'gold' does not exist for this key"),
        ({"tenant": "support", "tiers": ["batch"], "tier": "interactive"}, "tier", "there is batch"),
        ({"tenant": "support", "networks": []}, "networks", "from 1 to 64 networks, not 0"),
        ({"tenant": "support", "networks": ["10.0.0.1/8"]}, "networks", "write 10.0.0.0/8"),
        ({"tenant": "support", "networks": ["*"]}, "networks", "'*' is no network"),
        ({"tenant": "support", "limits": {"requests_per_minute": 0}}, "limits", "limits.requests_per_minute is 0"),
        ({"tenant": "support", "limits": {"queue_length": 2**60}}, "limits", "write a whole number from 1 on"),
        ({"tenant": "support", "limits": {"milli_gpu": 5}}, "limits", "no job is of a key"),
        ({"tenant": "support", "limits": {"requests": 5}}, None, "unknown field `requests`"),
        ({"tenant": "support", "limits": {"requests": 5}}, None, "requests_per_minute"),
        (
            {"tenant": "support", "note": "n" * 201},
            "note",
            "note is 201 characters; write one line of at most 200 printable ones",
        ),
        ({"tenant": "support", "note": "a\u202eb"}, "note", "write one line of at most 200 printable ones"),
        ({"scope": "admin", "note": "a\nb"}, "note", "write one line of at most 200 printable ones"),
        ({"tenant": "support", "tiers": []}, "tiers", "a key without tiers could do nothing; leave tiers out"),
        ({"tenant": "support", "models": []}, "models", "a key without models could do nothing; leave models out"),
        ({"tenant": "support", "role": "viewer"}, "role", "a key of scope data has no role"),
        ({"scope": "admin", "role": "king"}, "role", "there is no role 'king' on the platform"),
        ({"scope": "admin", "role": "tenant-admin"}, "role", "there is no role 'tenant-admin' on the platform"),
        ({"scope": "admin", "tenant": "support"}, "role", "there is no role 'platform-admin' in tenant 'support'"),
        ({"scope": "admin", "tenant": "support", "role": "finance"}, "role", "there is no role 'finance' in tenant"),
        ({"scope": "admin", "app": "x"}, "app", "serves no requests; leave app out"),
        ({"scope": "admin", "tiers": ["batch"]}, "tiers", "serves no requests; leave tiers out"),
        ({"scope": "admin", "limits": {"queue_length": 1}}, "limits", "serves no requests; leave limits out"),
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


def test_bounds_of_a_key_are_kept_in_one_way_of_writing(local: TestClient, product: FakeOperations) -> None:
    key = create(
        local,
        tenant="support",
        tiers=["batch"],
        networks=["10.0.0.0/8", "::ffff:192.0.2.0/120", "FD00::/8", "198.51.100.7"],
        limits={"requests_per_minute": 60, "run_ns_max": 5},
    )["about"]
    assert key["tiers"] == ["batch"]
    assert key["networks"] == ["10.0.0.0/8", "192.0.2.0/24", "fd00::/8", "198.51.100.7/32"]
    assert key["limits"] == {"requests_per_minute": 60, "run_ns_max": 5}
    assert product.store.list_keys()[0].limits == Limits(requests_per_minute=60, run_ns_max=5)


def test_an_admin_key_may_be_of_one_tenant(local: TestClient) -> None:
    key = create(local, scope="admin", tenant="support", role="tenant-admin", networks=["10.0.0.0/8"])["about"]
    assert (key["tenant"], key["role"], key["networks"]) == ("support", "tenant-admin", ["10.0.0.0/8"])
    assert create(local, scope="admin", role="finance")["about"]["tenant"] == ""


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


def test_the_overlap_of_a_rotation_has_an_end(local: TestClient) -> None:
    made = create(local, tenant="support")["about"]
    days_ns = 90 * 86_400 * 10**9
    answer = local.post(f"/admin/v1/keys/{made['id']}/rotate", json={"overlap_ns": days_ns + 1})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "overlap_ns")
    assert "90 days beside the new one at most" in answer.json()["error"]["message"]
    assert len(local.get("/admin/v1/keys").json()["keys"]) == 1
    assert local.post(f"/admin/v1/keys/{made['id']}/rotate", json={"overlap_ns": days_ns}).status_code == 201


def test_live_keys_of_a_tenant_have_a_limit(local: TestClient, product: FakeOperations) -> None:
    made = create(local, tenant="support")["about"]
    for number in range(LIVE_KEYS_MAX - 1):
        new = mint(tenant="support", app="default", now_ns=NOW)
        product.store.add_key(msgspec.structs.replace(new.key, key_id=f"k{number}"))
    product.store.add_key(mint(tenant="support", app="default", now_ns=NOW - 9, expires_ns=NOW).key)  # has ended
    for path, body in (("", {"tenant": "support"}), (f"/{made['id']}/rotate", {"overlap_ns": 9})):
        answer = local.post(f"/admin/v1/keys{path}", json=body)
        assert answer.status_code == 400
        said = answer.json()["error"]["message"]
        assert said == (
            "tenant 'support' has 1000 live keys, and 1000 may live at a time; revoke those that are not used"
        )
    create(local, tenant="research")
    local.post(f"/admin/v1/keys/{made['id']}/revoke")
    create(local, tenant="support")


@pytest.mark.parametrize("verb", ["revoke", "rotate"])
def test_unknown_key(local: TestClient, verb: str) -> None:
    answer = local.post(f"/admin/v1/keys/nobody/{verb}", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
