"""Cookies that only we get, changes that only our own pages send, and paths that lead nowhere else."""

from urllib.parse import urljoin, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.access.browsers import SESSION, cookie, is_own_page, local_path, picked


def test_over_tls_a_cookie_is_of_this_host_alone() -> None:
    assert cookie(SESSION, "t", 60, secure=True) == (
        "__Host-commonpool=t; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure"
    )
    assert cookie(SESSION, "t", 60, secure=False) == "commonpool=t; Path=/; Max-Age=60; HttpOnly; SameSite=Strict"


@pytest.mark.parametrize(
    ("header", "secure", "value"),
    [
        ("commonpool=a", False, "a"),
        ("x=1; commonpool=a; y", False, "a"),
        ("commonpool=a=b", False, "a=b"),
        ("__Host-commonpool=a; commonpool=b", True, "a"),
        ("commonpool=b", True, None),  # a page over plain HTTP set it
        ("__Host-commonpool=a", False, None),
        ("commonpool=a; commonpool=b", False, None),  # somebody set another one
        ("xcommonpool=a; commonpool-login=b; Commonpool=c", False, None),
        ("", False, None),
    ],
)
def test_a_cookie_is_picked_by_its_whole_name(header: str, secure: bool, value: str | None) -> None:
    assert picked(header, SESSION, secure=secure) == value


OWN = "http://127.0.0.1:8081"


@pytest.mark.parametrize(
    ("site", "origin", "own"),
    [
        ("same-origin", OWN, True),
        ("same-origin", None, True),
        (None, OWN, True),
        (None, None, False),
        ("same-site", OWN, False),
        ("cross-site", None, False),
        ("none", None, False),
        ("same-origin", "https://evil.example", False),
        (None, "https://evil.example", False),
        (None, "http://127.0.0.1:9999", False),
        (None, "null", False),
        (None, "http://[", False),
        (None, "", False),
    ],
)
def test_a_change_is_from_a_page_of_ours_or_not(site: str | None, origin: str | None, own: bool) -> None:
    headers = {"host": "127.0.0.1:8081", "sec-fetch-site": site, "origin": origin}
    assert is_own_page({name: value for name, value in headers.items() if value is not None}) is own


def test_without_a_host_no_page_is_ours() -> None:
    assert not is_own_page({"origin": "http://"})


@pytest.mark.parametrize("path", ["/", "/keys", "/a/b?c=d&e=//f", "/%5c%5cevil", "/@evil.example", "/a//b"])
def test_a_path_here_is_gone_to(path: str) -> None:
    assert local_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "javascript:alert(1)", "",
        "keys", "/\t/evil.example", "/\n/evil.example", "/ /evil", "/ü", "/" + "a" * 3000, " //evil.example", "/a\\b",
    ],
)  # fmt: skip
def test_anything_else_leads_to_the_start(path: str) -> None:
    assert local_path(path) == "/"


@given(st.text(alphabet=st.sampled_from("/\\:?#@.%2fF5cetvil\t\n\r "), max_size=12))
def test_no_text_leads_to_another_host(text: str) -> None:
    there = urlsplit(urljoin("https://pool.example/login", local_path(text)))
    assert (there.scheme, there.netloc) == ("https", "pool.example")
