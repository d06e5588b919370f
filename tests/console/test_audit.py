"""Given an audit log, when its page is opened, then entries are found and the log is verified down to a kept head."""

import pytest

from commonpool.access.callers import by_admin_key
from tests.api.fakes import FakeOperations
from tests.console.visitor import visiting, words


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    product.callers[b"Bearer audits"] = by_admin_key("k5", "auditor")
    product.callers[b"Bearer operates"] = by_admin_key("k2", "operator")
    with visiting(product, "192.0.2.7", authorization="Bearer operates") as operator:
        operator.get("/admin/v1/nodes")
        operator.get("/admin/v1/audit")
    return product


def test_entries_are_found_by_what_they_are(product: FakeOperations) -> None:
    with visiting(product, "192.0.2.7", authorization="Bearer audits") as remote:
        everything = words(remote.get("/audit").text)
        denied = words(remote.get("/audit?outcome=denied").text)
        nodes = words(remote.get("/audit?action=read_nodes").text)
    assert {"GET /admin/v1/nodes", "GET /admin/v1/audit"} <= set(everything)
    assert "GET /admin/v1/audit" in denied
    assert "GET /admin/v1/nodes" not in denied
    assert "GET /admin/v1/nodes" in nodes


def test_a_whole_log_and_a_head_that_it_never_had(product: FakeOperations) -> None:
    with visiting(product, "192.0.2.7", authorization="Bearer audits") as remote:
        remote.get("/audit")  # what is still counted is written down for it
        page = remote.get("/audit/verify").text
        assert "It is whole, up to this head." in words(page)
        head = page.split('<pre class="secret" tabindex="0">')[1].split("<")[0]
        assert "It is whole, up to this head." in words(remote.get("/audit/verify", params={"head": head}).text)
        number = head.partition(":")[0]
        forged = remote.get("/audit/verify", params={"head": f"{number}:{'0' * 64}"})
        assert "It is not as it was written." in words(forged.text)
        assert remote.get("/audit/verify?head=nothing").status_code == 400


def test_who_may_not_read_it_is_told_so(product: FakeOperations) -> None:
    with visiting(product, "192.0.2.7", authorization="Bearer operates") as remote:
        assert remote.get("/audit").status_code == 403
        assert remote.get("/audit/verify").status_code == 403
