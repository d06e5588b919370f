"""Jobs: submitted, listed, shown, cancelled, their output read. A tenant may do all of it with its own."""

from collections.abc import Awaitable
from typing import Annotated, TypeVar

import msgspec

from commonpool.api import views, wire
from commonpool.api.access import ForbiddenError
from commonpool.api.http import BadRequestError, Endpoint
from commonpool.api.operations import NotFoundError, OperationError, Operations, Principal
from commonpool.backends.base import BackendError
from commonpool.config import Config
from commonpool.config.keys import DEFAULT_APP
from commonpool.config.problems import listed
from commonpool.core import explain
from commonpool.core.model import Job
from commonpool.store.jobs import OPEN, JobAttempt, JobError, JobNotFoundError, JobPlace, JobRecord, JobState, Task

JOBS_MAX = 200  # in one answer
DEFAULT_TIER = "batch"

T = TypeVar("T")


class JobsQuery(msgspec.Struct, frozen=True):
    """`all` also shows jobs that have ended. `after` is the `after` of the answer before, "" for the first."""

    all: bool = False
    tenant: str = ""
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=JOBS_MAX)] = JOBS_MAX


class ByJob(msgspec.Struct, frozen=True):
    """One job, by its id."""

    id: str


class LogQuery(ByJob, frozen=True):
    """`after` is the `after` of the answer before, "" for the beginning of what is kept."""

    after: str = ""


# -- what is asked for -------------------------------------------------------------------------------------------------


def resolve(new: wire.NewJob, config: Config, who: Principal | None) -> tuple[Job, Task]:
    """The job that somebody with a tenant's key (None: an operator, who names a tenant) asks for.

    Raises BadRequestError, or ForbiddenError where tenants may not submit jobs.
    """
    if who is not None:
        new = _of_key(new, config, who)
    name = new.tenant
    if not name:
        raise BadRequestError("it is not said whose the job is; name a tenant, or use its key", param="tenant")
    owner = config.policy.tenants.get(name)
    if owner is None:
        raise BadRequestError(f"there is no tenant {name!r}; there is {listed(config.policy.tenants)}", param="tenant")
    app = config.apps[name].get(new.app or DEFAULT_APP)
    if app is None:
        there = listed(config.apps[name])
        raise BadRequestError(f"tenant {name} has no app {new.app or DEFAULT_APP!r}; it has {there}", param="app")
    if new.tier and new.tier not in owner.priority:
        there = listed(owner.priority)
        raise BadRequestError(f"tenant {name} has no tier {new.tier!r}; it may use {there}", param="tier")
    if new.hardware.together == "any":
        raise BadRequestError(
            "a job's command runs on one node, so its GPUs cannot be anywhere; ask for together node or island",
            param="hardware.together",
        )
    _check_words(new)
    job = Job(
        id="",
        tenant=name,
        app=app.name,
        pool=owner.pool,
        tier=new.tier or _tier(owner.priority),
        milli_gpu=new.hardware.milli_gpu,
        expected_ns=new.expected_ns,
        cost_center=app.cost_center,
        hardware=new.hardware,
        reclaim=new.reclaim,
    )
    return job, Task(new.command, new.cwd, new.env, new.name, new.retries)


def _of_key(new: wire.NewJob, config: Config, who: Principal) -> wire.NewJob:
    """What a tenant's key makes of a job: it says whose it is, by tenant and app."""
    if config.job_submitters != "tenants":
        raise ForbiddenError(
            "jobs run as the product's user, so tenants may not submit any here; ask an operator to submit it, or"
            " to set jobs.submitters to tenants"
        )
    if new.tenant not in {"", who.tenant}:
        raise BadRequestError(f"the key is one of tenant {who.tenant}; leave tenant {new.tenant!r} out", param="tenant")
    if new.app not in {"", who.app}:
        raise BadRequestError(f"the key is one of app {who.app}; leave app {new.app!r} out", param="app")
    if who.tenant not in config.policy.tenants:
        raise BadRequestError(f"tenant {who.tenant}, whose key this is, does not exist any more; ask an operator")
    return msgspec.structs.replace(new, tenant=who.tenant, app=who.app, tier=new.tier or who.tier or "")


def _tier(priority: dict[str, int]) -> str:
    return DEFAULT_TIER if DEFAULT_TIER in priority else min(priority, key=lambda tier: (priority[tier], tier))


def _check_words(new: wire.NewJob) -> None:
    """What the operating system would not take, or what could not be told apart on a screen."""
    if not new.command or not new.command[0]:
        raise BadRequestError("there is no command; give one behind `--`", param="command")
    if any("\0" in word for word in (*new.command, new.cwd, *new.env, *new.env.values())):
        raise BadRequestError("a NUL character is in the command, the folder or the environment; leave it out")
    for name in new.env:
        if not name or "=" in name:
            raise BadRequestError(f"{name!r} is not the name of an environment variable", param="env")
    if not new.name.isprintable():
        raise BadRequestError("the name has characters that cannot be printed", param="name")


# -- handlers ----------------------------------------------------------------------------------------------------------


async def submit(operations: Operations, _: msgspec.Struct, new: wire.NewJob, who: Principal | None) -> wire.Job:
    job, task = resolve(new, operations.config(), who)
    return _view(operations, await _refusable(operations.jobs().submit(job, task)))


async def jobs(operations: Operations, query: JobsQuery, who: Principal | None) -> wire.Jobs:
    owner = query.tenant or None
    if who is not None:
        if query.tenant not in {"", who.tenant}:
            message = f"the key is one of tenant {who.tenant}; leave tenant {query.tenant!r} out"
            raise BadRequestError(message, param="tenant")
        owner = who.tenant
    found = await operations.jobs().list(owner, every=query.all, after=_place(query.after), limit=query.limit)
    last = found[-1] if len(found) == query.limit else None
    after = None if last is None else f"{last.submitted_ns}.{last.job.id}"
    return wire.Jobs(tuple(_view(operations, record) for record in found), after)


async def show(operations: Operations, which: ByJob, who: Principal | None) -> wire.JobStory:
    record = await _own(operations, which.id, who)
    _, attempts = await _refusable(operations.jobs().show(which.id))
    return wire.JobStory(
        job=_view(operations, record),
        attempts=tuple(map(_attempt, attempts)),
        loans=views.loans(operations.jobs().loans(which.id)),
        records=tuple(map(views.attempt, await operations.record(which.id))),
    )


async def logs(operations: Operations, which: LogQuery, who: Principal | None) -> wire.JobLog:
    record = await _own(operations, which.id, who)  # first: what it prints before its end is read then
    try:
        part = await operations.jobs().logs(which.id, which.after)
    except ValueError as error:
        raise BadRequestError(str(error), param="after") from None
    return wire.JobLog(part.text, part.after, part.more, record.state in OPEN)


async def cancel(operations: Operations, which: ByJob, who: Principal | None) -> wire.Job:
    record = await _own(operations, which.id, who)
    if record.state not in OPEN:
        raise OperationError(f"job {which.id} has ended already: it is {record.state.value}")
    return _view(operations, await _refusable(operations.jobs().cancel(which.id)))


async def _own(operations: Operations, job_id: str, who: Principal | None) -> JobRecord:
    """A job that this caller may know of."""
    record, _ = await _refusable(operations.jobs().show(job_id))
    if who is not None and who.tenant != record.job.tenant:
        raise NotFoundError(f"there is no job {job_id!r}; `commonpool job list --all` shows those there are")
    return record


async def _refusable(work: Awaitable[T]) -> T:
    try:
        return await work
    except JobNotFoundError as error:
        raise NotFoundError(str(error)) from None
    except (JobError, BackendError) as error:
        raise OperationError(str(error)) from None


def _place(after: str) -> JobPlace | None:
    if not after:
        return None
    submitted_ns, _, job_id = after.partition(".")
    if not (submitted_ns.isdecimal() and job_id) or int(submitted_ns) >= 2**63:
        raise BadRequestError(f"after {after!r} is not the `after` of an answer", param="after")
    return int(submitted_ns), job_id


def _view(operations: Operations, record: JobRecord) -> wire.Job:
    job, task, attempt, now_ns = record.job, record.task, record.attempt, operations.now_ns()
    waits = (operations.jobs().waits(job.id) or ()) if record.state is JobState.QUEUED else ()
    waited_until, run_ns = record.ended_ns or now_ns, 0
    if attempt is not None and record.state is not JobState.QUEUED:
        waited_until = attempt.started_ns
        run_ns = (attempt.ended_ns or now_ns) - attempt.started_ns
    return wire.Job(
        id=job.id,
        name=task.name,
        tenant=job.tenant,
        app=job.app,
        tier=job.tier,
        pool=job.pool,
        state=record.state.value,
        hardware=job.hardware,
        command=task.command,
        cwd=task.cwd,
        reclaim=job.reclaim,
        expected_ns=job.expected_ns,
        submitted_ns=record.submitted_ns,
        ended_ns=record.ended_ns,
        wait_ns=max(0, waited_until - record.queued_ns),
        run_ns=max(0, run_ns),
        attempts=0 if attempt is None else attempt.attempt,
        exit_status=None if attempt is None else attempt.exit_status,
        waits=explain.parts(waits),
        explanation=explain.live(waits) if waits else record.reason,
    )


def _attempt(attempt: JobAttempt) -> wire.JobAttempt:
    return wire.JobAttempt(
        attempt=attempt.attempt,
        node=attempt.node,
        devices=attempt.devices,
        started_ns=attempt.started_ns,
        ended_ns=attempt.ended_ns,
        exit_status=attempt.exit_status,
    )


ENDPOINTS = (
    Endpoint(
        "POST",
        "/admin/v1/jobs",
        submit,
        "A job is to run as soon as its tenant may have what it asks for",
        wire.Job,
        body=wire.NewJob,
        status=201,
        by_tenant=True,
    ),
    Endpoint("GET", "/admin/v1/jobs", jobs, "Jobs, the newest first, in pages", wire.Jobs, JobsQuery, by_tenant=True),
    Endpoint(
        "GET",
        "/admin/v1/jobs/{id}",
        show,
        "One job: what it waits for, its attempts, loans and records",
        wire.JobStory,
        ByJob,
        by_tenant=True,
    ),
    Endpoint(
        "GET",
        "/admin/v1/jobs/{id}/log",
        logs,
        "What a job printed, piece by piece",
        wire.JobLog,
        LogQuery,
        by_tenant=True,
    ),
    Endpoint(
        "POST",
        "/admin/v1/jobs/{id}/cancel",
        cancel,
        "A job ends: answered when it has",
        wire.Job,
        ByJob,
        by_tenant=True,
    ),
)
