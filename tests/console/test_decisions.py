"""Given decisions, when their page is opened, the newest is first, with what it is about, and filters keep to it."""

import pytest

from commonpool.access.callers import by_admin_key
from commonpool.console.decisions import ROWS
from commonpool.observe.decisions import Decision
from tests.api.fakes import ADMIN, NOW, FakeOperations
from tests.console.visitor import visiting, words


@pytest.fixture
def product() -> FakeOperations:
    made = FakeOperations()
    add = made.fake_feed.decisions.add
    add(Decision(NOW, "scaling", "echo gets one more replica.", model="echo"))
    add(Decision(NOW, "loan", "research borrows of support.", ("support", "research")))
    add(Decision(NOW, "placement", "job-1 starts.", ("research",), subject="job-1"))
    return made


def test_the_newest_first_with_links_to_what_they_are_about(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.get("/decisions").text
    assert page.index("job-1 starts.") < page.index("research borrows") < page.index("echo gets")
    for link in ("/models/echo", "/tenants/support", "/tenants/research", "/jobs/job-1"):
        assert f'href="{link}"' in page


def test_filters_keep_to_a_kind_and_a_tenant(product: FakeOperations) -> None:
    with visiting(product) as local:
        loans = words(local.get("/decisions?kind=loan").text)
        assert "research borrows of support." in loans
        assert "job-1 starts." not in loans
        assert "1 decision" in words(local.get("/decisions?tenant=support").text)
        assert "Nothing like that was decided since the start." in words(local.get("/decisions?kind=quota").text)
        assert local.get("/decisions?kind=fate").status_code == 400


def test_many_come_in_pages(product: FakeOperations) -> None:
    for number in range(ROWS):
        product.fake_feed.decisions.add(Decision(NOW, "quota", f"number {number}.", ("support",)))
    with visiting(product) as local:
        first, second = local.get("/decisions").text, local.get("/decisions?page=2").text
    assert "echo gets one more replica." not in words(first)
    assert "echo gets one more replica." in words(second)


def test_a_tenant_is_told_what_concerns_it(product: FakeOperations) -> None:
    product.callers[ADMIN] = by_admin_key("k", "viewer", "support")
    with visiting(product, authorization=ADMIN.decode()) as local:
        shown = words(local.get("/decisions").text)
    assert "research borrows of support." in shown
    assert "echo gets one more replica." in shown
    assert "job-1 starts." not in shown
