"""Networks: IPv4 and IPv6, one address written two ways, and what is no network."""

import pytest

from commonpool.core.networks import NetworkError, Networks, network, party


@pytest.mark.parametrize(
    ("networks", "inside", "outside"),
    [
        (
            ["10.0.0.0/8"],
            ["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"],
            ["11.0.0.0", "9.255.255.255", "::10.1.2.3"],
        ),
        (["192.0.2.7"], ["192.0.2.7", "::ffff:192.0.2.7"], ["192.0.2.8"]),
        (["fd00::/8"], ["fd12:3456::1", "fd00::"], ["fe00::1", "10.0.0.1"]),
        (["fe80::/10"], ["fe80::1%eth0"], ["2001:db8::1"]),
        (["2001:db8::7"], ["2001:db8::7"], ["2001:db8::8"]),
        (["::ffff:10.0.0.0/104"], ["10.9.9.9", "::ffff:10.9.9.9"], ["11.0.0.1"]),
        (["0.0.0.0/0"], ["203.0.113.9", "::ffff:203.0.113.9"], ["2001:db8::1"]),
        (["::/0"], ["2001:db8::1"], ["203.0.113.9", "::ffff:203.0.113.9"]),
        (["10.0.0.0/8", "fd00::/8"], ["10.1.1.1", "fd00::1"], ["192.168.0.1", "fe00::"]),
        ([], [], ["10.0.0.1", "::1"]),
    ],
)
def test_who_is_inside(networks: list[str], inside: list[str], outside: list[str]) -> None:
    held = Networks(networks)
    assert [address for address in inside if not held.hold(address)] == []
    assert [address for address in outside if held.hold(address)] == []


@pytest.mark.parametrize(
    "address", [None, "", "localhost", "/run/a.sock", "10.0.0.1:80", "[::1]", "10.0.0.1, 10.0.0.2"]
)
def test_what_is_no_address_is_in_no_network(address: str | None) -> None:
    assert not Networks(["0.0.0.0/0", "::/0"]).hold(address)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("10.0.0.1/8", "10.0.0.1/8 has more digits than its prefix covers; write 10.0.0.0/8"),
        ("fd00::1/8", "fd00::1/8 has more digits than its prefix covers; write fd00::/8"),
        ("10.0.0.0/33", "'10.0.0.0/33' is no network; write it as 10.0.0.0/8, fd00::/8 or 192.0.2.1"),
        ("example.com", "'example.com' is no network"),
        ("*", "'*' is no network"),
        ("", "'' is no network"),
    ],
)
def test_what_is_no_network_is_told(text: str, sentence: str) -> None:
    with pytest.raises(NetworkError) as error:
        network(text)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.7", "192.0.2.8", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "unix", True),
    ],
)
def test_what_one_party_has_of_addresses(one: str, other: str, same: bool) -> None:
    assert (party(one) == party(other)) is same
