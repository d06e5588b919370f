"""Given calls, when the audit log is read, then each is in it as it was decided; and what cannot be, is not done."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from commonpool.access import policy_files
from commonpool.access.policy import Authority
from commonpool.api.wire import audit as wire
from commonpool.store.audit import AuditEntry, Head
from commonpool.store.contract import StoreError
from commonpool.store.memory import MemoryStore
from tests.api.fakes import ADMIN, KEY_OF_A, NOW, FakeOperations


class Store(MemoryStore):
    """One whose audit log cannot be written while it is `away`."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False

    def add_audit(self, entries: Sequence[AuditEntry]) -> Head:
        if self.away:
            raise StoreError("The disk is full.")
        return super().add_audit(entries)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def product(store: Store) -> FakeOperations:
    return FakeOperations(store)


def read(local: TestClient, **query: Any) -> list[tuple[str, str, str, str, int]]:
    """Caller, action, tenant, outcome and count of what is in it, the oldest first, but for those who read it."""
    page = msgspec.json.decode(local.get("/admin/v1/audit", params=query).content, type=wire.AuditEntries)
    return [
        (entry.caller, entry.action, entry.tenant, entry.outcome, entry.count)
        for entry in page.entries[::-1]
        if entry.action != "read_audit"
    ]


def test_what_was_done_and_by_whom(local: TestClient, product: FakeOperations) -> None:
    local.get("/admin/v1/status")
    local.post("/admin/v1/releases", json={"tenant": "support", "milli_gpu": 100})
    local.post("/admin/v1/releases/support/undo", headers={"authorization": ADMIN.decode()})
    assert read(local) == [
        ("local", "release", "support", "allowed", 1),
        ("key:k1", "undo_release", "support", "allowed", 1),
        ("local", "read_status", "", "allowed", 1),
    ]
    (entry,) = (each for each in product.store.audit_chain(0, 9) if each.action == "undo_release")
    assert (entry.method, entry.path, entry.at_ns) == ("POST", "/admin/v1/releases/support/undo", NOW)
    assert entry.policies[0].startswith("commonpool/platform.cedar:")


def test_what_was_denied(local: TestClient) -> None:
    key = {"authorization": KEY_OF_A.decode()}
    assert local.get("/admin/v1/config", headers=key).status_code == 403
    assert local.get("/admin/v1/config", headers={"authorization": "Bearer cp_x"}).status_code == 401
    assert local.get("/admin/v1/config", headers={"host": "evil.example"}).status_code == 403
    assert local.post("/admin/v1/jobs/none/cancel", headers=key).status_code == 404
    assert read(local) == [
        ("key:k2", "read_config", "a", "denied", 1),
        ("nobody", "read_config", "", "denied", 1),
        ("key:k2", "run_jobs", "", "denied", 1),
    ]


def test_what_is_open_to_all_is_not_in_it(local: TestClient) -> None:
    for path in ("/healthz", "/readyz", "/docs", "/openapi.json"):
        assert local.get(path).status_code == 200
    assert read(local) == []


@pytest.mark.parametrize("action", ["run_jobs", "read_jobs", "read_keys"])
def test_what_an_operators_policy_opens_to_all_asks_who_it_is_and_is_in_it(
    local: TestClient, product: FakeOperations, tmp_path: Path, action: str
) -> None:
    (tmp_path / "open.cedar").write_text(f'permit (principal, action == Action::"{action}", resource);')
    product.fake_authority = Authority(policy_files.load(tmp_path))
    calls: dict[str, tuple[str, str]] = {
        "run_jobs": ("POST", "/admin/v1/jobs/none/cancel"),
        "read_jobs": ("GET", "/admin/v1/jobs/none"),
        "read_keys": ("GET", "/admin/v1/keys"),
    }
    method, path = calls[action]
    assert local.request(method, path, headers={"authorization": "Bearer cp_x"}).status_code == 401
    answer = local.request(method, path, headers={"authorization": KEY_OF_A.decode()})
    assert answer.status_code == (404 if path.count("none") else 200)
    told = {(caller, outcome) for caller, asked, _, outcome, _ in read(local) if asked == action}
    assert told == {("nobody", "denied"), ("key:k2", "allowed")}


def test_a_call_that_makes_no_sense_is_no_decision(local: TestClient) -> None:
    assert local.post("/admin/v1/keys", json={"scope": "root"}).status_code == 400
    assert read(local) == []


def test_who_may_know_of_all_is_told_that_there_is_none(local: TestClient) -> None:
    answer = local.post("/admin/v1/keys/0000000000/revoke")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert read(local) == [("local", "revoke_keys", "", "allowed", 1)]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/admin/v1/keys", {"tenant": "support"}),
        ("/admin/v1/releases", {"tenant": "support", "milli_gpu": 100}),
        ("/admin/v1/grants", {"tenant": "support", "elastic_cap_milli_gpu": 5000, "for_ns": 1}),
        ("/admin/v1/accounts", {"name": "ann", "password": "a long enough one"}),
    ],
)
def test_without_the_log_nothing_is_changed(
    local: TestClient, product: FakeOperations, store: Store, path: str, body: dict[str, Any]
) -> None:
    store.away = True
    answer = local.post(path, json=body)
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == (
        "nothing was done, since the audit log cannot be written: The disk is full."
    )
    assert (store.list_keys(), store.releases(), store.accounts(), product.granted) == ((), (), (), [])
    assert local.get("/admin/v1/status").status_code == 200


def test_who_looks_is_written_when_it_can_be(local: TestClient, product: FakeOperations, store: Store) -> None:
    store.away = True
    local.get("/admin/v1/status")
    assert read(local) == []
    assert product.audit().trouble is not None
    store.away = False
    assert read(local) == [("local", "read_status", "", "allowed", 1)]


def test_pages_and_filters(local: TestClient, product: FakeOperations) -> None:
    made = [
        AuditEntry(NOW - 5000 + number, NOW, 1, "key:k9", "grant", "ab"[number % 2], "allowed")
        for number in range(2100)
    ]
    product.store.add_audit(made)
    found: list[int] = []
    after: str | None = ""
    while after is not None:
        page = local.get("/admin/v1/audit", params={"tenant": "a", "after": after}).json()
        found += [entry["number"] for entry in page["entries"]]
        after = page["after"]
    assert found == list(range(2099, 0, -2))
    assert len(read(local, caller=["key:k9"], since_ns=NOW - 5000, until_ns=NOW - 4990)) == 10
    assert read(local, caller=["key:k8"]) == []
    for after in ("x", "-1", str(2**63)):
        assert local.get("/admin/v1/audit", params={"after": after}).status_code == 400


def test_verified_against_heads(local: TestClient, store: Store) -> None:
    local.post("/admin/v1/releases", json={"tenant": "support", "milli_gpu": 100})
    verdict = local.get("/admin/v1/audit/verify").json()
    assert (verdict["whole"], verdict["faults"], verdict["more"]) == (True, [], False)
    number, _, digest = verdict["head"].partition(":")
    assert (number, digest) == ("1", store.audit_head().hash.hex())
    answer = local.get("/admin/v1/audit/verify", params={"head": [verdict["head"], f"2:{'00' * 32}"]}).json()
    assert [fault["number"] for fault in answer["faults"]] == [2]
    assert local.get("/admin/v1/audit/verify", params={"head": "1:x"}).status_code == 400
