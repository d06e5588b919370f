"""Jobs: submitted, listed, shown, cancelled, their output read."""

from collections.abc import Awaitable
from typing import Annotated, Final, TypeVar

import msgspec

from commonpool.access.callers import Caller
from commonpool.access.permissions import Permission
from commonpool.api import views
from commonpool.api.access import ForbiddenError
from commonpool.api.http import Endpoint
from commonpool.api.named import check_named
from commonpool.api.operations import BadRequestError, NotFoundError, OperationError, Operations
from commonpool.api.places import no_place, number
from commonpool.api.subjects import ACROSS, Asked, Subject, Who, no_tenant
from commonpool.api.wire import jobs as wire
from commonpool.backends.base import BackendError
from commonpool.config import Config
from commonpool.config.keys import DEFAULT_APP
from commonpool.config.problems import listed
from commonpool.core import explain
from commonpool.core.model import Job
from commonpool.store.jobs import OPEN, JobAttempt, JobError, JobNotFoundError, JobPlace, JobRecord, JobState, Task

JOBS_MAX = 200  # in one answer
STATES: Final = tuple(state.value for state in JobState)
DEFAULT_TIER = "batch"

T = TypeVar("T")


class JobsQuery(msgspec.Struct, frozen=True):
    """`all` also shows jobs that have ended. `after` is the `after` of the answer before, "" for the first.

    Each filter keeps what has one of its values, and may be repeated. With a `state`, `all` says nothing.
    """

    all: bool = False
    tenant: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=JOBS_MAX)] = JOBS_MAX


class ByJob(msgspec.Struct, frozen=True):
    """One job, by its id."""

    id: str


class LogQuery(ByJob, frozen=True):
    """`after` is the `after` of the answer before, "" for the beginning of what is kept."""

    after: str = ""


# -- what is asked for -------------------------------------------------------------------------------------------------


def resolve(new: wire.NewJob, config: Config, who: Who) -> tuple[Job, Task]:
    """The job that is asked for. Its tenant, where one is named, is one that the caller may submit jobs for.

    Raises BadRequestError, or ForbiddenError where tenants may not submit jobs.
    """
    if not who.scope.platform and config.job_submitters != "tenants":
        raise ForbiddenError(
            "jobs run as the product's user, so tenants may not submit any here; ask an operator to submit it, or"
            " to set jobs.submitters to tenants"
        )
    if who.caller.app:
        new = _of_app(new, who.caller)
    name = new.tenant or who.caller.tenant
    if not name:
        raise BadRequestError("it is not said whose the job is; name a tenant, or use its key", param="tenant")
    owner = config.policy.tenants[name]
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


def _of_app(new: wire.NewJob, caller: Caller) -> wire.NewJob:
    """What a data key makes of a job: it says of which app it is."""
    if new.app not in {"", caller.app}:
        raise BadRequestError(f"the key is one of app {caller.app}; leave app {new.app!r} out", param="app")
    return msgspec.structs.replace(new, app=caller.app, tier=new.tier or caller.tier)


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


# -- whose they are ----------------------------------------------------------------------------------------------------


async def _new_owner(operations: Operations, asked: Asked) -> str | None:
    tenant = asked.body.tenant or asked.who.caller.tenant
    if not tenant:
        raise BadRequestError("it is not said whose the job is; name a tenant, or use its key", param="tenant")
    return tenant if tenant in operations.config().policy.tenants else None


def _no_owner(operations: Operations, asked: Asked) -> OperationError:
    if not asked.body.tenant:
        return BadRequestError(f"tenant {asked.who.caller.tenant}, whose key this is, does not exist any more")
    return no_tenant(operations, asked)


async def _owner(operations: Operations, asked: Asked) -> str | None:
    try:
        record, _ = await operations.jobs().show(asked.params.id)
    except JobNotFoundError:
        return None
    return record.job.tenant


def _unknown(_: Operations, asked: Asked) -> NotFoundError:
    return NotFoundError(f"there is no job {asked.params.id!r}; `commonpool job list --all` shows those there are")


NEW: Final = Subject(_new_owner, _no_owner)
ONE: Final = Subject(_owner, _unknown)


# -- handlers ----------------------------------------------------------------------------------------------------------


async def submit(operations: Operations, _: msgspec.Struct, new: wire.NewJob, who: Who) -> wire.Job:
    job, task = resolve(new, operations.config(), who)
    return _view(operations, await _refusable(operations.jobs().submit(job, task)))


async def jobs(operations: Operations, query: JobsQuery, who: Who) -> wire.Jobs:
    tenants = who.scope.names(query.tenant)
    pools = query.pool or None
    found = await operations.jobs().list(
        tenants, _states(query), after=_place(query.after), limit=query.limit, pools=pools
    )
    await check_named(operations, {"tenant": query.tenant}, who, found=bool(found or query.after))
    last = found[-1] if len(found) == query.limit else None
    after = None if last is None else f"{last.submitted_ns}.{last.job.id}"
    return wire.Jobs(tuple(_view(operations, record) for record in found), after)


def _states(query: JobsQuery) -> tuple[JobState, ...]:
    for state in query.state:
        if state not in STATES:
            raise BadRequestError(f"a job is never {state!r}; its state is one of {listed(STATES)}", param="state")
    return tuple(map(JobState, query.state)) if query.state else tuple(JobState) if query.all else OPEN


async def show(operations: Operations, which: ByJob, _: Who) -> wire.JobStory:
    record, attempts = await _refusable(operations.jobs().show(which.id))
    return wire.JobStory(
        job=_view(operations, record),
        attempts=tuple(map(_attempt, attempts)),
        loans=views.loans(operations.jobs().loans(which.id)),
        records=tuple(map(views.attempt, await operations.record(which.id))),
    )


async def logs(operations: Operations, which: LogQuery, _: Who) -> wire.JobLog:
    # The job first: what it prints before its end is read then.
    record, __ = await _refusable(operations.jobs().show(which.id))
    try:
        part = await operations.jobs().logs(which.id, which.after)
    except ValueError as error:
        raise BadRequestError(str(error), param="after") from None
    return wire.JobLog(part.text, part.after, part.more, record.state in OPEN)


async def cancel(operations: Operations, which: ByJob, _: Who) -> wire.Job:
    record, __ = await _refusable(operations.jobs().show(which.id))
    if record.state not in OPEN:
        raise OperationError(f"job {which.id} has ended already: it is {record.state.value}")
    return _view(operations, await _refusable(operations.jobs().cancel(which.id)))


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
    if (at_ns := number(submitted_ns)) is None or not job_id:
        raise no_place(after)
    return at_ns, job_id


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
        Permission.RUN_JOBS,
        NEW,
        "A job is to run as soon as its tenant may have what it asks for",
        wire.Job,
        body=wire.NewJob,
        status=201,
    ),
    Endpoint(
        "GET",
        "/admin/v1/jobs",
        jobs,
        Permission.READ_JOBS,
        ACROSS,
        "Jobs, the newest first, in pages",
        wire.Jobs,
        JobsQuery,
    ),
    Endpoint(
        "GET",
        "/admin/v1/jobs/{id}",
        show,
        Permission.READ_JOBS,
        ONE,
        "One job: what it waits for, its attempts, loans and records",
        wire.JobStory,
        ByJob,
    ),
    Endpoint(
        "GET",
        "/admin/v1/jobs/{id}/log",
        logs,
        Permission.READ_JOB_LOGS,
        ONE,
        "What a job printed, piece by piece",
        wire.JobLog,
        LogQuery,
    ),
    Endpoint(
        "POST",
        "/admin/v1/jobs/{id}/cancel",
        cancel,
        Permission.RUN_JOBS,
        ONE,
        "A job ends: answered when it has",
        wire.Job,
        ByJob,
    ),
)
