"""Where the product listens: in words when it cannot, and as the URL that clients are told."""

import errno
from collections.abc import Awaitable, Callable

from commonpool.access.tls import TlsError
from commonpool.config.structs import Address, Tls
from commonpool.control.replicas import StartError


async def listen(start: Callable[[Address], Awaitable[int]], address: Address, key: str) -> int:
    """The port that `start` listens on. Raises StartError, with the configuration's `key` that names the address."""
    where = f"{address.host}:{address.port}"
    try:
        return await start(address)
    except TlsError as error:
        why = getattr(error, "cause", error)  # from another process it comes wrapped, with its trace
        raise StartError(f"Cannot listen on {where}: {why}") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartError(f"{where} is taken by another program: stop it, or set {key} to a free port.") from error
        raise StartError(
            f"Cannot listen on {where} ({error.strerror or error}): set {key} to an address of this machine."
        ) from error


def url(host: str, port: int, tls: Tls | None) -> str:
    """What a client connects to."""
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
