"""Given records, when waits and promises are asked for, then they are grouped, add up, and are the caller's own."""

from typing import Any, TypeVar

import msgspec
import pytest
from starlette.testclient import TestClient

from commonpool.access.callers import by_admin_key
from commonpool.api.wire.waits import Promises, WaitTable
from commonpool.core.burn import Kept
from commonpool.core.model import NS_PER_S as S
from commonpool.core.model import UsageRecord
from commonpool.core.waits import MINUTE_NS, WINDOW_NS, Spread
from tests.api.fakes import NOW, FakeOperations
from tests.store.records import refused, usage_record

T = TypeVar("T")
LATELY = NOW - MINUTE_NS


def waited(request_id: str, wait_ns: int, tenant: str = "support", **changes: Any) -> UsageRecord:
    times = {"wait_ns": wait_ns, "first_token_ns": wait_ns + S, "total_ns": wait_ns + 2 * S}
    return usage_record(
        request_id, tenant=tenant, model="echo", **({"arrived_ns": LATELY - wait_ns - 2 * S} | times | changes)
    )


@pytest.fixture
def product(product: FakeOperations) -> FakeOperations:
    product.store.add_usage(
        [
            waited("r1", 0),
            waited("r2", 9 * S),
            waited("r3", 4 * S, tenant="research", tier="batch"),
            waited("r4", 0, tenant="research", arrived_ns=LATELY - 9 * WINDOW_NS),
            refused("r5", tenant="research", arrived_ns=LATELY, total_ns=0, first_token_ns=0, reason="promise"),
            waited("r6", 8 * S, outcome="cancelled", replica="", first_token_ns=0, total_ns=8 * S),
        ]
    )
    return product


def ask(
    client: TestClient, path: str, shape: type[T], headers: dict[str, str] | None = None, **query: str | list[str]
) -> T:
    answer = client.get(f"/admin/v1/{path}", params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=shape)


def test_rows_have_waits_outcomes_and_promises_and_add_up(local: TestClient) -> None:
    table = ask(local, "waits", WaitTable, by="tenant,tier")
    assert [row.group for row in table.rows] == [
        ("research", "batch"),
        ("research", "interactive"),
        ("support", "interactive"),
    ]
    of_support = table.rows[2]
    assert (of_support.completed, of_support.abandoned, of_support.start_ns) == (2, 1, None)
    assert (of_support.wait.count, of_support.wait.p50_ns, of_support.wait.max_ns) == (2, 0, 9 * S)
    assert of_support.wait.p99_ns == pytest.approx(9 * S, rel=0.01)
    assert of_support.unserved.max_ns == 8 * S
    assert (of_support.queue, of_support.first_token_promise) == (Kept(3, 2), Kept(3, 2))
    assert table.rows[1].refused == table.total.refused == {"promise": 1}
    assert table.total.completed == sum(row.completed for row in table.rows) == 4
    assert table.total.queue.promised == sum(row.queue.promised for row in table.rows)
    assert (table.total.group, table.complete) == ((), True)
    assert table.rows[0].unserved == Spread()


def test_a_period_is_asked_for_and_told(local: TestClient) -> None:
    window = LATELY - LATELY % WINDOW_NS
    table = ask(local, "waits", WaitTable, by="window", since_ns=str(window + 1))
    assert (table.since_ns, table.until_ns) == (window, NOW + -NOW % WINDOW_NS)
    assert [row.start_ns for row in table.rows] == [window]
    assert table.total.completed == 3
    assert ask(local, "waits", WaitTable, by="", model="echo", until_ns=str(window)).total.completed == 1


@pytest.mark.parametrize("query", ["by=app", "by=hour,day", "since_ns=5&until_ns=4", "app=x"])
def test_what_cannot_be_asked_is_a_bad_request(local: TestClient, query: str) -> None:
    assert local.get(f"/admin/v1/waits?{query}").status_code == 400


def test_promises_are_of_every_tier_of_every_tenant(local: TestClient, product: FakeOperations) -> None:
    assert ask(local, "promises", Promises) == Promises(0, 990, ())
    product.wait_books.look()
    found = ask(local, "promises", Promises)
    assert found.at_ns == NOW
    of = {(each.tenant, each.tier, each.name): each for each in found.promises}
    assert {(tenant, tier) for tenant, tier, _ in of} >= {("support", "interactive"), ("support", "batch")}
    queue = of["support", "interactive", "queue"]
    assert (queue.target_ns, queue.spread.count, queue.spread.max_ns) == (2 * S, 2, 9 * S)
    assert {(burn.promised, burn.late) for burn in queue.burns} == {(3, 2)}
    assert queue.burning is not None
    assert queue.burning.severity == "page"
    nothing = of["support", "batch", "first_token"]
    assert (nothing.target_ns, nothing.burns, nothing.spread) == (None, (), Spread())
    some = ask(local, "promises", Promises, tenant=["support"], tier="interactive").promises
    assert {(each.tenant, each.tier) for each in some} == {("support", "interactive")}


def test_what_is_not_counted_yet_is_said_and_not_waited_for(local: TestClient, product: FakeOperations) -> None:
    product.wait_books.look()
    product.wait_books = product.counting(1)
    product.store.add_usage([waited("late", 0), waited("later", 0)])
    table = ask(local, "waits", WaitTable, by="tenant")
    assert (table.complete, table.counted_until_ns, table.left_records) == (False, LATELY, 2)
    assert table.total.completed == 4
    # how much all have is nobody's to know who may not know of all
    product.callers[b"Bearer own"] = by_admin_key("k8", "viewer", "support")
    own = ask(local, "waits", WaitTable, headers={"authorization": "Bearer own"})
    assert (own.complete, own.counted_until_ns, own.left_records) == (False, LATELY, None)
    product.wait_books.look()
    table = ask(local, "waits", WaitTable)
    assert (table.complete, table.counted_until_ns, table.left_records) == (True, None, None)
    assert table.total.completed == 6


def test_a_tenant_gets_its_own(local: TestClient, product: FakeOperations) -> None:
    product.wait_books.look()
    product.callers[b"Bearer own"] = by_admin_key("k8", "viewer", "support")
    local.headers["authorization"] = "Bearer own"
    table = ask(local, "waits", WaitTable, by="tenant", tenant=["support", "research"])
    assert [row.group for row in table.rows] == [("support",)]
    assert table.total.completed == 2
    assert ask(local, "waits", WaitTable, tenant="research").rows == ()
    assert {each.tenant for each in ask(local, "promises", Promises).promises} == {"support"}
    assert ask(local, "promises", Promises, tenant="research").promises == ()
