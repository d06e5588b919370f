"""Given whoever may, when settings are changed on their pages, then they are; and nobody else finds a way there."""

import asyncio
import re
from typing import Any

import pytest

from commonpool.access.callers import by_admin_key
from commonpool.store.prompts import PromptHead, Spoken
from tests.api.fakes import CONFIG, FakeOperations
from tests.console.visitor import OWN_PAGE, visiting, words

PASSWORD = "a long enough one"
OTHER = CONFIG.replace("support:\n    tenant: {guaranteed: 2_gpu", "support:\n    tenant: {guaranteed: 1_gpu")
HERE = "/settings/configuration"


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    product.callers[b"Bearer of-support"] = by_admin_key("k6", "tenant-admin", "support")
    product.callers[b"Bearer operates"] = by_admin_key("k2", "operator")
    return product


# -- oneself -----------------------------------------------------------------------------------------------------------


def test_settings_say_who_one_is_and_lead_to_what_one_may(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.get("/settings").text
        assert {"Configuration", "Accounts", "Encrypt the data keys anew"} <= set(words(page))
    with visiting(product, "192.0.2.7", authorization="Bearer of-support") as remote:
        page = remote.get("/settings").text
        shown = set(words(page))
        assert "Prompt logs" in shown
        assert not {"Configuration", "Accounts", "Encrypt the data keys anew"} & shown
        for path in (HERE, "/settings/accounts"):
            assert remote.get(path).status_code == 403


def test_data_keys_are_wrapped_anew(product: FakeOperations) -> None:
    asyncio.run(product.prompts().switch_on("support", 86_400 * 10**9, "local"))
    with visiting(product) as local:
        assert "0 data keys were encrypted anew." in words(local.post("/settings/secrets", headers=OWN_PAGE).text)
    with visiting(product, "192.0.2.7", authorization="Bearer operates") as remote:
        assert remote.post("/settings/secrets", headers=OWN_PAGE).status_code == 403


def test_sessions_are_seen_and_ended_where_they_are_ones_own_and_by_administrators(product: FakeOperations) -> None:
    asyncio.run(product.people().accounts.add("ann", "person", PASSWORD))
    login = {"name": "ann", "password": PASSWORD}
    with visiting(product) as laptop, visiting(product) as phone:
        for browser in (laptop, phone):
            browser.post("/admin/v1/sessions", json=login, headers=OWN_PAGE)
            product.now += 1
        page = laptop.get("/settings").text
        assert "this one" in words(page)
        (path,) = re.findall(r'action="(/settings/sessions/\w+/end)"', page)
        assert laptop.post(path, headers={"origin": "http://elsewhere.example"}).status_code == 403
        page = laptop.post(path, headers=OWN_PAGE).text
        assert "That session is over." in words(page)
        assert "/end" not in page
        assert phone.get("/admin/v1/me").status_code == 401
        with visiting(product) as local:
            page = local.get("/settings/accounts").text
            assert "account:ann" in words(page)
            (path,) = re.findall(r'action="(/settings/everybody/\w+/end)"', page)
            assert "Nobody is logged in." in words(local.post(path, headers=OWN_PAGE).text)
        assert laptop.get("/admin/v1/me").status_code == 401


# -- accounts ----------------------------------------------------------------------------------------------------------


def test_an_account_from_its_making_to_its_end(product: FakeOperations) -> None:
    with visiting(product) as local:

        def post(path: str, **fields: str) -> int:
            sent: dict[str, Any] = {"data": fields, "headers": OWN_PAGE, "follow_redirects": False}
            return local.post(f"/settings/accounts{path}", **sent).status_code

        assert post("", name="ann", kind="person", password=PASSWORD) == 303
        assert post("", name="ann", kind="person", password=PASSWORD) == 409
        assert post("", name="robot", kind="service", password="left out") == 303
        assert post("/ann/password", password="short") == 400
        assert post("/ann/password", password=f"{PASSWORD} more") == 303
        assert post("/ann/disable") == 303
        page = words(local.get("/settings/accounts").text)
        assert {"ann", "robot", "disabled", "may be used"} <= set(page)
        assert post("/ann/enable") == 303
        assert post("/robot/remove") == 303
        assert "robot" not in words(local.get("/settings/accounts").text)
        assert post("/nobody/disable") == 404


# -- configuration -----------------------------------------------------------------------------------------------------


def test_what_a_text_would_change_is_seen_before_it_is_applied(product: FakeOperations) -> None:
    with visiting(product) as local:
        sent = {"file": "commonpool.yaml", "text": OTHER.replace("\n", "\r\n"), "revision": "1"}
        seen = local.post(HERE, data={**sent, "do": "diff"}, headers=OWN_PAGE)
        assert {"tenants.support.tenant.guaranteed", "2 gpu", "1 gpu", "Apply"} <= set(words(seen.text))
        assert not product.applied
        applied = local.post(HERE, data={**sent, "do": "apply"}, headers=OWN_PAGE, follow_redirects=False)
        assert applied.status_code == 303
        assert product.applied == [1]
        assert product.config().policy.tenants["support"].guaranteed == 1000
        late = local.post(HERE, data={**sent, "do": "apply"}, headers=OWN_PAGE)
        assert late.status_code == 409  # another revision is in force by now
    assert product.applied == [1]


def test_what_is_wrong_with_a_text_is_said_with_its_line_and_the_text_stays(product: FakeOperations) -> None:
    with visiting(product) as local:
        sent = {"file": "commonpool.yaml", "text": "pools: 7 # mine", "do": "diff"}
        answer = local.post(HERE, data=sent, headers=OWN_PAGE)
        assert answer.status_code == 422
        assert "commonpool.yaml:1" in words(answer.text)
        assert "pools: 7 # mine" in answer.text
        assert local.post(HERE, data={**sent, "file": "else.yaml"}, headers=OWN_PAGE).status_code == 404


def test_who_may_read_a_configuration_may_compare_and_not_apply(product: FakeOperations) -> None:
    with visiting(product, "192.0.2.7", authorization="Bearer operates") as remote:
        sent = {"file": "commonpool.yaml", "text": OTHER}
        seen = words(remote.post(HERE, data={**sent, "do": "diff"}, headers=OWN_PAGE).text)
        assert "2 gpu" in seen
        assert "Apply" not in seen
        assert remote.post(HERE, data={**sent, "do": "apply"}, headers=OWN_PAGE).status_code == 403
    assert not product.applied


# -- prompt logs -------------------------------------------------------------------------------------------------------


def test_a_tenants_people_switch_their_log_and_read_it(product: FakeOperations) -> None:
    with visiting(product, "192.0.2.7", authorization="Bearer of-support") as remote:

        def post(path: str, **fields: str) -> int:
            sent: dict[str, Any] = {"data": fields, "headers": OWN_PAGE, "follow_redirects": False}
            return remote.post(f"/settings/prompts{path}", **sent).status_code

        assert "off: nothing is kept" in words(remote.get("/settings/prompts").text)
        assert post("/support", do="on", keep="long") == 400
        assert post("/support", do="on", keep="2d") == 303
        assert "on: prompts are kept" in words(remote.get("/settings/prompts").text)
        head = PromptHead("support", product.now, "asked-1", "helpdesk", "echo", "chat", 0)
        answer = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n<answered"
        product.prompts().hear(Spoken(head, b"<asked>", answer, cut=False, gone=False))
        asyncio.run(product.prompts().write())
        assert "asked-1" in words(remote.get("/settings/prompts").text)
        page = remote.get("/settings/prompts/support/asked-1").text
        assert "&lt;asked&gt;" in page
        assert "&lt;answered" in page
        assert post("/support/asked-1") == 303
        assert "asked-1" not in words(remote.get("/settings/prompts").text)
        assert post("/support", do="off") == 303
        assert post("/support", do="burn") == 400
        assert post("/research", do="on") == 404


def test_the_platform_reads_no_prompts(product: FakeOperations) -> None:
    asyncio.run(product.prompts().switch_on("support", 86_400 * 10**9, "local"))
    with visiting(product) as local:
        assert "read by its own people alone" in local.get("/settings/prompts").text
        assert "on: prompts are kept" not in local.get("/settings/prompts?tenant=support").text
        sent: dict[str, Any] = {"data": {"do": "off"}, "headers": OWN_PAGE}
        assert local.post("/settings/prompts/support", **sent).status_code == 403
