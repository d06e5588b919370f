"""Given a real product with books, when a bill is opened in a real browser, then it leads down to a request."""

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from axe_playwright_python.sync_playwright import Axe
from benchmarks import console_data
from benchmarks.bench_console import engine
from playwright.sync_api import Browser, expect

from commonpool.config import parse
from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.store.sqlite import SqliteStore
from tests.acceptance.product import Product
from tests.console.conftest import Visitor
from tests.console.world import World

ACCESS = """
access:
  local: false
  roles:
    - {role: platform-admin, account: ann}
    - {role: tenant-admin, tenant: support, account: bo}
"""
SERIOUS = ("serious", "critical")
HOURS = 3


@pytest.fixture(scope="module")
def until_ns() -> int:
    return time.time_ns() // NS_PER_HOUR * NS_PER_HOUR


@pytest.fixture(scope="module")
def booked(tmp_path_factory: pytest.TempPathFactory, until_ns: int) -> Iterator[World]:
    """Three hours of two tenants are in its books."""
    folder = tmp_path_factory.mktemp("booked")
    data = console_data.World(
        tenants=[("support", 1), ("research", 2)], nodes=1, requests=120, hours=HOURS, until_ns=until_ns
    )
    with engine() as address:
        text = console_data.configuration(data, address, ACCESS)
        (folder / "var").mkdir()
        with contextlib.closing(SqliteStore(folder / "var")) as store:
            console_data.fill(store, parse(text), data)
        product = Product(folder, text)
        product.keys = {"": ""}
        try:
            product.start()
            yield World(product)
        finally:
            product.stop()


@pytest.fixture(scope="module")
def bill(until_ns: int) -> str:
    first, last = until_ns - HOURS * NS_PER_HOUR, until_ns - 1
    return f"/bills?period={_day(first)}..{_day(last)}"


def _day(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // NS_PER_S, UTC):%Y-%m-%d}"


def test_a_bill_is_opened_down_to_a_request(booked: World, chromium: Browser, bill: str) -> None:
    visitor = Visitor(booked, chromium)
    page = visitor.log_in("bo")
    page.goto(bill)
    expect(page.locator("#lines tbody th")).to_have_text(["support"])
    page.locator("#lines tbody th a").click()
    expect(page.locator("h1")).to_have_text("Records of a bill")
    link = page.locator("tbody tr", has_text="completed").first.locator("th a")
    request_id = link.inner_text()
    link.click()
    expect(page.locator("h1")).to_contain_text(request_id)
    expect(page.locator("#timeline svg")).to_be_visible()
    expect(page.locator("#timeline tbody th").first).to_have_text("Arrived")
    expect(page.locator("#timeline tbody th").last).to_have_text("Ended")
    expect(page.locator("#postings")).to_contain_text("tenant:support")
    records = booked.control("GET", "/admin/v1/records?tenant=research&limit=1")["records"]
    answer = page.goto(f"/requests/{records[0]['request_id']}")
    assert answer is not None
    assert answer.status == 404
    visitor.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_is_below_a_bill_is_for_everybody(booked: World, chromium: Browser, bill: str, theme: str) -> None:
    visitor = Visitor(booked, chromium, color_scheme=theme)
    page = visitor.log_in("ann")
    request_id = booked.control("GET", "/admin/v1/records?limit=1")["records"][0]["request_id"]
    axe = Axe()
    found: list[str] = []
    for path in (bill, bill.replace("/bills", "/bills/records"), f"/requests/{request_id}"):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(path)
        found += [
            f"{path}: {each['id']}: {each['nodes'][0]['html'][:200]}"
            for each in axe.run(page).response["violations"]
            if each["impact"] in SERIOUS
        ]
        page.set_viewport_size({"width": 375, "height": 800})
        wide = page.evaluate("document.documentElement.scrollWidth")
        found += [f"{path} is {wide} pixels wide"] if wide > 375 else []
    visitor.context.close()
    assert found + visitor.faults == []


def test_advice_comes_to_the_page_that_asked_for_it(booked: World, chromium: Browser) -> None:
    visitor = Visitor(booked, chromium)
    page = visitor.log_in("ann")
    page.goto("/advice")
    expect(page.locator("#quotas")).to_contain_text("there is too little to learn from")
    visitor.context.close()
