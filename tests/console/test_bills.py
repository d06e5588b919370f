"""Given books, when a bill is opened, then it adds up, leads down to its requests, and is a file, too."""

import csv
import io
import json
from typing import Any

import pytest

from commonpool.access.callers import by_admin_key
from commonpool.app.billing import Bills
from commonpool.console import figures
from commonpool.core.model import NS_PER_HOUR
from tests.api.books import billed, keep, work
from tests.api.fakes import FakeOperations
from tests.console.visitor import OWN_PAGE, visiting, words


@pytest.fixture
def product() -> FakeOperations:
    product = billed()
    ended = "2026-12-31 22:30"
    records = [work("mine", ended, NS_PER_HOUR // 2), work("theirs", ended, NS_PER_HOUR, tenant="research")]
    keep(product, "2026-12-31 20:00", "2027-01-02 00:00", records)
    product.callers[b"Bearer of-support"] = by_admin_key("k6", "tenant-admin", "support")
    product.callers[b"Bearer looks-on"] = by_admin_key("k4", "viewer")
    return product


def addresses(page: str, start: str) -> list[str]:
    found = [part.split('"')[0].replace("&amp;", "&") for part in page.split('href="')[1:]]
    return [address for address in found if address.startswith(start)]


def test_a_bill_leads_down_to_a_request(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.get("/bills?period=2026-12").text
        assert {"platform", "research", "support"} <= set(words(page))
        (down,) = {address for address in addresses(page, "/bills/records") if "tenant=support" in address}
        records = local.get(down).text
        assert "mine" in words(records)
        assert "theirs" not in words(records)
        (request,) = set(addresses(records, "/requests/mine#"))
        assert local.get(request.partition("#")[0]).status_code == 200


def test_the_records_of_a_bill_have_their_sum(product: FakeOperations) -> None:
    with visiting(product) as local:
        shown = words(local.get("/bills/records?period=2026-12").text)
        records = local.get("/admin/v1/bill/records?period=2026-12").json()["records"]
    assert len(records) == 2
    at = shown.index("2 attempts together:")
    assert shown[at + 1] == figures.money(sum(each["cost_micro"] for each in records), "EUR")


@pytest.mark.parametrize("path", ["/", "/bills", "/tenants/support"])
def test_the_first_minutes_of_a_month_are_said(path: str) -> None:
    product = billed(now="2027-02-01 00:03")
    keep(product, "2027-01-31 00:00", "2027-01-31 23:00", [work("r1", "2027-01-31 12:00", NS_PER_HOUR)])
    with visiting(product) as local:
        shown = words(local.get(path).text)
    first = "A bill is made of whole hours, and the first one of this period is in it soon after"
    assert any(each.startswith((first, "No hour of this month is in the books yet.")) for each in shown)
    assert not [each for each in shown if each.startswith("Forecast")]


def test_records_of_a_rare_filter_are_looked_for_bit_by_bit(product: FakeOperations) -> None:
    product.fake_bills = Bills(product.store, product.config, product.now_ns, lambda: None, looked_max=1)
    with visiting(product) as local:
        first = local.get("/bills/records?period=2026-12&tenant=research").text
        assert "Looked through what ended until 2026-12-31 21:30:00." in words(first)
        (on,) = [address for address in addresses(first, "/bills/records") if "after=" in address]
        second = local.get(on).text
    assert ["theirs" in words(page) for page in (first, second)].count(True) == 1


@pytest.mark.parametrize("period", ["2020-01", "2031-05"])
def test_a_period_without_books_is_neither_open_nor_booked(product: FakeOperations, period: str) -> None:
    with visiting(product) as local:
        shown = words(local.get(f"/bills?period={period}").text)
    assert "nothing of it is in the books" in shown
    assert "no hour of it is in the books yet" in shown


def test_a_filter_of_bills_knows_what_there_is(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.get("/bills").text
    for name, value in (("tenant", "research"), ("app", "papers"), ("cost_center", "CC-1")):
        known = page.partition(f'<datalist id="known-{name}">')[2].partition("</datalist>")[0]
        assert f'<option value="{value}">' in known
        assert f'list="known-{name}"' in page


def test_a_bill_of_one_tenant_by_app_keeps_the_filter_on_the_way_down(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.get("/bills?period=2026-12&by=app&tenant=research").text
        downs = {address for address in addresses(page, "/bills/records") if "app=" in address}
    assert downs
    assert all("tenant=research" in address for address in downs)


def test_a_day_leads_to_the_records_of_that_day(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.get("/bills?period=2026-12&by=day").text
        assert "/bills/records?period=2026-12-31" in addresses(page, "/bills/records")
        assert "mine" in words(local.get("/bills/records?period=2026-12-31").text)


def test_who_lent_to_whom_and_what_was_paid_for_it() -> None:
    lent = work("lent", "2026-12-31 23:30", NS_PER_HOUR // 2, loan=1000)
    product = billed()
    keep(product, "2026-12-31 20:00", "2027-01-02 00:00", [lent])
    with visiting(product) as local:
        page = local.get("/bills?period=2026-12").text
    table = words(page.split('<table class="matrix">')[1].split("</table>")[0])
    # half an hour of a GPU at 80 % of 2.50, once in its cell and in each of its sums
    assert table[-8:] == ["Earned", "research", "1.00", "0.5 GPU h", "1.00", "Paid", "1.00", "1.00"]


def test_whoever_sees_the_platform_sees_whether_its_books_close(product: FakeOperations) -> None:
    with visiting(product) as local:
        shown = words(local.get("/bills?period=2026-12").text)
    assert "Reconciliation" in shown
    assert "57,600.000" in shown  # four hours of four GPUs, all charged


def test_a_tenants_people_see_their_own_bill(product: FakeOperations) -> None:
    with visiting(product, "192.0.2.7", authorization="Bearer of-support") as remote:
        page = remote.get("/bills?period=2026-12").text
        assert "research" not in page
        assert "Reconciliation" not in words(page)
        assert "Close this month" not in words(page)
        assert "theirs" not in remote.get("/bills/records?period=2026-12").text
        assert "research" not in remote.get("/bills/file/csv?period=2026-12").text


def test_who_may_not_read_bills_is_told_so(product: FakeOperations) -> None:
    with visiting(product, "192.0.2.7", authorization="Bearer looks-on") as remote:
        for path in ("/bills", "/bills/records", "/bills/file/csv"):
            assert remote.get(path).status_code == 403
        assert "/bills" not in addresses(remote.get("/settings").text, "/bills")


def test_the_same_bill_as_files(product: FakeOperations) -> None:
    with visiting(product) as local:
        answers = {form: local.get(f"/bills/file/{form}?period=2026-12") for form in ("csv", "json", "html", "focus")}
        assert local.get("/bills/file/xls?period=2026-12").status_code == 404
    assert answers["csv"].headers["content-disposition"] == 'attachment; filename="bill-2026-12.csv"'
    rows = list(csv.DictReader(io.StringIO(answers["csv"].text)))
    table = json.loads(answers["json"].text)
    assert [row["tenant"] for row in rows] == [line["group"][0] for line in table["lines"]]
    assert "BilledCost" in answers["focus"].text
    assert "<html" in answers["html"].text


def test_a_month_that_is_over_is_closed_once(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert "Close this month" in words(local.get("/bills?period=2026-12").text)
        sent: dict[str, Any] = {"data": {"name": "2026-12"}, "follow_redirects": False}
        assert local.post("/bills/close", **sent).status_code == 403  # of no page of ours
        assert local.post("/bills/close", headers=OWN_PAGE, **sent).status_code == 303
        assert "Close this month" not in words(local.get("/bills?period=2026-12").text)
        assert local.post("/bills/close", headers=OWN_PAGE, **sent).status_code == 409


def test_a_period_that_there_is_not_is_refused_in_words(product: FakeOperations) -> None:
    with visiting(product) as local:
        answer = local.get("/bills?period=yesterday")
    assert answer.status_code == 400
    assert "2026-11-01..2026-11-15" in answer.text
