"""Given a product, when its console is opened, then it shows what the API says to the same caller, and no more."""

from collections.abc import Iterator

import msgspec
import pytest

from commonpool import console
from commonpool.api import routes
from tests.api.caller import TestClient
from tests.api.fakes import ADMIN, LOAN, MODEL, REPLICA, TENANT, FakeOperations
from tests.store.records import loan, usage_record


@pytest.fixture
def product() -> FakeOperations:
    return FakeOperations()


@pytest.fixture
def local(product: FakeOperations) -> Iterator[TestClient]:
    application = routes.application(product, console.routes())
    with TestClient(application, base_url="http://127.0.0.1:8081", client=("127.0.0.1", 50000)) as client:
        yield client


def cells(page: str) -> list[str]:
    """The text of the page, a line each, so that a cell can be looked for as a whole."""
    return [line.rpartition(">")[2].strip() for line in page.splitlines()]


def test_page_shows_the_status(local: TestClient, product: FakeOperations) -> None:
    product.models_now = (MODEL,)
    answer = local.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    shown = cells(answer.text)
    for cell in (TENANT.name, "1.5", "0.42 s", "–", REPLICA.id, "90 s", LOAN.borrower, MODEL.name, "first token"):
        assert cell in shown


def test_loans_of_the_last_hour_only(local: TestClient, product: FakeOperations) -> None:
    product.loans_now = ()
    now = product.now_ns()
    for name, ago_ns in (("new", 60 * 10**9), ("old", 7200 * 10**9)):
        lent = (loan("support", f"borrower-{name}"),)
        product.store.add_usage([usage_record(name, tenant=f"borrower-{name}", arrived_ns=now - ago_ns, loans=lent)])
    page = local.get("/").text
    assert "borrower-new" in page
    assert "borrower-old" not in page


def test_warnings_and_errors_are_shown_as_text(local: TestClient, product: FakeOperations) -> None:
    product.warnings = ("guarantees <script>alert(1)</script> exceed",)
    product.models_now = (msgspec.structs.replace(MODEL, broken=True, error="no file & no hope"),)
    page = local.get("/").text
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page
    assert "no file &amp; no hope" in page


def test_caller_from_elsewhere_is_told_how(product: FakeOperations) -> None:
    application = routes.application(product, console.routes())
    with TestClient(application, base_url="http://127.0.0.1:8081", client=("192.0.2.7", 50000)) as remote:
        answer = remote.get("/")
        assert answer.status_code == 401
        assert "ssh -L 8081:127.0.0.1:8081" in answer.text
        assert TENANT.name not in answer.text
        assert remote.get("/", headers={"authorization": ADMIN.decode()}).status_code == 200


def test_files_are_ours_and_small(local: TestClient) -> None:
    page = local.get("/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    total = 0
    for name, kind in (("console.css", "text/css"), ("console.js", "text/javascript")):
        assert f'"{name}"' in page.text
        answer = local.get(f"/{name}")
        assert answer.headers["content-type"].startswith(kind)
        total += len(answer.content)
    assert total <= 3 * 1024
    assert "://" not in local.get("/console.js").text + local.get("/console.css").text


def test_console_is_no_part_of_the_described_api(local: TestClient) -> None:
    assert "/" not in local.get("/openapi.json").json()["paths"]
