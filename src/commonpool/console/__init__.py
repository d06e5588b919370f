"""The console: one page over the public admin API, for whoever may use that API.

It asks the API as its own caller, within the process, so it can show nothing that the API would not.
"""

from importlib import resources
from typing import TypeVar

import jinja2
import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Scope

from commonpool import __version__
from commonpool.api import text, wire
from commonpool.api.http import SAFE

LOANS_SHOWN_NS = 3600 * 10**9

T = TypeVar("T")


class RefusedError(Exception):
    """The API did not answer; `status` and the text are what it said instead."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def routes() -> list[BaseRoute]:
    """The pages, to be mounted beside the API."""
    files = resources.files("commonpool.console") / "pages"
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.globals.update(text=text, version=__version__)
    page = environment.from_string((files / "index.html").read_text("utf-8"))
    style = Response((files / "console.css").read_bytes(), headers=SAFE, media_type="text/css")
    script = Response((files / "console.js").read_bytes(), headers=SAFE, media_type="text/javascript")

    async def index(request: Request) -> Response:
        try:
            status = await _ask(request, "/admin/v1/status", wire.Status)
            since_ns = max(0, status.now_ns - LOANS_SHOWN_NS)
            loans = await _ask(request, "/admin/v1/loans", wire.LoanTable, f"since_ns={since_ns}")
        except RefusedError as error:
            return HTMLResponse(page.render(refusal=str(error), status=None, loans=None), error.status, SAFE)
        return HTMLResponse(page.render(refusal=None, status=status, loans=loans), headers=SAFE)

    return [
        Route("/", index),
        Route("/console.css", style),
        Route("/console.js", script),
    ]


async def _ask(request: Request, path: str, answer: type[T], query: str = "") -> T:
    """The API's answer to this caller. Raises `RefusedError`."""
    kept = ("type", "asgi", "http_version", "scheme", "root_path", "headers", "client", "server")
    asked = {"method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode()}
    scope: Scope = {**{name: request.scope[name] for name in kept if name in request.scope}, **asked}
    status = 500
    content = bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        content.extend(message.get("body", b""))

    await request.app(scope, receive, send)
    if status != 200:  # noqa: PLR2004 - the only success of a GET here
        raise RefusedError(status, msgspec.json.decode(bytes(content), type=wire.Failure).error.message)
    return msgspec.json.decode(bytes(content), type=answer)
