"""Given accounts, when people log in over the API, then the cookie is who they are, from our own pages alone."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from commonpool.access.passwords import Passwords
from commonpool.access.people import People
from commonpool.api import routes
from commonpool.store.accounts import Account, Session
from commonpool.store.contract import StoreError
from commonpool.store.memory import MemoryStore
from tests.access.certificates import Authority
from tests.access.house import FAST, PASSWORD
from tests.access.issuer import TestIssuer
from tests.api.caller import TestClient
from tests.api.fakes import ADMIN, CONFIG, KEY_OF_A, NOW, FakeOperations, sources
from tests.cli.serving import serving

SESSIONS, ME = "/admin/v1/sessions", "/admin/v1/me"
OTHER = "another horse battery"
BASE = "https://pool.example"
OWN = {"origin": BASE}
HOUR = 3600 * 10**9


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    product.configure(sources(CONFIG + "access: {roles: [{role: viewer, account: bo}]}\n"))
    return product


@pytest.fixture
def far(product: FakeOperations) -> Iterator[TestClient]:
    """A browser on another machine, over TLS; it keeps cookies."""
    for name in ("bo", "ann"):
        asyncio.run(product.people().accounts.add(name, "person", PASSWORD))
    application = routes.application(product)
    with TestClient(application, base_url=BASE, client=("192.0.2.7", 50000)) as client:
        yield client


def log_in(far: TestClient, name: str = "bo") -> None:
    answer = far.post(SESSIONS, json={"name": name, "password": PASSWORD})
    assert answer.status_code == 201, answer.text


def test_who_logs_in_is_somebody_until_they_log_out(far: TestClient) -> None:
    assert far.get(ME).status_code == 401
    answer = far.post(SESSIONS, json={"name": "bo", "password": PASSWORD})
    assert answer.json() == {"name": "account:bo", "expires_ns": NOW + 12 * HOUR}
    (cookie,) = answer.headers.get_list("set-cookie")
    assert cookie.startswith("__Host-commonpool=")
    assert cookie.endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure")
    me = far.get(ME).json()
    assert (me["name"], me["kind"], me["roles"]) == ("account:bo", "person", [{"role": "viewer", "tenant": None}])
    assert me["expires_ns"] == NOW + 12 * HOUR
    assert far.get("/admin/v1/status").status_code == 200
    assert far.get("/admin/v1/keys").status_code == 403
    assert far.delete(f"{SESSIONS}/current", headers=OWN).json() == {}
    assert far.get(ME).status_code == 401


def test_one_sees_and_ends_where_else_one_is_logged_in(far: TestClient, product: FakeOperations) -> None:
    log_in(far, "ann")
    anns = far.get(f"{ME}/sessions").json()["sessions"][0]["id"]
    product.now += 1
    log_in(far)
    elsewhere = far.get(f"{ME}/sessions").json()["sessions"][0]["id"]
    product.now += 1
    cookies = dict(far.cookies)
    log_in(far)
    answer = far.get(f"{ME}/sessions")
    assert [(each["id"] == elsewhere, each["who"], each["current"]) for each in answer.json()["sessions"]] == [
        (False, "account:bo", True),
        (True, "account:bo", False),
    ]
    secrets = [value for value in (*cookies.values(), *far.cookies.values()) if value]
    kept = [each.digest.hex() for each in product.store.sessions(0, 0, 9)]
    assert not any(each in answer.text for each in (*secrets, *kept))
    assert far.delete(f"{ME}/sessions/{elsewhere}").status_code == 403  # no page of ours asks
    assert far.delete(f"{ME}/sessions/{anns}", headers=OWN).status_code == 404  # somebody else's is as none
    assert far.delete(f"{ME}/sessions/{elsewhere}", headers=OWN).json() == {"id": elsewhere, "who": "account:bo"}
    assert len(far.get(f"{ME}/sessions").json()["sessions"]) == 1
    far.cookies.clear()
    far.cookies.update(cookies)
    assert far.get(ME).status_code == 401


def test_an_administrator_ends_those_of_others(far: TestClient, local: TestClient, product: FakeOperations) -> None:
    log_in(far)
    assert far.get(SESSIONS).status_code == far.delete(f"{SESSIONS}/x", headers=OWN).status_code == 403
    (found,) = local.get(SESSIONS).json()["sessions"]
    assert (found["who"], found["created_ns"], found["expires_ns"], found["current"]) == (
        "account:bo",
        NOW,
        NOW + 12 * HOUR,
        False,
    )
    assert local.delete(f"{SESSIONS}/{found['id']}").json() == {"id": found["id"], "who": "account:bo"}
    assert far.get(ME).status_code == 401
    assert local.get(SESSIONS).json() == {"sessions": []}
    assert local.delete(f"{SESSIONS}/{found['id']}").status_code == 404
    asyncio.run(product.audit().write(all_of_it=True))
    ended = [each for each in product.store.audit_chain(0, 99) if each.path == f"{SESSIONS}/{found['id']}"]
    assert {(each.caller, each.action, each.outcome) for each in ended} == {("local", "manage_accounts", "allowed")}


def test_what_one_may_do_is_said_for_each_tenant(far: TestClient, local: TestClient) -> None:
    log_in(far)
    may = {each["permission"]: each for each in far.get(ME).json()["may"]}
    assert may["read_status"] == {
        "permission": "read_status",
        "words": "see how tenants, models and loans stand, and which guarantees lie idle or are released",
        "tenants": None,
        "platform": True,
    }
    assert not {"manage_accounts", "apply_config", "release", "read_prompts"} & may.keys()
    key = local.get(ME, headers={"authorization": ADMIN.decode()}).json()
    assert (key["name"], key["kind"], key["expires_ns"]) == ("key:k1", "key", None)
    assert "manage_accounts" in {each["permission"] for each in key["may"]}
    app = local.get(ME, headers={"authorization": KEY_OF_A.decode()}).json()
    assert {each["permission"]: each["tenants"] for each in app["may"] if each["permission"] == "read_requests"} == {
        "read_requests": ["a"]
    }
    assert local.get(ME).json()["name"] == "local"


@pytest.mark.parametrize("headers", [{}, {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}])
def test_a_foreign_page_changes_nothing_with_a_cookie(
    far: TestClient, product: FakeOperations, headers: dict[str, str]
) -> None:
    log_in(far)
    for method, path, body in (
        ("DELETE", f"{SESSIONS}/current", None),
        ("POST", f"{ME}/password", {"current": PASSWORD, "new": OTHER}),
        ("POST", "/admin/v1/accounts/ann/disable", None),
    ):
        answer = far.request(method, path, json=body, headers=headers)
        assert answer.status_code == 403
        assert "from a page of this host alone" in answer.json()["error"]["message"]
    assert far.get(ME, headers=headers).status_code == 200
    ann = product.store.account("ann")
    assert ann is not None
    assert ann.disabled_ns is None


@pytest.mark.parametrize("body", [{"name": "bo", "password": OTHER}, {"name": "nobody", "password": PASSWORD}])
def test_a_wrong_login_says_nothing_and_sets_no_cookie(far: TestClient, body: dict[str, str]) -> None:
    answer = far.post(SESSIONS, json=body)
    assert answer.status_code == 401
    assert answer.json()["error"]["message"] == "the name or the password is wrong"
    assert "set-cookie" not in answer.headers
    assert body["password"] not in answer.text


def test_too_many_are_told_when_to_come_again(far: TestClient, product: FakeOperations) -> None:
    for _ in range(5):
        far.post(SESSIONS, json={"name": "bo", "password": OTHER})
    answer = far.post(SESSIONS, json={"name": "bo", "password": PASSWORD})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
    product.now += 60 * 10**9
    log_in(far)


def test_over_an_open_line_no_password_is_taken(product: FakeOperations) -> None:
    application = routes.application(product)
    with TestClient(application, base_url="http://pool.example", client=("192.0.2.7", 50000)) as open_line:
        answer = open_line.post(SESSIONS, json={"name": "bo", "password": PASSWORD})
    assert answer.status_code == 403
    assert "do not go over an open line" in answer.json()["error"]["message"]


def test_a_session_that_is_over_is_401_on_this_machine_too(local: TestClient, product: FakeOperations) -> None:
    asyncio.run(product.people().accounts.add("bo", "person", PASSWORD))
    log_in(local)
    assert local.get(ME).json()["name"] == "account:bo"
    assert local.get("/admin/v1/keys").status_code == 403  # who is logged in is not the local operator as well
    product.now += HOUR
    answer = local.get(ME)
    assert answer.status_code == 401
    assert "the session is over; log in again at /login" in answer.json()["error"]["message"]


def test_another_password_for_oneself_ends_the_other_sessions(far: TestClient) -> None:
    log_in(far)
    elsewhere = dict(far.cookies)
    far.cookies.clear()
    log_in(far)
    wrong = far.post(f"{ME}/password", json={"current": OTHER, "new": OTHER}, headers=OWN)
    assert (wrong.status_code, wrong.json()["error"]["message"]) == (401, "the current password is wrong")
    assert far.post(f"{ME}/password", json={"current": PASSWORD, "new": OTHER}, headers=OWN).status_code == 200
    assert far.get(ME).json()["name"] == "account:bo"
    far.cookies.clear()
    far.cookies.update(elsewhere)
    assert far.get(ME).status_code == 401
    assert far.post(SESSIONS, json={"name": "bo", "password": PASSWORD}).status_code == 401


def test_with_an_account_end_its_sessions_at_once(far: TestClient, local: TestClient) -> None:
    log_in(far)
    local.post("/admin/v1/accounts/bo/disable")
    assert far.get(ME).status_code == 401
    assert far.post(SESSIONS, json={"name": "bo", "password": PASSWORD}).status_code == 401


def test_who_came_and_who_could_not_is_in_the_audit_log(far: TestClient, product: FakeOperations) -> None:
    log_in(far)
    far.post(SESSIONS, json={"name": "ann", "password": OTHER})
    far.post(SESSIONS, json={"name": "nobody", "password": OTHER})
    entries = asyncio.run(product.audited({"action": ("log_in",)}, 0, NOW + 1, None, 10))
    assert sorted((each.caller, each.outcome, each.path, each.peer) for each in entries) == [
        ("account:ann", "denied", SESSIONS, "192.0.2.7"),
        ("account:bo", "allowed", SESSIONS, "192.0.2.7"),
        ("nobody", "denied", SESSIONS, "192.0.2.7"),
    ]


def test_on_this_machine_a_credential_is_needed_where_the_configuration_says_so(
    local: TestClient, product: FakeOperations
) -> None:
    product.configure(sources(CONFIG + "access: {local: false}\n"))
    assert local.get("/admin/v1/status").status_code == 401
    assert local.get("/healthz").status_code == 200
    assert local.get("/admin/v1/status", headers={"authorization": ADMIN.decode()}).status_code == 200


@pytest.fixture
def issuer() -> Iterator[TestIssuer]:
    running = TestIssuer()
    yield running
    running.stop()


def test_a_machine_brings_a_token_of_the_issuer(local: TestClient, product: FakeOperations, issuer: TestIssuer) -> None:
    product.configure(
        sources(
            CONFIG
            + "access:\n"
            + "  url: http://127.0.0.1:8081\n"
            + f"  oidc: {{issuer: '{issuer.url}', client_id: commonpool, audience: pool-api}}\n"
            + "  roles: [{role: tenant-admin, tenant: support, subject: machine-7}]\n"
        )
    )
    bearer = {"authorization": f"Bearer {issuer.token()}"}
    me = local.get(ME, headers=bearer).json()
    assert (me["name"], me["kind"]) == ("oidc:machine-7", "service")
    tenants = [tenant["name"] for tenant in local.get("/admin/v1/status", headers=bearer).json()["tenants"]]
    assert tenants == ["support"]
    refused = local.get(ME, headers={"authorization": f"Bearer {issuer.token(aud='commonpool')}"})
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert "invalid claim: aud" in refused.json()["error"]["message"]
    issuer.stop()
    product.now += 3600 * 10**9
    away = local.get(ME, headers=bearer)
    assert away.status_code == 503
    issuer.start()


def test_over_tls_that_the_product_serves_the_cookie_is_for_tls_alone(product: FakeOperations, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    asyncio.run(product.people().accounts.add("bo", "person", PASSWORD))
    with serving(product, authority.issue("server")) as url:
        where = urlsplit(url)
        with closing(HTTPSConnection("127.0.0.1", where.port, context=authority.trusting())) as connection:
            body = json.dumps({"name": "bo", "password": PASSWORD})
            connection.request("POST", SESSIONS, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            cookie = str(answer.headers["set-cookie"])
            assert re.fullmatch(r"__Host-commonpool=[\w-]{43}; Path=/; .*; SameSite=Strict; Secure", cookie)
            connection.request("GET", ME, headers={"cookie": cookie.partition(";")[0]})
            assert json.loads(connection.getresponse().read())["name"] == "account:bo"


class BrokenStore(MemoryStore):
    """A store that cannot be read."""

    def session(self, digest: bytes) -> Session | None:  # noqa: ARG002 - as the contract has it
        raise StoreError("the database is away")

    def account(self, name: str) -> Account | None:  # noqa: ARG002 - as the contract has it
        raise StoreError("the database is away")


def test_while_the_store_is_away_nobody_is_logged_in_and_keys_still_count(
    local: TestClient, product: FakeOperations
) -> None:
    access = product.config().access
    product.fake_people = People(BrokenStore(), product.now_ns, lambda: access, passwords=Passwords(FAST))
    local.cookies.set("commonpool", "t" * 43)
    assert local.get(ME).status_code == 503
    assert local.post(SESSIONS, json={"name": "bo", "password": PASSWORD}).status_code == 503
    assert local.get(ME, headers={"authorization": ADMIN.decode()}).status_code == 200
    local.cookies.clear()
    assert local.get(ME).status_code == 200
