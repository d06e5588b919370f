"""Given a product, when a page of its console is opened, then it is framed for its reader, and guarded."""

import re

import pytest

from commonpool import console
from commonpool.api import routes
from tests.api.caller import TestClient
from tests.api.fakes import ADMIN, TENANT, FakeOperations
from tests.console.visitor import BASE, OWN_PAGE, visiting, words

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def product() -> FakeOperations:
    return FakeOperations()


def look(client: TestClient, origin: str | None = OWN_PAGE["origin"], **fields: str) -> int:
    headers = {} if origin is None else {"origin": origin}
    return client.post("/look", data=fields, headers=headers, follow_redirects=False).status_code


def test_a_page_is_strict_and_never_kept(product: FakeOperations) -> None:
    with visiting(product) as local:
        answer = local.get("/")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "://" not in re.sub(r"http://127\.0\.0\.1:8081/", "", answer.text)


def test_files_are_kept_by_their_digest(product: FakeOperations) -> None:
    with visiting(product) as local:
        addresses = re.findall(r'(?:href|src)="(/files/[^"]+)"', local.get("/").text)
        assert {address.rpartition("/")[2] for address in addresses} >= {"console.css", "console.js", "htmx.min.js"}
        for address in addresses:
            answer = local.get(address)
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]


def test_a_browser_finds_the_icon_where_it_looks(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert local.get("/favicon.ico").headers["content-type"] == "image/svg+xml"


def test_language_of_the_browser_until_the_reader_chooses(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert '<html lang="en"' in local.get("/").text
        assert '<html lang="zh"' in local.get("/", headers={"accept-language": "zh-CN"}).text
        assert look(local, language="zh", next="/") == 303
        page = local.get("/").text
        assert '<html lang="zh"' in page
        assert "总览" in words(page)
        assert look(local, language="xx", next="/") == 303
        assert '<html lang="zh"' in local.get("/").text


def test_theme_is_chosen_and_kept(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert 'data-theme="auto"' in local.get("/").text
        assert look(local, theme="dark", next="/") == 303
        assert 'data-theme="dark"' in local.get("/").text
        assert look(local, theme='"><b>', next="/") == 303
        assert 'data-theme="dark"' in local.get("/").text


def test_times_are_in_the_readers_zone_and_say_so(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert "Times are in UTC." in words(local.get("/").text)
        local.cookies.set("commonpool-zone", "Asia/Shanghai")
        assert "Times are in Asia/Shanghai." in words(local.get("/").text)
        local.cookies.set("commonpool-zone", "../../etc/passwd")
        assert "Times are in UTC." in words(local.get("/").text)


@pytest.mark.parametrize("origin", [None, "http://elsewhere.example", "null"])
def test_a_form_of_another_page_changes_nothing(product: FakeOperations, origin: str | None) -> None:
    with visiting(product) as local:
        assert look(local, origin, theme="dark", next="/") == 403
        assert 'data-theme="auto"' in local.get("/").text


def test_after_a_form_one_stays_on_this_host(product: FakeOperations) -> None:
    with visiting(product) as local:
        for there in ("https://elsewhere.example/", "//elsewhere.example", "/\\elsewhere.example"):
            answer = local.post("/look", data={"next": there}, headers=OWN_PAGE, follow_redirects=False)
            assert answer.headers["location"] == "/"


def test_caller_from_elsewhere_is_told_how_to_come(product: FakeOperations) -> None:
    with visiting(product, "192.0.2.7") as remote:
        answer = remote.get("/")
        assert answer.status_code == 401
        assert "ssh -L 8081:127.0.0.1:8081 HOST" in words(answer.text)
        assert TENANT.name not in answer.text
        assert remote.get("/", headers={"authorization": ADMIN.decode()}).status_code == 200


def test_who_opens_a_page_without_a_credential_logs_in_first(product: FakeOperations) -> None:
    with visiting(product, "192.0.2.7") as remote:
        answer = remote.get("/bills?by=model", headers=BROWSER, follow_redirects=False)
        assert answer.headers["location"] == "/login?next=%2Fbills%3Fby%3Dmodel"
        wrong = {**BROWSER, "authorization": "Bearer cp_wrong"}
        assert remote.get("/bills", headers=wrong, follow_redirects=False).status_code == 401
        refresh = {**BROWSER, "hx-request": "true"}
        assert remote.get("/bills", headers=refresh, follow_redirects=False).status_code == 401


def test_the_tunnel_is_to_where_the_product_listens(product: FakeOperations) -> None:
    application = routes.application(product, console.routes(product.now_ns))
    with TestClient(application, base_url="http://pool.example:18081", client=("192.0.2.7", 50000)) as remote:
        for page in ("/", "/login"):
            assert "ssh -L 18081:127.0.0.1:18081 HOST" in words(remote.get(page).text)


def test_a_refresh_is_what_is_live_alone(product: FakeOperations) -> None:
    with visiting(product) as local:
        whole, part = local.get("/"), local.get("/", headers={"hx-request": "true"})
    assert "<html" in whole.text
    assert "<html" not in part.text
    assert TENANT.name in part.text
    assert len(part.text) < len(whole.text)


def test_only_a_message_of_ours_is_said(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert "Log in" in words(local.get("/?said=frame.log_in").text)
        assert "call 555" not in local.get("/?said=call 555").text


def test_the_console_is_no_part_of_the_described_api(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert "/" not in local.get("/openapi.json").json()["paths"]


def test_a_browser_is_shown_a_page_where_there_is_nothing(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.get("/nothing/here", headers=BROWSER)
        assert page.status_code == 404
        assert "Not found" in words(page.text)
        assert "On to: Overview" in words(page.text)
        assert local.get("/nothing/here").json()["error"]["code"] == "not_found"  # as a program asks
        assert local.get("/admin/v1/nothing", headers=BROWSER).json()["error"]["code"] == "not_found"
        assert local.post("/nothing/here", headers=BROWSER).status_code == 404
        assert local.post("/healthz", headers=BROWSER).status_code == 405


def test_the_address_of_a_form_leads_to_the_page_that_has_it(product: FakeOperations) -> None:
    with visiting(product) as local:
        for form, page in (
            ("/advice/grant", "/advice"),
            ("/keys/k1/rotate", "/keys"),
            ("/alerts/a1/silence", "/alerts"),
            ("/look", "/"),
        ):
            answer = local.get(form, headers=BROWSER, follow_redirects=False)
            assert (answer.status_code, answer.headers["location"]) == (303, page)
        refused = local.post("/advice/grant", data={"tenant": "support", "gpus": "many"}, headers=OWN_PAGE)
        assert '<input type="hidden" name="next" value="/advice">' in refused.text


def test_no_link_of_a_page_leads_to_the_host_that_its_path_begins_with(product: FakeOperations) -> None:
    there = f"{BASE}//elsewhere.example/x"
    with visiting(product) as local:
        page = local.get(there, headers=BROWSER)
        assert page.status_code == 404
        assert "//elsewhere.example/x" in page.text  # it says what there is not
        assert re.findall(r'="//[^"]*"', page.text) == []
        assert '<input type="hidden" name="next" value="/">' in page.text
    with visiting(product, "192.0.2.7") as remote:
        for path in (there, f"{BASE}//elsewhere.example/x?by=model"):
            answer = remote.get(path, headers=BROWSER, follow_redirects=False)
            assert "elsewhere" not in answer.headers.get("location", "")
            assert re.findall(r'="//[^"]*"|next=%2F%2F|next=//', answer.text) == []


def test_a_page_leads_back_to_itself_whatever_its_path_is_written_with(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.get("/nothing/a%3Fb%23c%C3%A4", headers=BROWSER).text
    assert '<input type="hidden" name="next" value="/nothing/a%3Fb%23c%C3%A4">' in page
