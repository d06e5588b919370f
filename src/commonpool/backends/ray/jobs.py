"""Jobs on the nodes of a cluster: a host on each node that has some, which runs them as on one machine.

An actor hosts them and no Ray job does: a Ray job cannot be asked to save itself, does not tell its exit status, and
would ask Ray for GPUs that the node's placement group holds already. A command that uses Ray finds the cluster in
RAY_ADDRESS.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import ray
from ray.exceptions import ActorDiedError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from commonpool.backends.base import BackendError
from commonpool.backends.joblog import LogPart
from commonpool.backends.jobrun import Exit
from commonpool.backends.jobs import LocalJobs
from commonpool.backends.ray.nodes import Nodes
from commonpool.backends.ray.replicas import first_line
from commonpool.core.model import Job
from commonpool.store.jobs import JobAttempt, Task

PREFIX: Final = "jobs-"
AGAIN_S: Final = 0.5
ANSWER_S: Final = 30.0
GONE: Final = "It is not known how it ended: its node left the cluster."


class JobHost:
    """The jobs of one node. They outlive this process: what it leaves in `folder` is found by the next one."""

    def __init__(self, folder: str) -> None:
        self._jobs = LocalJobs(Path(folder))
        self._running: dict[tuple[str, int], Any] = {}
        self._ends: dict[tuple[str, int], asyncio.Task[Exit]] = {}

    async def start(self, job: Job, task: Task, attempt: JobAttempt) -> None:
        """Start the attempt. Raises BackendError."""
        self._keep(job, attempt, await self._jobs.start(job, task, attempt))

    async def adopt(self, job: Job, attempt: JobAttempt) -> None:
        """Know an attempt that an earlier process has started."""
        if (job.id, attempt.attempt) not in self._running:
            self._keep(job, attempt, await self._jobs.adopt(job, attempt))

    async def wait(self, job_id: str, attempt: int) -> Exit:
        """How it ended, for as many as ask."""
        return await asyncio.shield(self._ends[job_id, attempt])

    async def checkpoint(self, job_id: str, attempt: int) -> None:
        self._running[job_id, attempt].checkpoint()

    async def stop(self, job_id: str, attempt: int) -> None:
        self._running[job_id, attempt].stop()

    async def log(self, job_id: str, after: str) -> LogPart:
        return await asyncio.to_thread(self._jobs.log, job_id, after)

    async def forget(self, job_id: str) -> None:
        for key in [key for key in self._running if key[0] == job_id]:
            del self._running[key], self._ends[key]
        await asyncio.to_thread(self._jobs.forget, job_id)

    def _keep(self, job: Job, attempt: JobAttempt, handle: Any) -> None:
        key = job.id, attempt.attempt
        self._running[key] = handle
        self._ends[key] = asyncio.ensure_future(handle.wait())


class RayJobs:
    """A `backends.jobs.JobBackend` of the cluster, with a folder for each job below `folder` on its node."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self._nodes = nodes
        self._folder = folder
        self._where: dict[str, Any] = {}  # the host of each job's latest attempt

    def check(self, task: Task) -> None:
        if not Path(task.cwd).is_absolute():
            raise BackendError(f"The folder {task.cwd!r} is not absolute; name one that is on the nodes as --cwd.")

    async def start(self, job: Job, task: Task, attempt: JobAttempt) -> "RayJob":
        host = await asyncio.to_thread(self._host, attempt.node)
        if host is None:
            raise BackendError(f"Job {job.id} cannot be started: node {attempt.node!r} is not in the cluster.")
        task = msgspec.structs.replace(task, env={"RAY_ADDRESS": ray.get_runtime_context().gcs_address, **task.env})
        try:
            await host.start.remote(job, task, attempt)
        except RayError as error:
            if isinstance(error, BackendError):
                raise
            raise BackendError(f"Job {job.id} cannot be started on {attempt.node}: {first_line(error)}") from error
        self._where[job.id] = host
        return RayJob(host, job, attempt, lambda: self._nodes.find(attempt.node) is not None)

    async def adopt(self, job: Job, attempt: JobAttempt) -> "RayJob":
        host = await asyncio.to_thread(self._host, attempt.node)
        if host is not None:
            self._where[job.id] = host
        return RayJob(host, job, attempt, lambda: self._nodes.find(attempt.node) is not None)

    def log(self, job_id: str, after: str) -> LogPart:
        nothing = LogPart("", after, more=False)
        hosts = [self._where[job_id]] if job_id in self._where else _hosts()
        for host in hosts:
            with contextlib.suppress(RayError):
                part: LogPart = ray.get(host.log.remote(job_id, after), timeout=ANSWER_S)
                if part.text or part.after != after:
                    return part
        return nothing

    def forget(self, job_id: str) -> None:
        self._where.pop(job_id, None)
        for host in _hosts():
            with contextlib.suppress(RayError):
                ray.get(host.forget.remote(job_id), timeout=ANSWER_S)

    def _host(self, node: str) -> Any | None:
        """The host of a node, made where there is none; None where the node is not in the cluster. Blocks."""
        found = self._nodes.find(node)
        if found is None:
            return None
        there, group = found
        return (
            ray.remote(JobHost)
            .options(
                name=PREFIX + there.id,
                get_if_exists=True,
                lifetime="detached",
                max_restarts=-1,
                num_cpus=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0),
            )
            .remote(str(self._folder))
        )


class RayJob:
    """A `backends.jobs.JobHandle` by the host of its node, None where that is gone. `there`: whether the node lives."""

    def __init__(self, host: Any, job: Job, attempt: JobAttempt, there: Callable[[], bool]) -> None:
        self._host = host
        self._job = job
        self._attempt = attempt
        self._there = there

    async def wait(self) -> Exit:
        while self._host is not None:
            try:
                await self._host.adopt.remote(self._job, self._attempt)  # the host may be another process by now
                ended: Exit = await self._host.wait.remote(self._job.id, self._attempt.attempt)
            except ActorDiedError:
                break
            except RayError:
                if not self._there():
                    break
                await asyncio.sleep(AGAIN_S)
            else:
                return ended
        return Exit(None, time.time_ns(), reason=GONE)

    def checkpoint(self) -> None:
        if self._host is not None:
            self._host.checkpoint.remote(self._job.id, self._attempt.attempt)

    def stop(self) -> None:
        if self._host is not None:
            self._host.stop.remote(self._job.id, self._attempt.attempt)


def _hosts() -> list[Any]:
    """Every node's host. Blocks."""
    found = []
    for name in sorted(ray.util.list_named_actors()):
        if name.startswith(PREFIX):
            with contextlib.suppress(ValueError):
                found.append(ray.get_actor(name))
    return found
