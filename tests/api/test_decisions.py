"""Given decisions, when they are asked for, then each caller has those that it may know of, the newest first."""

from typing import Any

import pytest

from commonpool.access.callers import by_admin_key
from commonpool.api import routes
from commonpool.observe.decisions import Decision
from tests.api.caller import TestClient
from tests.api.fakes import NOW, FakeOperations, sources

YAML = """
pools:
  main: {gpus: 4_gpu}
models:
  echo: {version: v1, gpu: 1_gpu, slots: 4, context: 2048, engine: {kind: attached, urls: ["http://127.0.0.1:9001"]}}
  own: {version: v1, gpu: 1_gpu, slots: 4, context: 2048, engine: {kind: attached, urls: ["http://127.0.0.1:9002"]}}
prices: {currency: EUR, gpu_hour: {main: 2.50}}
tenants:
  support:
    tenant: {guaranteed: 2_gpu, elastic_cap: 4_gpu, models: [echo]}
  research:
    tenant: {guaranteed: 1_gpu, elastic_cap: 4_gpu}
"""
DECIDED = (
    Decision(NOW, "quota", "revision 2 is in force"),
    Decision(NOW + 1, "loan", "research borrows 1 gpu of support", ("support", "research"), milli_gpu=1000),
    Decision(NOW + 2, "scaling", "echo should have 2 replicas", model="echo"),
    Decision(NOW + 3, "placement", "replica own-0.1 starts", model="own", subject="own-0.1", node="n1"),
    Decision(NOW + 4, "quota", "research may use 4 gpu", ("research",)),
    Decision(NOW + 5, "loan", "research borrows of the unowned part", ("", "research")),
)


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    product.configure(sources(YAML))
    product.callers[b"Bearer viewer"] = by_admin_key("v", "viewer", "support")
    for decision in DECIDED:
        product.fake_feed.decisions.add(decision)
    return product


@pytest.fixture
def viewer(product: FakeOperations) -> TestClient:
    """A viewer of the tenant support, on another machine."""
    return TestClient(
        routes.application(product),
        base_url="http://pool.example",
        client=("192.0.2.7", 5),
        headers={"authorization": "Bearer viewer"},
    )


def told(client: TestClient, query: str = "") -> Any:
    answer = client.get(f"/admin/v1/decisions{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def said(client: TestClient, query: str = "") -> list[str]:
    return [each["explanation"] for each in told(client, query)["decisions"]]


def test_the_platform_has_all_the_newest_first(local: TestClient) -> None:
    assert said(local) == [each.explanation for each in reversed(DECIDED)]
    assert said(local, "?limit=2") == [each.explanation for each in reversed(DECIDED[-2:])]
    assert said(local, f"?since_ns={NOW + 4}") == [each.explanation for each in reversed(DECIDED[-2:])]
    assert said(local, "?kind=scaling&kind=placement") == [DECIDED[3].explanation, DECIDED[2].explanation]
    assert said(local, "?tenant=support") == [DECIDED[1].explanation]
    placed = told(local, "?kind=placement")["decisions"][0]
    assert (placed["node"], placed["subject"], placed["model"]) == ("n1", "own-0.1", "own")


def test_a_tenant_has_its_own_loans_and_the_models_that_it_may_use(viewer: TestClient) -> None:
    assert said(viewer) == [DECIDED[2].explanation, DECIDED[1].explanation]
    assert said(viewer, "?tenant=research") == [DECIDED[1].explanation]


def test_a_tenant_is_told_no_node_and_not_how_much_there_was(product: FakeOperations, viewer: TestClient) -> None:
    product.fake_feed.decisions.add(Decision(NOW, "placement", "replica echo-0.1 starts", model="echo", node="n1"))
    found = told(viewer)
    assert found["decisions"][0]["node"] == ""
    assert found["lost"] == 0


def test_ids_are_places_behind_which_events_follow(local: TestClient) -> None:
    found = told(local)
    assert [each["id"] for each in found["decisions"]] == [f"run.{n}" for n in range(6, 0, -1)]
    assert found["after"] == "run.6"


def test_an_unknown_kind_is_refused(local: TestClient) -> None:
    answer = local.get("/admin/v1/decisions?kind=magic")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == (
        "there is no kind 'magic' of decision; there is scaling, loan, placement, routing, quota"
    )
