"""Connecting to an engine, at an address that may be connected to (`config.outgoing`)."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from commonpool.config import outgoing
from commonpool.engines.base import Target

P = TypeVar("P", bound=asyncio.BaseProtocol)


async def connect(make: Callable[[], P], target: Target) -> tuple[asyncio.Transport, P]:
    """A connection with the protocol that `make` makes. Raises OSError where there is none.

    TLS is with the engine's name, whatever address that has.
    """
    loop = asyncio.get_running_loop()
    name = target.host if target.tls is not None else None
    failure: OSError | None = None
    for address in await outgoing.addresses(target.host, target.port, target.destinations):
        try:
            return await loop.create_connection(make, address, target.port, ssl=target.tls, server_hostname=name)
        except OSError as error:
            failure = error
    raise failure or OSError(f"{target.host} has no address")
