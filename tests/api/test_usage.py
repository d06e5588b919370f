"""Given records, when usage is asked for, then it is grouped, filtered, exact, and adds up."""

from decimal import Decimal

import msgspec
import pytest
from starlette.testclient import TestClient

from commonpool.access.callers import by_admin_key
from commonpool.api import usage
from commonpool.api.wire.requests import Records
from commonpool.api.wire.usage import LoanSum, LoanTable, UsageTable
from commonpool.store.contract import DIMENSIONS, FILTERABLE
from tests.api.fakes import LOAN, NOW, FakeOperations
from tests.store.records import DAY, T0, loan, usage_record


@pytest.fixture
def product(product: FakeOperations) -> FakeOperations:
    product.store.add_usage(
        [
            usage_record("r1", tenant="a", model="m", loans=(loan("b"),)),
            usage_record("r2", tenant="a", model="n", arrived_ns=T0 + DAY),
            usage_record("r3", tenant="b", model="m", milli_gpu_ns=7000),
            usage_record("r4", tenant="b", model="m", attempt=1),
            usage_record("r4", tenant="b", model="m", attempt=2),
        ]
    )
    return product


def ask(local: TestClient, **query: str | list[str]) -> UsageTable:
    answer = local.get("/admin/v1/usage", params=query)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=UsageTable)


def test_rows_add_up_to_the_total(local: TestClient) -> None:
    table = ask(local, by="tenant,model")
    assert [row.group for row in table.rows] == [("a", "m"), ("a", "n"), ("b", "m")]
    assert table.total.requests == sum(row.requests for row in table.rows) == 4
    assert table.total.attempts == 5
    assert table.total.gpu_seconds == sum(row.gpu_seconds for row in table.rows) == Decimal("27000E-12")
    assert table.total.cost_micro == sum(row.cost_micro for row in table.rows)
    assert table.total.group == ()
    assert (table.currency, table.since_ns, table.until_ns) == ("EUR", 0, NOW)


def test_lent_is_said_of_tenants_only(local: TestClient) -> None:
    by_tenant = {row.group[0]: row for row in ask(local).rows}
    assert by_tenant["b"].lent_gpu_seconds == by_tenant["a"].borrowed_gpu_seconds == Decimal("5000E-12")
    assert ask(local, by="app").rows[0].lent_gpu_seconds is None


def test_period_excludes_its_end(local: TestClient) -> None:
    assert ask(local, since_ns=str(T0), until_ns=str(T0 + DAY), by="model").total.requests == 3
    assert ask(local, since_ns=str(T0 + DAY)).total.requests == 1


def test_filters_keep_any_of_their_values(local: TestClient) -> None:
    assert ask(local, tenant="a", model="m").total.requests == 1
    assert ask(local, tenant=["a", "b"]).total.requests == 4


def test_every_dimension_of_the_store_can_be_asked_for(local: TestClient) -> None:
    for name in DIMENSIONS:
        assert ask(local, by=name).by == (name,)
    fields = {field.name for field in msgspec.structs.fields(usage.UsageQuery)}
    assert fields == {*FILTERABLE, "by", "since_ns", "until_ns"}


def test_unknown_group_names_the_known(local: TestClient) -> None:
    answer = local.get("/admin/v1/usage?by=tenant,colour")
    assert answer.status_code == 400
    assert "'colour'" in answer.json()["error"]["message"]
    assert "cost_center" in answer.json()["error"]["message"]


def test_period_that_ends_before_it_begins(local: TestClient) -> None:
    answer = local.get("/admin/v1/usage?since_ns=2&until_ns=1")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "until_ns")
    answer = local.get("/admin/v1/usage?since_ns=1924992000000000000&until_ns=1796060475066590425")
    said = "the period ends (2026-11-30 17:41:15Z) before it begins (2031-01-01 00:00:00Z)"
    assert answer.json()["error"]["message"].startswith(said)
    answer = local.get("/admin/v1/usage?since_ns=1924992000000000000")
    said = "the period begins (2031-01-01 00:00:00Z) in the future; nothing has ended there"
    assert (answer.json()["error"]["message"], answer.json()["error"]["param"]) == (said, "since_ns")


def test_gpu_time_past_64_bits_is_exact(local: TestClient, product: FakeOperations) -> None:
    huge = 2**62
    product.store.add_usage([usage_record(f"h{n}", tenant="huge", milli_gpu_ns=huge) for n in range(9)])
    (row,) = ask(local, tenant="huge").rows
    assert row.gpu_seconds == Decimal(9 * huge).scaleb(-12)


def test_loans(local: TestClient) -> None:
    answer = local.get("/admin/v1/loans")
    table = msgspec.json.decode(answer.content, type=LoanTable)
    assert table.loans == (LoanSum("b", "a", 1, Decimal("5000E-12"), 20, 20),)


@pytest.mark.parametrize(
    ("query", "found"), [("lender=b", 1), ("lender=", 0), ("lender=&lender=b&borrower=a", 1), ("borrower=b", 0)]
)
def test_loans_are_filtered_by_their_parties(query: str, found: int, local: TestClient) -> None:
    assert len(local.get(f"/admin/v1/loans?{query}").json()["loans"]) == found


def test_records_of_a_period_come_in_pages(local: TestClient, product: FakeOperations) -> None:
    made = [usage_record(f"n{n:04d}", arrived_ns=T0 - 5) for n in range(usage.RECORDS_MAX + 1)]
    product.store.add_usage(made)
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        answer = local.get("/admin/v1/records", params={"until_ns": T0, "after": after})
        page = msgspec.json.decode(answer.content, type=Records)
        seen += [record.request_id for record in page.records]
        after = page.after
    assert seen == [record.request_id for record in made]
    assert local.get("/admin/v1/records", params={"after": "x"}).status_code == 400


def test_open_loans_are_filtered_by_their_parties_and_are_the_callers_own(
    local: TestClient, product: FakeOperations
) -> None:
    other = msgspec.structs.replace(LOAN, lender="", borrower="other")
    product.store.add_usage([usage_record("r9", tenant="other")])
    product.loans_now = (LOAN, other)

    def found(query: str = "", **headers: str) -> list[tuple[str, str]]:
        answer = local.get(f"/admin/v1/loans/open?{query}", headers=headers)
        return [(each["lender"], each["borrower"]) for each in answer.json()["loans"]]

    assert found() == [("support", "research"), ("", "other")]
    assert found("lender=support") == [("support", "research")]
    assert found("lender=") == [("", "other")]
    assert found("lender=support&borrower=other") == []
    product.callers[b"Bearer own"] = by_admin_key("k8", "viewer", "support")
    assert found(authorization="Bearer own") == [("support", "research")]
