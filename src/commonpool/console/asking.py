"""Asking the API within the process, as whoever asks for the page: the console can show nothing that the API would not.

A question takes the caller's own headers along, so it is identified, decided and written down like any other call.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.types import Message, Scope

from commonpool import config
from commonpool.api.wire import errors as wire

# Of the request for the page; a body has headers of its own.
_KEPT = ("type", "asgi", "http_version", "scheme", "root_path", "client", "server")
_OF_THE_BODY = frozenset({b"content-type", b"content-length", b"transfer-encoding", b"expect"})
_CREDENTIALS = frozenset({b"authorization", b"cookie"})

SUCCESS = range(200, 300)
CODES = {400: "bad_request", 403: "forbidden", 404: "not_found", 409: "conflict", 413: "too_large", 500: "internal"}

T = TypeVar("T")

Value = str | int | Sequence[str] | None


class Problem(msgspec.Struct, frozen=True):
    """What the API said instead of an answer, for a part of a page that can do without: `code` and `param` as its."""

    status: int
    message: str
    code: str = ""
    param: str = ""


class RefusedError(Exception):
    """The API did not do it; `status` and the text are what it said instead, `problems` those of a configuration.

    What the console refuses by itself has the code that the API has for this status, or one that is given.
    """

    def __init__(
        self, status: int, message: str, problems: tuple[config.Problem, ...] = (), code: str = "", param: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problems = problems
        self.problem = Problem(status, message, code or CODES.get(status, ""), param)


async def ask(
    request: Request,
    method: str,
    path: str,
    answer: type[T],
    query: Mapping[str, Value] | None = None,
    body: Any = None,
    *,
    key: str = "",
) -> T:
    """The API's answer to this caller, or to who brings this `key` from the same address. Raises `RefusedError`.

    None and "" in `query` are left out.
    """
    status, content = await _call(request, method, path, _query(query or {}), body, key)
    if status not in SUCCESS:
        raise _refused(status, content)
    return msgspec.json.decode(content, type=answer)


def _query(query: Mapping[str, Value]) -> bytes:
    given = {name: value for name, value in query.items() if value is not None and value != ""}
    return urlencode(given, doseq=True).encode()


def _refused(status: int, content: bytes) -> RefusedError:
    try:
        error = msgspec.json.decode(content, type=wire.Failure).error
    except msgspec.DecodeError:
        return RefusedError(status, content.decode("utf-8", "replace"))
    return RefusedError(status, error.message, error.problems, error.code, error.param or "")


async def _call(request: Request, method: str, path: str, query: bytes, body: Any, key: str) -> tuple[int, bytes]:
    headers = [(name, value) for name, value in request.scope["headers"] if name not in _OF_THE_BODY]
    if key:
        headers = [(name, value) for name, value in headers if name not in _CREDENTIALS]
        headers.append((b"authorization", f"Bearer {key}".encode("utf-8", "replace")))
    sent = b""
    if body is not None:
        sent = msgspec.json.encode(body)
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(sent)).encode())]
    scope: Scope = {
        **{name: request.scope[name] for name in _KEPT if name in request.scope},
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": headers,
    }
    status = 500
    content = bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": sent, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        content.extend(message.get("body", b""))

    await request.app(scope, receive, send)
    return status, bytes(content)
