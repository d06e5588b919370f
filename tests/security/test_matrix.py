"""Every route × every role × own and foreign things: who may what is as docs/authorization.md says, and nothing else.

The routes are those of the API's own description; what is expected comes from the tables of the document. Before
something counts as denied it is shown to be there: somebody else gets it by the same call.
"""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from commonpool.access.permissions import Permission
from commonpool.api import openapi, routes
from commonpool.store.audit import AuditEntry
from tests.security.matrix_world import (
    CALLERS,
    CALLS,
    FOREIGN,
    OWN,
    UNKNOWN,
    Call,
    Things,
    application,
    things,
    untouched,
    world,
)
from tests.security.policy_tables import OPEN, ROLES, Route, reaches
from tests.security.policy_tables import routes as documented

DOCUMENT = openapi.document((*routes.ENDPOINTS, *openapi.endpoints(routes.ENDPOINTS, "1")), "1")
ROUTES = documented()
REACHES = reaches()
WHO = (*ROLES, "no role", "nobody")


def described() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The operations of the OpenAPI document."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


# -- the tables are whole ----------------------------------------------------------------------------------------------


def test_every_route_of_the_api_is_in_the_document_and_in_the_matrix() -> None:
    api = {(method, path): operation["x-permission"] for method, path, operation in described()}
    assert api == {(route.method, route.path): route.permission for route in ROUTES}
    assert api.keys() == CALLS.keys()


def test_every_permission_is_in_the_document() -> None:
    assert REACHES.keys() | OPEN == {permission.value for permission in Permission}


def test_every_way_to_name_something_is_tried() -> None:
    for method, path, operation in described():
        mine, theirs = (CALLS[method, path](things(tenant)) for tenant in (OWN, FOREIGN))
        in_path = set(re.findall(r"{(\w+)}", path))
        assert mine.path.keys() == in_path
        assert all(mine.path[name] != theirs.path[name] for name in in_path & {"id", "tenant"}), path
        if "requestBody" in operation:
            (media,) = operation["requestBody"]["content"].values()
            fields = _schema(media["schema"])["properties"]
            assert mine.body is not None
            if "tenant" in fields:
                assert theirs.body is not None
                assert (mine.body["tenant"], theirs.body["tenant"]) == (OWN, FOREIGN), path


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


# -- what is expected --------------------------------------------------------------------------------------------------


def expected(route: Route, who: str, tenant: str) -> str:
    """`allowed`, `forbidden`, `unknown` (as if it did not exist) or `nobody`."""
    if who == "nobody":
        return "allowed" if route.permission in OPEN else "nobody"
    if route.permission in OPEN | {"read_self"}:
        return "allowed"
    reach = REACHES[route.permission].get(who, "")
    if not reach or (route.about == "platform" and reach != "all"):
        return "forbidden"
    return "unknown" if (route.about, reach, tenant) == ("tenant", "own", FOREIGN) else "allowed"


def seen(route: Route, who: str) -> tuple[str, ...]:
    """Whose things are in an answer about several tenants."""
    return (OWN,) if REACHES[route.permission][who] == "own" else (OWN, FOREIGN)


# -- and what is -------------------------------------------------------------------------------------------------------


class Asker:
    """Calls one route as one after another, each time in a world in which nothing was done yet."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._renew()

    def _renew(self) -> None:
        self.product = world()
        transport = httpx.ASGITransport(application(self.product), client=("192.0.2.7", 50000))
        self._client = httpx.AsyncClient(transport=transport, base_url="https://pool.example")

    async def ask(self, who: str, call: Call) -> tuple[httpx.Response, list[AuditEntry]]:
        """The answer, and what is in the audit log of it."""
        store = self.product.store
        before = store.audit_head().number
        answer = await self._client.request(
            self.route.method,
            self.route.path.format(**call.path),
            params=call.query,
            json=call.body,
            headers={} if who == "nobody" else {"authorization": f"Bearer {who}"},
        )
        await self.product.audit().write(all_of_it=True)
        entries = list(store.audit_chain(before, 10))
        if not answer.is_success:
            assert untouched(self.product), "it was refused, and yet something was done"
        elif self.route.method != "GET":
            self._renew()
        return answer, entries


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_who_may_what_is_as_the_document_says(route: Route) -> None:
    asyncio.run(_check(route))


async def _check(route: Route) -> None:
    asker = Asker(route)
    for tenant in (OWN, FOREIGN):
        call = CALLS[route.method, route.path](things(tenant))
        is_there = False
        for who in (*WHO, "tenant-admin elsewhere"):
            answer, entries = await asker.ask(who, call)
            is_there |= answer.is_success or answer.status_code == call.status
            if who in WHO:
                outcome = expected(route, who, tenant)
                _answered(route, call, who, tenant, answer, outcome)
                _written(route, who, entries, outcome, FOREIGN if outcome == "unknown" else "")
                if outcome == "unknown":
                    none, _ = await asker.ask(who, CALLS[route.method, route.path](UNKNOWN))
                    assert none.status_code == answer.status_code
                    assert _without(answer, things(tenant)) == _without(none, UNKNOWN)
        assert is_there, "nobody gets it, so that some are refused shows nothing"


def _answered(route: Route, call: Call, who: str, tenant: str, answer: httpx.Response, outcome: str) -> None:
    told = f"{who}: {answer.status_code} {answer.text[:300]}"
    hidden = {OWN, FOREIGN} - {_home(who)}
    match outcome:
        case "allowed":
            assert answer.status_code == call.status if call.status else answer.is_success, told
            assert call.says in answer.text
            if route.about == "several":
                shown = seen(route, who)
                assert not call.shows or all(each in answer.text for each in shown), told
                hidden = {OWN, FOREIGN}.difference(shown)
            else:
                hidden = {OWN, FOREIGN} - {tenant} if route.about == "tenant" else set()
        case "forbidden":
            assert answer.status_code == 403, told
            assert " may not " in answer.text
        case "unknown":
            assert answer.status_code in {400, 404}, told
            hidden = set()  # it names what was asked for
        case _:
            assert answer.status_code == 401, told
            assert "www-authenticate" in answer.headers
    found = [marker for each in hidden for marker in things(each).markers if marker in answer.text]
    assert not found, f"{found} in {told}"


def _written(route: Route, who: str, entries: list[AuditEntry], outcome: str, tenant: str) -> None:
    """The decision is in the audit log, once, before anything else that the call did."""
    if route.permission in OPEN:
        return
    entry = entries[0]
    assert (entry.caller, entry.action) == (CALLERS[who].name if who in CALLERS else "nobody", route.permission)
    assert entry.outcome == ("allowed" if outcome == "allowed" else "denied")
    assert not tenant or entry.tenant == tenant
    assert bool(entry.policies) or outcome != "allowed"
    assert len(entries) == 1


def _home(who: str) -> str:
    return CALLERS[who].tenant if who in CALLERS else ""


def _without(answer: httpx.Response, named: Things) -> str:
    """What was answered, without the names that were asked for."""
    text = answer.text
    for marker in named.markers:
        text = text.replace(marker, "…") if marker else text
    return text


SEVERAL = [route for route in ROUTES if route.about == "several"]


@pytest.mark.parametrize("route", SEVERAL, ids=lambda route: f"{route.method} {route.path}")
def test_a_filter_by_a_foreign_tenant_finds_what_one_by_nobody_finds(route: Route) -> None:
    asyncio.run(_filter(route))


async def _filter(route: Route) -> None:
    (operation,) = (each for method, path, each in described() if (method, path) == (route.method, route.path))
    if "tenant" not in {parameter["name"] for parameter in operation.get("parameters", ())}:
        return
    asker = Asker(route)
    call = CALLS[route.method, route.path](things(OWN))

    async def filtered(who: str, tenant: str) -> httpx.Response:
        answer, _ = await asker.ask(who, Call(query={**call.query, "tenant": tenant}))
        assert answer.is_success, answer.text
        return answer

    scoped = [who for who, reach in REACHES[route.permission].items() if reach == "own"]
    for who in scoped:
        assert OWN in (await filtered(who, OWN)).text
        foreign, nobodys = await filtered(who, FOREIGN), await filtered(who, "nobody")
        assert foreign.text == nobodys.text
    wide = next(who for who, reach in REACHES[route.permission].items() if reach == "all")
    assert FOREIGN in (await filtered(wide, FOREIGN)).text
    refused, _ = await asker.ask(wide, Call(query={**call.query, "tenant": "nobody"}))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tenant")


# -- what the table of calls cannot say --------------------------------------------------------------------------------


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize(
    "body",
    [
        {"scope": "admin"},
        {"scope": "admin", "role": "operator"},
        {"scope": "admin", "account": "ann"},
        {"scope": "admin", "account": "ann", "tenant": OWN},
    ],
)
def test_keys_of_the_platform_are_made_by_platform_admins(who: str, body: dict[str, Any]) -> None:
    asker = Asker(next(route for route in ROUTES if (route.method, route.path) == ("POST", "/admin/v1/keys")))
    answer, _ = asyncio.run(asker.ask(who, Call(body=body)))
    assert answer.status_code == {"platform-admin": answer.status_code, "nobody": 401}.get(who, 403)
    if who == "platform-admin":
        assert answer.is_success or answer.status_code == 400  # a key of an account has no tenant


def test_a_caller_without_a_scope_is_refused_and_never_shown_all() -> None:
    for route in SEVERAL:
        asker = Asker(route)
        answer, _ = asyncio.run(asker.ask("no role", CALLS[route.method, route.path](things(OWN))))
        assert answer.status_code == 403


def test_the_product_itself_is_a_platform_admin() -> None:
    transport = httpx.ASGITransport(application(world()), client=("127.0.0.1", 50000))

    async def ask() -> int:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081") as client:
            return (await client.get("/admin/v1/audit")).status_code

    assert asyncio.run(ask()) == 200
