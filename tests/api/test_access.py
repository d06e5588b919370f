"""Given a caller, when it calls, then it may or it may not; the rules one by one."""

import asyncio
from typing import Any

import pytest

from commonpool.access.callers import LOCAL, Caller
from commonpool.api.access import ForbiddenError, KeyNeededError, came, hostname, identified, is_loopback
from tests.api.fakes import ADMIN, CONFIG, KEY_OF_A, FakeOperations, sources

HERE = {"host": "127.0.0.1:8081"}


def may(method: str = "GET", peer: str | None = "127.0.0.1", product: Any = None, **headers: str) -> Caller:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return asyncio.run(identified(product or FakeOperations(), method, came(peer, HERE | given, tls=False)))


def test_local_caller_needs_no_key() -> None:
    assert may() is LOCAL
    may(peer="::1", host="[::1]:8081")
    may(peer="::ffff:127.0.0.1", host="localhost")
    may("POST", origin="http://127.0.0.1:8081")


def test_a_key_is_enough_from_anywhere_and_says_who_it_is() -> None:
    for authorization, name in ((ADMIN, "key:k1"), (KEY_OF_A, "key:k2")):
        caller = may(
            "POST",
            peer="192.0.2.7",
            host="pool.example",
            origin="https://elsewhere.example",
            authorization=authorization.decode(),
        )
        assert caller.name == name


def test_where_local_callers_need_a_credential_they_are_nobody() -> None:
    product = FakeOperations()
    product.configure(sources(CONFIG + "access: {local: false}\n"))
    with pytest.raises(KeyNeededError, match=r"on this machine too \(access.local\)"):
        may(product=product)
    assert may(product=product, authorization=ADMIN.decode()).name == "key:k1"


def test_bad_key_is_refused_even_from_here() -> None:
    with pytest.raises(KeyNeededError, match="the key is not valid"):
        may(authorization="Bearer cp_other")


@pytest.mark.parametrize("peer", ["192.0.2.7", "10.0.0.1", "::ffff:192.0.2.7", None, "testclient"])
def test_another_machine_needs_a_key(peer: str | None) -> None:
    with pytest.raises(KeyNeededError, match="from another machine"):
        may(peer=peer)


@pytest.mark.parametrize("name", ["forwarded", "x_forwarded_for", "x_forwarded_host", "x_real_ip", "via"])
def test_what_a_proxy_passed_on_is_not_local(name: str) -> None:
    with pytest.raises(KeyNeededError, match="from another machine"):
        may(**{name: "127.0.0.1"})


@pytest.mark.parametrize(
    "host",
    ["rebound.example", "rebound.example:8081", "127.0.0.1.rebound.example", "localhost.rebound.example", "", "["],
)
def test_foreign_host_is_rebinding(host: str) -> None:
    with pytest.raises(ForbiddenError, match="is not a loopback name"):
        may(host=host)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8081"])
def test_page_of_another_origin_changes_nothing(origin: str) -> None:
    may("GET", origin=origin)
    with pytest.raises(ForbiddenError, match="may not change anything"):
        may("POST", origin=origin)


@pytest.mark.parametrize(
    ("host", "name"),
    [("127.0.0.1:80", "127.0.0.1"), ("[::1]:80", "::1"), ("LocalHost", "localhost"), ("[", None), ("", None)],
)
def test_hostname(host: str, name: str | None) -> None:
    assert hostname(host) == name


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.8.9.10", True),
        ("LOCALHOST", True),
        ("::ffff:127.0.0.1", True),
        ("127.1", False),
        ("2130706433", False),
        ("0.0.0.0", False),
        (None, False),
    ],
)
def test_loopback_by_form(host: str | None, loopback: bool) -> None:
    assert is_loopback(host) is loopback
