"""The description of the API, made from the endpoints themselves: OpenAPI 3.1 for programs, a page for people."""

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import msgspec

from commonpool.access.browsers import SESSION
from commonpool.access.permissions import OPEN, Permission
from commonpool.api.http import HTML, JSON, STATUS_OK, Endpoint, Nothing
from commonpool.api.operations import Operations
from commonpool.api.streaming import EVENTS
from commonpool.api.subjects import PLATFORM, Who
from commonpool.api.wire.config import Configuration
from commonpool.api.wire.errors import Failure

LOGS_IN = frozenset({Permission.LOG_IN, Permission.READ_SELF})  # with a password, of which there are only so many tries

REF = "#/components/schemas/{name}"

# The page's style is served as a file of its own, since the policy of our pages forbids inline styles.
STYLE_PATH = "/docs.css"


def document(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these endpoints."""
    bodies = [endpoint.body for endpoint in endpoints if endpoint.body is not None]
    answers = [endpoint.answer for endpoint in endpoints if endpoint.media == JSON]
    parameters = [endpoint.params for endpoint in endpoints if endpoint.params is not Nothing]
    types = [Failure, *bodies, *answers, *parameters]
    _, schemas = msgspec.json.schema_components(types, ref_template=REF)
    parameter_schemas = {kind: schemas[kind.__name__] for kind in parameters}
    for kind in parameters:
        schemas.pop(kind.__name__, None)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        described = _describe(endpoint, parameter_schemas.get(endpoint.params))
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "commonpool admin API",
            "version": version,
            "description": "From the same machine without a credential, or with a key. x-permission is what a call asks"
            " for; a role has it for the whole platform or for its tenant. Times are nanoseconds.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key, or a token of the issuer."},
                "session": {"type": "apiKey", "in": "cookie", "name": SESSION},
            },
        },
    }


# An event of a stream; its data is JSON.
OTHERS = {EVENTS: {"type": "object", "properties": {name: {"type": "string"} for name in ("event", "data", "id")}}}


def _describe(endpoint: Endpoint, parameters: dict[str, Any] | None) -> dict[str, Any]:
    schema = _schema(endpoint.answer) if endpoint.media == JSON else OTHERS.get(endpoint.media, {"type": "string"})
    failure = {"description": "why not", "content": {JSON: {"schema": _schema(Failure)}}}
    noun = endpoint.handler.__module__.rpartition(".")[2]
    success = {
        "description": endpoint.summary,
        "content": {endpoint.media.partition(";")[0]: {"schema": schema}},
    }
    statuses = {endpoint.status, STATUS_OK} if endpoint.again else {endpoint.status}
    described: dict[str, Any] = {
        "operationId": f"{noun}_{endpoint.handler.__name__}",
        "tags": [noun],
        "summary": endpoint.summary,
        "x-permission": endpoint.action.value,
        "responses": {
            **{str(status): success for status in sorted(statuses)},
            **{str(status): failure for status in _failures(endpoint)},
        },
    }
    # Without a key means from the same machine.
    described["security"] = [] if endpoint.action in OPEN else [{"key": []}, {"session": []}, {}]
    if parameters:
        in_path = re.findall(r"{(\w+)}", endpoint.path)
        described["parameters"] = [
            {
                "name": name,
                "in": "path" if name in in_path else "query",
                "required": name in parameters.get("required", ()),
                "schema": schema,
            }
            for name, schema in parameters["properties"].items()
        ]
    if endpoint.body is not None:
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": _schema(endpoint.body)}}}
    return described


def _failures(endpoint: Endpoint) -> list[int]:
    """With which statuses it may be refused. A fault of ours (500) is no answer that anyone is to expect."""
    found = {400, 503}
    if endpoint.action not in OPEN:
        found |= {401, 403}
    if "{" in endpoint.path:
        found.add(404)
    if endpoint.action.changes or endpoint.action is Permission.READ_PROMPTS:
        found.add(409)
    if endpoint.body is not None:
        found.add(413)
    if endpoint.body is Configuration:
        found.add(422)
    if endpoint.media == EVENTS:
        found.add(429)
    if endpoint.action in LOGS_IN:
        found |= {401, 403, 429}
    return sorted(found)


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=REF)
    return schema


@cache
def endpoints(described: tuple[Endpoint, ...], version: str) -> tuple[Endpoint, ...]:
    """The description of these endpoints, served: the document and the page (neither holds a secret)."""
    content = document(described, version)
    files = resources.files("commonpool.api") / "pages"
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string((files / "docs.html").read_text("utf-8")).render(api=content).encode()
    style = (files / "docs.css").read_bytes()

    async def openapi(_: Operations, __: Nothing, ___: Who) -> dict[str, Any]:
        return content

    async def docs(_: Operations, __: Nothing, ___: Who) -> bytes:
        return page

    async def docs_style(_: Operations, __: Nothing, ___: Who) -> bytes:
        return style

    to_all = (Permission.READ_DESCRIPTION, PLATFORM)
    return (
        Endpoint("GET", "/openapi.json", openapi, *to_all, "The description of this API", dict[str, Any]),
        Endpoint("GET", "/docs", docs, *to_all, "The description of this API, for people", bytes, media=HTML),
        Endpoint("GET", STYLE_PATH, docs_style, *to_all, "The style of that page", bytes, media="text/css"),
    )
