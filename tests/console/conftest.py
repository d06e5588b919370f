"""One product and one browser for each module of browser tests: both take seconds to start, and a browser that is open
runs an event loop, beside which no other test can have one.
"""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.console import world
from tests.console.world import PASSWORD, World

CHROMIUM = "/usr/bin/chromium"
WITHIN_MS = 300_000  # a condition comes sooner or later, however busy the machine is


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world.running(tmp_path_factory.mktemp("console")) as made:
        yield made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if shutil.which(CHROMIUM) is None:
        pytest.skip(f"browser tests need {CHROMIUM}, which is not here (Debian: apt install chromium)")
    expect.set_options(timeout=WITHIN_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visitor:
    """Somebody with a browser of their own, in Shanghai's time zone. `faults` is what the browser complained of."""

    def __init__(self, running: World, browser: Browser, **options: object) -> None:
        self.url = running.url
        self.context: BrowserContext = browser.new_context(
            **{"timezone_id": "Asia/Shanghai", "locale": "en-GB", "base_url": running.url, **options}  # type: ignore[arg-type]
        )
        self.context.set_default_timeout(WITHIN_MS)
        self.page: Page = self.context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)

    def log_in(self, name: str) -> Page:
        self.page.goto("/login")
        self.page.fill("[name=name]", name)
        self.page.fill("[name=password]", PASSWORD)
        self.page.click("main button")
        expect(self.page).to_have_url(f"{self.url}/")
        self.page.wait_for_load_state()  # only then does it hear keys
        return self.page


@pytest.fixture
def visitor(running: World, chromium: Browser) -> Iterator[Visitor]:
    made = Visitor(running, chromium)
    yield made
    made.context.close()
