"""Given a product, when a page of its console is opened, then it is framed for its reader, and guarded."""

import re

import pytest

from tests.api.caller import TestClient
from tests.api.fakes import ADMIN, TENANT, FakeOperations
from tests.console.visitor import OWN_PAGE, visiting, words


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
