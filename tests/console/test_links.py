"""Given somebody with a role, when every page is opened that the menu has, then no link there leads to a refusal."""

import html
import re
from pathlib import Path

import pytest

import commonpool.console
from commonpool.access.callers import Caller, by_admin_key
from commonpool.console.links import Links, anchor
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
# Pages of a time in which there is something to link to.
MORE = ("/requests?span=7d", "/loans?range=30d", "/loans?period=2026-12", "/bills?period=2026-12", "/jobs?all=true")
TEMPLATES = Path(commonpool.console.__file__).parent / "templates"
# Where a link is written that leads nowhere else than to where its reader is, to the log-in page, or along the menu.
WRITTEN = {"frame.html", "refused.html"}


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
        seen |= {path: page for path in MORE if (page := remote.get(path)).is_success}
        for path in {each for page in tuple(seen.values()) for each in links(page.text)} - seen.keys():
            seen[path] = remote.get(path)
        refused = {path: page.status_code for path, page in seen.items() if page.status_code in REFUSED}
    assert not refused
    assert len(seen) > 1


def test_no_template_writes_a_link_by_itself() -> None:
    """They have `link` and `way`, which ask whether the reader may go there."""
    for file in TEMPLATES.glob("*.html"):
        written = re.findall(r'<a\b[^>]*href="(?!#|{{ to }}" download)', file.read_text("utf-8"))
        assert file.name in WRITTEN or not written, file.name


def test_a_link_is_of_the_page_that_its_address_names() -> None:
    there = Links([("/", "first"), ("/jobs/new", "new"), ("/jobs/{id}", "job"), ("/keys", "keys")])
    assert there.find("/jobs/new?tenant=a") == ("new", {"tenant": "a"})
    assert there.find("/jobs/j%201?tenant=a#log") == ("job", {"tenant": "a", "id": "j%201"})
    assert there.find("/jobs") is None
    assert [there.above(path) for path in ("/keys/k/rotate", "/jobs/x/cancel", "/keys", "/")] == [
        "/keys",
        "/jobs/x",
        "/",
        "/",
    ]
    assert anchor("/a?b=1&c=2", "<b>", rel="next") == '<a href="/a?b=1&amp;c=2" rel="next">&lt;b&gt;</a>'
    assert anchor("", "<b>") == "&lt;b&gt;"
    assert anchor("", "7", kind="warn") == '<span class="warn">7</span>'


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
