"""Jobs in SQL: each of these runs on one connection, inside a transaction of the store's."""

from collections.abc import Sequence
from typing import Any

import msgspec

from commonpool.store.contract import StoreError
from commonpool.store.jobs import (
    OPEN,
    JobAttempt,
    JobPlace,
    JobRecord,
    JobState,
    decode_definition,
    encode_definition,
)
from commonpool.store.sql.connection import Connection, Row, one_of

_NEWEST_PLACE = (2**63 - 1, "")
_LOOKED_AT = 200  # jobs in one question, where some of them are not of the pools that are asked for
_ATTEMPT = "a.attempt, a.node, a.devices, a.started_ns, a.ended_ns, a.exit_status, a.milli_gpu, a.memory_mib"
_JOB = (
    "SELECT j.definition, j.submitted_ns, j.queued_ns, j.state, j.failures, j.ended_ns, j.reason,"  # noqa: S608 - ours
    f" {_ATTEMPT} FROM jobs AS j LEFT JOIN job_attempts AS a ON a.job_id = j.job_id AND a.attempt ="
    " (SELECT max(attempt) FROM job_attempts WHERE job_id = j.job_id)"
)
_decode_devices = msgspec.json.Decoder(tuple[str, ...]).decode


def add_job(connection: Connection, record: JobRecord) -> None:
    """See `JobStore.add_job`."""
    added = connection.run(
        "INSERT INTO jobs (job_id, tenant, submitted_ns, queued_ns, state, failures, reason, definition)"
        " VALUES (?, ?, ?, ?, ?, 0, '', ?) ON CONFLICT DO NOTHING",
        (
            record.job.id,
            record.job.tenant,
            record.submitted_ns,
            record.queued_ns,
            record.state,
            encode_definition(record.job, record.task).decode(),
        ),
    )
    if not added:
        raise StoreError(f"A job with the id {record.job.id!r} exists already; submit it again.")
    save_job(connection, record)


def save_job(connection: Connection, record: JobRecord) -> None:
    """See `JobStore.save_job`."""
    known = connection.run(
        "UPDATE jobs SET queued_ns = ?, state = ?, failures = ?, ended_ns = ?, reason = ? WHERE job_id = ?",
        (record.queued_ns, record.state, record.failures, record.ended_ns, record.reason, record.job.id),
    )
    if known and record.attempt is not None:
        connection.run(
            "INSERT INTO job_attempts"
            " (job_id, attempt, node, devices, started_ns, ended_ns, exit_status, milli_gpu, memory_mib)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (job_id, attempt)"
            " DO UPDATE SET ended_ns = excluded.ended_ns, exit_status = excluded.exit_status",
            (record.job.id, *_values(record.attempt)),
        )


def job(connection: Connection, job_id: str) -> JobRecord | None:
    """See `JobStore.job`."""
    return next(map(_record, connection.query(f"{_JOB} WHERE j.job_id = ?", (job_id,))), None)


def jobs(
    connection: Connection,
    tenants: Sequence[str] | None,
    states: Sequence[JobState],
    after: JobPlace | None,
    limit: int,
    pools: Sequence[str] | None,
) -> tuple[JobRecord, ...]:
    """See `JobStore.jobs`. The pool is part of the definition: there are as few jobs as are kept."""
    found: list[JobRecord] = []
    rows = limit if pools is None else max(limit, _LOOKED_AT)
    while len(found) < limit:
        page = _page(connection, tenants, states, after, rows)
        found += [record for record in page if pools is None or record.job.pool in pools]
        if len(page) < rows:
            break
        after = page[-1].place
    return tuple(found[:limit])


def _page(
    connection: Connection,
    tenants: Sequence[str] | None,
    states: Sequence[JobState],
    after: JobPlace | None,
    limit: int,
) -> tuple[JobRecord, ...]:
    own = "" if tenants is None else f" AND {one_of('j.tenant', tenants)}"
    rows = connection.query(
        f"{_JOB} WHERE {one_of('j.state', states)} AND (j.submitted_ns, j.job_id) < (?, ?){own}"
        " ORDER BY j.submitted_ns DESC, j.job_id DESC LIMIT ?",
        (*states, *(after or _NEWEST_PLACE), *(tenants or ()), limit),
    )
    return tuple(map(_record, rows))


def job_attempts(connection: Connection, job_id: str, limit: int) -> tuple[JobAttempt, ...]:
    """See `JobStore.job_attempts`."""
    rows = connection.query(
        f"SELECT {_ATTEMPT} FROM job_attempts AS a WHERE a.job_id = ? ORDER BY a.attempt DESC LIMIT ?",  # noqa: S608 - ours
        (job_id, limit),
    )
    return tuple(map(_attempt, reversed(rows)))


def forget_job(connection: Connection, job_id: str) -> None:
    """See `JobStore.forget_job`."""
    connection.run("DELETE FROM job_attempts WHERE job_id = ?", (job_id,))
    connection.run("DELETE FROM jobs WHERE job_id = ?", (job_id,))


def ended_jobs_beyond(connection: Connection, tenant: str, keep: int, limit: int) -> tuple[str, ...]:
    """See `JobStore.ended_jobs_beyond`."""
    rows = connection.query(
        f"SELECT job_id FROM jobs WHERE tenant = ? AND NOT {one_of('state', OPEN)}"  # noqa: S608 - ours
        " ORDER BY submitted_ns DESC, job_id DESC LIMIT ? OFFSET ?",
        (tenant, *OPEN, limit, keep),
    )
    return tuple(job_id for (job_id,) in rows)


def _values(attempt: JobAttempt) -> Row:
    return (
        attempt.attempt,
        attempt.node,
        msgspec.json.encode(attempt.devices).decode(),
        attempt.started_ns,
        attempt.ended_ns,
        attempt.exit_status,
        attempt.milli_gpu,
        attempt.memory_mib,
    )


def _record(row: Row) -> JobRecord:
    definition, submitted_ns, queued_ns, state, failures, ended_ns, reason, *attempt = row
    job, task = decode_definition(definition)
    return JobRecord(
        job=job,
        task=task,
        submitted_ns=submitted_ns,
        queued_ns=queued_ns,
        state=JobState(state),
        failures=failures,
        ended_ns=ended_ns,
        reason=reason,
        attempt=None if attempt[0] is None else _attempt(attempt),
    )


def _attempt(row: Sequence[Any]) -> JobAttempt:
    attempt, node, devices, *rest = row
    return JobAttempt(attempt, node, _decode_devices(devices), *rest)
