"""Given tenants, when their pages are opened, then each is found, shown with what it has, and hidden where foreign."""

import msgspec
import pytest

from commonpool.access.callers import by_admin_key
from commonpool.console import tenants
from commonpool.core.waits import Spread
from tests.api.books import BILLED, HOUR, billed, keep, work
from tests.api.fakes import ADMIN, CONFIG, NOW, TENANT, FakeOperations, sources
from tests.console.visitor import visiting, words
from tests.console.waited import row
from tests.store.records import usage_record

OTHER = msgspec.structs.replace(TENANT, name="research", guaranteed_milli_gpu=250, borrowed_milli_gpu=700, waiting=0)


@pytest.fixture
def product() -> FakeOperations:
    made = FakeOperations()
    made.tenants = (TENANT, OTHER)
    return made


def names(found: list[tenants.Line]) -> list[str]:
    return [line.tenant.name for line in found]


def test_who_waits_longest_comes_first_and_of_those_alike_the_smallest() -> None:
    slow = row(("research",), wait=Spread(5, 10**9, 10**9, 10**9, 10**9))
    assert names(tenants.lines((TENANT, OTHER), (slow,), "wait", "")) == ["research", "support"]
    assert names(tenants.lines((TENANT, OTHER), (), "wait", "")) == ["research", "support"]  # 0.25 against 2 GPU
    assert names(tenants.lines((TENANT, OTHER), (), "waiting", "")) == ["support", "research"]
    assert names(tenants.lines((TENANT, OTHER), (), "name", "SUPP")) == ["support"]


def test_the_list_finds_by_name_and_says_where_there_is_none(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert "research" in words(local.get("/tenants").text)
        found = words(local.get("/tenants?q=supp").text)
        assert "support" in found
        assert "research" not in found
        assert "No tenant has this in its name." in words(local.get("/tenants?q=zzz").text)


def test_waits_that_are_not_all_counted_say_so(product: FakeOperations) -> None:
    product.wait_books = product.counting(0)
    product.store.add_usage([usage_record("r1", tenant="support", model="echo", arrived_ns=NOW - 10**9)])
    with visiting(product) as local:
        for path in ("/tenants", "/tenants/support", "/models", "/models/echo", "/"):
            assert any(each.endswith("; 1 record left.") for each in words(local.get(path).text)), path
        product.wait_books.look()
        assert not any(each.startswith("Counted until") for each in words(local.get("/tenants").text))


def test_many_tenants_come_in_pages(product: FakeOperations) -> None:
    product.tenants = tuple(msgspec.structs.replace(TENANT, name=f"t{number:03}") for number in range(120))
    with visiting(product) as local:
        seen = [words(local.get(f"/tenants?sort=name&page={page}").text) for page in ("1", "2", "3", "99", "x")]
    assert ("t000" in seen[0], "t049" in seen[0], "t050" in seen[0]) == (True, True, False)
    assert "t050" in seen[1]
    assert "t119" in seen[2]
    assert seen[3] == seen[2]
    assert seen[4] == seen[0]


def test_a_tenant_with_its_terms_links_and_limits(product: FakeOperations) -> None:
    product.configure(
        sources(CONFIG.replace("    apps: {helpdesk", "    limits: {requests: 60/min}\n    apps: {helpdesk"))
    )
    with visiting(product) as local:
        page = local.get("/tenants/support")
    assert page.status_code == 200
    shown = words(page.text)
    for word in ("Tenant support", "2 GPU", "helpdesk", "CC-1", "Requests a minute", "60", "interactive"):
        assert word in shown, word
    for link in ("/requests?tenant=support", "/jobs?tenant=support", "/bills?tenant=support", "/keys?tenant=support"):
        assert f'href="{link}"' in page.text


def test_a_tenant_is_not_shown_another_one(product: FakeOperations) -> None:
    product.callers[ADMIN] = by_admin_key("k", "viewer", "research")
    with visiting(product, authorization=ADMIN.decode()) as local:
        assert local.get("/tenants/research").status_code == 200
        foreign, nobody = local.get("/tenants/support"), local.get("/tenants/nobody")
        assert (foreign.status_code, nobody.status_code) == (404, 404)
        assert "2 GPU" not in words(foreign.text)
        assert "support" not in words(local.get("/tenants").text)


def test_a_tenant_that_is_gone_has_its_bills_and_says_so() -> None:
    product = billed()
    old = work("old", "2026-12-31 22:30", HOUR // 2, tenant="research")
    keep(product, "2026-12-31 20:00", "2027-01-02 00:00", [old])
    product.configure(sources(BILLED.split("  research:")[0]))
    said = "This tenant is not configured any more. What it used and paid stays in the books."
    with visiting(product) as local:
        page = local.get("/tenants/research")
        assert page.status_code == 200
        shown = words(page.text)
        assert said in shown
        assert shown.index("2027-01") < shown.index("2026-12")
        for link in ("/bills?tenant=research&period=2026-12", "/bills/records?tenant=research&period=2026-12"):
            assert f'href="{link}"' in page.text.replace("&amp;", "&")
            assert local.get(link).status_code == 200
        assert local.get("/tenants/nobody").status_code == 404
        product.callers[ADMIN] = by_admin_key("k", "finance")  # who may not read how tenants stand, and has the bills
        assert local.get("/tenants/research", headers={"authorization": ADMIN.decode()}).status_code == 403
        product.callers[ADMIN] = by_admin_key("k", "viewer")  # who may not read bills
        looks_on = local.get("/tenants/research", headers={"authorization": ADMIN.decode()})
        assert "This tenant is not configured any more. What it used and paid stays in the books." in words(
            looks_on.text
        )
        assert "/bills?" not in looks_on.text
        product.callers[ADMIN] = by_admin_key("k", "viewer", "support")
        assert local.get("/tenants/research", headers={"authorization": ADMIN.decode()}).status_code == 404


def test_a_tenant_that_is_gone_and_was_never_billed_has_had_requests() -> None:
    product = billed()
    product.store.add_usage([work("old", "2027-01-01 22:30", HOUR // 2, tenant="tried")])
    with visiting(product) as local:
        shown = words(local.get("/tenants/tried").text)
        assert local.get("/tenants/nobody").status_code == 404
    assert shown[shown.index("The last on") + 1] == "2027-01-01"
    assert "Nothing was billed to it." in shown


def test_whom_the_bill_is_not_for_sees_what_work_cost(product: FakeOperations) -> None:
    product.callers[ADMIN] = by_admin_key("k", "viewer", "support")
    with visiting(product, authorization=ADMIN.decode()) as local:
        page = local.get("/tenants/support").text
    assert "What work cost" in words(page)  # and not the bill, with shared costs
    assert "Cost so far" not in words(page)
    assert "/bills?tenant=support" not in page.replace("&amp;", "&").split('id="cost"')[0].split("<main")[1]
