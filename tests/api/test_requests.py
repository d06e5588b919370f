"""Given requests that ended, run or wait, when one is asked for, then its story is told to whom it belongs."""

from collections.abc import Iterator

import msgspec
import pytest

from commonpool.api import routes, views
from commonpool.api.wire import requests as wire
from commonpool.core.model import Cause, Outcome, Request, Wait
from tests.api.caller import TestClient
from tests.api.fakes import ADMIN, KEY_OF_A, FakeOperations
from tests.store.records import loan, refused, usage_record

WAITS = (Wait(Cause.OWN_QUEUE, "", 1), Wait(Cause.LOAN_DUE, "b", 3), Wait(Cause.OWN_QUEUE, "", 1))


@pytest.fixture
def product(product: FakeOperations) -> FakeOperations:
    product.store.add_usage(
        [
            usage_record("r1", tenant="a", loans=(loan("b"),), waits=WAITS),
            usage_record("r2", tenant="b", attempt=1, outcome=Outcome.FAILED, status=502),
            usage_record("r2", tenant="b", attempt=2),
            refused("r3", tenant="a", reason="queue_full"),
        ]
    )
    for request_id, tenant in (("r4", "a"), ("r5", "b")):
        request = Request(request_id, tenant, "chat", "m", "interactive", "chat", 1)
        product.open_requests[request_id] = views.live(request, (Wait(Cause.SLOTS, "m", 2 * 10**9),))
    return product


@pytest.fixture
def remote(product: FakeOperations) -> Iterator[TestClient]:
    """A caller on another machine, who needs a key."""
    with TestClient(routes.application(product), base_url="http://pool.example", client=("192.0.2.7", 5)) as client:
        yield client


def story(client: TestClient, request_id: str, key: bytes | None = None) -> wire.RequestStory:
    headers = {"authorization": key.decode()} if key else {}
    answer = client.get(f"/admin/v1/requests/{request_id}", headers=headers)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=wire.RequestStory)


def test_an_ended_request_has_its_record_by_name_and_its_wait_in_words(local: TestClient) -> None:
    told = story(local, "r1")
    (attempt,) = told.attempts
    assert (told.id, told.live, attempt.request_id, attempt.loans[0].lender) == ("r1", None, "r1", "b")
    assert [(part.cause, part.name, part.ns, part.text) for part in attempt.waits] == [
        (Cause.LOAN_DUE, "b", 3, "loan to b due"),
        (Cause.OWN_QUEUE, "", 2, "behind others of its tenant"),
    ]
    assert attempt.explanation.startswith("completed; waited <1 ms: loan to b due")
    plain = local.get("/admin/v1/requests/r1").json()["attempts"][0]
    assert plain["waits"][0]["cause"] == "loan_due"
    assert plain["milli_gpu_ns"] == 5000


def test_every_attempt_is_told_in_order(local: TestClient) -> None:
    assert [(attempt.attempt, attempt.explanation) for attempt in story(local, "r2").attempts] == [
        (1, "failed with status 502; waited <1 ms"),
        (2, "completed; waited <1 ms"),
    ]


def test_a_refused_request_says_why_and_what_to_do(local: TestClient) -> None:
    (attempt,) = story(local, "r3").attempts
    assert attempt.explanation == "refused, the queue_length of its tenant, app or key was reached; did not wait"
    assert "limits.queue_length" in attempt.advice


def test_a_request_that_waits_says_for_what(local: TestClient) -> None:
    told = story(local, "r4")
    assert told.attempts == ()
    assert told.live is not None
    assert (told.live.tenant, told.live.state, told.live.wait_ns) == ("a", "waiting", 2 * 10**9)
    assert told.live.explanation == "waiting for 2 s: every slot of m or its KV memory taken"


def test_a_request_between_two_attempts_has_both(local: TestClient, product: FakeOperations) -> None:
    product.open_requests["r2"] = views.live(Request("r2", "b", "chat", "m", "interactive", "chat", 1), None)
    told = story(local, "r2")
    assert told.live is not None
    assert (told.live.state, told.live.explanation, len(told.attempts)) == ("running", "running", 2)


@pytest.mark.parametrize("request_id", ["r9", "'r1'", "%2e", "r" * 1000])
def test_an_unknown_request(local: TestClient, request_id: str) -> None:
    answer = local.get(f"/admin/v1/requests/{request_id}")
    assert answer.status_code == 404
    assert "x-request-id" in answer.json()["error"]["message"]


def test_while_a_start_is_told_what_was_open_before_nothing_is_said_to_be_unknown(
    product: FakeOperations, local: TestClient
) -> None:
    product.fake_recovered = False
    for path in ("/admin/v1/requests/r9", "/admin/v1/requests/r9/timeline"):
        answer = local.get(path)
        assert answer.status_code == 503
        assert "not known yet" in answer.json()["error"]["message"]
    product.fake_recovered = True
    assert local.get("/admin/v1/requests/r9").status_code == 404


def test_a_tenant_sees_its_own_and_of_others_not_even_that_they_are(remote: TestClient) -> None:
    assert len(story(remote, "r1", KEY_OF_A).attempts) == 1
    assert story(remote, "r4", KEY_OF_A).live is not None
    for request_id in ("r2", "r5", "r9"):
        answer = remote.get(f"/admin/v1/requests/{request_id}", headers={"authorization": KEY_OF_A.decode()})
        assert answer.status_code == 404
        assert answer.json()["error"]["message"].startswith(f"no request '{request_id}' is known")


def test_an_operator_sees_all(remote: TestClient) -> None:
    for request_id in ("r1", "r2", "r3", "r4", "r5"):
        assert story(remote, request_id, ADMIN).id == request_id


def test_nobody_sees_any(remote: TestClient) -> None:
    assert remote.get("/admin/v1/requests/r1").status_code == 401
    assert remote.get("/admin/v1/requests/r1", headers={"authorization": "Bearer cp_x"}).status_code == 401


def test_a_key_given_twice_is_no_key(remote: TestClient) -> None:
    keys = [("authorization", KEY_OF_A.decode()), ("authorization", KEY_OF_A.decode())]
    assert remote.get("/admin/v1/requests/r1", headers=keys).status_code == 401
