"""Endpoints as data, and the Starlette application made of them.

An endpoint says its path, what it takes and what it answers; here the request is read and checked against that, the
handler called, and its answer or its error written. So no handler touches HTTP, and the OpenAPI page cannot lie.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import msgspec.inspect
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from commonpool.access.permissions import Permission
from commonpool.access.problems import AccessError
from commonpool.api.deciding import Call, admit, decide
from commonpool.api.operations import BadRequestError, NotFoundError, OperationError, Operations, UnavailableError
from commonpool.api.refusals import headers_of, refusal
from commonpool.api.streaming import EVENTS, EventStream, Streamed
from commonpool.api.subjects import Asked, Subject
from commonpool.api.visits import visit_of
from commonpool.api.wire import errors as wire
from commonpool.config.problems import ConfigError
from commonpool.store.contract import KeyNotFoundError, QueryError, StoreError

BODY_BYTES_MAX = 16 * 1024 * 1024  # a configuration of many tenants' files fits; anything larger is a mistake

STATUS_OK = 200

log = logging.getLogger(__name__)

JSON = "application/json"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
HTML = "text/html; charset=utf-8"

# What a page of ours may load: its own files, nothing from elsewhere, and nobody may frame it.
SAFE = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


_PLACE = re.compile(r"\.(\w+)")  # a field's name in the path that msgspec gives


class Nothing(msgspec.Struct, frozen=True):
    """No parameters."""


class Endpoint(msgspec.Struct, frozen=True):
    """One operation of the API.

    It asks for a permission, its `action`, and says whose things it is `of`: both are decided before `handler` is
    called, and none has a default. The handler takes the operations, then the parameters (of path and query, as
    `params`), then the body if there is one, then `subjects.Who` asks. It returns what `answer` says: a struct for
    JSON, bytes for any other `media`, and `Streamed` for events. One to which the same may be sent `again` returns its
    answer and whether that is new; what was there already is answered with 200.
    """

    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
    action: Permission
    of: Subject
    summary: str
    answer: Any
    params: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] | None = None
    media: str = JSON
    status: int = 200
    again: bool = False


class Headed(msgspec.Struct, frozen=True):
    """An answer of a handler that has something to say in headers, too."""

    answer: Any
    headers: Mapping[str, str]


class WrongMethodError(OperationError):
    """The path exists, and does not take this method."""

    status = 405
    code = "method_not_allowed"


class InternalError(OperationError):
    """A fault of ours."""

    status = 500
    kind = "server_error"
    code = "internal"


class TooLargeError(OperationError):
    """The body is longer than any configuration."""

    status = 413
    code = "too_large"


def application(operations: Operations, endpoints: Sequence[Endpoint], extra: Sequence[BaseRoute] = ()) -> Starlette:
    """The control plane as an ASGI application. `extra` routes are pages on top; they are not part of the API."""
    by_path: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, []).append(endpoint)
    routes: list[BaseRoute] = [
        Route(path, _serve(operations, here), methods=[e.method for e in here]) for path, here in by_path.items()
    ]
    known = ", ".join(sorted(by_path))

    async def nothing_here(request: Request, _: Exception) -> Response:
        return _failure(NotFoundError(f"there is nothing at {request.url.path!r}; there is {known}"))

    async def wrong_method(request: Request, error: Exception) -> Response:
        headers = error.headers if isinstance(error, HTTPException) else None
        allowed = (headers or {}).get("Allow", "")
        return _failure(WrongMethodError(f"{request.method} does nothing at this path; it takes {allowed}"), headers)

    return Starlette(routes=[*routes, *extra], exception_handlers={404: nothing_here, 405: wrong_method})


def _serve(operations: Operations, endpoints: list[Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    by_method = {endpoint.method: endpoint for endpoint in endpoints}
    if "GET" in by_method:
        by_method["HEAD"] = by_method["GET"]

    async def serve(request: Request) -> Response:
        try:
            return await _answer(operations, by_method[request.method], request)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except (OperationError, AccessError, ConfigError, StoreError) as error:
            return _refusal(error)
        except Exception:
            log.exception("%s %s failed", request.method, request.url.path)
            return _failure(InternalError("the product failed at this; its log says why"))

    return serve


async def _answer(operations: Operations, endpoint: Endpoint, request: Request) -> Response:
    call = Call(request.method, request.scope["path"], visit_of(request))
    who = await admit(operations, endpoint.action, endpoint.of, call)
    params = _params(endpoint, request)
    body = None if endpoint.body is None else await _body(endpoint.body, request)
    await decide(operations, endpoint.action, endpoint.of, call, Asked(params, body, who))
    if endpoint.media == EVENTS and request.method == "HEAD":
        return Response(status_code=endpoint.status, headers=SAFE, media_type=EVENTS)  # nothing is to go on
    given = (params, who) if endpoint.body is None else (params, body, who)
    answer = await endpoint.handler(operations, *given)
    status, headers = endpoint.status, SAFE
    if isinstance(answer, Streamed):
        return EventStream(answer, SAFE)
    if isinstance(answer, Headed):
        answer, headers = answer.answer, {**SAFE, **answer.headers}
    if endpoint.again:
        answer, is_new = answer
        status = status if is_new else STATUS_OK
    content = answer if endpoint.media != JSON else msgspec.json.encode(answer)
    return Response(content, status, headers, endpoint.media)


def _refusal(error: Exception) -> Response:
    match error:
        case OperationError():
            return _failure(error, headers_of(error))
        case AccessError():
            return _refusal(refusal(error))
        case ConfigError():
            count = len(error.problems)
            message = f"the configuration has {count} problem{'s' * (count != 1)}, so nothing was changed"
            return _error(422, wire.Error(message, "invalid_request_error", "invalid_config", problems=error.problems))
        case KeyNotFoundError():
            return _failure(NotFoundError(str(error)))
        case QueryError():
            return _failure(BadRequestError(str(error)))
        case _:
            return _failure(UnavailableError(str(error)))


def _failure(error: OperationError, headers: Mapping[str, str] | None = None) -> Response:
    return _error(error.status, wire.Error(str(error), error.kind, error.code, error.param), headers)


def _error(status: int, error: wire.Error, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(wire.Failure(error)), status, {**SAFE, **(headers or {})}, JSON)


def _params(endpoint: Endpoint, request: Request) -> msgspec.Struct:
    """The parameters of path and query. One with several values is a tuple in `endpoint.params`, and repeated."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(endpoint.params)}
    given: dict[str, Any] = dict(request.path_params)
    for name, value in request.query_params.multi_items():
        if name not in fields or name in request.path_params:
            known = ", ".join(n for n in fields if n not in request.path_params) or "none"
            raise BadRequestError(f"unknown query parameter {name!r}; known here: {known}", param=name)
        if fields[name].type == tuple[str, ...]:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise BadRequestError(f"query parameter {name!r} is given twice; give it once", param=name)
        else:
            given[name] = value
    try:
        return msgspec.convert(given, endpoint.params, strict=False)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"query parameters: {error}") from None


def _fields_at(said: str, kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of the object that a message of msgspec is about: `... - at `$.hardware.count``, none for the whole.

    Where it is about a value in an object, the fields of the object around it.
    """
    here = msgspec.inspect.type_info(kind)
    known: tuple[str, ...] = ()
    for name in ["", *_PLACE.findall(said.partition(" - at `$")[2])]:
        if isinstance(here, msgspec.inspect.StructType) and name:
            here = next((field.type for field in here.fields if field.encode_name == name), here)
        if isinstance(here, msgspec.inspect.UnionType):  # of one struct and null, as every one that is asked for
            here = next((one for one in here.types if isinstance(one, msgspec.inspect.StructType)), here)
        if isinstance(here, msgspec.inspect.StructType):
            known = tuple(field.encode_name for field in here.fields)
    return known


async def _body(kind: type[msgspec.Struct], request: Request) -> msgspec.Struct:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != JSON:
        raise BadRequestError(f"the body's content-type is {media or 'missing'!r}; send {JSON}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise TooLargeError(f"the body is longer than {BODY_BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(bytes(body), type=kind)
    except msgspec.ValidationError as error:
        names = ", ".join(_fields_at(str(error), kind))
        raise BadRequestError(f"the body is not as it should be: {error}; known fields: {names}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequestError(f"the body is not JSON: {error}") from None
