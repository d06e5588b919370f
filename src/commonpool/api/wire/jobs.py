"""Jobs: one to be run, those there are, and what they print."""

from typing import Annotated

import msgspec

from commonpool.api.wire.requests import Attempt
from commonpool.api.wire.status import LoanStatus
from commonpool.core.explain import WaitPart
from commonpool.core.model import Hardware, ReclaimPolicy


class NewJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a job is to run, and what it asks for of the GPUs, as `core.model.Hardware`.

    `cwd` is a folder of the machine that it runs on. `tenant` is whose it is, "" for the one of the key; `app` "" is
    `default`, `tier` "" is batch where the tenant has it, else the one of its lowest priority. `expected_ns` is how
    long it will take, where that is known. A failed attempt is followed by another one `retries` times at most.
    """

    command: tuple[str, ...]
    cwd: str
    hardware: Hardware
    tenant: str = ""
    app: str = ""
    tier: str = ""
    name: str = ""
    env: dict[str, str] = {}
    expected_ns: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    reclaim: ReclaimPolicy = "borrow_not_preempt"
    retries: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0


class JobAttempt(msgspec.Struct, frozen=True):
    """One attempt at a job. `ended_ns` is None while it runs; `exit_status` is negative for a signal.

    `exit_status` is also None where it is not known how it ended.
    """

    attempt: int
    node: str
    devices: tuple[str, ...]
    started_ns: int
    ended_ns: int | None
    exit_status: int | None


class Job(msgspec.Struct, frozen=True):
    """A job. `wait_ns` is how long it waits or waited for its latest attempt, `run_ns` how long that runs or ran.

    `state` is queued, running, saving, done, failed or cancelled. `waits` say what it waits for, where it does;
    `explanation` says the same, or why it did not end well, in a sentence ("" where there is nothing to say).
    """

    id: str
    name: str
    tenant: str
    app: str
    tier: str
    pool: str
    state: str
    hardware: Hardware | None
    command: tuple[str, ...]
    cwd: str
    reclaim: ReclaimPolicy
    expected_ns: int | None
    submitted_ns: int
    ended_ns: int | None
    wait_ns: int
    run_ns: int
    attempts: int
    exit_status: int | None
    waits: tuple[WaitPart, ...]
    explanation: str


class Jobs(msgspec.Struct, frozen=True):
    """Jobs, the newest first. `after` asks for those that follow, None where these are the last."""

    jobs: tuple[Job, ...]
    after: str | None


class JobStory(msgspec.Struct, frozen=True):
    """A job, its latest attempts in order, what it borrows now, and the records of those that have ended."""

    job: Job
    attempts: tuple[JobAttempt, ...]
    loans: tuple[LoanStatus, ...]
    records: tuple[Attempt, ...]


class JobLog(msgspec.Struct, frozen=True):
    """A piece of what a job printed. `after` asks for the next one; `more` says that there is some already.

    `open` says that the job has not ended, so that more may come.
    """

    text: str
    after: str
    more: bool
    open: bool
