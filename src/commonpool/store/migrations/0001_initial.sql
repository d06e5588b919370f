-- One row per attempt at a request: the fields of core.model.UsageRecord. Times in nanoseconds, arrived_ns since the
-- epoch (UTC); GPU in thousandths; prices in micro-units of the billing currency.
CREATE TABLE usage (
    request_id         TEXT    NOT NULL,
    attempt            INTEGER NOT NULL,
    tenant             TEXT    NOT NULL,
    app                TEXT    NOT NULL,
    cost_center        TEXT    NOT NULL,
    model              TEXT    NOT NULL,
    version            TEXT    NOT NULL,
    tier               TEXT    NOT NULL,
    endpoint           TEXT    NOT NULL,
    stream             INTEGER NOT NULL,
    pool               TEXT    NOT NULL,
    replica            TEXT    NOT NULL,
    outcome            TEXT    NOT NULL,
    status             INTEGER NOT NULL,
    reason             TEXT    NOT NULL,
    arrived_ns         INTEGER NOT NULL,
    wait_ns            INTEGER NOT NULL,
    first_token_ns     INTEGER NOT NULL,
    total_ns           INTEGER NOT NULL,
    run_ns             INTEGER NOT NULL,
    tokens_in          INTEGER NOT NULL,
    tokens_cached      INTEGER NOT NULL,
    tokens_out         INTEGER NOT NULL,
    token_source       TEXT    NOT NULL,
    milli_gpu          INTEGER NOT NULL,
    milli_gpu_ns       INTEGER NOT NULL,
    micro_per_gpu_hour INTEGER NOT NULL,
    PRIMARY KEY (request_id, attempt)
);
CREATE INDEX usage_arrived ON usage (arrived_ns);

-- What an attempt borrowed: `line` is the loan's place in its record. lender is '' for the pool's unowned part.
CREATE TABLE loans (
    request_id TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    line       INTEGER NOT NULL,
    lender     TEXT    NOT NULL,
    borrower   TEXT    NOT NULL,
    milli_gpu  INTEGER NOT NULL,
    start_ns   INTEGER NOT NULL,
    end_ns     INTEGER NOT NULL,
    reason     TEXT    NOT NULL,
    PRIMARY KEY (request_id, attempt, line)
) WITHOUT ROWID;

-- Keys: the secret itself is never here. models is a JSON list, NULL for all that the tenant may use.
CREATE TABLE keys (
    key_id     TEXT    NOT NULL PRIMARY KEY,
    salt       BLOB    NOT NULL,
    digest     BLOB    NOT NULL,
    scope      TEXT    NOT NULL,
    tenant     TEXT    NOT NULL,
    app        TEXT    NOT NULL,
    tier       TEXT,
    models     TEXT,
    created_ns INTEGER NOT NULL,
    expires_ns INTEGER,
    revoked_ns INTEGER,
    note       TEXT    NOT NULL
);

-- Each configuration that was in force; sources is a JSON object of file name to text.
CREATE TABLE config_history (
    revision   INTEGER NOT NULL PRIMARY KEY,
    applied_ns INTEGER NOT NULL,
    sources    TEXT    NOT NULL
);
