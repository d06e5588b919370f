"""Where the product may connect to: judged by the address, at the moment of connecting."""

import asyncio
import ipaddress
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.config import parse
from commonpool.config.outgoing import OutgoingError, addresses, listed, refusal, within

Edit = Callable[..., str]
Wrong = Callable[[str], list[str]]


def judged(host: str, address: str, destinations: tuple[str, ...] | None = None) -> str:
    return refusal(host, ipaddress.ip_address(address), destinations)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "fe80::1",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "2002:a9fe:a9fe::1",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "240.0.0.1",
    ],
)
def test_addresses_that_no_engine_has(address: str) -> None:
    for host in ("engine.example", address, "localhost"):
        assert judged(host, address).startswith(host)
        assert judged(host, address, ("0.0.0.0/0", "::/0", host))  # listing it does not help


@pytest.mark.parametrize("address", ["10.0.0.5", "192.168.1.1", "172.20.0.9", "8.8.8.8", "fd00::5", "2001:db8::1"])
def test_addresses_that_one_may_have(address: str) -> None:
    assert judged("engine.example", address) == ""


def test_a_name_does_not_lead_to_this_machine() -> None:
    for address in ("127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"):
        assert "is this machine itself; write 127.0.0.1" in judged("engine.example", address)
        assert judged("localhost", address) == judged(address, address) == ""


def test_the_list_has_networks_and_hosts() -> None:
    destinations = ("10.0.0.0/8", "id.example", "*.gpu.example", "fd00::/8")
    assert judged("10.2.3.4", "10.2.3.4", destinations) == ""
    assert judged("any.name", "10.2.3.4", destinations) == ""
    assert judged("any.name", "::ffff:10.2.3.4", destinations) == ""
    assert judged("id.example", "8.8.8.8", destinations) == ""
    assert judged("a.gpu.example", "8.8.8.8", destinations) == ""
    assert judged("any.name", "fd00::1", destinations) == ""
    for host in ("8.8.8.8", "gpu.example", "xid.example", "id.example.evil", "agpu.example"):
        assert "not one of the destinations under outgoing" in judged(host, "8.8.8.8", destinations)
    assert judged("any.name", "8.8.8.8", ()) != ""


@given(st.ip_addresses(), st.lists(st.ip_addresses(v=4), max_size=3))
def test_an_address_within_no_network_is_refused_by_a_list(
    address: ipaddress.IPv4Address, singles: list[ipaddress.IPv4Address]
) -> None:
    networks = tuple(f"{each}/32" for each in singles)
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
    assert within(address, networks) == (mapped in singles)
    if mapped not in singles:
        assert refusal("engine.example", address, networks)


def test_names_are_told_apart_by_case_no_more_than_they_are_looked_up() -> None:
    assert listed("ID.Example", ("id.example",))
    assert not listed("id.example", ())


class Names:
    """A name service that changes its mind."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)

    async def look_up(self, _host: str, _port: int) -> list[str]:
        return self._answers.pop(0)


def test_what_is_connected_to_is_what_was_judged() -> None:
    names = Names(["10.0.0.5", "169.254.169.254", "10.0.0.5", "10.0.0.6"], ["127.0.0.1"], [])

    async def story() -> None:
        assert await addresses("engine.example", 80, None, names.look_up) == ["10.0.0.5", "10.0.0.6"]
        with pytest.raises(OutgoingError, match="is this machine itself"):
            await addresses("engine.example", 80, None, names.look_up)
        with pytest.raises(OutgoingError, match="has no address"):
            await addresses("engine.example", 80, None, names.look_up)
        assert await addresses("10.0.0.9", 80, None, names.look_up) == ["10.0.0.9"]  # nothing to look up
        with pytest.raises(OutgoingError, match="not one of the destinations"):
            await addresses("10.0.0.9", 80, ("10.1.0.0/16",), names.look_up)

    asyncio.run(story())


def test_the_systems_own_names() -> None:
    async def story() -> None:
        assert "127.0.0.1" in await addresses("localhost", 80, None)
        with pytest.raises(OutgoingError, match="this machine itself"):
            await addresses("0x7f000001", 80, None)  # another way to write 127.0.0.1
        with pytest.raises(OSError, match=r"nowhere|not known|name resolution"):
            await addresses("nowhere.invalid", 80, None)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("outgoing: [10.0.0.1/8]", "neither a network nor a host"),
        ("outgoing: [exa mple]", "neither a network nor a host"),
        ("outgoing: [10.0.0]", "is not an address"),
        ("outgoing: ['*']", "neither a network nor a host"),
        ("outgoing: [a.*.b]", "neither a network nor a host"),
    ],
)
def test_what_is_no_destination(edit: Edit, wrong: Wrong, text: str, said: str) -> None:
    (line,) = wrong(edit(end=text + "\n"))
    assert said in line


def test_engines_are_judged_by_check_where_they_are_written_as_addresses(edit: Edit, wrong: Wrong) -> None:
    def text(url: str, outgoing: str = "") -> str:
        return edit("{kind: embedded, file: small.gguf}", f"{{kind: attached, urls: ['{url}']}}", end=outgoing)

    parse(text("http://10.0.0.5:8000"))
    parse(text("http://engine:8000", "outgoing: []\n"))  # by its address, once it is looked up
    parse(text("http://10.0.0.5:8000", "outgoing: [10.0.0.0/8]\n"))
    at = "c.yaml:9: models.small.engine.urls.0:"
    assert wrong(text("http://169.254.169.254")) == [
        f"{at} 169.254.169.254 is where machines get their credentials from a cloud; name another host"
    ]
    assert wrong(text("http://10.0.0.5:8000", "outgoing: [10.1.0.0/16, engine]\n")) == [
        f"{at} 10.0.0.5 is not one of the destinations under outgoing; add it, or name another host"
    ]
