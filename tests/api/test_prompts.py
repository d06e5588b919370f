"""Given a tenant's prompt log, when its people and others ask for it, then its people alone get it."""

import asyncio
from typing import Any

import pytest

from commonpool.access.callers import Binding, Caller, by_admin_key, by_data_key
from commonpool.access.secrets import MasterKey, Masters, Vault
from commonpool.api import routes
from commonpool.control.prompts import Prompts
from commonpool.store.prompts import PromptHead, Spoken
from tests.api.caller import TestClient
from tests.api.fakes import NOW, FakeOperations

PATH = "/admin/v1/tenants/support/prompts"
CALLERS = {
    "admin": by_admin_key("k1", "tenant-admin", "support"),
    "developer": Caller("account:dev", "person", (Binding("developer", "support"),)),
    "viewer": by_admin_key("k2", "viewer", "support"),
    "app": by_data_key("k3", "support", "helpdesk"),
    "elsewhere": by_admin_key("k4", "tenant-admin", "research"),
    "platform": by_admin_key("k5"),
    "operator": by_admin_key("k6", "operator"),
    "auditor": by_admin_key("k7", "auditor"),
}
READERS = {"admin", "developer"}


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    product.callers = {f"Bearer {name}".encode(): caller for name, caller in CALLERS.items()}
    return product


def ask(product: FakeOperations, who: str, method: str, path: str = "", **more: Any) -> Any:
    with TestClient(routes.application(product), base_url="http://127.0.0.1") as client:
        return client.request(method, PATH + path, headers={"authorization": f"Bearer {who}"}, **more)


def hear(product: FakeOperations, name: str, tenant: str = "support", at_ns: int = NOW) -> None:
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nanswer"
    head = PromptHead(tenant, at_ns, name, "helpdesk", "echo", "chat", 0)
    product.fake_prompts.hear(Spoken(head, b"question", raw, cut=False, gone=False))
    asyncio.run(product.fake_prompts.write())


def switched_on(product: FakeOperations) -> FakeOperations:
    assert ask(product, "admin", "POST", "/on", json={}).status_code == 200
    return product


def test_its_life(product: FakeOperations) -> None:
    switched = ask(product, "admin", "POST", "/on", json={"keep_ns": 7 * 86_400 * 10**9})
    assert switched.json() == {
        "tenant": "support",
        "since_ns": NOW,
        "keep_ns": 7 * 86_400 * 10**9,
        "switched_by": "key:k1",
        "kept_bytes": 0,
        "lost": 0,
    }
    for name in ("r1", "r2"):
        hear(product, name)
    listed = ask(product, "developer", "GET").json()
    assert [entry["request_id"] for entry in listed["entries"]] == ["r2", "r1"]
    assert listed["log"]["kept_bytes"] == sum(entry["size"] for entry in listed["entries"])
    assert "question" not in str(listed)
    shown = ask(product, "developer", "GET", "/r1").json()
    assert (shown["asked"], shown["answered"], shown["about"]["status"]) == ("question", "answer", 200)

    assert ask(product, "admin", "DELETE", "/r1").json() == {"count": 1}
    assert ask(product, "admin", "DELETE", "/r1").status_code == 404
    assert ask(product, "admin", "POST", "/off").json()["since_ns"] is None
    hear(product, "r3")
    assert [entry["request_id"] for entry in ask(product, "admin", "GET").json()["entries"]] == ["r2"]
    assert ask(product, "admin", "DELETE").json() == {"count": 1}
    assert product.store.data_keys() == ()


@pytest.mark.parametrize("who", sorted(CALLERS))
def test_its_people_alone_read_it_and_its_admins_alone_switch_it(product: FakeOperations, who: str) -> None:
    hear(switched_on(product), "r1")
    reads = {ask(product, who, "GET", path).status_code == 200 for path in ("", "/r1")}
    assert reads == {who in READERS}
    changes: list[tuple[str, str, Any]] = [
        ("POST", "/on", {"json": {}}),
        ("POST", "/off", {}),
        ("DELETE", "/r1", {}),
        ("DELETE", "", {}),
    ]
    for method, path, more in changes:
        assert (ask(product, who, method, path, **more).status_code == 200) is (who == "admin")
    assert (not product.store._prompts) is (who == "admin")


def test_on_the_machine_itself_nobody_reads_it_without_a_credential(product: FakeOperations) -> None:
    hear(switched_on(product), "r1")
    with TestClient(routes.application(product), base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        answer = client.get(f"{PATH}/r1")
    assert answer.status_code == 403
    assert "question" not in answer.text
    said = answer.json()["error"]["message"]
    assert "only a tenant's own tenant-admins and developers may: `commonpool keys create --scope admin" in said


def test_pages_follow_one_another(product: FakeOperations) -> None:
    switched_on(product)
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    for number in range(1002):
        head = PromptHead("support", NOW + number // 2, f"r{number:04}", "helpdesk", "echo", "chat", 0)
        product.fake_prompts.hear(Spoken(head, b"question", raw, cut=False, gone=False))
    first = ask(product, "admin", "GET").json()
    second = ask(product, "admin", "GET", f"?after={first['after']}").json()
    names = [entry["request_id"] for page in (first, second) for entry in page["entries"]]
    assert names == [f"r{number:04}" for number in reversed(range(1002))]
    assert second["after"] is None
    for wrong in ("x", "1", "-r1", f"{2**63}-r1"):
        assert ask(product, "admin", "GET", f"?after={wrong}").status_code == 400


@pytest.mark.parametrize("keep_ns", [0, 3600 * 10**9 - 1, 367 * 86_400 * 10**9])
def test_entries_are_kept_for_a_while(product: FakeOperations, keep_ns: int) -> None:
    answer = ask(product, "admin", "POST", "/on", json={"keep_ns": keep_ns})
    assert answer.status_code == 400
    assert "can be kept from 1h to 366d" in answer.json()["error"]["message"]


def test_without_a_master_key_it_says_whose_turn_it_is(product: FakeOperations) -> None:
    product.vault = Vault(product.store, Masters(), product.now_ns)
    product.fake_prompts = Prompts(product.store, product.vault, product.now_ns)
    answer = ask(product, "admin", "POST", "/on", json={})
    assert answer.status_code == 409
    assert "have the operator set secrets.master_key" in answer.json()["error"]["message"]


def test_another_master_key_is_the_platforms(product: FakeOperations) -> None:
    hear(switched_on(product), "r1")
    assert ask(product, "admin", "GET").status_code == 200
    keys = Masters(MasterKey(b"2" * 32), MasterKey(b"1" * 32))
    product.vault = Vault(product.store, keys, product.now_ns)
    with TestClient(routes.application(product), base_url="http://127.0.0.1") as client:
        answers = {
            who: client.post("/admin/v1/secrets/rotate", headers={"authorization": f"Bearer {who}"}) for who in CALLERS
        }
    assert {who for who, answer in answers.items() if answer.status_code == 200} == {"platform"}
    assert answers["platform"].json() == {"count": 1}
    assert {key.master for key in product.store.data_keys()} == {MasterKey(b"2" * 32).id}
