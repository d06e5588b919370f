"""Jobs in memory: the part of `store.memory` that keeps them."""

from collections.abc import Sequence

from commonpool.store.contract import StoreError
from commonpool.store.jobs import OPEN, JobAttempt, JobPlace, JobRecord, JobState


class MemoryJobs:
    """A `jobs.JobStore` that forgets everything at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[str, JobRecord] = {}
        self._attempts: dict[str, dict[int, JobAttempt]] = {}

    def add_job(self, record: JobRecord) -> None:
        """See `JobStore.add_job`."""
        if record.job.id in self._jobs:
            raise StoreError(f"A job with the id {record.job.id!r} exists already; submit it again.")
        self._jobs[record.job.id] = record
        self._attempts[record.job.id] = {}
        self.save_job(record)

    def save_job(self, record: JobRecord) -> None:
        """See `JobStore.save_job`."""
        if record.job.id not in self._jobs:
            return
        self._jobs[record.job.id] = record
        if record.attempt is not None:
            self._attempts[record.job.id][record.attempt.attempt] = record.attempt

    def job(self, job_id: str) -> JobRecord | None:
        """See `JobStore.job`."""
        return self._jobs.get(job_id)

    def jobs(
        self,
        tenants: Sequence[str] | None,
        states: Sequence[JobState],
        after: JobPlace | None,
        limit: int,
        pools: Sequence[str] | None = None,
    ) -> tuple[JobRecord, ...]:
        """See `JobStore.jobs`."""
        found = [
            record
            for record in self._jobs.values()
            if (tenants is None or record.job.tenant in tenants)
            and (pools is None or record.job.pool in pools)
            and record.state in states
            and (after is None or record.place < after)
        ]
        return tuple(sorted(found, key=lambda record: record.place, reverse=True)[:limit])

    def job_attempts(self, job_id: str, limit: int) -> tuple[JobAttempt, ...]:
        """See `JobStore.job_attempts`."""
        attempts = self._attempts.get(job_id, {})
        return tuple(attempts[attempt] for attempt in sorted(attempts)[max(0, len(attempts) - limit) :])

    def forget_job(self, job_id: str) -> None:
        """See `JobStore.forget_job`."""
        self._jobs.pop(job_id, None)
        self._attempts.pop(job_id, None)

    def ended_jobs_beyond(self, tenant: str, keep: int, limit: int) -> tuple[str, ...]:
        """See `JobStore.ended_jobs_beyond`."""
        ended = self.jobs([tenant], [state for state in JobState if state not in OPEN], None, len(self._jobs))
        return tuple(record.job.id for record in ended[keep : keep + limit])
