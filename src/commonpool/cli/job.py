"""`commonpool job`: long tasks submitted, listed, shown, followed and cancelled."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from commonpool.api import text
from commonpool.api.wire import jobs as wire
from commonpool.cli import explain, hardware
from commonpool.cli.client import Client, connect, segment
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.config.quantities import format_memory
from commonpool.core.explain import duration
from commonpool.core.model import Hardware, ReclaimPolicy

FOLLOW_S = 0.5

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id, as `submit` printed it.")]

job = typer.Typer(
    name="job",
    help="Run long tasks on GPUs: training, evaluation, batches. A tenant's own key shows and ends its own jobs.",
    no_args_is_help=True,
)


@job.command(context_settings={"allow_interspersed_args": False})
def submit(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARGS]...", help="What to run.")],
    *,
    gpus: hardware.Gpus = None,
    gpu_memory: hardware.GpuMemory = None,
    mig: hardware.Mig = "",
    count: hardware.Count = 1,
    together: Annotated[
        Literal["node", "island"], typer.Option("--together", help="Several GPUs are on one node, or linked (island).")
    ] = "node",
    gpu_model: hardware.GpuModels = None,
    runtime: hardware.Runtime = "",
    tenant: Annotated[str, typer.Option("--tenant", help="Whose it is. [default: the key's]", show_default=False)] = "",
    app: Annotated[str, typer.Option("--app", help="The tenant's app. [default: default]", show_default=False)] = "",
    tier: Annotated[str, typer.Option("--tier", help="Its tier. [default: batch]", show_default=False)] = "",
    expect: hardware.Expect = None,
    reclaim: Annotated[
        ReclaimPolicy,
        typer.Option("--reclaim", help="checkpoint: it saves itself at SIGUSR1 when a lender needs back what it uses."),
    ] = "borrow_not_preempt",
    name: Annotated[str, typer.Option("--name", help="What to call it.", show_default=False)] = "",
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="For its environment; may be repeated.")
    ] = None,
    cwd: Annotated[
        Path | None, typer.Option("--cwd", help="Where it runs. [default: here]", show_default=False)
    ] = None,
    retries: Annotated[int, typer.Option("--retries", min=0, max=1000, help="How often it is tried again.")] = 0,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Have a command run as soon as its tenant may have the GPUs that it asks for, and print its id."""
    asked = hardware.hardware(gpus, gpu_memory, mig, count, together, gpu_model, runtime)
    if asked is None:
        raise CommandError("a job says what it needs with --gpus, --gpu-memory or --mig", ExitCode.USAGE)
    new = wire.NewJob(
        command=tuple(command),
        cwd=str(Path.cwd() if cwd is None else cwd.absolute()),
        hardware=asked,
        tenant=tenant,
        app=app,
        tier=tier,
        name=name,
        env=_environment(env or []),
        expected_ns=hardware.expected(expect),
        reclaim=reclaim,
        retries=retries,
    )
    _check_text(new)
    answer = connect(control, token_file).post("/admin/v1/jobs", new, wire.Job)
    if as_json:
        emit(answer)
    else:
        typer.echo(answer.id)


@job.command("list")
def list_jobs(
    *,
    every: Annotated[bool, typer.Option("--all", help="Show jobs that have ended too.")] = False,
    tenant: Annotated[
        list[str] | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant's; may be repeated.")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only those that are queued, done, ...; may be repeated."),
    ] = None,
    pool: Annotated[
        list[str] | None, typer.Option("--pool", metavar="NAME", help="Only of this pool; may be repeated.")
    ] = None,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show the jobs that wait or run, the newest first."""
    client = connect(control, token_file)
    only = {name: values for name, values in (("tenant", tenant), ("state", state), ("pool", pool)) if values}
    query: dict[str, str | int | list[str]] = {"all": "true" if every else "false", **only}
    found = tuple(each for page in _pages(client, query) for each in page.jobs)
    if as_json:
        emit(wire.Jobs(found, None))
        return
    from commonpool.cli import show as shown  # noqa: PLC0415 - rich is slow to import

    out = shown.console()
    if not found:
        nothing = "no job waits or runs; --all shows those that have ended"
        out.print("there are no such jobs" if state or pool else "there are no jobs" if every else nothing)
        return
    left = [shown.Column(title, right=False) for title in ("id", "name", "tenant", "state", "gpus")]
    right = [shown.Column(title) for title in ("wait", "run", "exit")]
    out.print(shown.table(out, [*left, *right, shown.Column("why", right=False)], list(map(_row, found))))


@job.command()
def show(job_id: JobId, *, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Show one job: what it waits for, its attempts, their devices, its loans."""
    story = connect(control, token_file).get(_path(job_id), wire.JobStory)
    if as_json:
        emit(story)
        return
    from commonpool.cli import show as shown  # noqa: PLC0415 - rich is slow to import

    out = shown.console()
    for line in lines(story):
        out.print(shown.clean(line))


@job.command()
def logs(
    job_id: JobId,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
) -> None:
    """Print what a job has printed: its last megabyte or two, standard output and errors together."""
    client = connect(control, token_file)
    after = ""
    while True:
        part = client.get(f"{_path(job_id)}/log", wire.JobLog, {"after": after})
        sys.stdout.write(part.text)
        sys.stdout.flush()
        after = part.after
        if not part.more:
            if not (follow and part.open):
                return
            time.sleep(FOLLOW_S)


@job.command()
def cancel(
    job_id: JobId, *, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """End a job: SIGTERM to all of it, and by force after 10 s."""
    answer = connect(control, token_file).post(f"{_path(job_id)}/cancel", None, wire.Job)
    if as_json:
        emit(answer)
    else:
        typer.echo(f"job {answer.id} is {answer.state}")


def lines(story: wire.JobStory) -> Iterator[str]:
    """A job as people read it."""
    about = story.job
    named = f" ({about.name})" if about.name else ""
    yield f"job {about.id}{named} of {about.tenant} (app {about.app}, tier {about.tier}): {about.state}"
    yield f"  submitted {text.moment(about.submitted_ns)}, asks for gpus of pool {about.pool}: {_gpus(about)}"
    yield f"  runs {' '.join(about.command)} in {about.cwd}"
    if about.explanation:
        yield f"  {about.explanation}"
    yield from explain.parts(about.waits)
    for attempt in story.attempts:
        yield f"attempt {attempt.attempt}, started {text.moment(attempt.started_ns)}{_where(attempt)}: {_end(attempt)}"
    for loan in story.loans:
        due = ", due" if loan.due else ""
        lender = loan.lender or "the unowned part"
        yield f"borrows {text.gpus(loan.milli_gpu)} gpu of {lender} since {text.moment(loan.start_ns_min)}{due}"
    for record in story.records:
        yield f"record of attempt {record.attempt}: {record.explanation}; ran {duration(record.run_ns)}"
        yield from explain.parts(record.waits)
        yield from explain.loans(record)


def _row(about: wire.Job) -> tuple[str, ...]:
    ran = about.state != "queued" and about.attempts
    return (
        about.id,
        about.name,
        about.tenant,
        about.state,
        _gpus(about),
        duration(about.wait_ns),
        duration(about.run_ns) if ran else text.NONE,
        text.NONE if about.exit_status is None else str(about.exit_status),
        about.explanation,
    )


def _gpus(about: wire.Job) -> str:
    """`2`, `0.5 with 10GiB`, `2 × 1g.10gb`, `18GiB`."""
    asked = about.hardware or Hardware()
    what = [text.gpus(asked.milli_gpu)] if asked.milli_gpu else [asked.profile] if asked.profile else []
    if asked.memory_mib:
        what.append(format_memory(asked.memory_mib))
    return (f"{asked.count} × " if asked.count > 1 else "") + " with ".join(what)


def _where(attempt: wire.JobAttempt) -> str:
    devices = f" ({', '.join(attempt.devices)})" if attempt.devices else ""
    return f" on {attempt.node}{devices}" if attempt.node else ""


def _end(attempt: wire.JobAttempt) -> str:
    if attempt.ended_ns is None:
        return "runs"
    ran = f"ran {duration(attempt.ended_ns - attempt.started_ns)}"
    return (
        f"{ran}, it is not known how it ended" if attempt.exit_status is None else f"{ran}, exit {attempt.exit_status}"
    )


def _pages(client: Client, query: dict[str, str | int | list[str]]) -> Iterator[wire.Jobs]:
    after: str | None = ""
    while after is not None:
        page = client.get("/admin/v1/jobs", wire.Jobs, query | {"after": after})
        yield page
        after = page.after


def _environment(written: list[str]) -> dict[str, str]:
    found = {}
    for each in written:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise CommandError(f"--env {each!r} is not NAME=VALUE", ExitCode.USAGE)
        found[name] = value
    return found


def _check_text(new: wire.NewJob) -> None:
    """What is not UTF-8 cannot be sent as JSON."""
    words = (*new.command, new.cwd, new.name, *new.env, *new.env.values())
    wrong = next((word for word in words if not _is_text(word)), None)
    if wrong is not None:
        raise CommandError(f"{wrong!r} is not UTF-8 text; put it into a script", ExitCode.USAGE)


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _path(job_id: str) -> str:
    return f"/admin/v1/jobs/{segment(job_id, 'ID')}"
