"""Networks that somebody may come from: IPv4 and IPv6, in CIDR notation; and what of an address is one party's.

An IPv4 address as IPv6 writes it (`::ffff:192.0.2.1`, which a socket for both tells) is the IPv4 address, so `::/0`
means IPv6 alone.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

NETWORKS_MAX: Final = 64
PARTY_BITS: Final = 64  # of an IPv6 address; who has one has at least so much of a network (RFC 6177)
_MAPPED: Final = IPv6Network("::ffff:0:0/96")

Network = IPv4Network | IPv6Network


class NetworkError(ValueError):
    """What was written is no network: says what is wrong with it."""


class Networks:
    """Some networks."""

    __slots__ = ("_networks",)

    def __init__(self, networks: Iterable[str]) -> None:
        """Raises NetworkError."""
        self._networks = tuple(map(network, networks))

    def hold(self, address: str | None) -> bool:
        """Whether an address is in one of them; none where it is not known, or not one of the internet's."""
        try:
            parsed = ip_address((address or "").partition("%")[0])
        except ValueError:
            return False
        own = _unmapped(parsed)
        return any(own.version == each.version and own in each for each in self._networks)


def party(address: str) -> str:
    """What of an address one party has: all of an IPv4 address, `2001:db8::/64` of an IPv6 one; "" of what is none.

    What is counted by address is counted by this, as else whoever has IPv6 would have all the addresses of a network.
    """
    try:
        own = _unmapped(ip_address(address))
    except ValueError:
        return ""
    return str(own) if isinstance(own, IPv4Address) else str(IPv6Network((int(own), PARTY_BITS), strict=False))


def network(text: str) -> Network:
    """A network as it is written: `10.0.0.0/8`, `fd00::/8`, or one address. Raises NetworkError."""
    try:
        found = ip_network(text, strict=False)
    except ValueError:
        raise NetworkError(f"{text!r} is no network; write it as 10.0.0.0/8, fd00::/8 or 192.0.2.1") from None
    if found != _strict(text):
        raise NetworkError(f"{text} has more digits than its prefix covers; write {found}")
    if isinstance(found, IPv6Network) and found.subnet_of(_MAPPED):
        return IPv4Network((int(found.network_address) & 0xFFFFFFFF, found.prefixlen - _MAPPED.prefixlen))
    return found


def _strict(text: str) -> Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


def _unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return address if isinstance(address, IPv4Address) else address.ipv4_mapped or address
