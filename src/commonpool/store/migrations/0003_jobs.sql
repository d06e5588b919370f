-- Jobs and the attempts at them. definition is a JSON list of core.model.Job and store.jobs.Task, which never change;
-- devices is a JSON list of ids. Times in nanoseconds since the epoch (UTC), NULL where it has not ended.
CREATE TABLE jobs (
    job_id       TEXT    NOT NULL PRIMARY KEY,
    tenant       TEXT    NOT NULL,
    submitted_ns INTEGER NOT NULL,
    queued_ns    INTEGER NOT NULL,
    state        TEXT    NOT NULL,
    failures     INTEGER NOT NULL,
    ended_ns     INTEGER,
    reason       TEXT    NOT NULL,
    definition   TEXT    NOT NULL
);
CREATE INDEX jobs_submitted ON jobs (submitted_ns, job_id);
CREATE INDEX jobs_state ON jobs (state, submitted_ns);

CREATE TABLE job_attempts (
    job_id      TEXT    NOT NULL,
    attempt     INTEGER NOT NULL,
    node        TEXT    NOT NULL,
    devices     TEXT    NOT NULL,
    started_ns  INTEGER NOT NULL,
    ended_ns    INTEGER,
    exit_status INTEGER,
    PRIMARY KEY (job_id, attempt)
) WITHOUT ROWID;
