"""Given a browser without JavaScript, when somebody logs in on the page, then they are logged in, or told why not."""

import asyncio
import http.client
import re
from collections.abc import Iterator
from contextlib import closing
from html.parser import HTMLParser
from urllib.parse import urlsplit

import httpx
import pytest

from commonpool import console
from commonpool.api import routes
from tests.access.house import PASSWORD
from tests.access.issuer import PERSON, TestIssuer
from tests.api.caller import TestClient
from tests.api.fakes import CONFIG, NOW, FakeOperations, sources
from tests.api.held import WITHIN_S, HeldThreads

BASE = "http://127.0.0.1:8081"
OWN = {"origin": BASE, "sec-fetch-site": "same-origin"}
OTHER = "another horse battery"
ME = "/admin/v1/me"


@pytest.fixture
def issuer() -> Iterator[TestIssuer]:
    running = TestIssuer()
    yield running
    running.stop()


@pytest.fixture
def product(issuer: TestIssuer) -> FakeOperations:
    product = FakeOperations()
    product.configure(
        sources(
            CONFIG
            + f"access:\n  url: {BASE}\n"
            + f"  oidc: {{issuer: '{issuer.url}', client_id: commonpool}}\n"
            + "  roles: [{role: viewer, account: bo}, {role: operator, email: ann@house.example}]\n"
        )
    )
    asyncio.run(product.people().accounts.add("bo", "person", PASSWORD))
    return product


@pytest.fixture
def browser(product: FakeOperations) -> Iterator[TestClient]:
    """On the product's own machine, or at the end of a tunnel; it follows nothing by itself."""
    application = routes.application(product, console.routes())
    with TestClient(application, base_url=BASE, client=("127.0.0.1", 50000), follow_redirects=False) as client:
        yield client


class Page(HTMLParser):
    """What somebody can do on a page: forms with their fields, and links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.forms: dict[str, dict[str, str]] = {}
        self.links: list[str] = []
        self.languages: dict[str, str] = {}
        self.refresh = ""
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        match tag:
            case "form" if given["method"] != "dialog":
                assert given["method"] == "post"
                self._fields = self.forms[given["action"]] = {}
            case "input" if "name" in given:
                self._fields[given["name"]] = given.get("value", "")
            case "a" if given.get("class") == "language":
                self.languages[given["lang"]] = given["href"]
            case "a" if given.get("class") != "theme":
                self.links.append(given["href"])
            case "meta" if given.get("http-equiv") == "refresh":
                self.refresh = given["content"]
            case "script":
                self.scripts += 1


def agree(url: str) -> str:
    """Somebody says yes at the issuer: where it sends them, as a path on our host."""
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(str(parts.hostname), parts.port)) as connection:
        connection.request("GET", f"{parts.path}?{parts.query}")
        there = urlsplit(connection.getresponse().headers["location"])
    assert f"{there.scheme}://{there.netloc}" == BASE
    return f"{there.path}?{there.query}"


def test_the_page_has_a_form_and_the_way_to_the_issuer(browser: TestClient, issuer: TestIssuer) -> None:
    answer = browser.get("/login?next=/docs")
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"] == (
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )
    page = Page(answer.text)
    assert page.forms == {"/login": {"name": "", "password": "", "next": "/docs"}}
    assert page.links == ["/login/oidc?next=/docs"]
    assert page.scripts == 0
    assert f"Log in with 127.0.0.1:{issuer.port}" in answer.text
    style = browser.get("/login.css")
    assert (style.status_code, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "color-scheme: light dark" in style.text
    assert issuer.asked == {}  # looking at the page asks nobody


def test_somebody_logs_in_and_goes_on_to_where_they_wanted(browser: TestClient) -> None:
    form = Page(browser.get("/login?next=/docs").text).forms["/login"]
    answer = browser.post("/login", data={**form, "name": "bo", "password": PASSWORD}, headers=OWN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/docs")
    assert browser.get(ME).json()["name"] == "account:bo"
    shown = browser.get("/login")
    assert "You are account:bo: viewer." in shown.text
    assert Page(shown.text).forms.keys() == {"/logout", "/login/password"}


def test_the_page_has_the_theme_of_the_console(browser: TestClient) -> None:
    assert 'data-theme="auto"' in browser.get("/login").text
    assert 'data-theme="dark"' in browser.get("/login?theme=dark&next=/docs").text
    assert 'data-theme="dark"' in browser.get("/login").text
    assert 'data-theme="dark"' in browser.get("/").text
    assert 'data-theme="auto"' in browser.get('/login?theme="><b>').text


def test_who_mistypes_the_password_need_not_write_the_name_again(browser: TestClient) -> None:
    refused = browser.post("/login", data={"name": 'b"o', "password": OTHER}, headers=OWN)
    assert 'value="b&#34;o"' in refused.text
    assert OTHER not in refused.text


def test_the_page_is_in_the_language_of_who_reads_it(browser: TestClient) -> None:
    chinese = {"accept-language": "zh-CN,zh;q=0.9,en;q=0.8"}
    asked = browser.get("/login?next=/docs", headers=chinese)
    assert '<html lang="zh"' in asked.text
    assert "登录" in asked.text
    there = Page(asked.text).languages
    assert there == {"en": "/login?language=en&next=/docs"}
    assert "Log in" in browser.get(there["en"], headers=chinese).text
    # It is kept, for the console too, until they choose again.
    assert '<html lang="en"' in browser.get("/", headers=chinese).text
    assert "Log in" in browser.get("/login", headers=chinese).text
    assert "登录" in browser.get("/login?language=zh").text
    refused = browser.post("/login", data={"name": "bo", "password": OTHER}, headers=OWN)
    assert refused.status_code == 401
    assert "未能登录：名称、密码或会话无效。" in refused.text  # noqa: RUF001 - and what the API says, marked as English
    assert '<span lang="en">' in refused.text
    assert '<html lang="zh"' in browser.get("/login?language=xx").text
    browser.post("/login", data={"name": "bo", "password": PASSWORD}, headers=OWN)
    assert "您是 account:bo：viewer。" in browser.get("/login").text  # noqa: RUF001 - Chinese


def test_somebody_logs_out(browser: TestClient, product: FakeOperations) -> None:
    browser.post("/login", data={"name": "bo", "password": PASSWORD}, headers=OWN)
    kept = dict(browser.cookies)
    answer = browser.post("/logout", headers=OWN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert not browser.cookies
    browser.cookies.update(kept)
    assert browser.get(ME).status_code == 401
    assert product.people().issuer() is not None


@pytest.mark.parametrize(
    "form",
    [
        {"name": "bo", "password": OTHER},
        {"name": "nobody", "password": PASSWORD},
        {"name": "bo"},
        {"password": PASSWORD},
        {"name": "<script>alert(1)</script>", "password": PASSWORD},
    ],
)
def test_what_is_wrong_is_said_on_the_page(browser: TestClient, form: dict[str, str]) -> None:
    answer = browser.post("/login", data={**form, "next": "/docs"}, headers=OWN)
    assert answer.status_code == 401
    assert "the name or the password is wrong." in answer.text
    assert PASSWORD not in answer.text
    assert "<script>" not in answer.text
    assert Page(answer.text).forms["/login"]["next"] == "/docs"  # it is not forgotten
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("headers", [{}, {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}])
@pytest.mark.parametrize("path", ["/login", "/logout", "/login/password"])
def test_a_foreign_page_neither_logs_in_nor_out(browser: TestClient, path: str, headers: dict[str, str]) -> None:
    browser.post("/login", data={"name": "bo", "password": PASSWORD}, headers=OWN)
    form = {"name": "bo", "password": PASSWORD, "current": PASSWORD, "new": OTHER}
    answer = browser.post(path, data=form, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert browser.get(ME).json()["name"] == "account:bo"


@pytest.mark.parametrize("after", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_nobody_is_sent_elsewhere(browser: TestClient, after: str) -> None:
    assert Page(browser.get("/login", params={"next": after}).text).forms["/login"]["next"] == "/"
    answer = browser.post("/login", data={"name": "bo", "password": PASSWORD, "next": after}, headers=OWN)
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize("body", [b"x" * 9000, b"name=\xff", b"&".join(b"a=b" for _ in range(20))])
def test_a_form_that_is_none(browser: TestClient, body: bytes) -> None:
    assert browser.post("/login", content=body, headers=OWN).status_code == 401


def test_too_many_guesses_are_told_when_to_come_again(browser: TestClient) -> None:
    for _ in range(5):
        browser.post("/login", data={"name": "bo", "password": OTHER}, headers=OWN)
    answer = browser.post("/login", data={"name": "bo", "password": PASSWORD}, headers=OWN)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
    assert "try again in 60 s." in answer.text


def test_over_an_open_line_there_is_no_form(product: FakeOperations) -> None:
    application = routes.application(product)
    with TestClient(application, base_url="http://pool.example", client=("192.0.2.7", 5)) as far:
        shown = far.get("/login")
        refused = far.post(
            "/login", data={"name": "bo", "password": PASSWORD}, headers={"origin": "http://pool.example"}
        )
    assert "/login" not in Page(shown.text).forms
    assert "Passwords do not go over an open line." in shown.text
    assert refused.status_code == 403


def test_somebody_chooses_another_password(browser: TestClient) -> None:
    browser.post("/login", data={"name": "bo", "password": PASSWORD}, headers=OWN)
    form = Page(browser.get("/login").text).forms["/login/password"]
    assert form == {"current": "", "new": ""}
    for given, status, says in (
        ({"current": OTHER, "new": OTHER}, 401, "the current password is wrong."),
        ({"current": PASSWORD, "new": "short"}, 400, "has 5 characters; choose one of at least 12."),
    ):
        answer = browser.post("/login/password", data=given, headers=OWN)
        assert (answer.status_code, says in answer.text) == (status, True)
        assert "/login/password" in Page(answer.text).forms
    done = browser.post("/login/password", data={"current": PASSWORD, "new": OTHER}, headers=OWN)
    assert (done.status_code, done.headers["location"]) == (303, "/login")
    assert browser.get(ME).json()["name"] == "account:bo"
    browser.cookies.clear()
    assert browser.post("/login", data={"name": "bo", "password": OTHER}, headers=OWN).status_code == 303


def test_a_session_that_is_over_is_taken_from_the_browser(browser: TestClient, product: FakeOperations) -> None:
    browser.post("/login", data={"name": "bo", "password": PASSWORD}, headers=OWN)
    product.now += 3600 * 10**9
    assert browser.get(ME).status_code == 401
    assert Page(browser.get("/login").text).forms.keys() == {"/login"}
    assert not browser.cookies


def test_the_console_sends_who_is_nobody_to_log_in(product: FakeOperations) -> None:
    application = routes.application(product, console.routes())
    with TestClient(application, base_url="https://pool.example", client=("192.0.2.7", 5)) as far:
        refused = far.get("/")
        assert refused.status_code == 401
        assert "/login?next=/" in Page(refused.text).links
        own = {"origin": "https://pool.example"}
        far.post("/login", data={"name": "bo", "password": PASSWORD}, headers=own)
        assert far.get("/").status_code == 200
        assert "/login" in Page(far.get("/").text).links


# -- by the issuer -----------------------------------------------------------------------------------------------------


def test_somebody_logs_in_by_the_issuer(browser: TestClient) -> None:
    (link,) = Page(browser.get("/login?next=/docs").text).links
    away = browser.get(link)
    assert away.status_code == 303
    assert set(browser.cookies) == {"commonpool-login"}
    back = browser.get(agree(away.headers["location"]))
    assert back.status_code == 200  # and not a redirect, which browsers take for one from elsewhere
    assert Page(back.text).refresh == "0;url=/docs"
    assert "You are logged in as oidc:ann@house.example." in back.text
    assert set(browser.cookies) == {"commonpool"}
    me = browser.get(ME).json()
    assert (me["name"], me["kind"], me["roles"]) == (
        "oidc:ann@house.example",
        "person",
        [{"role": "operator", "tenant": None}],
    )
    assert Page(browser.get("/login").text).forms.keys() == {"/logout"}  # the password is the issuer's


def test_who_does_not_agree_is_told_so(browser: TestClient, issuer: TestIssuer) -> None:
    issuer.refuses = "access_denied"
    away = browser.get("/login/oidc")
    back = browser.get(agree(away.headers["location"]))
    assert back.status_code == 401
    assert "the issuer says access_denied; log in again." in back.text
    assert "commonpool" not in browser.cookies


def test_a_foreign_answer_logs_nobody_in(browser: TestClient, issuer: TestIssuer) -> None:
    """Somebody lures a victim's browser to the end of a login that the attacker began."""
    away = browser.get("/login/oidc")
    theirs = agree(away.headers["location"])
    browser.cookies.clear()
    answer = browser.get(theirs)
    assert answer.status_code == 401
    assert "was not begun in this browser" in answer.text
    assert not browser.cookies
    assert issuer.asked["/token"] == 0


def test_who_has_no_role_is_told_whom_to_ask(browser: TestClient, issuer: TestIssuer) -> None:
    issuer.person = {**PERSON, "email": "cy@house.example"}
    back = browser.get(agree(browser.get("/login/oidc").headers["location"]))
    assert back.status_code == 403
    assert "cy@house.example has no role here; ask an operator for one." in back.text
    assert "commonpool" not in browser.cookies


def test_while_the_issuer_is_away_the_page_says_so_and_accounts_log_in(browser: TestClient, issuer: TestIssuer) -> None:
    issuer.stop()
    answer = browser.get("/login/oidc")
    assert answer.status_code == 503
    assert re.search(r"127\.0\.0\.1 cannot be reached \(ConnectError\)\.", answer.text)
    assert "/login" in Page(answer.text).forms
    assert browser.post("/login", data={"name": "bo", "password": PASSWORD}, headers=OWN).status_code == 303
    issuer.start()


def test_without_an_issuer_there_is_no_way_to_one(browser: TestClient, product: FakeOperations) -> None:
    product.configure(sources())
    assert Page(browser.get("/login").text).links == []
    assert browser.get("/login/oidc").status_code == 503


def test_who_came_by_which_way_is_in_the_audit_log(browser: TestClient, product: FakeOperations) -> None:
    browser.post("/login", data={"name": "bo", "password": PASSWORD}, headers=OWN)
    browser.post("/login", data={"name": "bo", "password": OTHER}, headers=OWN)
    browser.get(agree(browser.get("/login/oidc").headers["location"]))
    browser.get("/login/oidc/callback?state=made-up&code=secret-code")
    entries = asyncio.run(product.audited({"action": ("log_in",)}, 0, NOW + 1, None, 10))
    assert sorted((each.caller, each.outcome, each.path) for each in entries) == [
        ("account:bo", "allowed", "/login"),
        ("account:bo", "denied", "/login"),
        ("nobody", "denied", "/login/oidc/callback"),
        ("oidc:ann@house.example", "allowed", "/login/oidc/callback"),
    ]


@pytest.mark.parametrize("refused", [False, True])
def test_others_are_answered_while_the_page_is_drawn(product: FakeOperations, *, refused: bool) -> None:
    async def life() -> int:
        threads = HeldThreads()
        asyncio.get_running_loop().set_default_executor(threads)
        application = routes.application(product)
        transport = httpx.ASGITransport(application, client=("127.0.0.1", 50000))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            form = {"name": "bo", "password": PASSWORD}
            page = asyncio.create_task(client.post("/login", data=form) if refused else client.get("/login"))
            await asyncio.wait_for(threads.begun.wait(), WITHIN_S)
            assert (await client.get("/login.css")).status_code == 200
            assert not page.done()
            threads.go_on.set()
            return (await page).status_code

    assert asyncio.run(life()) == (403 if refused else 200)  # the form is of no page of ours
