"""Where there is nothing: people in a browser are shown a page, programs are told by the API."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

API = "/admin/"


class Lost(Route):
    """The last of all routes: what a browser asks for that no other one takes as it is asked."""

    def __init__(self, serve: Callable[[Request], Awaitable[Response]]) -> None:
        super().__init__("/{path:path}", serve, methods=["GET"], include_in_schema=False)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found, child = super().matches(scope)
        if found is Match.FULL and not scope["path"].startswith(API) and _wants_a_page(scope):
            return found, child
        return Match.NONE, {}


def _wants_a_page(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
