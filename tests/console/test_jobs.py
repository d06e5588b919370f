"""Given jobs, when their pages are opened, then they are listed in pages, shown with their output, made and ended."""

import re

import msgspec
import pytest

from commonpool.access.callers import by_admin_key
from commonpool.console import jobs
from commonpool.core.model import Hardware, Job
from commonpool.store.jobs import JobAttempt, JobRecord, JobState, Task
from tests.api.fakes import ADMIN, NOW, FakeOperations
from tests.console.visitor import OWN_PAGE, visiting, words

FIELDS = {"tenant": "support", "command": "python 'my train.py' --all", "cwd": "/home", "gpus": "1.0", "expected": "2h"}


@pytest.fixture
def product() -> FakeOperations:
    return FakeOperations()


def add(product: FakeOperations, name: str, state: JobState = JobState.RUNNING, tenant: str = "support") -> str:
    at = NOW - 10**9 * 60 + len(name)
    job = Job(name, tenant, "helpdesk", "main", "batch", 1000, hardware=Hardware(1000))
    attempt = JobAttempt(1, "n1", ("n1/0",), at)
    product.store.add_job(JobRecord(job, Task(("train", "it"), "/home", name=f"of-{name}"), at, at))
    product.fake_jobs.change(name, state=state, attempt=attempt)
    return name


def test_open_jobs_and_on_demand_those_that_have_ended(product: FakeOperations) -> None:
    add(product, "job-a")
    add(product, "job-bb", JobState.DONE)
    with visiting(product) as local:
        shown = words(local.get("/jobs").text)
        assert "of-job-a" in shown
        assert "of-job-bb" not in shown
        assert "of-job-bb" in words(local.get("/jobs?all=true").text)
        assert "No job waits or runs. Ended ones are shown by the filter." in words(
            local.get("/jobs?tenant=research").text
        )


def test_jobs_are_filtered_by_state(product: FakeOperations) -> None:
    add(product, "job-a")
    add(product, "job-bb", JobState.FAILED)
    with visiting(product) as local:
        shown = words(local.get("/jobs?state=failed").text)
        assert ("of-job-a" in shown, "of-job-bb" in shown) == (False, True)
        assert "of-job-bb" not in words(local.get("/jobs?state=failed&pool=other").text)


def test_a_long_list_has_pages(product: FakeOperations) -> None:
    names = [add(product, f"job-{'x' * length}") for length in range(1, jobs.ROWS + 3)]
    seen: list[str] = []
    with visiting(product) as local:
        where = "/jobs"
        while where:
            page = local.get(where).text
            seen += re.findall(r'<th\b[^>]*><a href="/jobs/([^"]+)"', page)
            following = re.search(r'href="([^"]+)" rel="next"', page)
            where = following[1].replace("&amp;", "&") if following else ""
    assert seen == names[::-1]


def test_a_job_with_its_devices_and_the_end_of_its_output(product: FakeOperations) -> None:
    name = add(product, "job-a")
    product.fake_jobs.pieces = ["first\n", "last\n"]
    with visiting(product) as local:
        page = local.get(f"/jobs/{name}").text
        assert "first\nlast" in page
        assert "From the beginning" not in words(page)
        product.fake_jobs.pieces = ["x" * jobs.TAIL_CHARS, "\ncut here\nlast\n"]
        page = local.get(f"/jobs/{name}").text
        assert "xxx" not in page
        assert "cut here\nlast" in page
        assert "From the beginning" in words(page)
        assert "xxx" in local.get(f"/jobs/{name}?after=").text


def test_output_is_for_those_who_may_read_it(product: FakeOperations) -> None:
    name = add(product, "job-a")
    product.fake_jobs.pieces = ["secret of it"]
    with visiting(product, authorization=ADMIN.decode()) as local:
        for role, code in (("operator", 200), ("viewer", 403)):
            product.callers[ADMIN] = by_admin_key("k", role, "" if role == "operator" else "support")
            page = local.get(f"/jobs/{name}")
            assert (page.status_code, "secret of it" in page.text) == (code, code == 200)


def test_a_job_is_submitted_as_a_shell_would_read_it(product: FakeOperations) -> None:
    with visiting(product) as local:
        done = local.post("/jobs/new", data=FIELDS, headers=OWN_PAGE, follow_redirects=False)
        assert done.status_code == 303
        assert "The job was submitted." in words(local.get(done.headers["location"]).text)
    record = product.store.job(done.headers["location"].removeprefix("/jobs/").partition("?")[0])
    assert record is not None
    assert record.task.command == ("python", "my train.py", "--all")
    assert (record.job.hardware, record.job.expected_ns) == (Hardware(1000), 7200 * 10**9)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"gpus": ""}, "give GPUs, memory or a MIG profile"),
        ({"gpus": "many"}, "is not an amount of GPUs"),
        ({"expected": "2"}, "has no unit"),
        ({"command": "it's"}, "cannot be read as a shell would"),
        ({"command": ""}, "there is no command"),
        ({"retries": "-1"}, "is not a whole number"),
        ({"tenant": "nobody"}, "there is no tenant"),
    ],
)
def test_what_is_wrong_is_said_beside_what_was_typed(product: FakeOperations, wrong: dict[str, str], says: str) -> None:
    with visiting(product) as local:
        answer = local.post("/jobs/new", data={**FIELDS, **wrong}, headers=OWN_PAGE)
    assert answer.status_code == 400
    assert any(says in piece for piece in words(answer.text)), words(answer.text)
    assert 'value="/home"' in answer.text


def test_a_job_is_cancelled_by_those_who_may(product: FakeOperations) -> None:
    name = add(product, "job-a")
    with visiting(product) as local:
        assert f'action="/jobs/{name}/cancel"' in local.get(f"/jobs/{name}").text
        assert local.post(f"/jobs/{name}/cancel", headers={"origin": "http://elsewhere.example"}).status_code == 403
        done = local.post(f"/jobs/{name}/cancel", headers=OWN_PAGE)
        assert "The job was cancelled." in words(done.text)
        assert "cancelled" in words(done.text)
        assert f'action="/jobs/{name}/cancel"' not in done.text


def test_a_tenant_is_not_shown_another_ones_job(product: FakeOperations) -> None:
    name = add(product, "job-a")
    product.callers[ADMIN] = by_admin_key("k", "developer", "research")
    with visiting(product, authorization=ADMIN.decode()) as local:
        assert local.get(f"/jobs/{name}").status_code == 404
        assert local.post(f"/jobs/{name}/cancel", headers=OWN_PAGE).status_code == 404
        assert name not in local.get("/jobs?all=true").text
    record = product.store.job(name)
    assert record is not None
    assert record.state is JobState.RUNNING
    assert msgspec.structs.asdict(record)["ended_ns"] is None
