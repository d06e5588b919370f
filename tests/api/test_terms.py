"""Given a configuration, then each reads its own part of it: quota, tiers, limits and apps; models and their shapes."""

import msgspec
from starlette.testclient import TestClient

from commonpool.access.callers import by_admin_key
from commonpool.api.terms import Models, TenantTerms
from tests.api.fakes import ADMIN, CONFIG, FakeOperations, sources

TERMS = CONFIG.replace(
    "    apps: {helpdesk: {cost_center: CC-1}}",
    "    limits: {requests: 60/min}\n    apps: {helpdesk: {cost_center: CC-1, limits: {tokens: 1000/min}}}",
)
SMALL = """  small:
    version: v2
    gpu: 1_gpu
    slots: 2
    context: 1024
    engine: {kind: attached, urls: ["http://127.0.0.1:9003"]}
"""
TWO = (
    CONFIG.replace("gpus: 4_gpu", "gpus: 6_gpu")
    .replace("    version: v1", "    version: v1\n    fallback: small")
    .replace("prices:", f"{SMALL}prices:")
)
ONE = TWO.replace("{guaranteed: 1_gpu, elastic_cap: 4_gpu}", "{guaranteed: 1_gpu, elastic_cap: 4_gpu, models: [echo]}")


def test_what_was_agreed_with_a_tenant(local: TestClient, product: FakeOperations) -> None:
    product.configure(sources(TERMS))
    terms = msgspec.json.decode(local.get("/admin/v1/tenants/support").content, type=TenantTerms)
    assert (terms.guaranteed_milli_gpu, terms.elastic_cap_milli_gpu, terms.hard_cap_milli_gpu) == (2000, 4000, 4000)
    assert [(tier.name, tier.priority) for tier in terms.tiers] == [("interactive", 9), ("batch", 3)]
    assert (terms.models, terms.limits.requests_per_minute) == (("echo",), 60)
    app = {each.name: each for each in terms.apps}["helpdesk"]
    assert (app.cost_center, app.limits.tokens_per_minute) == ("CC-1", 1000)


def test_no_tenant_reads_another_ones_terms(local: TestClient, product: FakeOperations) -> None:
    product.callers[ADMIN] = by_admin_key("k", "viewer", "research")
    headers = {"authorization": ADMIN.decode()}
    assert local.get("/admin/v1/tenants/research", headers=headers).status_code == 200
    foreign = local.get("/admin/v1/tenants/support", headers=headers)
    nobody = local.get("/admin/v1/tenants/nobody", headers=headers)
    assert foreign.status_code == nobody.status_code == 404
    assert foreign.json()["error"]["message"].replace("support", "nobody") == nobody.json()["error"]["message"]


def test_models_with_their_shapes(local: TestClient, product: FakeOperations) -> None:
    product.configure(sources(TWO))
    echo, small = msgspec.json.decode(local.get("/admin/v1/models").content, type=Models).models
    assert (echo.name, echo.version, echo.slots, echo.attached, echo.fallback) == ("echo", "v1", 4, 2, "small")
    assert (small.replicas_min, small.replicas_max, small.fallback) == (1, 1, "")


def test_a_tenant_sees_the_models_that_it_may_use(local: TestClient, product: FakeOperations) -> None:
    product.configure(sources(ONE))
    product.callers[ADMIN] = by_admin_key("k", "viewer", "research")
    answer = local.get("/admin/v1/models", headers={"authorization": ADMIN.decode()})
    (only,) = msgspec.json.decode(answer.content, type=Models).models
    assert (only.name, only.fallback) == ("echo", "")
