"""The state of the product, its replicas, its health and its metrics, as the API says them."""

import msgspec
from starlette.testclient import TestClient

from commonpool.access.callers import by_admin_key
from commonpool.api.wire import status as wire
from tests.api.fakes import ADMIN, LOAN, MODEL, NOW, REPLICA, TENANT, FakeOperations


def test_status(local: TestClient) -> None:
    status = msgspec.json.decode(local.get("/admin/v1/status").content, type=wire.Status)
    assert status.tenants == (TENANT,)
    assert status.replicas == (REPLICA,)
    assert status.loans == (LOAN,)


def test_a_tenant_sees_what_concerns_it(local: TestClient, product: FakeOperations) -> None:
    other = msgspec.structs.replace(TENANT, name="research")
    product.tenants = (TENANT, other)
    product.models_now = (MODEL, msgspec.structs.replace(MODEL, name="of-others"))
    product.warnings = ("Tenant support has spent its budget.",)
    whole = msgspec.json.decode(local.get("/admin/v1/status").content, type=wire.Status)
    assert set(whole.said) == set(product.warnings)  # of others too
    elsewhere = wire.LoanStatus("support", "third", 100, 1, NOW, due=False)
    product.loans_now = (LOAN, elsewhere)
    product.callers[ADMIN] = by_admin_key("k", "viewer", "research")
    answer = local.get("/admin/v1/status", headers={"authorization": ADMIN.decode()})
    status = msgspec.json.decode(answer.content, type=wire.Status)
    assert status.tenants == (other,)
    assert [pool.name for pool in status.pools] == ["main"]
    assert [model.name for model in status.models] == ["echo"]
    assert status.loans == (LOAN,)  # who lends to it is named, as on its bill
    assert (status.replicas, status.warnings, status.said, status.devices) == ((), (), {}, ())


def test_replicas(local: TestClient) -> None:
    answer = local.get("/admin/v1/replicas")
    assert msgspec.json.decode(answer.content, type=wire.Replicas).replicas == (REPLICA,)


def test_healthz_lives_though_nothing_is_ready(local: TestClient, product: FakeOperations) -> None:
    product.missing = "no replica of echo is ready"
    assert local.get("/healthz").json() == {"ok": True, "message": "alive"}


def test_readyz_says_what_is_missing(local: TestClient, product: FakeOperations) -> None:
    assert local.get("/readyz").status_code == 200
    product.missing = "no replica of echo is ready"
    answer = local.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "no replica of echo is ready"


def test_head_has_no_body(local: TestClient) -> None:
    answer = local.head("/healthz")
    assert (answer.status_code, answer.content) == (200, b"")


def test_metrics_are_text(local: TestClient) -> None:
    answer = local.get("/metrics")
    assert answer.text == "commonpool_requests_total 7\n"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
