"""Given a product, when accounts are made, changed and ended, then they are, and no password comes back."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from commonpool.access.callers import Binding, Caller
from tests.access.house import PASSWORD
from tests.api.fakes import ADMIN, CONFIG, NOW, FakeOperations, sources

ACCOUNTS = "/admin/v1/accounts"
OTHER = "another horse battery"


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    roles = "[{role: viewer, account: bo}, {role: finance, account: erp}]"
    product.configure(sources(f"{CONFIG}access: {{roles: {roles}}}\n"))
    return product


def add(local: TestClient, name: str = "bo", **fields: Any) -> dict[str, Any]:
    answer = local.post(ACCOUNTS, json={"name": name, "password": PASSWORD, **fields})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_the_life_of_an_account(local: TestClient, product: FakeOperations) -> None:
    account = {
        "name": "bo",
        "kind": "person",
        "created_ns": NOW,
        "disabled_ns": None,
        "note": "",
        "roles": "viewer",
        "held": [{"role": "viewer", "tenant": None}],
    }
    assert add(local) == account
    assert add(local, "cy", note="on call") == {
        **account,
        "name": "cy",
        "note": "on call",
        "roles": "no role",
        "held": [],
    }
    assert local.delete(f"{ACCOUNTS}/cy").status_code == 200
    assert local.get(ACCOUNTS).json() == {"accounts": [account]}
    kept = product.store.account("bo")
    assert kept is not None
    assert local.post(f"{ACCOUNTS}/bo/password", json={"password": OTHER}).json() == account
    changed = product.store.account("bo")
    assert changed is not None
    assert changed.password != kept.password
    assert local.post(f"{ACCOUNTS}/bo/disable").json() == {**account, "disabled_ns": NOW}
    assert local.post(f"{ACCOUNTS}/bo/enable").json() == account
    assert local.delete(f"{ACCOUNTS}/bo").json() == {"name": "bo", "revoked_keys": []}
    assert local.get(ACCOUNTS).json() == {"accounts": []}


def test_a_service_goes_with_its_keys(local: TestClient, product: FakeOperations) -> None:
    service = local.post(ACCOUNTS, json={"name": "erp", "kind": "service"}).json()
    assert (service["kind"], service["roles"]) == ("service", "finance")
    made = local.post("/admin/v1/keys", json={"scope": "admin", "account": "erp"})
    assert made.status_code == 201, made.text
    (key,) = product.store.list_keys()
    assert key.account == "erp"
    assert local.delete(f"{ACCOUNTS}/erp").json()["revoked_keys"] == [key.key_id]
    assert product.store.list_keys()[0].revoked_ns == NOW


@pytest.mark.parametrize("account", ["nobody", "bo"])
def test_a_key_belongs_to_a_service_that_there_is(local: TestClient, account: str) -> None:
    add(local)
    answer = local.post("/admin/v1/keys", json={"scope": "admin", "account": account})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "account"
    assert f"account {account!r}" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("new", "status", "param", "says"),
    [
        ({"name": "cy"}, 400, "password", "has 0 characters; choose one of at least 12"),
        ({"name": "cy", "password": "short"}, 400, "password", "has 5 characters"),
        ({"name": "Cy", "password": PASSWORD}, 400, None, "'Cy' is not a name of an account"),
        ({"name": "bo", "password": PASSWORD}, 409, "name", "there is an account 'bo' already"),
        ({"name": "erp", "kind": "service", "password": PASSWORD}, 400, None, "a service has no password"),
        ({"name": "cy", "password": PASSWORD, "note": "n" * 201}, 400, None, "`$.note`"),
        ({"name": "cy", "password": PASSWORD, "note": "a\0"}, 400, None, "`$.note`"),
        ({"name": "c\0", "password": PASSWORD}, 400, None, "is not a name of an account"),
        ({"name": "cy", "password": PASSWORD, "role": "operator"}, 400, None, "unknown field `role`"),
    ],
)
def test_what_cannot_be_made(
    local: TestClient, product: FakeOperations, new: dict[str, str], status: int, param: str | None, says: str
) -> None:
    add(local)
    answer = local.post(ACCOUNTS, json=new)
    assert answer.status_code == status
    assert answer.json()["error"].get("param") == param
    assert says in answer.json()["error"]["message"]
    assert [account.name for account in product.store.accounts()] == ["bo"]


@pytest.mark.parametrize(("method", "path"), [("POST", "/disable"), ("POST", "/enable"), ("DELETE", "")])
def test_what_there_is_not(local: TestClient, method: str, path: str) -> None:
    answer = local.request(method, f"{ACCOUNTS}/nobody{path}")
    assert answer.status_code == 404
    assert "there is no account 'nobody'" in answer.json()["error"]["message"]


def test_no_answer_has_a_password_or_its_hash(local: TestClient, product: FakeOperations) -> None:
    add(local)
    kept = product.store.account("bo")
    assert kept is not None
    said = [
        local.get(ACCOUNTS),
        local.post(ACCOUNTS, json={"name": "bo", "password": PASSWORD}),
        local.post(f"{ACCOUNTS}/bo/password", json={"password": PASSWORD}),
        local.post(f"{ACCOUNTS}/bo/password", json={"password": PASSWORD, "x": 1}),
        local.delete(f"{ACCOUNTS}/bo"),
    ]
    for answer in said:
        assert PASSWORD not in answer.text
        assert "argon2" not in answer.text


def test_only_who_may_manages_accounts(local: TestClient, product: FakeOperations) -> None:
    product.callers[ADMIN] = Caller("key:k1", "key", (Binding("operator"), Binding("tenant-admin", "support")))
    answer = local.get(ACCOUNTS, headers={"authorization": ADMIN.decode()})
    assert answer.status_code == 403
    assert "may not manage accounts" in answer.json()["error"]["message"]
