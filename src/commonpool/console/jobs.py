"""Jobs: a list, one with its attempts, loans and output, and forms to submit and to cancel one."""

import shlex

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.jobs import STATES
from commonpool.api.wire.jobs import Job, JobLog, Jobs, JobStory, NewJob
from commonpool.api.wire.status import Status
from commonpool.console import asks, spans
from commonpool.console.asking import Problem, RefusedError
from commonpool.console.frame import Form, Page, View, together

ROWS = 50
OPEN = ("queued", "running", "saving")
TAIL_CHARS = 64 * 1024
PIECES_MAX = 64  # of 256 KiB: what is printed before that is read piece by piece


class Tail(msgspec.Struct, frozen=True):
    """A part of what a job printed. `whole`: from its beginning. `after` asks for what follows, "" for nothing yet."""

    text: str
    whole: bool
    after: str


async def show(view: View) -> Response:
    every, tenant, state, pool = (view.query.get(name, "") for name in ("all", "tenant", "state", "pool"))
    jobs, status = await together(
        view.get(
            "/admin/v1/jobs",
            Jobs,
            all="true" if every else None,
            tenant=tenant,
            state=state,
            pool=pool,
            after=view.query.get("after"),
            limit=ROWS,
        ),
        view.wish(Permission.READ_STATUS, "/admin/v1/status", Status),
    )
    return view.render(
        "jobs.html",
        jobs=jobs.jobs,
        first=spans.address(view, after=None) if view.query.get("after") else "",
        more=spans.address(view, after=jobs.after) if jobs.after else "",
        every=every,
        tenant=tenant,
        state=state,
        states=STATES,
        pool=pool,
        pools=[] if isinstance(status, Problem) else [(each.name, each.name) for each in status.pools],
        tenants=[] if isinstance(status, Problem) else [(each.name, each.name) for each in status.tenants],
        open=OPEN,
    )


async def one(view: View) -> Response:
    name = view.path["id"]
    story, tail = await together(
        view.get(f"/admin/v1/jobs/{name}", JobStory), _tail(view, f"/admin/v1/jobs/{name}/log")
    )
    return view.render("job.html", story=story, job=story.job, tail=tail, open=OPEN)


async def _tail(view: View, path: str) -> Tail | Problem:
    """The piece of its output that the address asks for, else the end of it."""
    after = view.query.get("after")
    if not view.may(Permission.READ_JOB_LOGS):
        return Problem(403, "")
    try:
        if after is not None:
            part = await view.get(path, JobLog, after=after)
            return Tail(part.text, after == "", part.after if part.more else "")
        text, at, whole = "", "", True
        for _ in range(PIECES_MAX):
            part = await view.get(path, JobLog, after=at)
            text, at = text + part.text, part.after
            if len(text) > TAIL_CHARS:
                text, whole = text[-TAIL_CHARS:].partition("\n")[2], False
            if not part.more:
                break
    except RefusedError as error:
        return error.problem
    return Tail(text, whole, at if part.more else "")


async def cancel(view: View, _: Form) -> Response:
    name = view.path["id"]
    await view.send("POST", f"/admin/v1/jobs/{name}/cancel", Job)
    return view.go(f"/jobs/{name}", said="job.cancelled")


# -- a new one ---------------------------------------------------------------------------------------------------------


async def new(view: View) -> Response:
    return await _form(view, Form(dict(view.query), ()), None)


async def submit(view: View, form: Form) -> Response:
    try:
        job = await view.send("POST", "/admin/v1/jobs", Job, _asked(form))
    except RefusedError as error:
        return await _form(view, form, error.problem)
    return view.go(f"/jobs/{job.id}", said="job.submitted")


def _asked(form: Form) -> NewJob:
    """Raises RefusedError."""
    try:
        command = tuple(shlex.split(form.get("command")))
    except ValueError as error:
        raise RefusedError(asks.BAD_REQUEST, f"the command cannot be read as a shell would: {error}") from None
    return NewJob(
        command=command,
        cwd=form.get("cwd"),
        hardware=asks.hardware(form),
        tenant=form.get("tenant"),
        app=form.get("app"),
        tier=form.get("tier"),
        name=form.get("name"),
        expected_ns=asks.expected(form),
        reclaim="checkpoint" if form.get("reclaim") == "checkpoint" else "borrow_not_preempt",
        retries=asks.number(form, "retries", 0),
    )


async def _form(view: View, form: Form, problem: Problem | None) -> Response:
    status = await view.wish(Permission.READ_STATUS, "/admin/v1/status", Status)
    names = [] if isinstance(status, Problem) else [each.name for each in status.tenants]
    return view.render(
        "new_job.html",
        code=problem.status if problem else 200,
        form=form,
        problem=problem,
        tenants=[(name, name) for name in names if view.may(Permission.RUN_JOBS, name)],
    )


PAGES = (
    Page("/jobs", "jobs", show, needs=(Permission.READ_JOBS,), group="work", key="j", shared=True),
    Page("/jobs/new", "new_job", new, act=submit, needs=(Permission.RUN_JOBS,)),
    Page("/jobs/{id}", "job", one, needs=(Permission.READ_JOBS,), shared=True),
    Page("/jobs/{id}/cancel", "job", act=cancel),
)
