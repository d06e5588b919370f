"""Given a real product under load, when people open its console in a real browser, then they see what is theirs."""

import re

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from commonpool.console import PAGES
from tests.console.conftest import Visitor
from tests.console.world import PASSWORD, World

# Pages without a name of something in their path; the others are reached from these.
NAMED = ("/tenants/support", "/models/chat")
PATHS = ("/playground", *NAMED, *(page.path for page in PAGES if page.show and "{" not in page.path))
SERIOUS = ("serious", "critical")


WIDE = "all => all.filter(each => each.scrollWidth > each.clientWidth).length"
# Both keys at once: the second one has to come soon after the first.
CHORD = """() => {
    const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    ["g", "y"].forEach(press);
}"""
# Every tenant has a name as long as one may be.
LONG = """() => {
    const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) walk.currentNode.data = walk.currentNode.data.replace("research", "r".repeat(63));
}"""


def quota(page: Page, tenant: str, column: int) -> Locator:
    """A cell of the table of quotas: 4 is what is lent, 5 what is borrowed."""
    return page.locator("#quota tbody tr", has=page.get_by_role("link", name=tenant, exact=True)).locator(
        f"td:nth-child({column + 1})"
    )


def test_a_tenant_sees_its_own_and_the_platform_everything(running: World, visitor: Visitor, chromium: Browser) -> None:
    page = visitor.log_in("bo")
    expect(page.locator("#quota tbody th")).to_have_text(["support"])
    expect(page.locator("#menu")).not_to_contain_text("Platform")
    assert visitor.faults == []
    answer = page.goto("/tenants/research")
    assert answer is not None
    assert answer.status == 404  # what is foreign is as what does not exist
    expect(page.locator("body")).not_to_contain_text("0.25 GPU")
    platform = Visitor(running, chromium)
    page = platform.log_in("ann")
    expect(page.locator("#quota tbody th")).to_have_count(3)
    page.click("#menu a[href='/platform']")
    expect(page.locator("h1")).to_have_text("Platform")
    expect(page.locator("#map li")).to_have_count(2)
    assert platform.faults == []
    platform.context.close()


def test_a_loan_appears_and_returns_without_a_reload(running: World, visitor: Visitor) -> None:
    page = visitor.log_in("bo")
    page.evaluate("window.marked = true")  # it is gone where the page is loaded again
    page.locator("#quota a").first.focus()
    with running.load("research", 6):
        expect(quota(page, "support", 4)).to_contain_text(re.compile(r"[1-9.]+ GPU"))
        expect(page.locator("#decisions")).to_contain_text("research borrows")
    expect(quota(page, "support", 4)).to_have_text("0 GPU")
    assert page.evaluate("window.marked") is True
    assert page.evaluate("document.activeElement.closest('#quota') !== null")  # where the reader was, the reader is


def test_who_may_not_is_told_so(running: World, visitor: Visitor) -> None:
    page = visitor.page
    page.goto("/bills?by=model")
    expect(page).to_have_url(re.compile(r"/login\?next="))
    page.fill("[name=name]", "bo")
    page.fill("[name=password]", "not the one")
    page.click("main button")
    expect(page.locator("[name=name]")).to_have_value("bo")
    page.fill("[name=password]", PASSWORD)
    page.click("main button")
    expect(page).to_have_url(f"{visitor.url}/bills?by=model")  # where they wanted to go
    page.context.clear_cookies()
    page = visitor.log_in("vera")  # who has an account, and no role
    expect(page.locator("h1")).to_have_text("Not allowed")
    del running


def test_language_theme_zone_and_keys(visitor: Visitor) -> None:
    page = visitor.log_in("bo")
    expect(page.locator("#zone")).to_have_text("Times are in Asia/Shanghai.")
    page.get_by_role("button", name="中文").click()
    expect(page.locator("h1")).to_have_text("总览")
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    page.get_by_role("button", name="English").click()
    expect(page.locator("h1")).to_have_text("Overview")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Dark", exact=True).click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.wait_for_load_state()  # only then does it hear keys
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.evaluate(CHORD)
    expect(page.locator("h1")).to_have_text("Playground")
    page.wait_for_load_state()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()


def test_that_figures_are_old_is_in_sight(visitor: Visitor) -> None:
    page = visitor.log_in("ann")
    page.set_viewport_size({"width": 390, "height": 500})
    page.evaluate("scrollTo(0, 600)")
    page.route("**/*", lambda route: route.abort())
    page.keyboard.press("r")
    expect(page.locator("#stale")).to_be_in_viewport(ratio=1)
    page.unroute_all()
    page.keyboard.press("r")
    expect(page.locator("#stale")).to_be_hidden()


def test_the_playground_asks_as_the_app_of_the_key(running: World, visitor: Visitor) -> None:
    page = visitor.log_in("bo")
    page.goto("/playground")
    page.fill("[name=key]", running.keys["support"])
    page.fill("[name=prompt]", "Hello")
    page.click("#send")
    expect(page.locator("#answer")).to_contain_text("lorem lorem")
    expect(page.locator("#tokens-out")).to_have_text("10")
    expect(page.locator("#waited")).to_have_text(re.compile(r"\d\.\d+ s"))
    expect(page.locator("#whole")).to_contain_text(" s")
    request_id = page.locator("#request").inner_text()
    story = running.control("GET", f"/admin/v1/requests/{request_id}")
    assert story["attempts"][0]["tenant"] == "support"
    page.fill("[name=key]", running.admin["authorization"].removeprefix("Bearer "))
    page.click("#send")
    expect(page.locator("#failed")).to_contain_text("not the key of an app")
    expect(page.locator("#answer")).to_be_empty()
    assert running.keys["support"] not in page.content()


def test_a_job_is_submitted_seen_on_the_map_and_ended(running: World, visitor: Visitor) -> None:
    page = visitor.log_in("ann")
    page.goto("/jobs/new")
    page.select_option("[name=tenant]", "support")
    page.fill("[name=command]", "sh -c 'echo begun; exec sleep 600'")
    page.fill("[name=cwd]", str(running.product.folder))
    page.fill("[name=gpus]", "0.5")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator(".said")).to_have_text("The job was submitted.")
    expect(page.locator(".log")).to_have_text("begun")  # without a reload
    job = page.url.rpartition("/")[2].partition("?")[0]
    page.goto("/devices")
    node = page.locator("#map li", has_text=job)
    expect(node.locator("g.part")).to_have_count(1)
    node.locator("summary").click()
    for _ in range(2):
        with page.expect_response(re.compile("/devices$")):
            pass
    expect(node.locator("details")).to_have_attribute("open", "")  # what the reader has opened stays open
    node.get_by_role("link", name=job).click()
    page.on("dialog", lambda question: question.accept())
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator(".said")).to_have_text("The job was cancelled.")
    expect(page.locator("#standing")).to_contain_text("cancelled")
    page.goto("/jobs?tenant=support")
    expect(page.locator("body")).not_to_contain_text(job)
    assert visitor.faults == []


def test_a_phone_shows_whole_sentences_and_long_names(running: World, visitor: Visitor) -> None:
    running.ask("support")
    page = visitor.log_in("ann")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/requests")
    request = page.locator("tbody th a").first.get_attribute("href")
    for path in (request, "/alerts", "/jobs?all=true"):
        page.goto(str(path))
        expect(page.locator(".stacked").first).to_be_attached()
        assert page.locator(".stacked").evaluate_all(WIDE) == 0, path
    for path in ("/loans", "/keys", "/tenants", "/tenants/research", "/", "/platform", "/advice"):
        page.goto(path)
        page.evaluate(LONG)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_every_page_is_for_everybody(visitor: Visitor) -> None:
    """axe-core finds nothing serious, no page is wider than a phone, and the browser has nothing to complain of."""
    axe = Axe()
    found: list[str] = []
    for theme in ("light", "dark"):
        visitor.page.goto(f"/login?theme={theme}")
        found += faults(axe, visitor.page, f"/login {theme}", {"resultTypes": ["violations"]})
    visitor.page.goto("/login?theme=auto")
    page = visitor.log_in("ann")
    for path in PATHS:
        page.set_viewport_size({"width": 1280, "height": 800})
        page.emulate_media(color_scheme="light")
        answer = page.goto(path)
        found += [] if answer and answer.ok else [f"{path} cannot be shown: {page.locator('main').inner_text()}"]
        found += faults(axe, page, f"{path} light", {"resultTypes": ["violations"]})
        page.emulate_media(color_scheme="dark")  # the same page in other colours
        found += faults(axe, page, f"{path} dark", {"runOnly": {"type": "rule", "values": ["color-contrast"]}})
        page.set_viewport_size({"width": 375, "height": 800})
        wide = page.evaluate("document.documentElement.scrollWidth")
        found += [f"{path} is {wide} pixels wide"] if wide > 375 else []
    page.goto("/login?theme=dark")  # as who is logged in sees it
    found += faults(axe, page, "/login dark", {"resultTypes": ["violations"]})
    assert found + visitor.faults == []


def faults(axe: Axe, page: Page, where: str, options: dict[str, object]) -> list[str]:
    violations = axe.run(page, options=options).response["violations"]
    return [
        f"{where}: {each['id']}: {each['nodes'][0]['html'][:200]}" for each in violations if each["impact"] in SERIOUS
    ]
