"""What is kept of jobs: what was submitted and by whom, how far it has come, and each attempt at it.

A job's usage records are kept apart from it, as those of requests are; what is here may be forgotten, they may not.
"""

import enum
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from commonpool.core.model import Job

DEFINITION_BYTES_MAX: Final = 64 * 1024


class JobState(enum.StrEnum):
    """How far a job has come."""

    QUEUED = "queued"
    RUNNING = "running"
    SAVING = "saving"  # it was asked to save itself, since a lender needs back what it borrows
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN: Final = (JobState.QUEUED, JobState.RUNNING, JobState.SAVING)


class JobError(Exception):
    """A job cannot be taken: which, why, and what to do, in one sentence."""


class JobNotFoundError(JobError):
    """There is no such job, or it was forgotten."""


JobPlace = tuple[int, str]  # of a job among all: submitted_ns, id


class Task(msgspec.Struct, frozen=True):
    """What a job runs: a command with its arguments, where, and with what in its environment.

    A failed attempt is followed by another one `retries` times at most.
    """

    command: tuple[str, ...]
    cwd: str
    env: dict[str, str] = {}
    name: str = ""
    retries: int = 0


class JobAttempt(msgspec.Struct, frozen=True):
    """One attempt at a job. `exit_status` is as a shell's parent sees it: negative for a signal.

    `milli_gpu` and `memory_mib` are what it has of each of its devices; 0 where that is not known. `ended_ns` is None
    while it runs; `exit_status` also where it is not known how it ended. Times are nanoseconds since the epoch.
    """

    attempt: int
    node: str
    devices: tuple[str, ...]
    started_ns: int
    ended_ns: int | None = None
    exit_status: int | None = None
    milli_gpu: int = 0
    memory_mib: int = 0


class JobRecord(msgspec.Struct, frozen=True):
    """A job as it is kept. `job` says whose it is, once and for all.

    `queued_ns` is since when it waits, or waited for its latest `attempt`. `failures` counts failed attempts. `reason`
    is a sentence that says why it did not end well, "" where it did.
    """

    job: Job
    task: Task
    submitted_ns: int
    queued_ns: int
    state: JobState = JobState.QUEUED
    failures: int = 0
    ended_ns: int | None = None
    reason: str = ""
    attempt: JobAttempt | None = None

    @property
    def place(self) -> JobPlace:
        """Its place among all jobs."""
        return self.submitted_ns, self.job.id


def definition_bytes(job: Job, task: Task) -> int:
    """How long the definition of a job is as it is kept; at most DEFINITION_BYTES_MAX is taken."""
    return len(encode_definition(job, task))


def encode_definition(job: Job, task: Task) -> bytes:
    """What never changes of a job, as JSON."""
    return msgspec.json.encode((job, task))


decode_definition = msgspec.json.Decoder(tuple[Job, Task]).decode


class JobStore(Protocol):
    """The part of a store that keeps jobs. What it has taken survives a power cut."""

    def add_job(self, record: JobRecord) -> None:
        """Keeps a new job. StoreError where its id is taken."""

    def save_job(self, record: JobRecord) -> None:
        """Keeps how far a job has come, and its latest attempt; one that was forgotten is not brought back."""

    def job(self, job_id: str) -> JobRecord | None:
        """One job with its latest attempt."""

    def jobs(
        self,
        tenants: Sequence[str] | None,
        states: Sequence[JobState],
        after: JobPlace | None,
        limit: int,
        pools: Sequence[str] | None = None,
    ) -> tuple[JobRecord, ...]:
        """Jobs of these tenants and pools (None: of all) in one of the states, newest first: `limit` after a place."""

    def job_attempts(self, job_id: str, limit: int) -> tuple[JobAttempt, ...]:
        """The latest attempts at a job, in order."""

    def forget_job(self, job_id: str) -> None:
        """Forgets a job and its attempts; an unknown one is no error."""

    def ended_jobs_beyond(self, tenant: str, keep: int, limit: int) -> tuple[str, ...]:
        """Ids of a tenant's ended jobs that are older than its newest `keep` ended ones; the first `limit` of them."""
