"""Given keys, when they are made, rotated and revoked on a page, then a secret is shown once, and only to its own."""

import re

import pytest

from commonpool.access.callers import by_admin_key
from commonpool.store.contract import Key
from tests.api.fakes import FakeOperations
from tests.console.visitor import OWN_PAGE, visiting, words

SECRET = re.compile(r"cp_[0-9A-Za-z]+_[0-9A-Za-z]+")
Sent = dict[str, str]


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    product.callers[b"Bearer of-support"] = by_admin_key("k6", "tenant-admin", "support")
    product.callers[b"Bearer audits"] = by_admin_key("k5", "auditor")
    return product


def test_a_secret_is_shown_once(product: FakeOperations) -> None:
    sent = {"scope": "data", "tenant": "support", "app": "helpdesk", "days": "7", "note": "of the desk"}
    with visiting(product) as local:
        made = local.post("/keys", data=sent, headers=OWN_PAGE)
        assert made.status_code == 201
        (secret,) = set(SECRET.findall(made.text))
        listed = local.get("/keys").text
    assert "of the desk" in words(listed)
    assert secret not in listed
    (key,) = product.store.list_keys()
    assert (key.tenant, key.app, key.expires_ns) == ("support", "helpdesk", product.now + 7 * 86_400 * 10**9)


def test_a_key_without_a_role_is_of_an_administrator(product: FakeOperations) -> None:
    product.store.add_key(Key("first00000", b"", b"", "admin", "", "", product.now, role="", note="of the start"))
    with visiting(product) as local:
        row = words(local.get("/keys").text.partition("first00000")[2].partition("</tr>")[0])
    assert "platform-admin" in row


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"scope": "data", "tenant": "support", "app": "no-such"}, "does not exist for this key"),
        ({"scope": "data", "tenant": "support", "days": "0"}, "a key works for 1 to"),
        ({"scope": "data", "tenant": "support", "days": "soon"}, "is not a whole number"),
        ({"scope": "data", "tenant": "support", "days": "9" * 5000}, "is not a whole number"),
        ({"scope": "data", "tenant": "support", "networks": "here"}, "here"),
        ({"scope": "admin", "tenant": "support", "role": "king"}, "king"),
    ],
)
def test_what_cannot_be_is_said_above_the_keys(product: FakeOperations, sent: Sent, said: str) -> None:
    with visiting(product) as local:
        answer = local.post("/keys", data=sent, headers=OWN_PAGE)
    assert answer.status_code == 400
    assert said in answer.text
    assert not product.store.list_keys()


def test_a_key_of_another_page_is_not_made(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert local.post("/keys", data={"scope": "data", "tenant": "support"}).status_code == 403
    assert not product.store.list_keys()


def test_rotated_and_revoked(product: FakeOperations) -> None:
    with visiting(product) as local:
        local.post("/keys", data={"scope": "data", "tenant": "support"}, headers=OWN_PAGE)
        (old,) = (key.key_id for key in product.store.list_keys())
        rotated = local.post(f"/keys/{old}/rotate", data={"overlap": "2h"}, headers=OWN_PAGE)
        assert len(set(SECRET.findall(rotated.text))) == 1
        kept = {key.key_id: key for key in product.store.list_keys()}
        assert kept[old].expires_ns == 1_800_000_000 * 10**9 + 2 * 3600 * 10**9
        local.post(f"/keys/{old}/revoke", headers=OWN_PAGE)
        product.now += 1
        assert "revoked" in words(local.get("/keys").text)
        assert local.post(f"/keys/{old}/rotate", data={"overlap": "never"}, headers=OWN_PAGE).status_code == 400


def test_a_tenants_people_have_their_own_keys_alone(product: FakeOperations) -> None:
    with visiting(product) as local:
        for tenant, note in (("support", "ours"), ("research", "theirs")):
            local.post("/keys", data={"scope": "data", "tenant": tenant, "note": note}, headers=OWN_PAGE)
    foreign = next(key.key_id for key in product.store.list_keys() if key.tenant == "research")
    with visiting(product, "192.0.2.7", authorization="Bearer of-support") as remote:
        page = words(remote.get("/keys").text)
        assert "ours" in page
        assert "theirs" not in page
        made = remote.post("/keys", data={"scope": "data", "tenant": "research"}, headers=OWN_PAGE)
        assert made.status_code == 400
        assert remote.post("/keys", data={"scope": "admin"}, headers=OWN_PAGE).status_code == 403
        assert remote.post(f"/keys/{foreign}/revoke", headers=OWN_PAGE).status_code == 404
    assert all(key.revoked_ns is None for key in product.store.list_keys())


def test_who_only_looks_has_no_buttons(product: FakeOperations) -> None:
    with visiting(product) as local:
        local.post("/keys", data={"scope": "data", "tenant": "support"}, headers=OWN_PAGE)
    with visiting(product, "192.0.2.7", authorization="Bearer audits") as remote:
        page = remote.get("/keys").text
    assert "works" in words(page)
    assert 'action="/keys' not in page.replace('<form method="get" action="/keys"', "")
