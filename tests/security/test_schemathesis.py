"""schemathesis over the whole admin API of the real product: every call of its own description, by everybody.

What is generated is what the description allows and what it forbids, with the ids of real things of two tenants mixed
in. Whatever is sent, by whomever: no answer is a fault of ours, each is as described, and none tells what is not the
caller's: nothing of another tenant, and no secret at all.

The seed is fixed; `searching` says how to search for longer.
"""

import json
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus

import httpx
import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from commonpool import __version__
from commonpool.access import permissions
from commonpool.api import openapi, routes
from tests.security.admin_product import HASH, KEY, URL, Living, World
from tests.security.matrix_world import CALLS, FOREIGN, OWN, UNKNOWN, Things
from tests.security.searching import search

DOCUMENT = openapi.document((*routes.ENDPOINTS, *openapi.endpoints(routes.ENDPOINTS, __version__)), __version__)
SCHEMA = schemathesis.openapi.from_dict(json.loads(json.dumps(DOCUMENT)))
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
WHO = ("platform-admin", f"tenant-admin of {OWN}", f"app of {OWN}", "nobody")
MAKES_KEYS = {"POST /admin/v1/keys", "POST /admin/v1/keys/{id}/rotate"}
LOGS_IN = {"POST /admin/v1/sessions", "POST /admin/v1/me/password"}
OPEN, SELF = {permission.value for permission in permissions.OPEN}, "read_self"  # of whoever it is, and of who that is
# What is a number, or a place in a listing, or looks like one.
HOUR_NS = 3600 * 10**9
HUGE = ("9" * 25, "9" * 5000)
ODD = [*HUGE, "-1", "1e3", "\u0665", "1.99999999999999999999.x"]
ODD += [huge + end for huge in HUGE for end in (".1.x", ".x", "-x", ":" + "0" * 64)]
# Not with a valid configuration: that would be another product than the one whose things are known.
DRY = {"POST /admin/v1/config/apply"}

# A product that was just started has no month that is over, and no hour that something could have been metered in.
TOO_NEW = {"POST /admin/v1/periods", "POST /admin/v1/readings"}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    living = Living(tmp_path_factory.mktemp("product"))
    yield living
    living.close()


def sent(case: Case[Any], headers: dict[str, str]) -> httpx.Request:
    """What schemathesis would send, by this caller."""
    kwargs = case.as_transport_kwargs(base_url=URL)
    body = {"json": kwargs["json"]} if "json" in kwargs else {"content": kwargs.get("data")}
    return httpx.Request(
        kwargs["method"], kwargs["url"], params=kwargs["params"], headers={**kwargs["headers"], **headers}, **body
    )


def check_foreign(known: World, who: str, answer: httpx.Response) -> None:
    """Nothing of another tenant is told to whom that is foreign, but for what they named themselves."""
    if who == "platform-admin":
        return
    asked = unquote_plus(str(answer.request.url)) + answer.request.content.decode(errors="replace")
    told = told_by(answer)
    hidden = known.markers[FOREIGN] | (known.markers[OWN] if who == "nobody" else set())
    found = [
        marker for marker in hidden if re.search(re.escape(marker) + r"(?![0-9A-Za-z])", told) and marker not in asked
    ]
    assert not found, f"{who} is told {found}: {told}"


def check_secrets(known: World, label: str, answer: httpx.Response) -> None:
    """No secret is told, but for the one that this very call made, which is one from now on."""
    told = told_by(answer)
    for secret in made(label, answer):
        assert told.count(secret) == 1
        told = told.replace(secret, "…")
        known.secrets.add(secret)
    found = [secret for secret in known.secrets if secret in told]
    assert not found + KEY.findall(told), told
    assert HASH not in told


def made(label: str, answer: httpx.Response) -> list[str]:
    """The secret that a call is answered with because it made it."""
    if not answer.is_success:
        return []
    if label in MAKES_KEYS:
        return [answer.json()["key"]]
    return [answer.headers["set-cookie"].partition(";")[0].partition("=")[2]] if label in LOGS_IN else []


def told_by(answer: httpx.Response) -> str:
    return "\n".join([answer.text, *(f"{name}: {value}" for name, value in answer.headers.items())])


def valid(label: str, about: Things) -> Case[Any]:
    """A call that is as it should be."""
    method, _, path = label.partition(" ")
    call = CALLS[method, path](about)
    asked = call.body
    if isinstance(asked, dict) and "until_ns" in asked:  # the product's clock is the real one
        asked = {**asked, "until_ns": time.time_ns() + HOUR_NS}
    body: dict[str, Any] = {} if asked is None else {"body": asked}
    return OPERATIONS[label].Case(path_parameters=call.path, query=call.query, **body)


def cases(label: str, known: World) -> SearchStrategy[Case[Any]]:
    """What is described and what is not; about things of either tenant, of nobody, and about whatever is generated."""
    operation = OPERATIONS[label]
    method, _, path = label.partition(" ")
    good, bad = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
    found = [operation.as_strategy(good)]
    if operation.query or operation.body or operation.path_parameters:
        found.append(operation.as_strategy(bad))
    for each in (*known.things.values(), UNKNOWN):
        call = CALLS[method, path](each)
        more: dict[str, Any] = {"path_parameters": call.path} if call.path else {}
        if call.path:
            found.append(operation.as_strategy(good, **more))
        if call.body is not None and label not in DRY:
            found.append(operation.as_strategy(good, **more, body=call.body))
        if operation.query:
            filtered = {"tenant": [each.tenant]} if "tenant" in operation.query else {}
            found.append(operation.as_strategy(good, **more, query={**call.query, **filtered}))
            found.append(oddly(operation, more))
    return st.one_of(found)


def test_no_call_is_left_out() -> None:
    assert OPERATIONS.keys() == {f"{method} {path}" for method, path in CALLS}


def oddly(operation: Any, more: dict[str, Any]) -> SearchStrategy[Case[Any]]:
    """One parameter of the query is something else than it should be."""
    queries = st.sampled_from([{parameter.name: value} for parameter in operation.query for value in ODD])
    return queries.flatmap(lambda query: operation.as_strategy(**more, query=query))


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_as_described_and_tells_nothing_that_is_not_the_callers(here: Living, label: str) -> None:
    known = here.known
    here.do(known.people())
    for tenant in (OWN, FOREIGN):
        here.do(known.renew(tenant))
    permission = OPERATIONS[label].definition.raw["x-permission"]
    who = ("person", "nobody") if permission in OPEN else (*WHO, "person") if permission == SELF else WHO

    def ask(case: Case[Any]) -> list[int]:
        """What each is answered, once it is judged."""
        found = []
        for each in who:
            answer = here.do(known.ask(sent(case, known.callers[each])))
            case.validate_response(answer, checks=CHECKS)
            check_foreign(known, each, answer)
            check_secrets(known, label, answer)
            found.append(answer.status_code)
        return found

    # 1. What is valid, about things that are there: somebody gets it, so what is refused later shows something.
    if label not in DRY:
        answered = [status for tenant in (FOREIGN, OWN) for status in ask(valid(label, known.things[tenant]))]
        assert min(answered) < 300 or label in TOO_NEW, answered

    # 2. Whatever else there is to send.
    @search(4)
    @given(case=cases(label, known))
    def ask_anything(case: Case[Any]) -> None:
        ask(case)

    ask_anything()
