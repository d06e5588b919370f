"""Given a product under load and a Chinese browser, when its pages are opened, then nothing on them is in English but
names, code and what is marked as English.
"""

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import Visitor
from tests.console.world import World

# What is seen or read out, but for code and what says of itself that it is English. Names are cells and links whose
# whole text is one word.
SEEN = """() => {
  const found = [];
  const foreign = "[lang=en], code, pre, kbd, textarea, script, noscript, style, datalist";
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent.trim();
    if (text && !walk.currentNode.parentElement.closest(foreign)) found.push(text);
  }
  for (const each of document.querySelectorAll("[title], [aria-label], [placeholder], [alt]"))
    for (const name of ["title", "aria-label", "placeholder", "alt"])
      if (each.getAttribute(name) && !each.closest("[lang=en]")) found.push(each.getAttribute(name));
  return [document.title, ...found];
}"""
# The product's name, names of the configuration and its keys, and what was noted beside a key when it was made.
NAMES = re.compile(
    r"commonpool|OpenAI|made at the first start|machine room|platform team|Asia/Shanghai"
    r"|\b(?:support|research|ops|helpdesk|papers|runbooks|chat|main|ann|vera|account|interactive|batch|default|key|min"
    r"|headroom|reserved|limits|alerts|platform-admin|https?)\b"
    r"|node-\d\S*|chat-\d\S*|\w+[._/]\w[\w./-]*|\b[a-z0-9-]*\d[a-z0-9-]*\b"
)
PATHS = ("/", "/platform", "/tenants", "/alerts", "/decisions", "/models", "/replicas", "/devices", "/jobs", "/loans",
         "/requests", "/bills", "/advice", "/keys", "/settings", "/settings/accounts", "/playground",
         "/tenants/support", "/models/chat", "/devices/place", "/jobs/new")  # fmt: skip


def serious(page: Page) -> list[str]:
    """What axe-core finds of serious faults."""
    found = Axe().run(page).response["violations"]
    return [each["id"] for each in found if each["impact"] in ("serious", "critical")]


def english(page: Page) -> list[str]:
    """The English words that a page shows."""
    texts = (NAMES.sub("", text) for text in page.evaluate(SEEN))
    return [text for text in texts if re.search(r"[a-z]{3,}", text)]


@pytest.fixture
def reader(running: World, chromium: Browser) -> Iterator[Visitor]:
    made = Visitor(running, chromium, locale="zh-CN")
    yield made
    made.context.close()


def test_the_log_in_page_and_its_refusal(reader: Visitor) -> None:
    page = reader.page
    page.goto("/login")
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    assert english(page) == []
    page.fill("[name=name]", "ann")
    page.fill("[name=password]", "something else")
    page.click("main button")
    expect(page.locator(".warning")).to_contain_text("未能登录")
    assert english(page) == []
    assert serious(page) == []
    page.click("a[lang=en]")
    expect(page.locator("h2")).to_have_text("Log in")
    page.click("a[lang=zh]")
    expect(page.locator("h2")).to_have_text("登录")


def test_the_pages_under_load(running: World, reader: Visitor) -> None:
    page = reader.log_in("ann")
    with running.load("research", 6):
        expect(page.locator("#decisions")).to_contain_text("research 借入")
        running.ask("ops")
        running.ask("ops")  # more than one a minute: refused
        with running.load("support", 6):
            expect(page.locator("#decisions")).to_contain_text("要收回 research 借入的部分")
            for path in PATHS:
                page.goto(path)
                assert english(page) == [], path
                assert page.locator("html").get_attribute("lang") == "zh", path
    expect(page.locator("h1")).to_have_text("提交任务")
    page.goto("/decisions")
    assert serious(page) == []


REFUSED = "被拒绝：其租户、应用或密钥已用完每分钟请求数"  # noqa: RUF001 - Chinese


@pytest.mark.parametrize(("tenant", "said"), [("support", "已完成"), ("ops", REFUSED)])
def test_the_life_of_a_request(running: World, reader: Visitor, tenant: str, said: str) -> None:
    for _ in range(2):
        running.ask(tenant)
    page = reader.log_in("ann")
    outcome = "completed" if tenant == "support" else "refused"
    page.goto(f"/requests?tenant={tenant}&outcome={outcome}")
    page.locator("tbody th a").first.click()
    expect(page.locator("#timeline")).to_contain_text(said)
    assert english(page) == []


def test_what_is_not_there_and_not_allowed(reader: Visitor) -> None:
    page = reader.log_in("bo")
    for path, said in (
        ("/tenants/nobody", "没有找到"),
        ("/settings/accounts", "不允许"),
        ("/loans?period=x", "未能完成"),
    ):
        page.goto(path)
        expect(page.locator("h1")).to_have_text(said)
        assert english(page) == [], path
