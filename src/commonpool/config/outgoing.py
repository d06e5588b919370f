"""Where the product itself may connect to: to what the configuration names, and there only to addresses that may be.

A name is judged by each address that it comes to, at the moment of connecting, and what is connected to is the address
that was judged: whoever answers for the name cannot change it in between.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Where clouds answer programs on a machine with its credentials, outside the link-local networks.
_METADATA: Final = tuple(
    map(ipaddress.ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"))
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
LOCALHOST: Final = "localhost"


class OutgoingError(OSError):
    """A connection that is not made: to where, why, and what to do, in one sentence."""


def literal(host: str) -> Address | None:
    """The address that a host is written as; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether a host is written as this machine's loopback."""
    address = literal(host)
    return host.lower() == LOCALHOST or (address is not None and address.is_loopback)


def listed(host: str, destinations: tuple[str, ...]) -> bool:
    """Whether a host is one of the destinations as it is written: a name, or one below `*.NAME`."""
    name = host.lower()
    return any(name == each or (each[:2] == "*." and name.endswith(each[1:])) for each in destinations)


def within(address: Address, networks: tuple[str, ...]) -> bool:
    """Whether an address is in one of these networks; names among them count for nothing."""
    meant = _meant(address)
    return any(meant in network for network in map(_network, networks) if network is not None)


def refusal(host: str, address: Address, destinations: tuple[str, ...] | None) -> str:
    """Why nothing is sent to `host` at this address, a sentence; "" where something may be.

    `destinations` are hosts and networks; None where the configuration lists none.
    """
    meant = _meant(address)
    what = host if literal(host) is not None else f"{host} ({address})"
    if meant.is_link_local or meant in _METADATA:
        return f"{what} is where machines get their credentials from a cloud; name another host."
    if meant.is_unspecified or meant.is_multicast or (meant.is_reserved and not meant.is_loopback):
        return f"{what} is the address of no machine; correct it."
    if meant.is_loopback and host.lower() != LOCALHOST and literal(host) is None:
        return f"{what} is this machine itself; write 127.0.0.1 where that is meant."
    if destinations is not None and not (listed(host, destinations) or within(address, destinations)):
        return f"{what} is not one of the destinations under outgoing; add it, or name another host."
    return ""


async def addresses(
    host: str,
    port: int,
    destinations: tuple[str, ...] | None,
    look_up: "Callable[[str, int], Awaitable[list[str]]] | None" = None,
) -> list[str]:
    """The addresses of `host` that may be connected to, one at least. Raises OSError where there is none."""
    found = [host] if literal(host) is not None else await (look_up or _look_up)(host, port)
    refused = ""
    allowed = []
    for text in dict.fromkeys(found):
        why = refusal(host, ipaddress.ip_address(text), destinations)
        if why:
            refused = why
        else:
            allowed.append(text)
    if not allowed:
        raise OutgoingError(refused or f"{host} has no address.")
    return allowed


async def _look_up(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def _meant(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, where it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None
