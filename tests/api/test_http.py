"""Given endpoints, when requests come that do not fit them, then each gets one sentence in the error's shape."""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect
import pytest
from starlette.types import Message

from commonpool.access.permissions import OPEN, Permission
from commonpool.api import routes
from commonpool.api.http import BODY_BYTES_MAX, Endpoint
from commonpool.api.wire.errors import Error, Failure
from commonpool.api.wire.status import Health
from tests.api.caller import TestClient
from tests.api.fakes import ADMIN, FakeOperations


def error(content: bytes) -> Error:
    return msgspec.json.decode(content, type=Failure).error


def test_unknown_path_names_those_there_are(local: TestClient) -> None:
    answer = local.get("/admin/v1/statu")
    assert answer.status_code == 404
    assert error(answer.content).code == "not_found"
    assert "/admin/v1/status" in error(answer.content).message


def test_wrong_method_names_the_right_ones(local: TestClient) -> None:
    answer = local.delete("/admin/v1/keys")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert error(answer.content).code == "method_not_allowed"


def test_unknown_query_parameter_names_the_known(local: TestClient) -> None:
    answer = local.get("/admin/v1/loans?since=1")
    assert answer.status_code == 400
    assert error(answer.content).param == "since"
    known = "since_ns, until_ns, lender, borrower"
    assert error(answer.content).message == f"unknown query parameter 'since'; known here: {known}"


def test_endpoint_without_parameters_takes_none(local: TestClient) -> None:
    answer = local.get("/admin/v1/status?verbose=1")
    assert error(answer.content).message == "unknown query parameter 'verbose'; known here: none"


def test_parameter_given_twice(local: TestClient) -> None:
    answer = local.get("/admin/v1/loans?since_ns=1&since_ns=2")
    assert (answer.status_code, error(answer.content).param) == (400, "since_ns")


@pytest.mark.parametrize("value", ["-1", "x", "1.5", "9223372036854775808", ""])
def test_parameter_of_the_wrong_kind(local: TestClient, value: str) -> None:
    answer = local.get("/admin/v1/loans", params={"since_ns": value})
    assert answer.status_code == 400
    assert "since_ns" in error(answer.content).message


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b"[" * 100_000, "the body is not"),
        (b'{"scope": "root"}', "known fields: tenant, app, scope"),
        (b'{"tennant": "a"}', "known fields: tenant, app, scope"),
    ],
)
def test_bad_body(local: TestClient, body: bytes, says: str) -> None:
    answer = local.post("/admin/v1/keys", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert says in error(answer.content).message


def test_body_that_is_not_said_to_be_json_is_refused(local: TestClient) -> None:
    # A form of a foreign page can send any text, but not this content type.
    answer = local.post("/admin/v1/keys", content=b"{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    assert "send application/json" in error(answer.content).message


def test_body_too_large(local: TestClient) -> None:
    body = b" " * (BODY_BYTES_MAX + 1)
    answer = local.post("/admin/v1/config/diff", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, error(answer.content).code) == (413, "too_large")


def test_fault_of_ours_is_logged_and_not_shown(
    local: TestClient, product: FakeOperations, caplog: pytest.LogCaptureFixture
) -> None:
    product.broken = RuntimeError("secret detail")
    answer = local.get("/admin/v1/status")
    assert (answer.status_code, error(answer.content).code) == (500, "internal")
    assert "secret detail" not in answer.text
    assert "secret detail" in caplog.text


def test_bad_key_is_401_even_from_loopback(local: TestClient) -> None:
    answer = local.get("/admin/v1/status", headers={"authorization": "Bearer nonsense"})
    assert (answer.status_code, error(answer.content).code) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_second_authorization_is_not_overlooked(local: TestClient) -> None:
    answer = local.get(
        "/admin/v1/status", headers=[("authorization", ADMIN.decode()), ("authorization", "Bearer nonsense")]
    )
    assert answer.status_code == 401


def test_every_private_endpoint_asks_for_a_key_from_elsewhere(product: FakeOperations) -> None:
    application = routes.application(product)
    with TestClient(application, base_url="http://127.0.0.1:8081", client=("192.0.2.7", 50000)) as remote:
        for endpoint in routes.ENDPOINTS:
            answer = remote.request(endpoint.method, endpoint.path.replace("{id}", "x"))
            assert (answer.status_code == 401) == (endpoint.action not in OPEN), endpoint.path
        assert remote.get("/admin/v1/status", headers={"authorization": ADMIN.decode()}).status_code == 200


def test_an_endpoint_says_what_it_asks_for_and_whose_things_it_is_about() -> None:
    async def handler() -> None: ...

    with pytest.raises(TypeError, match="Missing required argument 'action'"):
        Endpoint("GET", "/x", handler, summary="x", answer=Health)  # type: ignore[call-arg] # that is what is tested
    with pytest.raises(TypeError, match="Missing required argument 'of'"):
        Endpoint("GET", "/x", handler, Permission.READ_STATUS, summary="x", answer=Health)  # type: ignore[call-arg] # so is this


def test_answers_are_safe_for_browsers(local: TestClient) -> None:
    for path in ("/docs", "/admin/v1/status", "/nothing"):
        headers = local.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_client_that_leaves_while_it_sends(product: FakeOperations) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/admin/v1/keys",
        "raw_path": b"/admin/v1/keys",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 50000),
    }
    asyncio.run(routes.application(product)(scope, receive, send))
    assert product.store.list_keys() == ()


def structs_in(kind: msgspec.inspect.Type) -> Iterator[type[msgspec.Struct]]:
    """Every struct that a value of this type can hold."""
    if isinstance(kind, msgspec.inspect.StructType):
        yield kind.cls
        for field in kind.fields:
            yield from structs_in(field.type)
    for name in ("types", "item_types"):
        for part in getattr(kind, name, ()):
            yield from structs_in(part)
    for name in ("item_type", "key_type", "value_type"):
        if (part := getattr(kind, name, None)) is not None:
            yield from structs_in(part)


@pytest.mark.parametrize("body", sorted({e.body for e in routes.ENDPOINTS if e.body}, key=str))
def test_no_field_of_a_body_is_ignored(body: type[msgspec.Struct]) -> None:
    structs = set(structs_in(msgspec.inspect.type_info(body)))
    assert {each for each in structs if not each.__struct_config__.forbid_unknown_fields} == set()


def test_an_unknown_field_inside_names_those_of_its_object(local: TestClient) -> None:
    answer = local.post("/admin/v1/place", json={"tenant": "support", "hardware": {"gpus": 2}})
    assert answer.status_code == 400
    said = error(answer.content).message
    assert "unknown field `gpus` - at `$.hardware`" in said
    assert said.endswith("known fields: milli_gpu, memory_mib, profile, count, together, models, runtime")
