"""Given a filter by tenants, when nothing is found, then who may see all is told of a name that there never was."""

import pytest

from commonpool.access.callers import by_admin_key
from tests.api.caller import TestClient
from tests.api.fakes import ADMIN, NOW, FakeOperations
from tests.store.records import T0, usage_record

LISTINGS = ("waits", "promises", "usage", "records", "decisions", "jobs", "audit")
OF_LOANS = [(path, party) for path in ("loans", "loans/open") for party in ("lender", "borrower")]
TIMELESS = frozenset({"promises", "decisions", "jobs", "loans/open"})
FILTERS = [*((path, "tenant") for path in LISTINGS), *OF_LOANS]


@pytest.mark.parametrize(("path", "name"), FILTERS)
def test_a_tenant_that_there_never_was_is_no_empty_table(local: TestClient, path: str, name: str) -> None:
    refused = local.get(f"/admin/v1/{path}", params={name: "nope"})
    assert refused.status_code == 400
    message = "there is no tenant 'nope', and no request of one is known; there is support, research"
    assert (refused.json()["error"]["message"], refused.json()["error"]["param"]) == (message, name)
    assert local.get(f"/admin/v1/{path}", params={name: "support"}).is_success  # which has nothing yet, or little


@pytest.mark.parametrize(("path", "name"), FILTERS)
def test_one_that_is_gone_has_had_nothing_in_a_time_when_it_was_not(
    product: FakeOperations, local: TestClient, path: str, name: str
) -> None:
    product.store.add_usage([usage_record("r1", tenant="gone")])
    period = {} if path in TIMELESS else {"since_ns": str(T0 + 10**12)}
    answer = local.get(f"/admin/v1/{path}", params={name: "gone", **period})
    assert answer.is_success, answer.text
    assert "gone" not in answer.text


@pytest.mark.parametrize(("path", "name"), [each for each in FILTERS if each[0] != "audit"])  # which no tenant reads
def test_who_may_see_some_is_told_the_same_of_a_foreign_one_and_of_none(
    product: FakeOperations, local: TestClient, path: str, name: str
) -> None:
    product.callers[ADMIN] = by_admin_key("k", "tenant-admin", "support")
    product.loans_now = ()
    period = {} if path in TIMELESS else {"until_ns": str(NOW)}

    def answer(tenant: str) -> tuple[int, str]:
        headers = {"authorization": ADMIN.decode()}
        found = local.get(f"/admin/v1/{path}", params={name: tenant, **period}, headers=headers)
        return found.status_code, found.text

    assert answer("research") == answer("nope")
    assert answer("nope")[0] == 200
