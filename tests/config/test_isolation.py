"""Isolation levels: what a configuration has to say so that each of them holds."""

# ruff: noqa: E501 - a table of sentences is read by the line

from collections.abc import Callable

import pytest

from commonpool.config import parse
from commonpool.config.isolation import outside

Wrong = Callable[[str], list[str]]

TEXT = """\
nodes:
  n1: {gpus: 1, isolation: network, network: 10.3.1.0/24}
  n2: {gpus: 1, isolation: network, network: 10.3.2.0/24}
pools: {main: {isolation: network}}
models:
  a: {version: 1, gpu: 1, slots: 1, context: 10, engine: {kind: attached, urls: ["http://10.3.1.7:8000"], devices: [n1/0]}}
prices: {currency: EUR, gpu_hour: {main: 1}}
tenants: {t: {tenant: {models: [a]}}, u: {tenant: {models: []}}}
"""
URL = "http://10.3.1.7:8000"
DEMANDS = "and pool main demands isolation network; reach model a over https, or at an address in that network"


def edit(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new, 1)


def test_what_network_demands_can_be_met() -> None:
    config = parse(TEXT)
    assert [node.network for node in config.nodes.values()] == ["10.3.1.0/24", "10.3.2.0/24"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        # Each node has a network of its own.
        (", network: 10.3.2.0/24", "", "3: nodes.n2.network: is missing, and its pool main demands isolation network; write its own network"),
        ("10.3.2.0/24", "10.3.1.0/24", "3: nodes.n2.network: 10.3.1.0/24 is not its own: node n1 is in 10.3.1.0/24; give each node a network of its own"),
        ("10.3.2.0/24", "10.3.1.128/25", "3: nodes.n2.network: 10.3.1.128/25 is not its own: node n1 is in 10.3.1.0/24; give each node a network of its own"),
        ("10.3.2.0/24", "10.3.0.0/16", "2: nodes.n1.network: 10.3.1.0/24 is not its own: node n2 is in 10.3.0.0/16; give each node a network of its own"),
        ("10.3.2.0/24", "fd00:3::/64", None),
        ("10.3.2.0/24", "10.3.2.1/24", '3: nodes.n2.network: "10.3.2.1/24" is not a network, since its address has bits beyond its length; write it like 10.3.0.0/24'),
        # An engine is reached there, or over TLS.
        (URL, "https://gpu-1:8000", None),
        (URL, "http://127.0.0.1:8000", None),
        (URL, "http://10.3.2.7:8000", f"6: models.a.engine.urls.0: http://10.3.2.7:8000 is plain HTTP outside the network of its node (10.3.1.0/24), {DEMANDS}"),
        (URL, "http://gpu-1:8000", f"6: models.a.engine.urls.0: http://gpu-1:8000 is plain HTTP to a name, which may lead anywhere, {DEMANDS}"),
        (URL, "http://[::ffff:10.3.1.7]:8000", None),
        # A node serves one tenant.
        ("{models: []}", "{models: [a]}", "4: pools.main.isolation: is network, so a node serves one tenant, and model a serves t, u; list the models of each under tenant.models"),
    ],
)  # fmt: skip
def test_what_it_demands_and_does_not_get(wrong: Wrong, old: str, new: str, problem: str | None) -> None:
    text = edit(old, new)
    if problem is None:
        parse(text)
    else:
        assert wrong(text) == [f"c.yaml:{problem}"]


@pytest.mark.parametrize(
    ("url", "network", "apart"),
    [
        ("http://10.3.1.7:8000", "10.3.1.0/24", True),
        ("http://10.3.2.7:8000", "10.3.1.0/24", False),
        ("http://10.3.1.7:8000", None, False),
        ("http://[fd00:3::7]:8000", "fd00:3::/64", True),
        ("http://[fd00:4::7]:8000", "fd00:3::/64", False),
        ("http://127.0.0.1:8000", None, True),
        ("http://[::1]:8000", None, True),
        ("http://localhost:8000", "10.3.1.0/24", False),
        ("https://anywhere:8000", None, True),
    ],
)
def test_an_engine_is_kept_apart_by_tls_or_by_where_it_is(url: str, network: str | None, apart: bool) -> None:
    assert (outside(url, network) == "") is apart


def test_nodes_of_one_tenants_own_pool_may_share_a_network(wrong: Wrong) -> None:
    shared = edit("10.3.2.0/24", "10.3.1.0/24").replace(", u: {tenant: {models: []}}", "")
    assert len(wrong(shared)) == 1
    parse(shared.replace("{isolation: network}", "{isolation: network, rule: dedicated}"))


def test_another_pool_is_in_another_network_whatever_it_demands(wrong: Wrong) -> None:
    dedicated = edit("{isolation: network}", "{isolation: network, rule: dedicated}, other: {}")
    dedicated = dedicated.replace("n1: {", "n1: {pool: main, ").replace("{main: 1}", "{main: 1, other: 1}")
    dedicated = dedicated.replace("  n2: {gpus: 1, isolation: network,", "  n2: {pool: other, gpus: 1,")
    dedicated = dedicated.replace("a: {version", "a: {pool: main, version").replace(
        "t: {tenant: {", "t: {tenant: {pool: main, "
    )
    dedicated = dedicated.replace("u: {tenant: {", "u: {tenant: {pool: other, ")
    parse(dedicated)
    assert [line.partition(": ")[2][:56] for line in wrong(dedicated.replace("10.3.2.0/24", "10.3.1.8/29"))] == [
        "nodes.n2.network: 10.3.1.8/29 is not its own: node n1 is"
    ]
