"""How somebody comes, of what Starlette says of a request."""

from starlette.requests import Request

from commonpool.access.people import Visit
from commonpool.api.access import came


def visit_of(request: Request) -> Visit:
    """From which address, over which line, with which headers."""
    peer = request.client.host if request.client else None
    return came(peer, headers_of(request), tls=request.url.scheme == "https")


def port_of(request: Request) -> int:
    """The port on which the control plane listens, whatever stands before it."""
    server = request.scope.get("server") or ("", None)
    return int(server[1] or 0)


def headers_of(request: Request) -> dict[str, str]:
    """The headers with lower-case names. A name sent twice is joined, so that no second value goes unseen."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
