"""Given a request that waits, runs or has ended, when its life is asked for, then each step is told in order."""

from typing import Any

import msgspec
import pytest

from commonpool.access.callers import by_admin_key
from commonpool.api import routes, views
from commonpool.api.operations import Passed
from commonpool.api.wire import requests as wire
from commonpool.core.events import Arrived, Ended, ReplicaReady
from commonpool.core.model import Cause, Outcome, Replica, Request, Usage, Wait
from tests.api.books import BILLED, HOUR, at, billed, keep, work
from tests.api.caller import TestClient
from tests.api.fakes import FakeOperations, sources

S = 10**9
ENDED = at("2026-12-30 11:20")
MINUTE = HOUR // 60


def waited(request_id: str, since: int, wait_ns: int, **more: Any) -> Any:
    """An attempt of a minute that waited before."""
    record = work(request_id, since + wait_ns + MINUTE, MINUTE, **more)
    return msgspec.structs.replace(
        record, arrived_ns=since, wait_ns=wait_ns, total_ns=wait_ns + MINUTE, first_token_ns=wait_ns + S
    )


@pytest.fixture
def product() -> FakeOperations:
    """Two of research were there before r1 of support; one of archive came later and was served first."""
    product = billed()
    product.callers[b"Bearer viewer"] = by_admin_key("d", "developer", "support")
    product.callers[b"Bearer far"] = by_admin_key("f", "developer", "research")
    r1 = msgspec.structs.replace(
        waited("r1", ENDED, 4 * S, loan=1000), waits=(Wait(Cause.TURN, "", S), Wait(Cause.LOAN_DUE, "research", 3 * S))
    )
    keep(
        product,
        "2026-12-30 10:00",
        "2026-12-30 12:00",
        [
            r1,
            waited("before1", ENDED - 2 * S, 3 * S, tenant="research", app="papers"),
            waited("before2", ENDED - S, 6 * S, tenant="research", app="papers"),
            waited("own", ENDED - S, 2 * S),
            waited("gone", ENDED - 9 * S, 2 * S),
            waited("later", ENDED + S, S, tenant="research", app="papers"),
            waited("other", ENDED - S, 2 * S, model="else"),
            work("r2", ENDED - HOUR // 2, MINUTE, outcome=Outcome.FAILED, status=502, first_token_ns=0),
            msgspec.structs.replace(waited("r2", ENDED - HOUR // 2 - MINUTE, MINUTE + 2 * S), attempt=2),
        ],
    )
    return product


def life(client: TestClient, request_id: str, **headers: str) -> wire.RequestTimeline:
    answer = client.get(f"/admin/v1/requests/{request_id}/timeline", headers=headers)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=wire.RequestTimeline)


@pytest.fixture
def remote(product: FakeOperations) -> TestClient:
    return TestClient(routes.application(product), base_url="http://pool.example", client=("192.0.2.7", 5))


def test_every_step_of_one_that_waited_and_borrowed(local: TestClient) -> None:
    told = life(local, "r1")
    assert [(step.what, step.at_ns - ENDED) for step in told.steps] == [
        ("arrived", 0),
        ("queued", 0),
        ("dispatched", 4 * S),
        ("first_token", 5 * S),
        ("ended", 4 * S + MINUTE),
    ]
    _, queued, dispatched, token, ended = told.steps
    assert (queued.ns, [part.cause for part in queued.waits]) == (4 * S, [Cause.LOAN_DUE, Cause.TURN])
    assert queued.before == (wire.Before("support", 1, 1), wire.Before("research", 2, 2))
    assert queued.explanation == (
        "it waited 4 s: loan to research due 3 s, others first in the order between tenants 1 s; when it came 1 of its"
        " tenant and 2 of others waited, and 2 of others were served meanwhile"
    )
    assert dispatched.explanation.endswith("and borrowed 1 gpu of research")
    assert (dispatched.milli_gpu, dispatched.loans[0].lender) == (2000, "research")
    assert token.explanation == "its first token came 5 s after it arrived"
    assert (ended.outcome, ended.tokens_in, ended.tokens_out, ended.cost_micro) == (
        "completed", 1000, 500, told.cost_micro,
    )  # fmt: skip
    assert told.cost_micro > 0
    assert (told.state, told.tenant, told.arrived_ns, told.standing, told.currency) == (
        "completed", "support", ENDED, None, "EUR",
    )  # fmt: skip


def test_a_tenant_is_told_of_others_how_many_and_not_who(remote: TestClient) -> None:
    told = life(remote, "r1", authorization="Bearer viewer")
    assert told.steps[1].before == (wire.Before("support", 1, 1), wire.Before("", 2, 2))


def test_of_a_foreign_one_not_even_that_it_is(remote: TestClient) -> None:
    asked = {
        name: remote.get(f"/admin/v1/requests/{name}/timeline", headers={"authorization": "Bearer far"})
        for name in ("r1", "r9")
    }
    assert {answer.status_code for answer in asked.values()} == {404}
    assert asked["r1"].json()["error"]["message"].replace("r1", "r9") == asked["r9"].json()["error"]["message"]


def test_each_attempt_has_its_own_steps(local: TestClient) -> None:
    steps = [(step.attempt, step.what) for step in life(local, "r2").steps]
    assert steps == [
        (1, "arrived"), (1, "dispatched"), (1, "ended"), (2, "queued"), (2, "dispatched"), (2, "first_token"),
        (2, "ended"),
    ]  # fmt: skip


def test_one_that_runs_and_one_that_waits_are_told_as_they_stand(product: FakeOperations, local: TestClient) -> None:
    machine = product.machine
    request = Request("live", "support", "helpdesk", "echo", "interactive", "chat", 10, 10)
    waits = msgspec.structs.replace(request, id="waits")
    machine.handle(Arrived(request), product.now)
    for n in range(4):  # every slot
        machine.handle(Arrived(msgspec.structs.replace(request, id=f"more{n}")), product.now)
    machine.handle(ReplicaReady(Replica("echo-0.1", "echo", 2000, 4, 8192)), product.now + 2 * S)
    machine.handle(Arrived(waits), product.now + 2 * S)
    product.now += 3 * S
    product.first_tokens["live"] = product.now
    for each in (request, waits):
        product.open_requests[each.id] = views.live(each, machine.waits_of(each.id, product.now))
    running, waiting = life(local, "live"), life(local, "waits")
    assert [step.what for step in running.steps] == ["arrived", "queued", "dispatched", "first_token"]
    assert (running.state, running.standing, running.steps[1].ns) == ("running", None, 2 * S)
    assert running.steps[2].replica == "echo-0.1"
    assert [step.what for step in waiting.steps] == ["arrived", "queued"]
    assert (waiting.state, waiting.steps[1].ns) == ("waiting", S)
    assert waiting.standing is not None
    assert (waiting.standing.own_before, waiting.standing.others_waiting) == (1, 0)
    assert waiting.steps[1].before == (wire.Before("support", 1, 0),)


def test_what_ends_while_it_is_looked_at_is_told_once() -> None:
    class Ends(FakeOperations):
        """Whoever is asked about an attempt that runs answers when it is over."""

        async def running(self, request_id: str) -> Passed | None:
            passed = await super().running(request_id)
            if passed is not None:
                self.machine.handle(Ended(request_id, 1, Outcome.COMPLETED, Usage(10, 0, 5)), self.now)
                del self.open_requests[request_id]
                self.store.add_usage([work(request_id, self.now, S)])
            return passed

    product = Ends()
    product.configure(sources(BILLED))
    request = Request("live", "support", "helpdesk", "echo", "interactive", "chat", 10, 10)
    product.machine.handle(ReplicaReady(Replica("echo-0.1", "echo", 2000, 4, 8192)), product.now)
    product.machine.handle(Arrived(request), product.now)
    product.open_requests["live"] = views.live(request, None)
    with TestClient(
        routes.application(product), base_url="http://127.0.0.1:8081", client=("127.0.0.1", 50000)
    ) as local:
        told = life(local, "live")
    assert (told.state, [step.what for step in told.steps].count("dispatched")) == ("completed", 1)
