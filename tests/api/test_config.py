"""Given a configuration in force, when another is compared or applied, then all of it changes or nothing."""

from pathlib import Path
from typing import Any

import msgspec
from starlette.testclient import TestClient

from commonpool.access import policy_files
from commonpool.access.callers import by_admin_key
from commonpool.access.policy import Authority
from commonpool.api.wire.config import Changes, Configuration, PolicyFiles
from commonpool.api.wire.errors import Failure
from commonpool.config import Change, Kind
from tests.api.fakes import ADMIN, CONFIG, FakeOperations, sources

MORE = CONFIG.replace("guaranteed: 1_gpu", "guaranteed: 2_gpu")


def post(local: TestClient, verb: str, text: str, revision: int | None = None) -> Any:
    body = msgspec.json.encode(Configuration(sources(text), revision))
    return local.post(f"/admin/v1/config/{verb}", content=body, headers={"content-type": "application/json"})


def test_show_is_what_can_be_applied_again(local: TestClient) -> None:
    shown = msgspec.json.decode(local.get("/admin/v1/config").content, type=Configuration)
    assert shown == Configuration(sources(), 1)


def test_diff_changes_nothing(local: TestClient, product: FakeOperations) -> None:
    changes = msgspec.json.decode(post(local, "diff", MORE).content, type=Changes)
    assert changes.revision == 1
    keys = [change.key for change in changes.changes]
    assert "tenants.research.tenant.guaranteed" in keys
    assert product.applied == []


def test_apply(local: TestClient, product: FakeOperations) -> None:
    changes = msgspec.json.decode(post(local, "apply", MORE, revision=1).content, type=Changes)
    assert changes.revision == 2
    assert Change("tenants.research.tenant.guaranteed", "1 gpu", "2 gpu", Kind.AT_ONCE, "at once") in changes.changes
    assert product.applied == [1]
    assert product.config().policy.tenants["research"].guaranteed == 2000


def test_a_price_that_is_taken_from_the_running_hour_is_said(local: TestClient) -> None:
    later = CONFIG.replace("{main: 2.50}", "{main: [{price: 2.50, from: 2027-02-01}]}")
    for verb in ("diff", "apply"):
        (warning,) = msgspec.json.decode(post(local, verb, later).content, type=Changes).warnings
        assert warning.startswith("prices.gpu_hour.main has no price now, its first holds from 2027-02-01 on: ")


def test_applying_the_same_makes_no_revision(local: TestClient, product: FakeOperations) -> None:
    changes = msgspec.json.decode(post(local, "apply", CONFIG).content, type=Changes)
    assert (changes.revision, changes.changes) == (1, ())
    assert product.applied == []


def test_invalid_configuration_comes_back_with_every_problem(local: TestClient, product: FakeOperations) -> None:
    answer = post(local, "apply", CONFIG.replace("4_gpu}", "4_gpus_}").replace("currency", "curency"))
    error = msgspec.json.decode(answer.content, type=Failure).error
    assert (answer.status_code, error.code) == (422, "invalid_config")
    assert len(error.problems) >= 2
    assert {problem.file for problem in error.problems} == {"commonpool.yaml"}
    assert all(problem.line for problem in error.problems)
    assert product.applied == []


def test_change_made_from_an_old_revision_is_refused(local: TestClient, product: FakeOperations) -> None:
    assert post(local, "apply", MORE, revision=1).status_code == 200
    answer = post(local, "apply", CONFIG, revision=1)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    assert product.applied == [1]


def test_folder_that_files_come_from_does_not_matter(local: TestClient) -> None:
    elsewhere = msgspec.structs.replace(sources(), folder="/elsewhere")
    body = msgspec.json.encode(Configuration(elsewhere))
    answer = local.post("/admin/v1/config/diff", content=body, headers={"content-type": "application/json"})
    assert answer.json()["changes"] == []


def test_the_policies_are_shown_with_what_they_are_checked_against(local: TestClient) -> None:
    shown = msgspec.json.decode(local.get("/admin/v1/policies").content, type=PolicyFiles)
    assert 'principal in Role::"operator"' in shown.files["commonpool/platform.cedar"]
    assert "entity Tenant" in shown.files["commonpool/schema.cedarschema"]
    assert len(shown.digest) == 64


def test_who_may_apply_may_not_give_himself_a_role_by_it(
    local: TestClient, product: FakeOperations, tmp_path: Path
) -> None:
    (tmp_path / "own.cedar").write_text(
        'permit (principal in Role::"operator", action == Action::"apply_config", resource);'
    )
    product.fake_authority = Authority(policy_files.load(tmp_path))
    product.configure(sources(CONFIG + f"access: {{policies: {tmp_path}}}\n"))
    product.callers[ADMIN] = by_admin_key("k1", "operator")
    local.headers["authorization"] = ADMIN.decode()
    same = f"access: {{policies: {tmp_path}}}\n"
    assert post(local, "apply", MORE + same).status_code == 200
    for access in (
        f"access: {{policies: {tmp_path}, roles: [{{role: platform-admin, account: me}}]}}\n",
        f"access: {{policies: {tmp_path}, local: false}}\n",
        "",
    ):
        answer = post(local, "apply", MORE + access)
        assert answer.status_code == 403
        assert "may not change who may come and what they may do" in answer.json()["error"]["message"]
    # nor by a file in the folder of policies
    (tmp_path / "more.cedar").write_text("permit (principal, action, resource);")
    assert post(local, "apply", MORE + same).status_code == 403
    assert product.applied == [1]
    # What was refused is in the audit log, beside that the call itself was allowed.
    del local.headers["authorization"]
    entries = local.get("/admin/v1/audit", params={"action": "manage_access"}).json()["entries"]
    assert entries
    assert {(entry["caller"], entry["outcome"], entry["path"]) for entry in entries} == {
        ("key:k1", "denied", "/admin/v1/config/apply")
    }


def test_a_change_of_who_may_do_what_is_in_the_audit_log_before_it_is_made(
    local: TestClient, product: FakeOperations
) -> None:
    changed = "access: {roles: [{role: viewer, account: me}]}\n"
    assert post(local, "apply", MORE + changed).status_code == 200
    assert post(local, "apply", CONFIG + changed).status_code == 200  # this one leaves access alone
    (entry,) = local.get("/admin/v1/audit", params={"action": "manage_access"}).json()["entries"]
    assert (entry["caller"], entry["outcome"]) == ("local", "allowed")
    assert product.applied == [1, 2]


def test_what_needs_a_restart_is_refused_as_a_whole(local: TestClient, product: FakeOperations) -> None:
    answer = post(local, "apply", MORE + "listen: {gateway: 127.0.0.1:9999}\n")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "needs_restart")
    assert "listen.gateway" in answer.json()["error"]["message"]
    assert product.applied == []
    assert post(local, "diff", MORE + "listen: {gateway: 127.0.0.1:9999}\n").status_code == 200
