"""Jobs to test the admin API and the commands with: kept in a store, and as they are told to be."""

from collections.abc import Sequence

import msgspec

from commonpool.backends.base import BackendError
from commonpool.backends.joblog import LogPart
from commonpool.core.model import Job, Wait
from commonpool.core.views import LoanView
from commonpool.store.jobs import (
    JobAttempt,
    JobError,
    JobNotFoundError,
    JobPlace,
    JobRecord,
    JobState,
    JobStore,
    Task,
)


class FakeJobs:
    """`operations.Jobs`: what is submitted waits until a test changes it. `pieces` is a log, piece by piece."""

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.now_ns = 1_800_000_000 * 10**9
        self.refusal: JobError | BackendError | None = None
        self.waiting: dict[str, tuple[Wait, ...]] = {}
        self.lent: list[LoanView] = []
        self.pieces: list[str] = []
        self.ends_after_piece: int | None = None

    async def submit(self, job: Job, task: Task) -> JobRecord:
        if self.refusal is not None:
            raise self.refusal
        self.now_ns += 1
        job = msgspec.structs.replace(job, id=f"job-{len(self.store.jobs(None, tuple(JobState), None, 9999))}")
        record = JobRecord(job, task, self.now_ns, self.now_ns)
        self.store.add_job(record)
        return record

    async def list(
        self,
        tenants: Sequence[str] | None,
        states: Sequence[JobState],
        *,
        after: JobPlace | None,
        limit: int,
        pools: Sequence[str] | None = None,
    ) -> Sequence[JobRecord]:
        return self.store.jobs(tenants, states, after, limit, pools)

    async def show(self, job_id: str) -> tuple[JobRecord, tuple[JobAttempt, ...]]:
        record = self.store.job(job_id)
        if record is None:
            raise JobNotFoundError(f"there is no job {job_id!r}")
        return record, self.store.job_attempts(job_id, 100)

    def waits(self, job_id: str) -> tuple[Wait, ...] | None:
        return self.waiting.get(job_id)

    def loans(self, job_id: str) -> Sequence[LoanView]:
        return [loan for loan in self.lent if loan.request_id == job_id]

    async def logs(self, job_id: str, after: str) -> LogPart:
        if after and not after.isdecimal():
            raise ValueError(f"{after!r} is no place in a log")
        at = int(after or 0)
        if at == self.ends_after_piece:
            self.change(job_id, state=JobState.DONE)
        text = self.pieces[at] if at < len(self.pieces) else ""
        return LogPart(text, str(min(at + 1, len(self.pieces))), more=at == 0 and len(self.pieces) > 1)

    async def cancel(self, job_id: str) -> JobRecord:
        return self.change(job_id, state=JobState.CANCELLED)

    def change(self, job_id: str, **changes: object) -> JobRecord:
        """What has become of it."""
        record = self.store.job(job_id)
        assert record is not None
        record = msgspec.structs.replace(record, **changes)
        self.store.save_job(record)
        return record
