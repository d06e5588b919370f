"""The description is made from the endpoints, so it has all of them, and every reference in it leads somewhere."""

import re
from typing import Any

from starlette.routing import Route
from starlette.testclient import TestClient

from commonpool.access import policy_files
from commonpool.access.callers import NOBODY
from commonpool.access.permissions import OPEN, Permission
from commonpool.access.policy import Authority
from commonpool.api import login, openapi, routes
from tests.api.fakes import FakeOperations

DESCRIBES_ITSELF = {"/openapi.json", "/docs", "/docs.css"}


def document() -> dict[str, Any]:
    return openapi.document(routes.ENDPOINTS, "1")


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*map(references, value.values()))
    return set[str]().union(*map(references, value)) if isinstance(value, list | tuple) else set()


def test_every_route_is_described(product: FakeOperations) -> None:
    described = {(method.upper(), path) for path, methods in document()["paths"].items() for method in methods}
    served = {
        (method, route.path)
        for route in routes.application(product).routes
        if isinstance(route, Route) and route.path not in {*DESCRIBES_ITSELF, *login.PATHS}
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert described == served


def test_every_reference_leads_to_a_schema() -> None:
    described = document()
    schemas = described["components"]["schemas"]
    assert references(described)
    assert {name.removeprefix("#/components/schemas/") for name in references(described)} <= schemas.keys()
    used = {name.removeprefix("#/components/schemas/") for name in references(described)}
    assert used == schemas.keys()


def test_operations_have_names_of_their_own_and_all_path_parameters() -> None:
    names = []
    for path, methods in document()["paths"].items():
        for operation in methods.values():
            names.append(operation["operationId"])
            in_path = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
            assert in_path == set(re.findall(r"{(\w+)}", path))
            assert all(p["required"] for p in operation.get("parameters", ()) if p["in"] == "path")
    assert len(names) == len(set(names))


def test_only_health_and_logging_in_are_open() -> None:
    open_calls = [
        (method, path)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
        if not operation["security"]
    ]
    assert open_calls == [("get", "/healthz"), ("get", "/readyz"), ("post", "/admin/v1/sessions")]


def test_every_call_says_what_it_asks_for() -> None:
    for methods in document()["paths"].values():
        for operation in methods.values():
            assert bool(operation["security"]) == (Permission(operation["x-permission"]) not in OPEN)


def test_what_is_open_is_so_by_the_policies_and_nothing_else_is() -> None:
    authority = Authority(policy_files.load())
    assert {each for each in Permission if authority.decide(NOBODY, each).allowed} == OPEN


def test_every_call_says_how_it_is_refused_and_none_that_it_fails() -> None:
    refused = {
        operation["operationId"]: {int(status) for status in operation["responses"] if status >= "400"}
        for methods in document()["paths"].values()
        for operation in methods.values()
    }
    assert refused["health_healthz"] == {400, 503}
    assert refused["status_status"] == {400, 401, 403, 503}
    assert refused["jobs_show"] == {400, 401, 403, 404, 503}
    assert refused["config_apply_config"] == {400, 401, 403, 409, 413, 422, 503}
    assert refused["sessions_log_in"] == {400, 401, 403, 413, 429, 503}
    assert 500 not in set[int]().union(*refused.values())


def test_page_lists_everything_and_loads_nothing_from_elsewhere(local: TestClient) -> None:
    page = local.get("/docs").text
    for endpoint in routes.ENDPOINTS:
        assert f"<code>{endpoint.path}</code>" in page
    assert re.findall(r"(?:src|href)=\"(?!#)([^\"]+)\"", page) == ["docs.css", "openapi.json"]
    assert local.get("/docs.css").headers["content-type"].startswith("text/css")
    for name in document()["components"]["schemas"]:
        assert f'id="{name}"' in page


def test_document_is_served(local: TestClient) -> None:
    served = local.get("/openapi.json").json()
    assert served["openapi"] == "3.1.0"
    assert served["paths"].keys() == document()["paths"].keys()
