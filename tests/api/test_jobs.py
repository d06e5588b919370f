"""Jobs over the API: what may be asked for, by whom, and what is told of them."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from commonpool.access.callers import Caller, by_data_key
from commonpool.api import routes
from commonpool.api.wire import jobs as wire
from commonpool.backends.base import BackendError
from commonpool.core.model import Cause, Outcome, Wait
from commonpool.core.views import LoanView
from commonpool.store.jobs import JobAttempt, JobError, JobState
from tests.api.caller import TestClient
from tests.api.fakes import ADMIN, NOW, FakeOperations
from tests.store.records import loan, usage_record

KEY_OF_SUPPORT = b"Bearer cp_support"
JOBS = "/admin/v1/jobs"
NEW = {"command": ["train"], "cwd": "/home", "hardware": {"milli_gpu": 2000}}


class Product(FakeOperations):
    """One whose tenants may submit jobs, with a key of an app of one of them."""

    def __init__(self) -> None:
        super().__init__()
        self._config = msgspec.structs.replace(self._config, job_submitters="tenants")
        self.key = by_data_key("k3", "support", "helpdesk")

    async def by_key(self, authorization: bytes, peer: str | None) -> Caller | None:
        return self.key if authorization == KEY_OF_SUPPORT else await super().by_key(authorization, peer)


@pytest.fixture
def product() -> Product:
    return Product()


@pytest.fixture
def remote(product: FakeOperations) -> Iterator[TestClient]:
    """A caller on another machine, with a tenant's key."""
    headers = {"authorization": KEY_OF_SUPPORT.decode()}
    application = routes.application(product)
    with TestClient(application, base_url="http://pool.example", client=("192.0.2.7", 5), headers=headers) as client:
        yield client


def submitted(client: TestClient, **changes: Any) -> wire.Job:
    answer = client.post(JOBS, json=NEW | changes)
    assert answer.status_code == 201, answer.text
    return msgspec.json.decode(answer.content, type=wire.Job)


def listed(client: TestClient, **query: str | list[str]) -> list[str]:
    answer = client.get(JOBS, params=query)
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


def story(client: TestClient, job_id: str) -> wire.JobStory:
    return msgspec.json.decode(client.get(f"{JOBS}/{job_id}").content, type=wire.JobStory)


def test_a_job_belongs_to_the_tenant_of_the_key(remote: TestClient, product: FakeOperations) -> None:
    made = submitted(remote, app="helpdesk", name="night run", env={"A": "1"}, retries=2, expected_ns=5)
    assert (made.tenant, made.app, made.tier, made.state) == ("support", "helpdesk", "batch", "queued")
    kept = product.store.job(made.id)
    assert kept is not None
    assert (kept.job.cost_center, kept.job.pool, kept.job.milli_gpu, kept.job.expected_ns) == ("CC-1", "main", 2000, 5)
    assert (kept.task.env, kept.task.retries, kept.task.name) == ({"A": "1"}, 2, "night run")


def test_the_key_says_the_app_and_the_tier_of_what_names_none(remote: TestClient, product: Product) -> None:
    assert (made := submitted(remote)).app == "helpdesk"
    assert made.tier == "batch"
    product.key = msgspec.structs.replace(product.key, tier="interactive")
    assert submitted(remote).tier == "interactive"
    assert submitted(remote, tier="batch").tier == "batch"
    answer = remote.post(JOBS, json=NEW | {"app": "default"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "the key is one of app helpdesk; leave app 'default' out"


def test_by_default_operators_alone_may_submit(remote: TestClient, local: TestClient, product: Product) -> None:
    mine = submitted(remote)
    product._config = msgspec.structs.replace(product.config(), job_submitters="operators")
    answer = remote.post(JOBS, json=NEW)
    assert answer.status_code == 403
    assert "jobs.submitters" in answer.json()["error"]["message"]
    assert listed(remote) == [mine.id]  # what is its own it may still see, and end
    assert remote.post(f"{JOBS}/{mine.id}/cancel").json()["state"] == "cancelled"
    assert submitted(local, tenant="support").tenant == "support"


def test_a_key_whose_tenant_is_gone_learns_nothing_of_others(remote: TestClient, product: Product) -> None:
    product.key = by_data_key("k3", "former", "helpdesk")
    for body in (NEW, NEW | {"tenant": "former"}, NEW | {"tenant": "research"}):
        answer = remote.post(JOBS, json=body)
        assert answer.status_code == 400
        assert "research" not in answer.json()["error"]["message"].replace("tenant 'research'", "")
        assert "support" not in answer.json()["error"]["message"]


def test_an_operator_says_whose_it_is(local: TestClient) -> None:
    made = submitted(local, tenant="research", app="slides")
    assert (made.tenant, made.app) == ("research", "slides")


def test_without_batch_the_tier_is_the_one_of_the_lowest_priority(local: TestClient, product: FakeOperations) -> None:
    tenant = product.config().policy.tenants["support"]
    narrowed = msgspec.structs.replace(tenant, priority={"interactive": 9, "slow": 2})
    policy = product.config().policy
    policy = msgspec.structs.replace(policy, tenants=policy.tenants | {"support": narrowed})
    product._config = msgspec.structs.replace(product.config(), policy=policy)
    assert submitted(local, tenant="support", app="helpdesk").tier == "slow"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "it is not said whose the job is; name a tenant"),
        ({"tenant": "nobody"}, "there is no tenant 'nobody'; there is"),
        ({"tenant": "support", "app": "chess"}, "tenant support has no app 'chess'; it has"),
        ({"tenant": "support", "app": "helpdesk", "tier": "gold"}, "tenant support has no tier 'gold'; it may use"),
        ({"tenant": "support", "app": "helpdesk", "command": []}, "there is no command"),
        ({"tenant": "support", "app": "helpdesk", "command": [""]}, "there is no command"),
        ({"tenant": "support", "app": "helpdesk", "command": ["a\0b"]}, "a NUL character"),
        ({"tenant": "support", "app": "helpdesk", "env": {"A=B": "1"}}, "'A=B' is not the name of"),
        ({"tenant": "support", "app": "helpdesk", "name": "a\nb"}, "cannot be printed"),
        ({"tenant": "support", "hardware": {"milli_gpu": 2000, "together": "any"}}, "cannot be anywhere"),
        ({"tenant": "support", "app": "helpdesk", "retries": -1}, "retries"),
        ({"tenant": "support", "app": "helpdesk", "priority": 9}, "unknown field `priority`"),
    ],
)
def test_what_cannot_be_asked_for(local: TestClient, changes: dict[str, Any], says: str) -> None:
    answer = local.post(JOBS, json=NEW | changes)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]
    assert listed(local, all="true") == []


@pytest.mark.parametrize("refusal", [JobError("It is larger than the pool."), BackendError("No such folder.")])
def test_what_the_product_refuses_is_told(local: TestClient, product: FakeOperations, refusal: Any) -> None:
    product.fake_jobs.refusal = refusal
    answer = local.post(JOBS, json=NEW | {"tenant": "support", "app": "helpdesk"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, str(refusal))


def test_a_tenant_may_know_and_end_its_own_jobs_only(remote: TestClient, local: TestClient) -> None:
    mine = submitted(remote, app="helpdesk")
    other = submitted(local, tenant="research", app="papers")
    assert listed(remote) == [mine.id]
    assert listed(local) == [other.id, mine.id]
    assert listed(local, tenant="support") == [mine.id]
    assert listed(remote, tenant="research") == listed(remote, tenant="nobody") == []
    assert remote.post(JOBS, json=NEW | {"tenant": "research", "app": "papers"}).status_code == 400
    for call in (
        remote.get(f"{JOBS}/{other.id}"),
        remote.get(f"{JOBS}/{other.id}/log"),
        remote.post(f"{JOBS}/{other.id}/cancel"),
        remote.get(f"{JOBS}/none"),
    ):
        assert call.status_code == 404
        assert "there is no job" in call.json()["error"]["message"]
    assert remote.post(f"{JOBS}/{mine.id}/cancel").json()["state"] == "cancelled"


def test_a_key_is_needed_from_elsewhere(product: FakeOperations) -> None:
    with TestClient(routes.application(product), base_url="http://pool.example", client=("192.0.2.7", 5)) as client:
        assert client.get(JOBS).status_code == 401
        assert client.get(JOBS, headers={"authorization": ADMIN.decode()}).status_code == 200


def test_one_that_waits_says_why(local: TestClient, product: FakeOperations) -> None:
    made = submitted(local, tenant="support", app="helpdesk")
    product.fake_jobs.waiting[made.id] = (Wait(Cause.DEVICES, "main", 4 * 10**9),)
    product.fake_jobs.change(made.id, queued_ns=NOW - 5 * 10**9)
    told = story(local, made.id)
    assert (told.job.wait_ns, told.job.run_ns) == (5 * 10**9, 0)
    assert told.job.waits[0].cause is Cause.DEVICES
    assert told.job.explanation.startswith("waiting for 4 s: ")


def test_one_that_runs_shows_its_attempts_devices_and_loans(local: TestClient, product: FakeOperations) -> None:
    made = submitted(local, tenant="support", app="helpdesk")
    first = JobAttempt(1, "n0", ("n0/0",), NOW - 60, NOW - 50, 75)
    second = JobAttempt(2, "n0", ("n0/1", "n0/2"), NOW - 10)
    for attempt in (first, second):
        product.fake_jobs.change(made.id, state=JobState.RUNNING, attempt=attempt, queued_ns=NOW - 50)
    product.fake_jobs.lent = [LoanView("research", "support", made.id, 500, NOW - 9, due=True)]
    product.store.add_usage([usage_record(made.id, endpoint="job", outcome=Outcome.CANCELLED, loans=(loan("b"),))])
    told = story(local, made.id)
    assert (told.job.state, told.job.attempts, told.job.wait_ns, told.job.run_ns) == ("running", 2, 40, 10)
    assert [(each.attempt, each.devices, each.exit_status) for each in told.attempts] == [
        (1, ("n0/0",), 75),
        (2, ("n0/1", "n0/2"), None),
    ]
    assert [(each.lender, each.milli_gpu, each.due) for each in told.loans] == [("research", 500, True)]
    assert [record.loans[0].lender for record in told.records] == ["b"]


def test_one_that_failed_says_why_and_cannot_be_cancelled(local: TestClient, product: FakeOperations) -> None:
    made = submitted(local, tenant="support", app="helpdesk")
    attempt = JobAttempt(1, "", (), NOW - 60, NOW - 50, 3)
    product.fake_jobs.change(
        made.id, state=JobState.FAILED, reason="It broke.", attempt=attempt, queued_ns=NOW - 70, ended_ns=NOW - 50
    )
    told = story(local, made.id).job
    assert (told.explanation, told.exit_status, told.wait_ns, told.run_ns) == ("It broke.", 3, 10, 10)
    answer = local.post(f"{JOBS}/{made.id}/cancel")
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400,
        f"job {made.id} has ended already: it is failed",
    )
    assert listed(local) == []
    assert listed(local, all="true") == [made.id]


def test_jobs_come_in_pages(local: TestClient) -> None:
    made = [submitted(local, tenant="support", app="helpdesk").id for _ in range(3)]
    first = local.get(JOBS, params={"limit": "2"}).json()
    assert [job["id"] for job in first["jobs"]] == made[:0:-1]
    second = local.get(JOBS, params={"limit": "2", "after": first["after"]}).json()
    assert ([job["id"] for job in second["jobs"]], second["after"]) == (made[:1], None)
    for after in ("x", "1", "-1.job", f"{2**63}.job"):
        assert local.get(JOBS, params={"after": after}).status_code == 400
    for limit in ("0", "201", "x"):
        assert local.get(JOBS, params={"limit": limit}).status_code == 400


def test_a_log_is_read_piece_by_piece(local: TestClient, product: FakeOperations) -> None:
    made = submitted(local, tenant="support", app="helpdesk")
    product.fake_jobs.pieces = ["one\n", "two\n"]
    first = local.get(f"{JOBS}/{made.id}/log").json()
    assert first == {"text": "one\n", "after": "1", "more": True, "open": True}
    product.fake_jobs.change(made.id, state=JobState.DONE)
    second = local.get(f"{JOBS}/{made.id}/log", params={"after": "1"}).json()
    assert second == {"text": "two\n", "after": "2", "more": False, "open": False}
    assert local.get(f"{JOBS}/{made.id}/log", params={"after": "x"}).status_code == 400


def test_jobs_are_filtered_by_tenants_states_and_pools(local: TestClient, product: Product) -> None:
    first, second, third = (submitted(local, tenant=tenant).id for tenant in ("support", "research", "support"))
    product.fake_jobs.change(third, state=JobState.FAILED)
    assert listed(local, tenant="support") == [first]  # those that are open
    assert listed(local, tenant=["support", "research"]) == [second, first]
    assert listed(local, state="failed") == [third]
    assert listed(local, state=["failed", "queued"], tenant="support") == [third, first]
    assert listed(local, pool="main", all="true") == [third, second, first]
    assert listed(local, pool="side", all="true") == []
    wrong = local.get(JOBS, params={"state": "lost"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "state")
