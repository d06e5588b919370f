"""Given advice, when its page is opened, then whoever may applies what was seen, releases guarantees and grants."""

from typing import Any

import pytest

from commonpool.access.callers import by_admin_key
from commonpool.api.wire import config as wire
from commonpool.api.wire.advice import Advised
from commonpool.app.planner import planned
from commonpool.console import advice
from commonpool.core.underuse import Underuse
from tests.api.fakes import CONFIG, NOW, FakeOperations, sources
from tests.app.history import history
from tests.console.visitor import OWN_PAGE, visiting, words

PLANNED = planned(sources(), history(NOW))


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    assert PLANNED.sources is not None
    wanted = wire.Configuration(PLANNED.sources, product.config().policy.revision)
    product.advised = Advised("made", NOW, "", "EUR", PLANNED.plan, wanted)
    product.underused = (Underuse("support", "main", 2000, 80, 100, 20, 500, 500),)
    product.callers[b"Bearer operates"] = by_admin_key("k2", "operator")
    product.callers[b"Bearer of-support"] = by_admin_key("k6", "tenant-admin", "support")
    return product


def test_what_was_seen_is_applied(product: FakeOperations) -> None:
    assert PLANNED.plan is not None
    assert PLANNED.plan.changes
    with visiting(product) as local:
        shown = words(local.get("/advice").text)
        assert {change.key for change in PLANNED.plan.changes} <= set(shown)
        sent: dict[str, Any] = {"data": {"made_ns": str(NOW)}, "headers": OWN_PAGE, "follow_redirects": False}
        assert local.post("/advice/apply", **sent).status_code == 303
    assert product.applied == [1]
    changed = product.config().policy.tenants["support"]
    proposed = next(each for each in PLANNED.plan.pools[0].advice.proposals if each.tenant == "support")
    assert changed.guaranteed == proposed.guaranteed


def test_advice_that_is_another_one_by_now_is_not_applied(product: FakeOperations) -> None:
    with visiting(product) as local:
        sent: dict[str, Any] = {"data": {"made_ns": str(NOW - 1)}, "headers": OWN_PAGE}
        assert local.post("/advice/apply", **sent).status_code == 409
    assert not product.applied


def test_an_operator_sees_the_advice_and_cannot_apply_it(product: FakeOperations) -> None:
    with visiting(product, "192.0.2.7", authorization="Bearer operates") as remote:
        shown = words(remote.get("/advice").text)
        assert "What would change" in shown
        assert "Apply these quotas" not in shown
        sent: dict[str, Any] = {"data": {"made_ns": str(NOW)}, "headers": OWN_PAGE}
        assert remote.post("/advice/apply", **sent).status_code == 403
    assert not product.applied


def test_a_tenants_people_see_their_own_under_use_and_no_quotas_of_others(product: FakeOperations) -> None:
    with visiting(product, "192.0.2.7", authorization="Bearer of-support") as remote:
        page = remote.get("/advice").text
    assert "research" not in page
    assert "support" in words(page)
    assert "Release" not in words(page)


def test_while_it_is_made_and_where_it_cannot_be_it_is_said(product: FakeOperations) -> None:
    with visiting(product) as local:
        product.advised = Advised("making")
        assert "being made in the background" in local.get("/advice").text
        product.advised = Advised("failed", NOW, "there is too little to learn from")
        assert "there is too little to learn from" in words(local.get("/advice").text)


def test_a_guarantee_is_released_and_taken_back(product: FakeOperations) -> None:
    with visiting(product) as local:
        sent: dict[str, Any] = {"data": {"tenant": "support"}, "headers": OWN_PAGE, "follow_redirects": False}
        assert local.post("/advice/release", **sent).status_code == 303
        assert product.store.released() == {"support": 500}
        assert local.post("/advice/undo", **sent).status_code == 303
        assert product.store.released() == {}


def test_a_grant_within_the_hard_cap(product: FakeOperations) -> None:
    product.configure(
        sources(CONFIG.replace("guaranteed: 2_gpu, elastic_cap: 4_gpu", "elastic_cap: 2_gpu, hard_cap: 4_gpu"))
    )
    with visiting(product) as local:

        def grant(gpus: str, length: str = "1h") -> int:
            data = {"tenant": "support", "gpus": gpus, "for": length}
            return local.post("/advice/grant", data=data, headers=OWN_PAGE, follow_redirects=False).status_code

        assert (grant("3"), grant("5"), grant("many"), grant("3", "long")) == (303, 400, 400, 400)
    assert product.granted == [("support", 3000, NOW + 3600 * 10**9)]


def test_the_longest_wait_of_a_set_up_is_that_of_its_worst_tenant() -> None:
    assert PLANNED.plan is not None
    (pool,) = PLANNED.plan.pools
    for row, setup in zip(advice.tested(pool), pool.tested, strict=True):
        assert row.wait_ns_p99 == max(each.wait_ns_p99 for each in setup.tenants)
        assert row.whose in {each.tenant for each in setup.tenants}
