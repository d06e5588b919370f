"""Jobs on the nodes of a cluster: a host on each node that has some, which runs them as on one machine.

An actor hosts them and no Ray job does: a Ray job cannot be asked to save itself, does not tell its exit status, and
would ask Ray for GPUs that the node's placement group holds already. A command that uses Ray finds the cluster in
RAY_ADDRESS.

Jobs outlive their host, and every call to it may be lost. What became of one whose start was not answered is found out
by waiting for it: the host finds it, or makes sure that it never starts.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import ray
import structlog
from ray.exceptions import ActorDiedError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from commonpool.backends.base import BackendError
from commonpool.backends.joblog import LogPart
from commonpool.backends.jobrun import Exit
from commonpool.backends.jobs import START_S, LocalJob, LocalJobs, Users
from commonpool.backends.ray.nodes import Nodes
from commonpool.backends.ray.replicas import ACTOR_S, first_line
from commonpool.backends.ray.strays import Attempt
from commonpool.core.model import Job
from commonpool.store.jobs import JobAttempt, Task

PREFIX: Final = "jobs-"
AGAIN_S: Final = 0.5
ANSWER_S: Final = 30.0
WAIT_S: Final = 30.0  # after which a wait is asked for anew, so that no call is under way for days
LOST: Final = object()  # the answer to a call that was not answered
GONE: Final = "It is not known how it ended: its node left the cluster."

log = structlog.get_logger()


class JobHost:
    """The jobs of one node. They outlive this process: what it leaves in `folder` is found by the next one."""

    def __init__(self, folder: str, users: Users) -> None:
        self._jobs = LocalJobs(Path(folder), users=users)
        self._running: dict[Attempt, LocalJob] = {}
        self._ends: dict[Attempt, asyncio.Task[Exit]] = {}

    async def start(self, job: Job, task: Task, attempt: JobAttempt) -> None:
        """Start the attempt. Raises BackendError."""
        self._keep(job, attempt, await self._jobs.start(job, task, attempt))

    async def wait(self, job: Job, attempt: JobAttempt, within_s: float) -> Exit | None:
        """How it ended, for as many as ask; None while it runs on. Raises BackendError."""
        await self._known(job, attempt)
        end = self._ends[job.id, attempt.attempt]
        await asyncio.wait({end}, timeout=within_s)
        return end.result() if end.done() else None

    async def checkpoint(self, job: Job, attempt: JobAttempt) -> None:
        (await self._known(job, attempt)).checkpoint()

    async def stop(self, job: Job, attempt: JobAttempt) -> None:
        (await self._known(job, attempt)).stop()

    async def log(self, job_id: str, after: str) -> LogPart:
        return await asyncio.to_thread(self._jobs.log, job_id, after)

    async def forget(self, job_id: str) -> None:
        for key in [key for key in self._running if key[0] == job_id]:
            del self._running[key], self._ends[key]
        await asyncio.to_thread(self._jobs.forget, job_id)

    async def _known(self, job: Job, attempt: JobAttempt) -> LocalJob:
        """The attempt, which an earlier process may have started."""
        if (job.id, attempt.attempt) not in self._running:
            found = await self._jobs.adopt(job, attempt)
            if (job.id, attempt.attempt) not in self._running:
                self._keep(job, attempt, found)
        return self._running[job.id, attempt.attempt]

    def _keep(self, job: Job, attempt: JobAttempt, handle: LocalJob) -> None:
        key = job.id, attempt.attempt
        self._running[key] = handle
        self._ends[key] = asyncio.ensure_future(handle.wait())


class RayJobs:
    """A `backends.jobs.JobBackend` of the cluster, with a folder for each job below `folder` on its node."""

    def __init__(self, nodes: Nodes, folder: Path, users: Users = Users()) -> None:  # noqa: B008 - it is frozen
        self._nodes = nodes
        self.folder = folder
        self._users = users
        self._kept: dict[Attempt, tuple[str, str]] = {}  # what runs, with its node's name and Ray's id of that
        self._where: dict[str, str] = {}  # the name of the host of each job's latest attempt

    def kept(self) -> set[Attempt]:
        """The attempts that are to run now; not those of nodes that are gone, or that left and came back."""
        return {attempt for attempt, (name, node_id) in self._kept.items() if self._there(name, node_id)}

    def check(self, job: Job, task: Task) -> None:
        self._users.name(job.tenant)
        if not Path(task.cwd).is_absolute():
            raise BackendError(f"The folder {task.cwd!r} is not absolute; give one that is on the nodes as cwd.")

    async def start(self, job: Job, task: Task, attempt: JobAttempt) -> "RayJob":
        if self._nodes.find(attempt.node) is None:
            raise BackendError(f"Job {job.id} cannot be started: node {attempt.node!r} is not in the cluster.")
        handle = self._handle(job, attempt)
        task = msgspec.structs.replace(task, env={"RAY_ADDRESS": ray.get_runtime_context().gcs_address, **task.env})
        try:
            await handle.start(task)
        except BaseException:
            self._over(job, attempt)
            raise
        return handle

    async def adopt(self, job: Job, attempt: JobAttempt) -> "RayJob":
        return self._handle(job, attempt)

    def log(self, job_id: str, after: str) -> LogPart:
        nothing = LogPart("", after, more=False)
        names = [self._where[job_id]] if job_id in self._where else _names()
        for host in _hosts(names):
            with contextlib.suppress(RayError):
                part: LogPart = ray.get(host.log.remote(job_id, after), timeout=ANSWER_S)
                if part.text or part.after != after:
                    return part
        return nothing

    def forget(self, job_id: str) -> None:
        self._where.pop(job_id, None)
        for host in _hosts(_names()):
            with contextlib.suppress(RayError):
                ray.get(host.forget.remote(job_id), timeout=ANSWER_S)

    def _handle(self, job: Job, attempt: JobAttempt) -> "RayJob":
        found = self._nodes.find(attempt.node)
        name, node_id = attempt.node, "" if found is None else found[0].id
        if found is not None:
            self._where[job.id] = PREFIX + node_id
        self._kept[job.id, attempt.attempt] = name, node_id
        return RayJob(
            job,
            attempt,
            lambda: self._host(name),
            there=lambda: self._there(name, node_id),
            over=lambda: self._over(job, attempt),
        )

    def _there(self, name: str, node_id: str) -> bool:
        found = self._nodes.find(name)
        return found is not None and found[0].id == node_id

    def _over(self, job: Job, attempt: JobAttempt) -> None:
        self._kept.pop((job.id, attempt.attempt), None)

    async def _host(self, name: str) -> Any:
        """The host of a node, made where there is none. Raises BackendError."""
        found = self._nodes.find(name)
        if found is None:
            raise BackendError(f"Node {name!r} is not in the cluster.")
        node, group = found
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.to_thread(_host, node.id, group, self.folder, self._users)
        except Exception as error:  # whatever Ray raises, there is no host now
            raise BackendError(f"Node {name} has no host for jobs now: {first_line(error)}") from error


class RayJob:
    """A `backends.jobs.JobHandle` by the host of its node, which `host` finds, or raises BackendError.

    `there` says whether the node lives, `over` hears that the end is known.
    """

    def __init__(
        self,
        job: Job,
        attempt: JobAttempt,
        host: Callable[[], Awaitable[Any]],
        *,
        there: Callable[[], bool],
        over: Callable[[], None],
        again_s: float = AGAIN_S,
    ) -> None:
        self._job = job
        self._attempt = attempt
        self._host = host
        self._there = there
        self._over = over
        self._again_s = again_s
        self._asking: set[asyncio.Task[None]] = set()

    async def start(self, task: Task) -> None:
        """Start it, or leave it to `wait` to find out whether it was started. Raises BackendError."""
        host = await self._host()
        try:
            await _answer(host.start.remote(self._job, task, self._attempt), START_S + ACTOR_S)
        except ActorDiedError as error:
            where = f"Job {self._job.id} cannot be started on {self._attempt.node}"
            raise BackendError(f"{where}: {first_line(error)}") from error
        except (RayError, TimeoutError) as error:
            log.warning("the start of a job was not answered", job_id=self._job.id, reason=first_line(error))

    async def wait(self) -> Exit:
        try:
            while self._there():
                end = await self._call("wait", WAIT_S, within_s=WAIT_S + ANSWER_S)
                if isinstance(end, Exit):
                    return end
            return Exit(None, time.time_ns(), reason=GONE)
        finally:
            for task in self._asking:
                task.cancel()
            self._over()

    def checkpoint(self) -> None:
        self._ask("checkpoint")

    def stop(self) -> None:
        self._ask("stop")

    def _ask(self, what: str) -> None:
        task = asyncio.ensure_future(self._asked(what))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _asked(self, what: str) -> None:
        try:
            while self._there() and await self._call(what) is LOST:
                pass
        except Exception:
            log.exception("a job could not be asked", job_id=self._job.id, what=what)

    async def _call(self, what: str, *args: float, within_s: float = ANSWER_S) -> Any:
        """The host's answer, or `LOST`, after a while, where there is none. Raises what the host raises."""
        try:
            host = await self._host()
        except BackendError:
            await asyncio.sleep(self._again_s)
            return LOST
        try:
            return await _answer(getattr(host, what).remote(self._job, self._attempt, *args), within_s)
        except (RayError, TimeoutError):
            await asyncio.sleep(self._again_s)
            return LOST


async def _answer(call: Any, within_s: float) -> Any:
    """What an actor answers. Raises what it raises, RayError where it is gone, TimeoutError where it is silent."""
    try:
        async with asyncio.timeout(within_s):
            return await call
    except RayTaskError as error:
        raise error.cause from None


def _host(node_id: str, group: PlacementGroup, folder: Path, users: Users) -> Any:
    """Blocks."""
    return (
        ray.remote(JobHost)
        .options(
            name=PREFIX + node_id,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=-1,
            num_cpus=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0),
        )
        .remote(str(folder), users)
    )


def _names() -> list[str]:
    """Those of every node's host. Blocks."""
    return sorted(name for name in ray.util.list_named_actors() if name.startswith(PREFIX))


def _hosts(names: list[str]) -> list[Any]:
    """Those of them that are there. Blocks."""
    found = []
    for name in names:
        with contextlib.suppress(ValueError):
            found.append(ray.get_actor(name))
    return found
