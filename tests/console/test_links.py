"""Given somebody with a role, when every page is opened that the menu has, then no link there leads to a refusal."""

import html
import re

import pytest

from commonpool.access.callers import Caller, by_admin_key
from tests.console.visitor import visiting, words
from tests.security.matrix_world import FOREIGN, OWN, things, world

ROLES = {
    "platform-admin": by_admin_key("k1"),
    "operator": by_admin_key("k2", "operator"),
    "finance": by_admin_key("k3", "finance"),
    "viewer": by_admin_key("k4", "viewer"),
    "auditor": by_admin_key("k5", "auditor"),
    "tenant-admin": by_admin_key("k6", "tenant-admin", OWN),
    "developer": by_admin_key("k7", "developer", OWN),
    "viewer in a tenant": by_admin_key("k8", "viewer", OWN),
}
REFUSED = {401, 403, 404}


def links(page: str) -> set[str]:
    """Where a page leads, within the console."""
    found = (html.unescape(each).split("#")[0] for each in re.findall(r'href="(/[^"]*)"', page))
    return {each for each in found if each and not each.startswith(("/console/", "/login"))}


@pytest.mark.parametrize(("role", "caller"), ROLES.items())
def test_no_link_of_the_menus_pages_leads_to_a_refusal(role: str, caller: Caller) -> None:
    product = world()
    product.callers[b"Bearer reads"] = caller
    with visiting(product, "192.0.2.7", authorization="Bearer reads") as remote:
        seen = {"/": remote.get("/")}
        assert seen["/"].is_success, role
        for path in links(seen["/"].text):
            seen[path] = remote.get(path)
        for path in {each for page in tuple(seen.values()) for each in links(page.text)} - seen.keys():
            seen[path] = remote.get(path)
        refused = {path: page.status_code for path, page in seen.items() if page.status_code in REFUSED}
    assert not refused
    assert len(seen) > 1


def test_finance_knows_whose_bills_there_are_and_not_how_they_stand() -> None:
    product = world()
    product.callers[b"Bearer pays"] = ROLES["finance"]
    with visiting(product, "192.0.2.7", authorization="Bearer pays") as remote:
        page = remote.get("/tenants").text
        shown = set(words(page))
        assert {OWN, FOREIGN} <= shown
        assert any(things(OWN).app in each for each in shown)
        assert f'href="/bills?tenant={OWN}"' in page
        assert f'href="/tenants/{OWN}"' not in page
        assert remote.get(f"/tenants/{OWN}").status_code == 403
        found = remote.get("/admin/v1/tenants").json()["tenants"]
        assert [each["name"] for each in found] == sorted(each["name"] for each in found)
        assert remote.get("/admin/v1/status").status_code == 403
